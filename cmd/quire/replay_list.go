package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	"quire/replay"
)

type replayListCmd struct {
	pastFlags
	windowFlags
	Failed bool `name:"failed" help:"Only requests that did not end well, or had more than one attempt."`
	Last   int  `name:"last" default:"50" placeholder:"N" help:"The last N; 0 lists all."`
}

// listed is a request in a line.
type listed struct {
	Time     string `json:"time"`
	Request  string `json:"request"`
	Tenant   string `json:"tenant"`
	Prompt   int    `json:"prompt"`
	Output   int    `json:"output"`
	Attempts int    `json:"attempts"`
	End      string `json:"end"`
}

// Run lists requests, oldest first.
func (c *replayListCmd) Run(s streams) error {
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
	list := []listed{}
	for _, q := range p.Requests {
		if l, ok := c.line(p, q, since, until); ok {
			list = append(list, l)
		}
	}
	if n := len(list); c.Last > 0 && n > c.Last {
		list = list[n-c.Last:]
	}
	if c.JSON {
		return printJSON(s.out, list)
	}
	t := tabwriter.NewWriter(s.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "TIME\tREQUEST\tTENANT\tPROMPT\tOUT\tATTEMPTS\tEND")
	for _, l := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", l.Time, l.Request[:12], l.Tenant, l.Prompt, l.Output, l.Attempts, l.End)
	}
	return t.Flush()
}

func (c *replayListCmd) line(p *replay.Past, q *replay.Request, since, until time.Time) (listed, bool) {
	story := p.Tell(q, 0)
	l := listed{Request: story.Request, Tenant: story.Tenant, Prompt: story.Prompt, Output: story.Output, Attempts: len(story.Attempts), End: story.End}
	var at time.Time
	switch {
	case len(q.Attempts) > 0:
		at = q.Attempts[0].Events[0].Time
	case q.Finished != nil:
		at = q.Finished.Time
	}
	l.Time = at.Format("2006-01-02T15:04:05.000Z07:00")
	if l.End == "" {
		l.End = "(no end in the record)"
	}
	well := q.Finished != nil && (l.End == "stop" || l.End == "length") && l.Attempts == 1
	skip := !since.IsZero() && at.Before(since) || !until.IsZero() && !at.Before(until) || c.Tenant != "" && q.Tenant != c.Tenant || c.Failed && well
	return l, !skip
}
