package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"quire/replay"
)

type replayExportCmd struct {
	pastFlags
	To string `arg:"" name:"file" help:"A new file; one that is there is not touched."`
}

// Run writes a bundle.
func (c *replayExportCmd) Run(s streams) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	src, done, err := c.source(ctx)
	if err != nil {
		return err
	}
	defer done()
	n, err := replay.Export(ctx, src, c.To)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(s.out, map[string]any{"file": c.To, "messages": n})
	}
	fmt.Fprintf(s.out, "%d messages in %s\n", n, c.To)
	return nil
}
