package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"quire/cluster"
)

// A taped tenant's sampled answer is computed again, token for token; another tenant's is not on the tape, and an erased one
// opens no more.
func TestTapeAndRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	c, err := cluster.Up(ctx, cluster.Options{Data: t.TempDir(), Prefill: 1, Decode: 1, Log: slog.New(slog.DiscardHandler),
		Bus: cluster.BusOptions{Listen: "127.0.0.1:0", Prefix: "quire"}, Pool: cluster.PoolOptions{PageSize: 16, Lease: 10 * time.Second},
		Door: cluster.DoorOptions{HTTP: "127.0.0.1:0", Keys: map[string]string{"ka": "acme", "ku": "umbra"}, Tape: []string{"acme"}, DefaultMaxTokens: 64}})
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			if err := c.Stop(ctx); err != nil {
				t.Error(err)
			}
		}
	}
	defer stop()
	ask := func(key string) string {
		req, err := http.NewRequestWithContext(ctx, "POST", "http://"+c.Info().HTTP+"/v1/completions",
			strings.NewReader(`{"prompt":"The bird sat on the wall and","temperature":1.1,"max_tokens":24,"ignore_eos":true}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var body struct{ ID string }
		if err := json.NewDecoder(res.Body).Decode(&body); err != nil || res.StatusCode != 200 {
			t.Fatalf("%d, %v", res.StatusCode, err)
		}
		return body.ID
	}
	acme, umbra := ask("ka"), ask("ku")
	on := []string{"--nats-url", c.Info().NATS, "--data", t.TempDir()}
	again := func(id string, notYet ...string) string {
		args := append([]string{"replay", "run", id, "--threads", "1"}, on...)
		for {
			var out, errs strings.Builder
			run(args, streams{in: strings.NewReader(""), out: &out, err: &errs})
			text := out.String() + errs.String()
			wait := func(t string) bool { return strings.Contains(text, t) }
			if !slices.ContainsFunc(notYet, wait) || ctx.Err() != nil {
				return text
			}
		}
	}
	if got := again(acme, "not in the record", "is not on the tape", "no key:"); !strings.Contains(got, "identical: 24 tokens") {
		t.Error(got)
	}
	if got := again(umbra, "not in the record"); !strings.Contains(got, "no key:") {
		t.Error(got)
	}
	verb(t, exitOK, "tape", "erase", "--tenant", "acme", "--nats-url", c.Info().NATS)
	verb(t, exitFailed, "tape", "erase", "--tenant", "acme", "--nats-url", c.Info().NATS)
	verb(t, exitUsage, "tape", "erase", "--tenant", "A.B", "--nats-url", c.Info().NATS)
	if got := again(acme); !strings.Contains(got, "no key:") {
		t.Error(got)
	}
	stop()
}
