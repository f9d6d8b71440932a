package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"text/tabwriter"

	"quire/replay"
)

type auditVerifyCmd struct{ pastFlags }

// Run checks the whole record.
func (c *auditVerifyCmd) Run(s streams) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	p, err := c.past(ctx, s)
	if err != nil {
		return err
	}
	v := p.Verify()
	if c.JSON {
		err = printJSON(s.out, v)
	} else {
		err = printVerification(s.out, v)
	}
	switch {
	case err != nil:
		return err
	case v.Broken > 0:
		return &coded{exitFailed, fmt.Errorf("audit: %d findings of broken rules", v.Broken)}
	case v.Missing > 0:
		return &coded{exitIncomplete, fmt.Errorf("audit: no rule is broken; %d findings of missing records", v.Missing)}
	}
	return nil
}

func printVerification(w io.Writer, v replay.Verification) error {
	signatures := "signatures checked"
	if !v.Extent.PublicKeys {
		signatures = "signatures not checked"
	}
	size := ""
	if v.Extent.Bytes > 0 {
		size = fmt.Sprintf(" in %d bytes", v.Extent.Bytes)
	}
	fmt.Fprintf(w, "%s: %d records%s, sequences %d to %d, %d lives, %d requests, %d attempts, %d open; %s\n", v.Extent.Name, v.Records, size,
		v.Extent.First, v.Extent.Last, v.Lives, v.Requests, v.Attempts, v.Open, signatures)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, r := range v.Rules {
		state := "ok"
		if r.Broken > 0 {
			state = fmt.Sprintf("%d broken", r.Broken)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\n", state, r.Name, r.Looked, r.Says)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, f := range v.Findings {
		fmt.Fprintln(w, f)
	}
	return nil
}
