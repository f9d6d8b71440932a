package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"quire/device"
	"quire/device/cpu"
	"quire/model"
	"quire/replay"
	"quire/tape"
)

type replayRunCmd struct {
	pastFlags
	modelFlags
	KVType  string `name:"kv-type" enum:"f16,f32" default:"f16" help:"f16 or f32: how the cluster keeps keys and values."`
	Threads int    `name:"threads" placeholder:"N" help:"Threads that compute; one for each CPU otherwise."`
	Request string `arg:"" help:"A request of a taped tenant, as replay show takes it."`
}

// Run computes a request again from the tape. The exit code is 1 when another token comes, 4 when it cannot be computed here.
func (c *replayRunCmd) Run(s streams) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	p, err := c.past(ctx, s)
	if err != nil {
		return err
	}
	q, _, err := p.Find(c.Request)
	if err != nil {
		return err
	}
	take, err := c.take(ctx, q)
	if err != nil {
		return err
	}
	r, err := c.again(take, q)
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(s.out, r)
	} else {
		printRerun(s.out, r)
	}
	switch {
	case err != nil:
		return err
	case r.Verdict == replay.Diverges:
		return &coded{exitFailed, errors.New("replay: another answer")}
	case r.Verdict == replay.NotReproducible:
		return &coded{exitIncomplete, errors.New("replay: not computed")}
	}
	return nil
}

// take reads the tape, which is on the bus alone.
func (c *replayRunCmd) take(ctx context.Context, q *replay.Request) (tape.Take, error) {
	conn, names, err := c.connect(ctx)
	if err != nil {
		return tape.Take{}, err
	}
	defer conn.Close()
	return tape.Of(ctx, conn, names, q.Tenant, q.ID)
}

func (c *replayRunCmd) again(t tape.Take, q *replay.Request) (replay.Rerun, error) {
	o, err := c.modelFlags.options(c.KVType)
	if err != nil {
		return replay.Rerun{}, err
	}
	src, err := model.Open(o.Path, model.OpenOptions{Name: o.Name})
	if err != nil {
		return replay.Rerun{}, err
	}
	defer src.Close()
	dev, err := cpu.New(cpu.Options{Threads: c.Threads})
	if err != nil {
		return replay.Rerun{}, err
	}
	defer dev.Close()
	w, err := model.LoadWeights(dev, src, nil)
	if err != nil {
		return replay.Rerun{}, err
	}
	m := replay.Machine{Source: src, Device: dev, Weights: w, KVType: device.F16}
	if c.KVType == "f32" {
		m.KVType = device.F32
	}
	return m.Run(t, q.Computed())
}

func printRerun(w io.Writer, r replay.Rerun) {
	switch r.Verdict {
	case replay.Identical:
		fmt.Fprintf(w, "identical: %d tokens after a prompt of %d\n", r.Output, r.Prompt)
	case replay.Diverges:
		fmt.Fprintf(w, "diverges at token %d of %d: recorded %d, computed %d\n", r.At, r.Output, r.Recorded, r.Got)
		for i, what := range []string{"recorded", "computed"} {
			if r.Logprobs[i] != nil {
				fmt.Fprintf(w, "  log-probability of the token %s, as computed now: %.6f\n", what, *r.Logprobs[i])
			}
		}
	default:
		fmt.Fprintln(w, "not reproducible")
	}
	if r.Why != "" {
		fmt.Fprintf(w, "  %s\n", r.Why)
	}
}
