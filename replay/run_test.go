package replay

import (
	"slices"
	"testing"

	"quire/device/cpu"
	_ "quire/embedded"
	"quire/journal"
	"quire/kvtransfer"
	"quire/model"
	"quire/tape"
)

// machine has the built-in model.
func machine(t *testing.T) Machine {
	t.Helper()
	src, err := model.Open("", model.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	dev, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	w, err := model.LoadWeights(dev, src, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Machine{Source: src, Device: dev, Weights: w}
}

func TestRunAgain(t *testing.T) {
	m := machine(t)
	prompt := m.Source.Tokenizer.Encode("The little bird sat on the wall.", model.EncodeOptions{})
	take := tape.Take{Weights: m.Source.Fingerprint, Prompt: prompt, Output: make([]int32, 12),
		Sampling: kvtransfer.Sampling{Temperature: 1.2, TopP: 1, Seed: 5, Logprobs: -1, IgnoreEOS: true}}
	s, info, err := m.sequence(len(prompt) + len(take.Output))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s.answer(take, m.Source.Tokenizer)
	if err != nil || len(answer) != len(take.Output) {
		t.Fatalf("%d tokens, %v", len(answer), err)
	}
	for i, a := range answer {
		take.Output[i] = a.ID
	}
	compute := journal.Hash(info.Fingerprints.Compute)
	r, err := m.Run(take, compute)
	if err != nil || r.Verdict != Identical || r.At != -1 || !r.Same {
		t.Errorf("%+v, %v", r, err)
	}
	for i := range take.Output {
		other := take
		other.Output = slices.Clone(take.Output)
		other.Output[i]++
		r, err := m.Run(other, compute)
		if err != nil || r.Verdict != Diverges || r.At != i || r.Recorded != other.Output[i] || r.Got != take.Output[i] || r.Logprobs[1] == nil {
			t.Errorf("token %d changed: %+v, %v", i, r, err)
		}
	}
	other := take
	other.Sampling.Seed++
	if r, err := m.Run(other, journal.Hash{}); err != nil || r.Verdict != Diverges || r.Why == "" {
		t.Errorf("another seed on another machine: %+v, %v", r, err)
	}
	other = take
	other.Weights[0]++
	if r, err := m.Run(other, compute); err != nil || r.Verdict != NotReproducible {
		t.Errorf("another model: %+v, %v", r, err)
	}
	other = take
	other.Output = make([]int32, m.Source.Config.Context+2)
	if _, err := m.Run(other, compute); err == nil {
		t.Error("longer than the context")
	}
}
