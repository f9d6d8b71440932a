package prefill

import (
	"testing"

	"pgregory.net/rapid"

	"quire/kvtransfer"
)

// TestNextStepIsFair runs drawn prompts to their end: no step exceeds the budget or names a candidate twice, all rows are
// computed once in order, and nobody waits longer for a turn than there are others.
func TestNextStepIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "candidates")
		budget := rapid.IntRange(1, 20).Draw(t, "budget")
		cands := make([]candidate, n)
		waited := make([]int, n)
		left := 0
		for i := range cands {
			cands[i] = candidate{to: rapid.IntRange(0, 60).Draw(t, "rows"), alone: rapid.IntRange(0, 4).Draw(t, "alone") == 0}
			left += cands[i].to
		}
		for start := 0; left > 0; {
			shares, next := nextStep(cands, start, budget)
			if len(shares) == 0 {
				t.Fatalf("nothing planned, %d rows left: %+v", left, cands)
			}
			total, named := 0, map[int]bool{}
			for _, s := range shares {
				c := &cands[s.index]
				if s.from != c.from || s.to <= s.from || s.to > c.to || named[s.index] || (c.alone && len(shares) > 1) {
					t.Fatalf("share %+v of %+v among %+v", s, *c, shares)
				}
				named[s.index] = true
				total += s.to - s.from
				c.from = s.to
			}
			if total > budget {
				t.Fatalf("%d tokens in a step, budget %d", total, budget)
			}
			for i, c := range cands {
				if waited[i]++; named[i] || c.from == c.to {
					waited[i] = 0
				}
				if waited[i] > n {
					t.Fatalf("candidate %d waits for %d steps, there are %d", i, waited[i], n)
				}
			}
			left -= total
			start = next
		}
		if shares, _ := nextStep(cands, 0, budget); len(shares) > 0 {
			t.Fatalf("planned %+v with nothing left", shares)
		}
	})
}

// TestStepBudget says how many tokens a step computes: few until something was measured, then what a third of the lease
// allows, between 8 and the chunk size.
func TestStepBudget(t *testing.T) {
	const lease = 10 * kvtransfer.Second
	for _, c := range []struct {
		chunk    int
		perToken kvtransfer.Tick
		want     int
	}{
		{256, 0, 32},
		{16, 0, 16},
		{0, 1, DefaultChunk},
		{256, 100, 256},
		{256, 20 * kvtransfer.Millisecond, 166},
		{256, kvtransfer.Second, 8},
		{4, kvtransfer.Second, 4},
		{256, 100 * kvtransfer.Second, 8},
	} {
		if got := stepBudget(c.chunk, lease, c.perToken); got != c.want {
			t.Errorf("chunk %d, %d us a token: %d, want %d", c.chunk, c.perToken, got, c.want)
		}
	}
}

// TestMeasureForgetsSlowly says that a slow step counts at once and a fast one little by little.
func TestMeasureForgetsSlowly(t *testing.T) {
	rate := measure(0, 800, 8, 8)
	if rate != 100 {
		t.Fatalf("800 us for 8 tokens: %d a token", rate)
	}
	if rate = measure(rate, 900, 1, 1); rate != 900 {
		t.Errorf("a slower step: %d a token, want 900", rate)
	}
	if rate = measure(rate, 100, 1, 1); rate != 800 {
		t.Errorf("a faster step: %d a token, want 800", rate)
	}
	for range 200 {
		rate = measure(rate, 100, 1, 1)
	}
	if rate != 100 {
		t.Errorf("after many fast steps: %d a token, want 100", rate)
	}
	for _, tokens := range []int{0, 1, 31} {
		if got := measure(rate, 5000, tokens, 256); got != rate {
			t.Errorf("a step of %d tokens counts: %d a token", tokens, got)
		}
	}
}

func TestPulls(t *testing.T) {
	none, shared, direct, both := asked{}, asked{shared: true}, asked{direct: true}, asked{shared: true, direct: true}
	for _, c := range []struct {
		slots, taken      int
		out               asked
		waiting, draining bool
		want              asked
	}{
		{4, 0, none, false, false, both},
		{4, 1, shared, false, false, direct},
		{4, 1, direct, false, false, shared},
		{4, 1, both, false, false, none},
		{4, 3, none, false, false, both},
		{4, 4, none, false, false, direct},
		{4, 4, shared, false, false, none}, // whichever comes has the additional slot
		{4, 5, none, false, false, none},
		{1, 0, none, false, false, both},
		{1, 1, none, false, false, direct},
		{4, 1, none, true, false, none},
		{4, 1, none, false, true, none},
	} {
		if got := pulls(c.slots, c.taken, c.out, c.waiting, c.draining); got != c.want {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}
