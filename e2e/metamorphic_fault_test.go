package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"quire/e2e/rig"
	"quire/kvtransfer"
)

// TestMetamorphicFaults asks random requests all at once of two prefills and two decodes, kills a prefill in the middle of its steps and a decode
// in the middle of its answers, and starts others in their places. Requests are prefilled again by the other worker, or go on where they
// were on the other decode: every token, every bit of every log probability and the usage must be those of a run in which nothing happened.
func TestMetamorphicFaults(t *testing.T) {
	t.Parallel()
	bodies := longBodies(12)
	alone := askAll(t, shape{name: "1P1D, one at a time", prefill: 1, decode: 1, pageSize: 16, threads: 2, chunk: 256}, bodies, 1)
	r := newRig(t, rig.Options{PageSize: 8, MaxOpen: 8})
	f := &fates{t: t, r: r, doomed: map[string]int{}, workers: map[string]*rig.Worker{}}
	for _, id := range []string{"p1", "p2", "d1", "d2"} {
		f.start(id)
	}
	for round, doom := range []map[string]int{{"p2": 3, "d1": 9}, {"p1": 4, "d2": 30}} {
		if err := errors.Join(r.Workers(t.Context(), kvtransfer.RolePrefill, 2), r.Workers(t.Context(), kvtransfer.RoleDecode, 2)); err != nil {
			t.Fatal(err)
		}
		f.doom(doom)
		var wg sync.WaitGroup
		got := make([]string, len(bodies))
		for i, b := range bodies {
			wg.Go(func() { got[i] = invariantPart(r.Ask(t.Context(), "/v1/completions", "", b)) })
		}
		wg.Wait()
		for i := range got {
			if got[i] != alone[i] {
				t.Errorf("round %d: request %d:\n got %s\nwant %s", round, i, got[i], alone[i])
			}
		}
		f.replace()
	}
	if resumed := f.killed["d1"] + f.killed["d2"]; resumed == 0 || f.killed["p1"]+f.killed["p2"] == 0 {
		t.Errorf("killed: %v", f.killed)
	}
}

// longBodies are random requests with long answers, some of which a stop string ends.
func longBodies(n int) []map[string]any {
	r := rand.New(rand.NewPCG(3, 5))
	out := randomBodies(n)
	for _, b := range out {
		b["max_tokens"], b["ignore_eos"] = 40+r.IntN(60), r.IntN(4) > 0
		if r.IntN(3) == 0 {
			b["stop"] = []string{"zy", "he h", fmt.Sprint(r.IntN(100))}
		}
	}
	return out
}

// fates kills workers at a step of theirs and starts others in their places.
type fates struct {
	t *testing.T
	r *rig.Rig

	mu      sync.Mutex
	doomed  map[string]int // steps that a worker has left
	workers map[string]*rig.Worker
	dead    []string
	killed  map[string]int
	kills   sync.WaitGroup
}

func (f *fates) start(id string) {
	f.t.Helper()
	o := rig.WorkerOptions{Role: kvtransfer.RolePrefill, ID: id, Pages: 512, Lease: 2 * kvtransfer.Second, Before: func(call string) error { return f.before(id, call) }}
	if id[0] == 'd' {
		o.Role = kvtransfer.RoleDecode
	}
	w, err := f.r.AddWorker(f.t.Context(), o)
	if err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workers[id] = w
}

func (f *fates) doom(steps map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.doomed)
	for id, n := range steps {
		f.doomed[id] = n
	}
}

// before counts steps down to the one in which the worker dies: nothing of that step counts.
func (f *fates) before(id, call string) error {
	f.mu.Lock()
	left, doomed := f.doomed[id]
	w := f.workers[id]
	if call != "step" || !doomed {
		f.mu.Unlock()
		return nil
	}
	if f.doomed[id] = left - 1; left != 1 {
		f.mu.Unlock()
		return nil
	}
	f.dead = append(f.dead, id)
	if f.killed == nil {
		f.killed = map[string]int{}
	}
	f.killed[id]++
	f.mu.Unlock()
	f.kills.Go(func() { _ = w.Kill() })
	<-w.Done()
	return errors.New("killed")
}

// replace starts another in the place of each that died.
func (f *fates) replace() {
	f.t.Helper()
	f.kills.Wait()
	f.mu.Lock()
	dead := f.dead
	f.dead = nil
	clear(f.doomed)
	f.mu.Unlock()
	for _, id := range dead {
		f.start(id)
	}
}
