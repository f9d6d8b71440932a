package tape

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"quire/bus"
	"quire/bus/jet"
	"quire/kvtransfer"
)

func take(n byte) Take {
	return Take{Handoff: kvtransfer.HandoffID{n}, Tenant: "acme", Model: "m", Weights: [32]byte{7}, Prompt: []int32{1, 2, 3}, Output: []int32{4},
		Sampling: kvtransfer.Sampling{Seed: 9, Logprobs: -1}, Max: 4, Finish: kvtransfer.FinishStop}
}

func TestSealAndOpen(t *testing.T) {
	k, want := NewKey(), take(1)
	b, err := want.Seal(k)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b, []byte("prompt")) {
		t.Error("the take can be read")
	}
	got, err := Open(k, "acme", want.Handoff, b)
	if err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("%v %s", err, cmp.Diff(want, got))
	}
	changed := bytes.Clone(b)
	changed[len(changed)-1] ^= 1
	newer := bytes.Clone(b)
	newer[0]++
	for name, open := range map[string]func() (Take, error){
		"other key":     func() (Take, error) { return Open(NewKey(), "acme", want.Handoff, b) },
		"other tenant":  func() (Take, error) { return Open(k, "umbra", want.Handoff, b) },
		"other request": func() (Take, error) { return Open(k, "acme", kvtransfer.HandoffID{2}, b) },
		"changed":       func() (Take, error) { return Open(k, "acme", want.Handoff, changed) },
		"newer":         func() (Take, error) { return Open(k, "acme", want.Handoff, newer) },
		"empty":         func() (Take, error) { return Open(k, "acme", want.Handoff, nil) },
		"short":         func() (Take, error) { return Open(k, "acme", want.Handoff, []byte{Version, 1}) },
	} {
		if got, err := open(); err == nil || len(got.Prompt) > 0 {
			t.Errorf("%s opens", name)
		}
	}
}

// What was recorded is found again, by its tenant alone; after an erasure by nobody, and a new key seals what comes later.
func TestRecordEraseRecord(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	server, err := jet.Serve(jet.ServerOptions{DontListen: true, Data: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	conn, err := jet.Connect(ctx, jet.ConnectOptions{Server: server})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	names := bus.Names{}
	record := func(ts ...Take) {
		t.Helper()
		r, err := Start(ctx, conn, names, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range ts {
			r.Put(x)
		}
		r.Close()
		if r.Dropped() > 0 {
			t.Errorf("%d dropped", r.Dropped())
		}
	}
	find := func(tenant string, n byte) (Take, error) {
		k, err := Find(ctx, conn, names, tenant)
		if err != nil {
			return Take{}, err
		}
		return Of(ctx, Stream{conn, names.TapeStream()}, names, k, tenant, kvtransfer.HandoffID{n})
	}
	record(take(1))
	record(take(2)) // another process: the same key
	for n := byte(1); n <= 2; n++ {
		if got, err := find("acme", n); err != nil || cmp.Diff(take(n), got) != "" {
			t.Errorf("take %d: %v", n, err)
		}
	}
	if _, err := find("acme", 3); !errors.Is(err, ErrNone) {
		t.Errorf("a take that was never made: %v", err)
	}
	if _, err := find("umbra", 1); !errors.Is(err, ErrNoKey) {
		t.Errorf("another tenant: %v", err)
	}
	if err := Erase(ctx, conn.Streams(), names, "acme"); err != nil {
		t.Fatal(err)
	}
	if _, err := find("acme", 1); !errors.Is(err, ErrNoKey) {
		t.Errorf("erased: %v", err)
	}
	record(take(3))
	if _, err := find("acme", 3); err != nil {
		t.Error(err)
	}
	if _, err := find("acme", 1); !errors.Is(err, ErrKey) {
		t.Errorf("an erased take under a new key: %v", err)
	}
}
