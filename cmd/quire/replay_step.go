package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"quire/bus"
	"quire/replay"
	"quire/tape"
)

type replayStepCmd struct {
	pastFlags
	tapeSource
	Emit    string `name:"emit" placeholder:"FILE" help:"Write a test script for kvtransfer/testdata/recorded instead: every message of the hand-off, and what this build's machine answers. A file that is there is not touched."`
	Frames  bool   `name:"frames" help:"With --emit: the frames that came, from the tape; otherwise frames are made that fill the rows that were filled."`
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
	if c.Emit != "" {
		return c.emit(ctx, s, p, q, q.Attempt(attempt))
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

// emit writes a script of an attempt.
func (c *replayStepCmd) emit(ctx context.Context, s streams, p *replay.Past, q *replay.Request, a *replay.Attempt) error {
	if a == nil {
		return fmt.Errorf("replay: step %s: no decode reserved pages for it", c.Request)
	}
	var taped *tape.Attempt
	if c.Frames {
		from, k, done, err := c.tapeSource.open(ctx, c.pastFlags, q.Tenant)
		if err != nil {
			return err
		}
		defer done()
		had, err := tape.AttemptOf(ctx, from, bus.Names{Prefix: c.Prefix}, k, q.Tenant, a.Key)
		if err != nil {
			return err
		}
		taped = &had
	}
	text, err := p.Script(a, taped)
	if err != nil {
		return err
	}
	if err := writeNew(c.Emit, []byte(text)); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(s.out, map[string]any{"file": c.Emit, "attempt": a.Key.String(), "lines": strings.Count(text, "\n")})
	}
	fmt.Fprintf(s.out, "%s: a script of %s\n", c.Emit, a.Key)
	return nil
}
