package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"quire/cluster"
)

// tapedCluster is a cluster that tapes tenant acme, and a function that asks it and gives the request's id.
func tapedCluster(t *testing.T, ctx context.Context) (on []string, ask func(key string) string) {
	t.Helper()
	c, err := cluster.Up(ctx, cluster.Options{Data: t.TempDir(), Prefill: 1, Decode: 1, Log: slog.New(slog.DiscardHandler),
		Bus: cluster.BusOptions{Listen: "127.0.0.1:0", Prefix: "quire"}, Pool: cluster.PoolOptions{PageSize: 8, Lease: 10 * time.Second},
		Door: cluster.DoorOptions{HTTP: "127.0.0.1:0", Keys: map[string]string{"ka": "acme", "ku": "umbra"}, Tape: []string{"acme"}, DefaultMaxTokens: 64}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	ask = func(key string) string {
		t.Helper()
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
	return []string{"--nats-url", c.Info().NATS, "--data", t.TempDir()}, ask
}

// notYet is what replay run says while the journal or the tape is still being written.
var notYet = []string{"not in the record", "not on the tape", "no key:", "no decode reserved", "the tape has no end"}

// A taped tenant's sampled answer is computed again, token for token, from its prompt and from its frames alone; from a bundle on
// a machine without the bus too, with its key. Another tenant's is not on the tape, and an erased one opens no more.
func TestTapeAndRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	on, ask := tapedCluster(t, ctx)
	acme, umbra := ask("ka"), ask("ku")
	again := func(notYet []string, args ...string) string {
		args = append([]string{"replay", "run", "--threads", "1"}, args...)
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
	live := func(notYet []string, args ...string) string { return again(notYet, append(args, on...)...) }
	const frames = "decode alone, from 1 frames; gate: admitted; witness: agreed\nidentical: 24 tokens after a prompt of"
	if got := live(notYet, acme, "--frames"); !strings.Contains(got, frames) || !strings.Contains(got, "logits of 24 of them, bit for bit") {
		t.Error(got)
	}
	if got := live(notYet, acme); !strings.Contains(got, "identical: 24 tokens") || !strings.Contains(got, "logits of 24 of them, bit for bit") {
		t.Error(got)
	}
	if got := live([]string{"not in the record"}, umbra); !strings.Contains(got, "no key:") {
		t.Error(got)
	}
	dir := t.TempDir()
	bundle, key := filepath.Join(dir, "b.qjb"), filepath.Join(dir, "acme.key")
	if got := verb(t, exitOK, append([]string{"replay", "export", "--with-tape", bundle}, on...)...); !strings.Contains(got, "of the tape") {
		t.Error(got)
	}
	verb(t, exitOK, append([]string{"tape", "key", "--tenant", "acme", key}, on[:2]...)...)
	verb(t, exitFailed, append([]string{"tape", "key", "--tenant", "acme", key}, on[:2]...)...) // it is there
	verb(t, exitFailed, append([]string{"tape", "key", "--tenant", "umbra", key + "2"}, on[:2]...)...)
	off := []string{"--from", bundle, "--tape-keys", key, "--data", dir, "--nats-url", "nats://127.0.0.1:1"}
	for _, args := range [][]string{{acme, "--frames"}, {acme}} {
		if got := again(nil, append(args, off...)...); !strings.Contains(got, "identical: 24 tokens") {
			t.Error(got)
		}
	}
	if got := again(nil, append([]string{umbra}, off...)...); !strings.Contains(got, "the key is of tenant acme, the request of umbra") {
		t.Error(got)
	}
	for name, more := range map[string][]string{"made": nil, "came": {"--frames"}} {
		file := filepath.Join(dir, name)
		args := append(append([]string{"replay", "step", acme, "--emit", file, "--from", bundle, "--data", dir}, more...), off[2:4]...)
		verb(t, exitOK, args...)
		verb(t, exitFailed, args...) // it is there
		b, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(b), "gate: ok") || !strings.Contains(string(b), "finish -> ended") || strings.Contains(string(b), "acme") {
			t.Errorf("%v\n%s", err, b)
		}
	}
	verb(t, exitOK, "tape", "erase", "--tenant", "acme", "--nats-url", on[1])
	verb(t, exitFailed, "tape", "erase", "--tenant", "acme", "--nats-url", on[1])
	verb(t, exitUsage, "tape", "erase", "--tenant", "A.B", "--nats-url", on[1])
	if got := live(nil, acme); !strings.Contains(got, "no key:") {
		t.Error(got)
	}
}
