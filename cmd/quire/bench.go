package main

import (
	"context"
	"io"
	"os"
	"os/signal"

	_ "quire/embedded" // the model that is measured when none is named
	"quire/model"
)

// benchCmd groups the measurements.
type benchCmd struct {
	Model    benchModelCmd    `cmd:"" help:"Measure a model on this machine: prefill and decode, tokens per second."`
	Serve    benchServeCmd    `cmd:"" help:"Put a load on an OpenAI-compatible server: times to first and later tokens, goodput, errors."`
	Handoff  benchHandoffCmd  `cmd:"" help:"Take the time to the first token apart, and compare it with one engine without a hand-off."`
	Transfer benchTransferCmd `cmd:"" help:"Move frames as a hand-off does, beside raw loopback TCP: GB/s and CPU seconds per GB."`
	Device   benchDeviceCmd   `cmd:"" help:"Measure a device's kernels one by one: GB/s and GFLOP/s beside its copy and its product, and what owner tags cost."`
	Scale    benchScaleCmd    `cmd:"" help:"Time the decisions of decode and router as requests and pools grow, with a simulated device."`
}

// report is what a measurement gives.
type benchReport interface{ Print(w io.Writer) error }

// benchOut says how a report is printed.
type benchOut struct {
	JSON bool `name:"json" help:"Print JSON."`
}

func (b benchOut) print(s streams, r benchReport) error {
	if b.JSON {
		return printJSON(s.out, r)
	}
	return r.Print(s.out)
}

// measured runs fn until it ends or an interrupt does.
func measured[R any](fn func(ctx context.Context) (R, error)) (R, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return fn(ctx)
}

// benchModelFlags choose a model and how it is computed.
type benchModelFlags struct {
	Model    string `name:"model" short:"m" placeholder:"M" help:"GGUF file, Hugging Face directory, or a name from quire pull; the built-in model otherwise."`
	Models   string `name:"models" placeholder:"DIR" help:"Where quire pull keeps models."`
	Threads  int    `name:"threads" short:"t" placeholder:"N" help:"Threads that compute; one for each CPU otherwise."`
	Variant  string `name:"cpu-variant" placeholder:"V" help:"Kernels to compute with: portable, avx2, avx512, avx512vnni, avx512bf16; the fastest that runs here otherwise."`
	Acts     string `name:"cpu-activations" placeholder:"A" help:"How activations meet quantised weights: int8 or f32."`
	KVType   string `name:"kv-type" enum:"f16,f32,q8_0" default:"f16" help:"f16, f32 or q8_0: how keys and values are kept."`
	PageSize int    `name:"page-size" default:"16" placeholder:"N" help:"Token slots of a page."`
	Chunk    int    `name:"chunked-prefill-size" default:"256" placeholder:"N" help:"Rows of one prefill step."`
}

// path is where the model lies, "" for the built-in one.
func (f benchModelFlags) path() (string, error) {
	if f.PageSize < 1 || f.PageSize > 4096 || f.Chunk < 1 || f.Threads < 0 || f.Threads > 1024 {
		return "", usage("--page-size %d --chunked-prefill-size %d --threads %d: 1 to 4096, at least 1 and 0 to 1024 are possible", f.PageSize, f.Chunk, f.Threads)
	}
	if f.Model == "" {
		return "", nil
	}
	dir, err := modelsDir(f.Models)
	if err != nil {
		return "", err
	}
	return model.Resolve(f.Model, dir)
}
