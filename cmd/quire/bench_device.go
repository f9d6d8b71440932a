package main

import (
	"context"

	"quire/bench"
	"quire/device/open"
)

type benchDeviceCmd struct {
	benchOut
	Device   string `name:"device" default:"auto" placeholder:"D" help:"auto, cpu, cuda or cuda:N."`
	Dim      int    `name:"dim" default:"4096" placeholder:"N" help:"Numbers of a hidden vector; products are of N x N."`
	Group    int    `name:"group" default:"4" placeholder:"N" help:"Query heads to a key head."`
	Context  int    `name:"context" default:"4096" placeholder:"N" help:"Rows that a sequence holds."`
	Batch    int    `name:"batch" short:"b" default:"16" placeholder:"B" help:"Sequences that are decoded at once."`
	Rows     int    `name:"rows" default:"512" placeholder:"N" help:"Rows of a prefill step."`
	PageSize int    `name:"page-size" default:"16" placeholder:"N" help:"Token slots of a page."`
	Repeat   int    `name:"repeat" short:"r" default:"5" placeholder:"N" help:"Measured rounds, after one that is not."`
}

// Run measures a device's ops without a model.
func (c *benchDeviceCmd) Run(s streams) error {
	if err := open.Check(c.Device); err != nil {
		return usage("--%v", err)
	}
	for _, n := range []struct {
		name       string
		value, max int
	}{{"dim", c.Dim, 1 << 16}, {"group", c.Group, 64}, {"context", c.Context, 1 << 20}, {"batch", c.Batch, 4096}, {"rows", c.Rows, 1 << 14},
		{"page-size", c.PageSize, 4096}, {"repeat", c.Repeat, 1000}} {
		if n.value < 1 || n.value > n.max {
			return usage("--%s %d: 1 to %d is possible", n.name, n.value, n.max)
		}
	}
	o := bench.DeviceOptions{Device: open.Options{Device: c.Device}, Dim: c.Dim, Group: c.Group, Context: c.Context, Batch: c.Batch, Rows: c.Rows,
		PageSize: c.PageSize, Repeat: c.Repeat}
	r, err := measured(func(ctx context.Context) (bench.DeviceReport, error) { return bench.RunDevice(ctx, o) })
	if err != nil {
		return err
	}
	return c.print(s, r)
}
