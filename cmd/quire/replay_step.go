package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"quire/replay"
)

type replayStepCmd struct {
	pastFlags
	Request string `arg:"" help:"A request, as replay show takes it; -N after it picks an attempt, the last one otherwise."`
}

// Run walks an attempt with the whole state of its decode after each record.
func (c *replayStepCmd) Run(s streams) error {
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
	states := []replay.State{}
	for i, a := range q.Attempts {
		if a.Key.Attempt == attempt || attempt == 0 && i == len(q.Attempts)-1 {
			states = append(states, p.Step(a)...)
		}
	}
	if c.JSON {
		return printJSON(s.out, states)
	}
	if len(states) == 0 {
		return fmt.Errorf("replay: step %s: no decode reserved pages for it", c.Request)
	}
	for _, st := range states {
		fmt.Fprint(s.out, st.Text())
	}
	return nil
}
