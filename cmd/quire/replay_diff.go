package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"text/tabwriter"

	"quire/replay"
)

type replayDiffCmd struct {
	pastFlags
	A string `arg:"" help:"A request, as replay show takes it."`
	B string `arg:"" help:"Another."`
}

// Run prints in what two requests differ.
func (c *replayDiffCmd) Run(s streams) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	p, err := c.past(ctx, s)
	if err != nil {
		return err
	}
	a, _, err := p.Find(c.A)
	if err != nil {
		return err
	}
	b, _, err := p.Find(c.B)
	if err != nil {
		return err
	}
	diff, same := p.Diff(a, b)
	if c.JSON {
		return printJSON(s.out, struct {
			Differ []replay.Difference `json:"differ"`
			Same   []string            `json:"same"`
		}{diff, same})
	}
	t := tabwriter.NewWriter(s.out, 0, 8, 2, ' ', 0)
	for _, d := range diff {
		fmt.Fprintf(t, "%s\t%s\t%s\n", d.What, d.A, d.B)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "the same: %s\n", strings.Join(same, ", "))
	return nil
}
