package e2e

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"quire/e2e/rig"
	"quire/kvtransfer"
)

// A worker whose engine has fewer pages than it says does not start.
func TestPagesThatAreNotThere(t *testing.T) {
	r := newRig(t, rig.Options{})
	for _, role := range []kvtransfer.Role{kvtransfer.RolePrefill, kvtransfer.RoleDecode} {
		_, err := r.AddWorker(t.Context(), rig.WorkerOptions{Role: role, ID: "w1", Pages: 20, Claims: 128})
		if err == nil || !strings.Contains(err.Error(), "pool of 128 pages") || !strings.Contains(err.Error(), "page 127 of a pool of 20") {
			t.Errorf("%s: %v", role, err)
		}
	}
}

// A prefill whose device loses its pages while it serves stops, and says so to everybody first: its jobs go to the other worker at once.
// The lease is an hour, so that whoever waited for it would not come back.
func TestPagesThatAreLost(t *testing.T) {
	const hour = 3600 * kvtransfer.Second
	r := newRig(t, rig.Options{})
	ctx := t.Context()
	var lost atomic.Bool
	fail := func(call string) error {
		if lost.Load() && (call == "step" || call == "zero") {
			return errors.New("device: the pool is gone")
		}
		return nil
	}
	workers := map[string]*rig.Worker{}
	for _, o := range []rig.WorkerOptions{
		{Role: kvtransfer.RoleDecode, ID: "d1", Pages: 1024, Lease: hour}, {Role: kvtransfer.RolePrefill, ID: "p1", Pages: 128, Lease: hour, Before: fail},
		{Role: kvtransfer.RolePrefill, ID: "p2", Pages: 128, Lease: hour},
	} {
		w, err := r.AddWorker(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		workers[o.ID] = w
	}
	if err := errors.Join(r.Ready(ctx), r.Workers(ctx, kvtransfer.RolePrefill, 2)); err != nil {
		t.Fatal(err)
	}
	p, err := r.Padded("My name is Ada.", "What is my name?", 200)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := r.Solo(p.Tokens, 16)
	if err != nil {
		t.Fatal(err)
	}
	lost.Store(true)
	for stopped := false; !stopped; { // until p1 has had a job
		if a, err := r.Ask(ctx, "/v1/completions", "", p.Completion(16, false)); err != nil || a.Text != alone.Text {
			t.Fatalf("%v, %d %q %s %s; alone %q", err, a.Status, a.Text, a.Error, a.Detail, alone.Text)
		}
		stopped = workers["p1"].Engine.Steps() > 0
	}
	<-workers["p1"].Done()
	if err := workers["p1"].Err(); err == nil || !strings.Contains(err.Error(), "the pool is gone") {
		t.Errorf("p1 stopped with %v", err)
	}
}
