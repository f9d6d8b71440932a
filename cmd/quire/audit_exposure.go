package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"

	"quire/replay"
)

type auditExposureCmd struct {
	pastFlags
	windowFlags
}

// Run prints who was exposed to whom. The exit code is 1 when anybody was, 4 when the record has gaps that could hide it.
func (c *auditExposureCmd) Run(s streams) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	since, until, err := c.times()
	if err != nil {
		return err
	}
	p, err := c.past(ctx, s)
	if err != nil {
		return err
	}
	e := p.Exposure(since, until, c.Tenant)
	if c.JSON {
		err = printJSON(s.out, e)
	} else {
		printExposure(s.out, e)
	}
	switch {
	case err != nil:
		return err
	case len(e.Exposed) > 0:
		return &coded{exitFailed, fmt.Errorf("audit: %d responses exposed", len(e.Exposed))}
	case !e.Complete:
		return &coded{exitIncomplete, fmt.Errorf("audit: the record has %d gaps that could hide an exposure", len(e.Gaps))}
	}
	return nil
}

func printExposure(w io.Writer, e replay.Exposure) {
	fmt.Fprintln(w, e.Notice)
	for _, r := range e.Exposed {
		fmt.Fprintf(w, "  %s  tenant %s  %s  prompt %d, sent %d by its manifest, received %d, tokens out %d\n", r.Handoff, r.Tenant, r.Time, r.Prompt, r.Sent, r.Received, r.Output)
		if r.NoVerdict {
			fmt.Fprintln(w, "    its kernels ran without a verdict in the journal")
		}
		for _, v := range r.Victims {
			cleared := ""
			if v.Zeroed {
				cleared = ", recorded as cleared in between"
			}
			fmt.Fprintf(w, "    %d rows of tenant %s, %s, on %d pages%s\n", v.Rows, v.Tenant, v.Handoff, v.Pages, cleared)
		}
	}
	if n := len(e.Contained); n > 0 {
		fmt.Fprintf(w, "%d attempts read such rows and no token left decode:\n", n)
		for _, r := range e.Contained {
			fmt.Fprintf(w, "  %s  tenant %s  %s  prompt %d, sent %d\n", r.Handoff, r.Tenant, r.Time, r.Prompt, r.Sent)
		}
	}
	if n := len(e.Unowned); n > 0 {
		fmt.Fprintf(w, "%d responses read rows that nobody had ever written.\n", n)
	}
	for _, g := range e.Gaps {
		fmt.Fprintln(w, g)
	}
}
