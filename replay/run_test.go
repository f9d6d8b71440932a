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
func machine(t testing.TB) Machine {
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

// answered computes a take's answer as a cluster would have, with what each token was chosen from.
func answered(t testing.TB, m Machine, take *tape.Take, n int) (journal.Hash, []tape.Choice) {
	t.Helper()
	take.Output = make([]int32, n)
	s, info, err := m.sequence(len(take.Prompt)+n, rerunPageSize)
	if err != nil {
		t.Fatal(err)
	}
	c := &comparison{want: take.Output}
	if err := s.answer(*take, m.Source.Tokenizer, c); err != nil || len(c.got) != n {
		t.Fatalf("%d tokens, %v", len(c.got), err)
	}
	for i, a := range c.got {
		take.Output[i] = a.ID
	}
	return journal.Hash(info.Fingerprints.Compute), c.from
}

func TestRunAgain(t *testing.T) {
	m := machine(t)
	take := tape.Take{Weights: m.Source.Fingerprint, Prompt: m.Source.Tokenizer.Encode("The little bird sat on the wall.", model.EncodeOptions{}),
		Sampling: kvtransfer.Sampling{Temperature: 1.2, TopP: 1, Seed: 5, Logprobs: -1, IgnoreEOS: true}}
	compute, choices := answered(t, m, &take, 12)
	had := &tape.Attempt{Head: tape.Head{Tokens: take.Prompt, Prompt: len(take.Prompt)}, End: &tape.End{Output: take.Output, Choices: choices}}
	r, err := m.Run(take, compute, had)
	if err != nil || r.Verdict != Identical || r.At != -1 || !r.Same || r.LogitsKnown != 12 || r.LogitsAt != -1 {
		t.Errorf("%+v, %v", r, err)
	}
	for i := range take.Output {
		other := take
		other.Output = slices.Clone(take.Output)
		other.Output[i]++
		r, err := m.Run(other, compute, had)
		if err != nil || r.Verdict != Diverges || r.At != i || r.Recorded != other.Output[i] || r.Got != take.Output[i] || r.Logprobs[1] == nil ||
			r.Logits[0] == nil || r.Logits[1] == nil || r.RecordedLogit == nil || *r.RecordedLogit != *r.Logits[1] {
			t.Errorf("token %d changed: %+v, %v", i, r, err)
		}
	}
	was := *had.End
	was.Choices = slices.Clone(choices)
	was.Choices[3].Sum++
	if r, err := m.Run(take, compute, &tape.Attempt{Head: had.Head, End: &was}); err != nil || r.Verdict != Identical || r.LogitsAt != 3 {
		t.Errorf("other logits at 3: %+v, %v", r, err)
	}
	other := take
	other.Sampling.Seed++
	if r, err := m.Run(other, journal.Hash{}, nil); err != nil || r.Verdict != Diverges || r.Why == "" || r.RecordedLogit != nil {
		t.Errorf("another seed on another machine: %+v, %v", r, err)
	}
	other = take
	other.Weights[0]++
	if r, err := m.Run(other, compute, nil); err != nil || r.Verdict != NotReproducible {
		t.Errorf("another model: %+v, %v", r, err)
	}
	other = take
	other.Output = make([]int32, m.Source.Config.Context+2)
	if _, err := m.Run(other, compute, nil); err == nil {
		t.Error("longer than the context")
	}
}
