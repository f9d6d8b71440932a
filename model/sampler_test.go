package model

import (
	"math"
	"slices"
	"testing"

	"quire/kvtransfer"
)

// TestSamplerIsPinned: these ids must come out on every machine and in every release, or recorded requests replay differently.
func TestSamplerIsPinned(t *testing.T) {
	logits := make([]float32, 500)
	for i := range logits {
		logits[i] = float32((i*7919)%997)/150 - 2
	}
	for _, c := range []struct {
		s    kvtransfer.Sampling
		want []int32
	}{
		{kvtransfer.Sampling{Temperature: 1, Seed: 42}, []int32{163, 476, 237, 35, 334, 35, 91, 368}},
		{kvtransfer.Sampling{Temperature: 0.7, TopP: 0.9, Seed: 42}, []int32{193, 161, 71, 140, 264, 140, 385, 37}},
		{kvtransfer.Sampling{Temperature: 1.3, TopK: 40, MinP: 0.05, Seed: 7}, []int32{473, 368, 228, 298, 455, 245, 246, 246}},
		{kvtransfer.Sampling{Temperature: 0.9, TopK: 100, TopP: 0.8, Seed: 1 << 63}, []int32{438, 123, 35, 282, 123, 245, 176, 315}},
	} {
		p := &Picker{s: c.s}
		var got []int32
		for i := range 8 {
			p.index = i
			got = append(got, p.choose(logits))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.s, got, c.want)
		}
	}
}

func TestExpAndLog(t *testing.T) {
	for x := -699.0; x < 20; x += 0.137 {
		if got, want := exp(x), math.Exp(x); math.Abs(got-want) > 1e-15*want {
			t.Errorf("exp(%g) = %g, want %g", x, got, want)
		}
		if y := math.Exp(x / 2); math.Abs(logOf(y)-x/2) > 1e-15*math.Abs(x/2)+1e-15 {
			t.Errorf("log(%g) = %g, want %g", y, logOf(y), x/2)
		}
	}
	if exp(-1e9) != 0 || exp(math.NaN()) != 0 || exp(0) != 1 || logOf(1) != 0 || math.IsInf(exp(1e9), 0) {
		t.Error("the ends are wrong")
	}
}

// TestBadLogits: NaN and infinities choose something in range and never panic.
func TestBadLogits(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, logits := range [][]float32{{nan, nan}, {nan, 1, 2}, {-inf, -inf}, {inf, 1}, {1, inf, nan, -inf}, {0}} {
		for _, s := range []kvtransfer.Sampling{{}, {Temperature: 1}, {Temperature: 1, TopP: 0.5}, {Temperature: 1e-6, TopK: 3}, {Temperature: 2, MinP: 0.9, TopP: 0.1}} {
			p := &Picker{s: s}
			if id := p.choose(logits); id < 0 || int(id) >= len(logits) || (logits[id] != logits[id] && len(logits) > 2) {
				t.Errorf("%v %+v: %d", logits, s, id)
			}
			logprobs(logits, 0, 5)
		}
	}
}
