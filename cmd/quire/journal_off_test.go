package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"quire/bus"
	"quire/bus/jet"
	"quire/cluster"
)

// Without a journal a cluster answers, says what it lacks, and leaves no record; it serves no tenants.
func TestJournalOff(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var log strings.Builder
	o := cluster.Options{Data: t.TempDir(), Prefill: 1, Decode: 1, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Bus:  cluster.BusOptions{Listen: "127.0.0.1:0", Prefix: "quire", JournalOff: true},
		Pool: cluster.PoolOptions{PageSize: 16, Lease: 10 * time.Second}, Door: cluster.DoorOptions{HTTP: "127.0.0.1:0"}}
	for what, change := range map[string]func(*cluster.DoorOptions){
		"keys":     func(d *cluster.DoorOptions) { d.Keys = map[string]string{"k": "acme"} },
		"accounts": func(d *cluster.DoorOptions) { d.Accounts = true },
		"tape":     func(d *cluster.DoorOptions) { d.Tape = []string{"acme"} },
	} {
		bad := o
		change(&bad.Door)
		if c, err := cluster.Up(ctx, bad); err == nil || !strings.Contains(err.Error(), "--journal=off") {
			t.Errorf("%s: %v", what, err)
			if err == nil {
				_ = c.Stop(ctx)
			}
		}
	}
	c, err := cluster.Up(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	get := func(method, path, body string) string {
		req, err := http.NewRequestWithContext(ctx, method, "http://"+c.Info().HTTP+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != 200 {
			t.Errorf("%s: %d %s, %v", path, res.StatusCode, b, err)
		}
		return string(b)
	}
	if got := get("POST", "/v1/completions", `{"prompt":"A bird","max_tokens":4,"ignore_eos":true}`); !strings.Contains(got, `"completion_tokens":4`) {
		t.Error(got)
	}
	for _, path := range []string{"/health", "/ready"} {
		if got := get("GET", path, ""); !strings.Contains(got, `"journal":"off"`) {
			t.Errorf("%s: %s", path, got)
		}
	}
	conn, err := jet.Connect(ctx, jet.ConnectOptions{URLs: []string{c.Info().NATS}})
	if err != nil {
		t.Fatal(err)
	}
	st, err := conn.Read(ctx, bus.Names{}.JournalStream(), 1, func(bus.Stored) error { return nil })
	if err != nil || st.Messages != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	_ = conn.Close()
	if err := c.Stop(ctx); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "the journal is off") {
		t.Errorf("no warning in\n%s", log.String())
	}
	if got := verb(t, exitUsage, "decode", "--journal", "off", "--id", "d1"); !strings.Contains(got, "--journal=off") {
		t.Error(got)
	}
}
