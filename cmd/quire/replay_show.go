package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
)

type replayShowCmd struct {
	pastFlags
	Request string `arg:"" help:"The id that the client got, its hexadecimal part or a beginning of it; -N after it picks an attempt."`
}

// Run tells one request.
func (c *replayShowCmd) Run(s streams) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	p, err := c.past(ctx, s)
	if err != nil {
		return err
	}
	q, attempt, err := p.Find(c.Request)
	if err != nil {
		return err
	}
	story := p.Tell(q, attempt)
	if c.JSON {
		return printJSON(s.out, story)
	}
	fmt.Fprint(s.out, story.Text())
	return nil
}
