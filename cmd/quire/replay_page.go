package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"text/tabwriter"

	"quire/replay"
)

type replayPageCmd struct {
	pastFlags
	Page   uint64 `arg:"" help:"Number of the page."`
	Decode string `name:"decode" placeholder:"ID" help:"The decode worker, or worker@epoch; all otherwise."`
	At     string `name:"at" placeholder:"MOMENT" help:"Who had it at a time like 2026-09-01T12:00:00Z, or at a sequence of the journal like #1234."`
}

// owned is one owner's time with a page.
type owned struct {
	Decode     string `json:"decode"`
	Page       uint64 `json:"page"`
	Generation uint64 `json:"generation"`
	Handoff    string `json:"handoff"`
	Tenant     string `json:"tenant"`
	From       string `json:"from"`
	FromSeq    uint64 `json:"from_sequence"`
	Until      string `json:"until,omitempty"` // "" while it has it
	UntilSeq   uint64 `json:"until_sequence,omitempty"`
}

// Run lists the owners of a page, or names the one of a moment.
func (c *replayPageCmd) Run(s streams) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var at replay.Moment
	if c.At != "" {
		var err error
		if at, err = replay.ParseMoment(c.At); err != nil {
			return usage("--at: %v", err)
		}
	}
	p, err := c.past(ctx, s)
	if err != nil {
		return err
	}
	intervals := p.Pages(c.Decode, c.Page)
	if c.At != "" {
		i := replay.At(intervals, at)
		if intervals = nil; i != nil {
			intervals = []*replay.Interval{i}
		}
	}
	list := []owned{}
	for _, i := range intervals {
		list = append(list, newOwned(i))
	}
	if c.JSON {
		return printJSON(s.out, list)
	}
	if len(list) == 0 {
		fmt.Fprintf(s.out, "page %d: nobody has it\n", c.Page)
		return nil
	}
	t := tabwriter.NewWriter(s.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "DECODE\tPAGE\tGENERATION\tTENANT\tHAND-OFF\tRESERVED\tCLEARED")
	for _, o := range list {
		cleared := "not yet"
		if o.Until != "" {
			cleared = fmt.Sprintf("%s #%d", o.Until, o.UntilSeq)
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s #%d\t%s\n", o.Decode, o.Page, o.Generation, o.Tenant, o.Handoff, o.From, o.FromSeq, cleared)
	}
	return t.Flush()
}

func newOwned(i *replay.Interval) owned {
	const form = "2006-01-02T15:04:05.000Z07:00"
	o := owned{Decode: i.From.Life.Name(), Page: i.Page, Generation: i.Gen, Handoff: i.Owner.Key.String(), Tenant: i.Owner.Tenant,
		From: i.From.Time.Format(form), FromSeq: i.From.Sequence}
	if i.Until != nil {
		o.Until, o.UntilSeq = i.Until.Time.Format(form), i.Until.Sequence
	}
	return o
}
