package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"

	"quire/bench"
)

// servedPrompt is how many tokens each request of the served row has.
const servedPrompt = 180

// startLimit bounds how long a server may load its model.
const startLimit = 2 * time.Minute

// serve starts a server, waits until path answers, puts the load on it and ends it.
func (o options) serve(ctx context.Context, f figures, path string, command func(addr, dir string) *exec.Cmd) error {
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "quire-peers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cmd := command(addr, dir)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		if s := cmd.ProcessState; s != nil && len(f) > 0 {
			f[o.busyRow()] = float64((s.UserTime() + s.SystemTime()).Milliseconds())
		}
	}()
	if err := ready(ctx, "http://"+addr+path, ended); err != nil {
		return fmt.Errorf("%w\n%s", err, tail(&log, ended))
	}
	r, err := bench.RunServe(ctx, bench.ServeOptions{
		Target: bench.Target{URL: "http://" + addr, Client: http.DefaultClient}, Load: bench.Steady(o.served, servedPrompt, o.output), Concurrency: o.batch, Warm: 1,
		Timeout: 10 * time.Minute, Seed: 1,
	})
	if err != nil {
		return err
	}
	if len(r.Errors) > 0 {
		return fmt.Errorf("served with errors: %v", r.Errors)
	}
	f[o.servedRow()], f[o.firstRow()] = r.OutputPS, r.TTFT.P99
	return nil
}

// tail is the end of a server's log, once the server is gone.
func tail(log *bytes.Buffer, ended <-chan struct{}) string {
	select {
	case <-ended:
		s := log.String()
		return s[max(0, len(s)-2000):]
	default:
		return "(still running)"
	}
}

// ready waits until a server says that it is.
func ready(ctx context.Context, url string, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ended:
			return fmt.Errorf("%s: the server ended", url)
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", url, context.Cause(ctx))
		}
	}
}

// freeAddr is a port of this machine that nobody listens on.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
