package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"quire/keys"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/model/modeltest"
)

func prompt(n, salt int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32((i*7 + salt*13 + 3) % 256)
	}
	return tokens
}

// expected is what a fresh engine answers to a prompt alone.
func expected(tokens []int32, n int) []int32 {
	tokens = slices.Clone(tokens)
	for range n {
		tokens = append(tokens, modeltest.Token(modeltest.Options{}, tokens).ID)
	}
	return tokens[len(tokens)-n:]
}

func roadKeys(t *testing.T) *keys.Ring {
	ring, err := keys.Ensure(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// TestHandoffRoundTrip sends prompts from prefill's loop to decode's in orders that seeds draw: every answer is that of a fresh
// engine, after one verdict, and both pools end free and zero.
func TestHandoffRoundTrip(t *testing.T) {
	ring := roadKeys(t)
	for seed := range uint64(60) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := newRoad(t, ring, seed)
			want := map[kvtransfer.Key][]int32{}
			for i := range 4 {
				tokens, out := prompt(1+r.rng.IntN(20), r.rng.IntN(5)), 1+r.rng.IntN(4)
				want[r.ask(byte(i+1), tokens, out)] = expected(tokens, out)
			}
			r.run()
			for k, w := range want {
				ids, end := r.answer(k)
				if !slices.Equal(ids, w) || end.Finish != kvtransfer.FinishLength || r.verdicts[k] != 1 {
					t.Errorf("%s: %v, want %v; end %+v, verdicts %d", k, ids, w, *end, r.verdicts[k])
				}
			}
			r.clean()
		})
	}
}

// TestHandoffTamperedFrame changes one byte of one frame on the way: it does not open, the hand-off ends with an error when its
// lease does, and no token leaves.
func TestHandoffTamperedFrame(t *testing.T) {
	r := newRoad(t, roadKeys(t), 1)
	done := false
	r.tamper = func(m kvMessage) kvMessage {
		if !m.manifest && !done {
			done = true
			m.data = slices.Clone(m.data)
			m.data[len(m.data)-20] ^= 1
		}
		return m
	}
	k := r.ask(1, prompt(12, 1), 3)
	r.run()
	if ids, end := r.answer(k); len(ids) > 0 || end.Error.IsZero() {
		t.Errorf("answer %v, end %+v", ids, *end)
	}
	r.clean()
}

// TestHandoffWrongJob sends a job whose tokens are not the reserved ones: prefill computes nothing and decode answers with
// prefill's typed refusal, at once.
func TestHandoffWrongJob(t *testing.T) {
	r := newRoad(t, roadKeys(t), 1)
	tokens := prompt(12, 1)
	k := r.ask(1, tokens, 3)
	job := opened[kvtransfer.Job](t, must(seal.OpenEnvelope(r.ring, r.jobs[0]))(t))
	job.Tokens = job.Tokens[:1]
	r.jobs[0] = seal.Sign(r.routSigner, roadRouter, kvtransfer.KindJob, r.encode(&job))
	r.run()
	ids, end := r.answer(k)
	if len(ids) > 0 || end.Error.Code != kvtransfer.HandoffCount || r.preEngine.Steps()+r.decEngine.Steps() > 0 {
		t.Errorf("answer %v, end %+v, steps %d and %d", ids, *end, r.preEngine.Steps(), r.decEngine.Steps())
	}
	r.clean()
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
