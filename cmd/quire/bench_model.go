package main

import (
	"context"

	"quire/bench"
	"quire/device"
	"quire/device/cpu"
	"quire/device/open"
)

type benchModelCmd struct {
	benchModelFlags
	benchOut
	Device   string `name:"device" default:"auto" placeholder:"D" help:"What computes: auto, cpu, cuda or cuda:N."`
	Prompt   int    `name:"prompt" short:"p" default:"512" placeholder:"N" help:"Tokens of a prompt; 0 leaves prefill out."`
	Generate int    `name:"generate" short:"n" default:"128" placeholder:"N" help:"Tokens that are decoded one by one; 0 leaves decode out."`
	Batch    int    `name:"batch" short:"b" default:"1" placeholder:"B" help:"Sequences that are decoded at once."`
	Depth    int    `name:"depth" short:"d" placeholder:"N" help:"Rows that a sequence holds before decode is measured."`
	Repeat   int    `name:"repeat" short:"r" default:"5" placeholder:"N" help:"Measured rounds, after one that is not."`
	Format   bool   `name:"bench-format" help:"Print each round in Go's benchmark format, for benchstat."`
}

// Run measures a model without any service.
func (c *benchModelCmd) Run(s streams) error {
	path, err := c.path()
	if err != nil {
		return err
	}
	if c.Prompt < 0 || c.Generate < 0 || c.Depth < 0 || c.Batch < 1 || c.Repeat < 1 {
		return usage("--prompt %d --generate %d --depth %d --batch %d --repeat %d: at least 0, 0, 0, 1 and 1 are possible", c.Prompt, c.Generate, c.Depth,
			c.Batch, c.Repeat)
	}
	o := bench.ModelOptions{Path: path, Device: open.Options{Device: c.Device, CPU: cpu.Options{Threads: c.Threads, Variant: c.Variant, Activations: c.Acts}},
		KVType: kvType(c.KVType), PageSize: c.PageSize, Prompt: c.Prompt, Generate: c.Generate, Batch: c.Batch, Depth: c.Depth, Chunk: c.Chunk, Repeat: c.Repeat, Progress: progress(s)}
	r, err := measured(func(ctx context.Context) (bench.ModelReport, error) { return bench.RunModel(ctx, o) })
	if err != nil {
		return err
	}
	if c.Format {
		return r.PrintBench(s.out)
	}
	return c.print(s, r)
}

// kvType is the type that a flag names; kong has checked its values.
func kvType(name string) device.Type {
	t, _ := device.KVType(name)
	return t
}
