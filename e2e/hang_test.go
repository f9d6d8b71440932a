package e2e

import (
	"fmt"
	"sync"
	"testing"

	"quire/e2e/rig"
	"quire/kvtransfer"
)

// trap lets the n-th call of a kind, of whichever engine makes it, hang: and every later call of that engine, as a device does.
type trap struct {
	call string
	n    int

	mu     sync.Mutex
	seen   int
	victim string
	caught chan string   // the id of the worker
	free   chan struct{} // closed: the device answers again
}

func newTrap(call string, n int) *trap {
	return &trap{call: call, n: n, caught: make(chan string, 1), free: make(chan struct{})}
}

// before is the hook of one worker.
func (tr *trap) before(id string) func(string) error {
	return func(call string) error {
		tr.mu.Lock()
		if call == tr.call && tr.victim == "" {
			if tr.seen++; tr.seen == tr.n {
				tr.victim = id
				tr.caught <- id
			}
		}
		hangs := tr.victim == id
		tr.mu.Unlock()
		if hangs {
			<-tr.free
		}
		return nil
	}
}

// TestHungDevice: a device hangs in the middle of a call, and its process does not die. The worker falls silent, what it had is served by
// the other one of its role, with the answer of a run alone; then the process stops by itself, and one that is started in its place serves.
func TestHungDevice(t *testing.T) {
	for _, c := range []struct {
		role kvtransfer.Role
		call string
		n    int
	}{
		{kvtransfer.RolePrefill, "step", 3}, {kvtransfer.RoleDecode, "write", 1}, {kvtransfer.RoleDecode, "step", 12},
	} {
		t.Run(fmt.Sprintf("%s %s %d", c.role, c.call, c.n), func(t *testing.T) {
			t.Parallel()
			hungDevice(t, c.role, newTrap(c.call, c.n))
		})
	}
}

func hungDevice(t *testing.T, role kvtransfer.Role, tr *trap) {
	r := newRig(t, rig.Options{})
	t.Cleanup(func() { close(tr.free) })
	ctx := t.Context()
	workers := map[string]*rig.Worker{}
	add := func(role kvtransfer.Role, id string, before func(string) error) {
		t.Helper()
		w, err := r.AddWorker(ctx, rig.WorkerOptions{Role: role, ID: id, Pages: 128, Lease: kvtransfer.Second, Before: before})
		if err != nil {
			t.Fatal(err)
		}
		workers[id] = w
	}
	for _, of := range []kvtransfer.Role{kvtransfer.RolePrefill, kvtransfer.RoleDecode} {
		for n := 1; n <= 2; n++ {
			id := fmt.Sprintf("%c%d", of[0], n)
			var before func(string) error
			if of == role {
				before = tr.before(id)
			}
			add(of, id, before)
		}
	}
	if err := r.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	p, err := r.Padded("My name is Ada.", "What is my name?", 300)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := r.Solo(p.Tokens, 30)
	if err != nil {
		t.Fatal(err)
	}
	same := func(what string) {
		t.Helper()
		if a, err := r.Ask(ctx, "/v1/completions", "", p.Completion(30, true)); err != nil || a.Text != alone.Text || a.Finish != alone.Finish {
			t.Fatalf("%s: %v, %d %q %s %s, alone %q %s", what, err, a.Status, a.Text, a.Finish, a.Error, alone.Text, alone.Finish)
		}
	}
	var id string
	for id == "" { // the request that is caught has its answer too, from the other worker
		same("a device hangs")
		select {
		case id = <-tr.caught:
		default:
		}
	}
	<-workers[id].Done()
	if e, ok := workers[id].Err().(kvtransfer.Error); !ok || e.Code != kvtransfer.DeviceFailed {
		t.Errorf("%s stopped with %v", id, workers[id].Err())
	}
	same("the process has stopped")
	add(role, id, nil)
	if err := r.Workers(ctx, role, 2); err != nil {
		t.Fatal(err)
	}
	same("another one is in its place")
}
