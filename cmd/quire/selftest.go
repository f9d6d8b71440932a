package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"
)

// selftestCmd holds checks that an operator runs against a cluster that serves.
type selftestCmd struct {
	Leak leakCmd `cmd:"" help:"Look for one tenant's text in another's answers, and for pages that do not come back: canaries, limits, cancels and reuse, on a running cluster."`
}

// leakCmd asks a running cluster over HTTP with the keys of two tenants made for it. It takes no special rights and changes nothing.
type leakCmd struct {
	HTTP      string        `name:"http" default:"127.0.0.1:8080" placeholder:"ADDR" env:"QUIRE_SELFTEST_HTTP" help:"Address or URL of the HTTP door."`
	Keys      []string      `name:"api-key" placeholder:"KEY" env:"QUIRE_SELFTEST_API_KEY" help:"API keys of two tenants made for this test, the first to plant canaries, the second to look for them. None where no key is asked for."`
	Rounds    int           `name:"rounds" default:"20" env:"QUIRE_SELFTEST_ROUNDS" help:"How often pages are filled with canaries and taken over."`
	MaxPrompt int           `name:"max-prompt" default:"2048" env:"QUIRE_SELFTEST_MAX_PROMPT" help:"Longest prompt that is computed, in tokens; the limit itself is tried by requests that must be refused."`
	Settle    time.Duration `name:"settle" default:"20s" env:"QUIRE_SELFTEST_SETTLE" help:"How long pages may take to come back after the last request."`
	Timeout   time.Duration `name:"timeout" default:"10m" env:"QUIRE_SELFTEST_TIMEOUT" help:"Give up after so long."`
}

// Run prints figures and a verdict. The exit code is 0 for no leak, 1 for a leak, of pages too, or a limit that does not hold, 4 when it could not be
// carried out to its end.
func (c *leakCmd) Run(s streams, _ origins) error {
	if c.Rounds < 1 || c.MaxPrompt < 8 {
		return usage("selftest leak: rounds %d, max-prompt %d: want at least 1 and 8", c.Rounds, c.MaxPrompt)
	}
	if len(c.Keys) > 2 {
		return usage("selftest leak: %d API keys: want none or two", len(c.Keys))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	t, err := newLeakTest(ctx, c)
	if err == nil {
		err = t.run(ctx)
	}
	if t != nil {
		t.print(s.out)
	}
	switch {
	case t != nil && len(t.findings) > 0:
		fmt.Fprintln(s.out, "verdict: LEAK OR BROKEN LIMIT")
		return &coded{exitFailed, fmt.Errorf("selftest leak: %d findings", len(t.findings))}
	case err != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return &coded{exitInterrupted, errors.New("selftest leak: interrupted")}
	case err != nil:
		return &coded{exitIncomplete, fmt.Errorf("selftest leak: not carried out: %w", err)}
	}
	fmt.Fprintln(s.out, "verdict: no leak found")
	return nil
}
