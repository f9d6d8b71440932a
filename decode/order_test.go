package decode

import (
	"slices"
	"testing"
)

// permutations calls fn with every order of the numbers [0, n).
func permutations(n int, fn func([]int)) {
	var walk func(done []int)
	walk = func(done []int) {
		if len(done) == n {
			fn(done)
			return
		}
		for i := range n {
			if !slices.Contains(done, i) {
				walk(append(done[:len(done):len(done)], i))
			}
		}
	}
	walk(nil)
}

// Frames, one of them twice, one changed on the way, a repeated claim and the manifest: every order gives the same answer.
func TestEveryOrderOfAHandoff(t *testing.T) {
	lines := []string{"frame i=0", "frame i=1", "frame i=0", "frame i=1 tampered", "claim-again", "manifest"}
	first := newWorld(t, nil)
	first.one("reserve n=2")
	want := first.expected(prompt(2, 1), 2)
	permutations(len(lines), func(order []int) {
		w := newWorld(t, nil)
		w.one("reserve n=2")
		w.one("claim")
		for _, i := range order {
			w.one(lines[i])
		}
		if ids, end, _ := w.answer(key(1)); !slices.Equal(ids, want) || end == nil || end.Finish == "" {
			t.Fatalf("order %v: %v, end %+v\n%s", order, ids, end, w.l.Dump())
		}
		w.clean()
	})
}

// A cancel at any moment, with every effect slow or quick, leaves nothing behind and says so once.
func TestCancelAtEveryMoment(t *testing.T) {
	want := newWorld(t, nil).expected(prompt(2, 1), 3)
	lines := []string{"claim", "frame i=0", "frame i=1", "manifest", "tick ms=1"}
	kinds := []string{"openframe", "copyframe", "journal", "witness", "step", "zero"}
	for at := range len(lines) + 1 {
		for slow := range 1 << len(kinds) {
			w := newWorld(t, nil)
			for i, k := range kinds {
				w.hold[k] = slow>>i&1 == 1
			}
			w.one("reserve n=2 max=3")
			for i, l := range lines {
				if i == at {
					w.one("cancel")
				}
				w.one(l)
			}
			if at == len(lines) {
				w.one("cancel")
			}
			for range kinds {
				for _, k := range kinds {
					w.release(k)
				}
			}
			ids, end, outcome := w.answer(key(1))
			if !slices.Equal(ids, want[:len(ids)]) || outcome == nil || outcome.OK && end == nil {
				t.Fatalf("at %d, slow %06b: outcome %+v, %d tokens, end %+v", at, slow, outcome, len(ids), end)
			}
			w.clean()
		}
	}
}
