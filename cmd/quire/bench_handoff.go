package main

import (
	"context"
	"fmt"
	"os"

	"quire/bench"
	"quire/device/cpu"
)

type benchHandoffCmd struct {
	benchModelFlags
	benchOut
	Prompt int `name:"prompt" short:"p" default:"512" placeholder:"N" help:"Tokens of a prompt."`
	Repeat int `name:"repeat" short:"r" default:"9" placeholder:"N" help:"Measured rounds, after one that is not."`
}

// Run takes hand-offs apart in a cluster of its own, in this process.
func (c *benchHandoffCmd) Run(s streams) error {
	path, err := c.path()
	if err != nil {
		return err
	}
	if c.Prompt < 1 || c.Repeat < 1 {
		return usage("--prompt %d --repeat %d: at least 1 and 1 are possible", c.Prompt, c.Repeat)
	}
	dir, err := os.MkdirTemp("", "quire-bench-*")
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	defer os.RemoveAll(dir)
	o := bench.HandoffOptions{Path: path, Dir: dir, Device: cpu.Options{Threads: c.Threads, Variant: c.Variant, Activations: c.Acts},
		KVType: kvType(c.KVType), PageSize: c.PageSize, Prompt: c.Prompt, Chunk: c.Chunk, Repeat: c.Repeat, Progress: progress(s)}
	r, err := measured(func(ctx context.Context) (bench.HandoffReport, error) { return bench.RunHandoff(ctx, o) })
	if err != nil {
		return err
	}
	return c.print(s, r)
}
