package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"quire/bench"
)

// depth is how many rows each sequence of the batch row holds before it is measured.
const depth = 128

// sides are what is compared: quire, and llama.cpp as it is and with huge pages.
func (o options) sides() []side {
	return []side{
		{name: "quire", ours: true, measure: o.quireModel},
		{name: "llama.cpp", measure: func(ctx context.Context) (figures, error) { return o.llamaModel(ctx, false) }},
		{name: "llama.cpp, huge pages", measure: func(ctx context.Context) (figures, error) { return o.llamaModel(ctx, true) }},
	}
}

// Rows of the table.
func (o options) promptRow() string { return fmt.Sprintf("prompt of %d, tokens/s", o.prompt) }
func (o options) oneRow() string    { return "one sequence, tokens/s" }
func (o options) batchRow() string  { return fmt.Sprintf("%d sequences, tokens/s", o.batch) }
func (o options) servedRow() string { return fmt.Sprintf("served to %d clients, tokens/s", o.batch) }
func (o options) busyRow() string {
	return fmt.Sprintf("served to %d clients, the server's CPU time, start included, ms", o.batch)
}
func (o options) firstRow() string { return fmt.Sprintf("served to %d clients, TTFT p99 ms", o.batch) }

// quireModel measures ours: quire bench model, and quire up under the load.
func (o options) quireModel(ctx context.Context) (figures, error) {
	f := figures{}
	var r bench.ModelReport
	common := []string{"bench", "model", "-m", o.model, "-t", strconv.Itoa(o.threads), "-r", "1", "--json"}
	if o.bench != "" {
		if err := runJSON(ctx, nil, &r, o.quire, append(common, "-p", strconv.Itoa(o.prompt), "-n", strconv.Itoa(o.output), "-b", "1")...); err != nil {
			return nil, err
		}
		for _, t := range r.Tests {
			f[map[string]string{"prefill": o.promptRow(), "decode": o.oneRow()}[t.Name]] = t.Rate.Median
		}
	}
	if o.batched != "" {
		r = bench.ModelReport{}
		err := runJSON(ctx, nil, &r, o.quire, append(common, "-p", "0", "-n", strconv.Itoa(o.output), "-b", strconv.Itoa(o.batch), "-d", strconv.Itoa(depth))...)
		if err != nil || len(r.Tests) != 1 {
			return nil, fmt.Errorf("%d tests in the report: %w", len(r.Tests), err)
		}
		f[o.batchRow()] = r.Tests[0].Rate.Median
	}
	if o.server == "" {
		return f, nil
	}
	return f, o.serve(ctx, f, "/ready", func(addr, dir string) *exec.Cmd {
		return exec.CommandContext(ctx, o.quire, "up", "--model", o.model, "--threads", strconv.Itoa(o.threads), "--nats", "127.0.0.1:0", "--http", addr, "--data", dir)
	})
}

// llamaModel measures llama.cpp's binaries.
func (o options) llamaModel(ctx context.Context, huge bool) (figures, error) {
	f := figures{}
	var env, flags []string
	if huge {
		env, flags = []string{"GLIBC_TUNABLES=glibc.malloc.hugetlb=1"}, strings.Fields(o.noMap)
	}
	if o.bench != "" {
		if err := o.llamaBench(ctx, env, flags, f); err != nil {
			return nil, err
		}
	}
	if o.batched != "" {
		if err := o.llamaBatched(ctx, env, flags, f); err != nil {
			return nil, err
		}
	}
	if o.server == "" {
		return f, nil
	}
	return f, o.serve(ctx, f, "/health", func(addr, _ string) *exec.Cmd {
		host, port, _ := strings.Cut(addr, ":")
		args := append([]string{"-m", o.model, "-t", strconv.Itoa(o.threads), "-np", strconv.Itoa(o.batch), "-c", strconv.Itoa(1024 * o.batch),
			"--host", host, "--port", port}, flags...)
		cmd := exec.CommandContext(ctx, o.server, args...)
		cmd.Env = append(os.Environ(), env...)
		return cmd
	})
}

// llamaBench is one run of llama-bench: it prints an array of tests.
func (o options) llamaBench(ctx context.Context, env, flags []string, f figures) error {
	var tests []struct {
		Prompt int     `json:"n_prompt"`
		Gen    int     `json:"n_gen"`
		Rate   float64 `json:"avg_ts"`
	}
	args := []string{"-m", o.model, "-t", strconv.Itoa(o.threads), "-p", strconv.Itoa(o.prompt), "-n", strconv.Itoa(o.output), "-r", "1", "-o", "json"}
	if err := runJSON(ctx, env, &tests, o.bench, append(args, flags...)...); err != nil {
		return err
	}
	for _, t := range tests {
		if t.Prompt > 0 {
			f[o.promptRow()] = t.Rate
		} else {
			f[o.oneRow()] = t.Rate
		}
	}
	return nil
}

// llamaBatched is one run of llama-batched-bench: it prints one object to a line, and other lines.
func (o options) llamaBatched(ctx context.Context, env, flags []string, f figures) error {
	args := []string{"-m", o.model, "-t", strconv.Itoa(o.threads), "-c", strconv.Itoa(o.batch * (depth + o.output)), "-npp", strconv.Itoa(depth),
		"-ntg", strconv.Itoa(o.output), "-npl", strconv.Itoa(o.batch), "-kvu", "--output-format", "jsonl"}
	out, err := output(ctx, env, o.batched, append(args, flags...)...)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(out) {
		var t struct {
			Rate float64 `json:"speed_tg"`
		}
		if json.Unmarshal(line, &t) == nil && t.Rate > 0 {
			f[o.batchRow()] = t.Rate
			return nil
		}
	}
	return fmt.Errorf("%s printed no line with speed_tg", o.batched)
}

// runJSON runs a command that prints one JSON value.
func runJSON(ctx context.Context, env []string, into any, name string, args ...string) error {
	out, err := output(ctx, env, name, args...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("%s: what it printed: %w", name, err)
	}
	return nil
}

// output is what a command prints; its error output is the error's text.
func output(ctx context.Context, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		text := stderr.String()
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, text[max(0, len(text)-2000):])
	}
	return out, nil
}
