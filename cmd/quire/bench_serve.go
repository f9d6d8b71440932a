package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"quire/bench"
)

type benchServeCmd struct {
	benchOut
	HTTP        string        `name:"http" default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"The server, or its URL without /v1."`
	Key         string        `name:"key" placeholder:"KEY" help:"API key."`
	Model       string        `name:"model" env:"QUIRE_CHAT_MODEL" placeholder:"M" help:"Which model; the first that is served otherwise."`
	Concurrency int           `name:"concurrency" short:"c" placeholder:"N" help:"Closed loop: N clients, each with one request at a time."`
	Rate        float64       `name:"rate" placeholder:"R" help:"Open loop: Poisson arrivals, R a second."`
	Trace       string        `name:"trace" placeholder:"FILE" help:"Open loop: arrivals and lengths of an Azure CSV or Mooncake JSONL trace."`
	Speed       float64       `name:"speed" default:"1" placeholder:"X" help:"Play a trace X times as fast."`
	Requests    int           `name:"requests" short:"r" default:"64" placeholder:"N" help:"Requests; of a trace, the first N."`
	Prompt      int           `name:"prompt" short:"p" default:"128" placeholder:"N" help:"Tokens of a prompt."`
	Output      int           `name:"output" short:"n" default:"64" placeholder:"N" help:"Tokens of an answer."`
	Context     int           `name:"context" placeholder:"N" help:"Tokens that a request may take; what the server says otherwise. A trace's lengths are scaled to it."`
	Vocab       int           `name:"vocab" placeholder:"N" help:"Prompts are token ids below N; what the server says otherwise."`
	Words       bool          `name:"words" help:"Send words instead of token ids, for servers that take text alone; the server's usage counts."`
	Stops       bool          `name:"stops" help:"Let the model end its answers; ignore_eos is sent otherwise."`
	TTFT        time.Duration `name:"ttft" placeholder:"D" help:"Goodput: first token within D."`
	ITL         time.Duration `name:"itl" placeholder:"D" help:"Goodput: mean time of a later token within D."`
	Timeout     time.Duration `name:"timeout" default:"10m" help:"Longest wait for one answer."`
	Warm        int           `name:"warm" default:"1" placeholder:"N" help:"Requests before, that are not counted."`
	Seed        uint32        `name:"seed" default:"1" help:"Of prompts and arrivals."`
	Plot        string        `name:"plot" placeholder:"FILE" help:"Write an SVG of the distributions."`
}

// Run puts a load on a server.
func (c *benchServeCmd) Run(s streams) error {
	if err := c.check(); err != nil {
		return err
	}
	r, err := measured(c.run)
	if err != nil {
		return err
	}
	if c.Plot != "" {
		if err := os.WriteFile(c.Plot, r.SVG(), 0o644); err != nil {
			return fmt.Errorf("bench: %w", err)
		}
	}
	if err := c.print(s, r); err != nil {
		return err
	}
	if r.Completed == 0 {
		return fmt.Errorf("bench: serve: none of %d requests was answered", r.Requests)
	}
	return nil
}

func (c *benchServeCmd) check() error {
	ways := 0
	for _, set := range []bool{c.Concurrency != 0, c.Rate != 0, c.Trace != ""} {
		if set {
			ways++
		}
	}
	switch {
	case ways > 1:
		return usage("--concurrency, --rate and --trace: one of them says how requests come")
	case ways == 0:
		c.Concurrency = 1
	}
	if c.Concurrency < 0 || c.Rate < 0 || c.Speed <= 0 || c.Requests < 1 || c.Prompt < 1 || c.Output < 1 || c.Warm < 0 {
		return usage("--concurrency %d --rate %g --speed %g --requests %d --prompt %d --output %d --warm %d: at least 0, 0, above 0, 1, 1, 1 and 0 are possible",
			c.Concurrency, c.Rate, c.Speed, c.Requests, c.Prompt, c.Output, c.Warm)
	}
	return nil
}

func (c *benchServeCmd) run(ctx context.Context) (bench.ServeReport, error) {
	url := c.HTTP
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 4096}
	defer transport.CloseIdleConnections()
	t := bench.Target{URL: strings.TrimSuffix(url, "/"), Key: c.Key, Model: c.Model, Vocab: c.Vocab, Context: c.Context, Words: c.Words, Stops: c.Stops,
		Client: &http.Client{Transport: transport}}
	if err := t.Discover(ctx); err != nil {
		return bench.ServeReport{}, err
	}
	o := bench.ServeOptions{Target: t, Concurrency: c.Concurrency, Warm: c.Warm, Timeout: c.Timeout, TTFT: c.TTFT, ITL: c.ITL, Seed: c.Seed}
	if err := c.load(&o); err != nil {
		return bench.ServeReport{}, err
	}
	return bench.RunServe(ctx, o)
}

// load makes the arrivals, and says how.
func (c *benchServeCmd) load(o *bench.ServeOptions) error {
	size := bench.Arrival{Prompt: c.Prompt, Output: c.Output}
	lengths := fmt.Sprintf("%d tokens in, %d out", c.Prompt, c.Output)
	switch {
	case c.Trace != "":
		f, err := os.Open(c.Trace)
		if err != nil {
			return fmt.Errorf("bench: %w", err)
		}
		defer f.Close()
		if o.Load, err = bench.ReadTrace(f, c.Requests); err != nil {
			return fmt.Errorf("%w (%s)", err, c.Trace)
		}
		if o.Target.Context == 0 {
			return usage("--context: the server does not say how many tokens a request may take")
		}
		factor := bench.Fit(o.Load, o.Target.Context, c.Speed)
		o.Note = fmt.Sprintf("open loop, %s at speed %g, lengths times %.4f", filepath.Base(c.Trace), c.Speed, factor)
	case c.Rate > 0:
		o.Load = bench.Poisson(c.Requests, c.Rate, uint64(c.Seed), size)
		o.Note = fmt.Sprintf("open loop, Poisson with %g requests/s, %s", c.Rate, lengths)
	default:
		o.Load = bench.Steady(c.Requests, c.Prompt, c.Output)
		o.Note = fmt.Sprintf("closed loop, %d clients, %s", c.Concurrency, lengths)
	}
	return nil
}
