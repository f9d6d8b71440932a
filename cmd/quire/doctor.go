package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"quire/cluster"
)

// doctorCmd takes the flags of up, and looks at what up with them would need.
type doctorCmd struct{ upFlags }

// Run prints one line a check; the exit code is 1 if anything would stop serving.
func (d *doctorCmd) Run(s streams, src origins) error {
	o, err := d.options(s, src)
	if err != nil {
		return err
	}
	o.Log, o.Progress = slog.New(slog.DiscardHandler), nil
	failed := 0
	for _, f := range cluster.Check(context.Background(), o) {
		printFinding(s.out, f)
		if f.State == cluster.Fail {
			failed++
		}
	}
	if failed > 0 {
		return &coded{exitFailed, errors.New("doctor: " + plural(failed, "check"))}
	}
	return nil
}

func plural(n int, what string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s failed", n, what)
	}
	return fmt.Sprintf("%d %ss failed", n, what)
}

func printFinding(w io.Writer, f cluster.Finding) {
	state := fmt.Sprintf("%-4s", f.State)
	if colour(w) {
		state = [...]string{"\x1b[32m", "\x1b[33m", "\x1b[31m"}[f.State] + state + "\x1b[0m"
	}
	do := ""
	if f.Do != "" {
		do = "  -> " + f.Do
	}
	fmt.Fprintf(w, "%s %-8s %s%s\n", state, f.Name, f.Text, do)
}
