package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	"quire/replay"
)

type auditVerifyCmd struct{ pastFlags }

// Run checks the whole record.
func (c *auditVerifyCmd) Run(s streams) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	v, err := c.verify(ctx, s)
	if err != nil {
		return err
	}
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

// verification is what audit verify prints as JSON.
type verification struct {
	replay.Verification
	TookMicros int64 `json:"took_us"` // reading and checking
	PerSecond  int   `json:"records_per_second"`
}

// verify reads the journal and forgets what is over, so that it may be long.
func (c *auditVerifyCmd) verify(ctx context.Context, s streams) (verification, error) {
	verifier, err := c.verifier(s)
	if err != nil {
		return verification{}, err
	}
	src, done, err := c.source(ctx)
	if err != nil {
		return verification{}, err
	}
	defer done()
	began := time.Now()
	v, err := replay.Audit(ctx, src, verifier)
	took := max(time.Since(began), time.Microsecond)
	return verification{v, took.Microseconds(), int(float64(v.Records) / took.Seconds())}, err
}

func printVerification(w io.Writer, v verification) error {
	signatures := "signatures checked"
	if !v.Extent.PublicKeys {
		signatures = "signatures not checked"
	}
	size := ""
	if v.Extent.Bytes > 0 {
		size = fmt.Sprintf(" in %d bytes", v.Extent.Bytes)
	}
	fmt.Fprintf(w, "%s: %d records%s, sequences %d to %d, %d lives, %d requests, %d attempts, %d open; %s; %s, %d records/s\n", v.Extent.Name, v.Records, size,
		v.Extent.First, v.Extent.Last, v.Lives, v.Requests, v.Attempts, v.Open, signatures, time.Duration(v.TookMicros)*time.Microsecond, v.PerSecond)
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
