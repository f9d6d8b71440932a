package model

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Config is the shape of a model: RMSNorm, SwiGLU, grouped-query attention, rotary positions.
type Config struct {
	Architecture string // "llama", "qwen2", "qwen3"
	Layers       int
	Dim          int // length of a hidden vector
	FFN          int // length of the feed-forward's inner vector
	Heads        int // query heads
	KVHeads      int // Invariant: Heads is a multiple of KVHeads.
	HeadDim      int
	Vocab        int
	Context      int     // tokens the model can take
	Eps          float32 // of RMSNorm
	Tied         bool    // the output matrix is token_embd.weight
	Bias         bool    // queries, keys and values have a bias each: Qwen2
	HeadNorm     bool    // each head of queries and keys is normed before it turns: Qwen3
	Rope         Rope
}

// Supported says which architectures load, for messages.
const Supported = "Llama, Qwen2, Qwen3 (GGUF: general.architecture llama, qwen2, qwen3; " +
	"Hugging Face: LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)"

// architectures is what loads, by GGUF's names, and what they add to Llama.
var architectures = map[string]struct{ bias, headNorm bool }{"llama": {}, "qwen2": {bias: true}, "qwen3": {headNorm: true}}

// Limits on a config's numbers, far above what models have, so that products of a few of them fit an int.
const (
	maxLayers  = 1 << 12
	maxWidth   = 1 << 20
	maxVocab   = 1 << 22
	maxContext = 1 << 26
)

// Validate checks that every number is there, in range, and fits the others.
func (c Config) Validate() error {
	for _, n := range []struct {
		name       string
		value, max int
	}{
		{"layers", c.Layers, maxLayers}, {"hidden size", c.Dim, maxWidth}, {"feed-forward size", c.FFN, maxWidth},
		{"query heads", c.Heads, maxWidth}, {"key/value heads", c.KVHeads, maxWidth}, {"head size", c.HeadDim, maxWidth},
		{"vocabulary", c.Vocab, maxVocab}, {"context", c.Context, maxContext},
	} {
		if n.value <= 0 || n.value > n.max {
			return fmt.Errorf("%s: %d, 1 to %d is possible", n.name, n.value, n.max)
		}
	}
	if c.Heads%c.KVHeads != 0 {
		return fmt.Errorf("%d query heads are no multiple of %d key/value heads", c.Heads, c.KVHeads)
	}
	if c.Heads*c.HeadDim > maxWidth {
		return fmt.Errorf("%d query heads of %d, at most %d numbers are possible", c.Heads, c.HeadDim, maxWidth)
	}
	if !(c.Eps > 0 && c.Eps < 1) {
		return fmt.Errorf("RMSNorm epsilon: %g, a number between 0 and 1 is possible", c.Eps)
	}
	return c.Rope.validate(c.HeadDim)
}

// Rope says how positions turn queries and keys.
type Rope struct {
	Base float64 // theta
	Dims int     // how many numbers of a head turn: even, at most the head size
	// Interleaved says which two numbers turn together: (2i, 2i+1), as GGUF stores Llama, or (i, i+Dims/2), as Hugging Face does.
	Interleaved bool
	Scaling     RopeScaling
	Factors     []float64 // [Dims/2] divisors of the frequencies that the file itself carries (rope_freqs.weight); nil = none
}

// RopeScaling stretches positions beyond the context of the first training.
type RopeScaling struct {
	Kind            string  // "", "linear", "dynamic", "yarn", "longrope", "llama3"
	Factor          float64 // how many times longer
	OriginalContext int     // tokens of the first training
	LowFreqFactor   float64 // llama3
	HighFreqFactor  float64 // llama3
	BetaFast        float64 // yarn, default 32
	BetaSlow        float64 // yarn, default 1
	AttentionFactor float64 // yarn, longrope: factor on queries and keys each; 0 = from Factor
	MScale          float64 // yarn: 0 = unset
	MScaleAllDim    float64 // yarn: 0 = unset
	ShortFactors    []float64
	LongFactors     []float64 // longrope: [Dims/2] divisors of the frequencies
}

// ropeKinds lists what loads.
var ropeKinds = []string{"linear", "dynamic", "yarn", "longrope", "llama3"}

// checkRopeKind refuses a scaling that does not load; key is where the file says it.
func checkRopeKind(key, kind string) error {
	if kind == "" || slices.Contains(ropeKinds, kind) {
		return nil
	}
	return fmt.Errorf("%s %q does not load, these do: none (default), %s", key, kind, strings.Join(ropeKinds, ", "))
}

func (r Rope) validate(headDim int) error {
	if !(r.Base > 1) || math.IsInf(r.Base, 0) {
		return fmt.Errorf("rope base: %g, a number above 1 is needed", r.Base)
	}
	if r.Dims <= 0 || r.Dims%2 != 0 || r.Dims > headDim {
		return fmt.Errorf("rope dimensions: %d, an even number up to the head size %d is needed", r.Dims, headDim)
	}
	if err := checkFactors("rope_freqs.weight", r.Factors, r.Dims/2, true); err != nil {
		return err
	}
	s := r.Scaling
	switch s.Kind {
	case "", "dynamic":
		return nil
	case "longrope":
		return errors.Join(checkFactors("rope short factors", s.ShortFactors, r.Dims/2, false),
			checkFactors("rope long factors", s.LongFactors, r.Dims/2, false))
	}
	if err := checkRopeKind("rope scaling", s.Kind); err != nil {
		return err
	}
	if !(s.Factor >= 1) || math.IsInf(s.Factor, 0) {
		return fmt.Errorf("rope scaling %s: factor %g, a number from 1 on is needed", s.Kind, s.Factor)
	}
	if s.Kind != "linear" && s.OriginalContext <= 0 {
		return fmt.Errorf("rope scaling %s: original context %d is not positive", s.Kind, s.OriginalContext)
	}
	if s.Kind == "llama3" && !(s.LowFreqFactor > 0 && s.HighFreqFactor > s.LowFreqFactor) {
		return fmt.Errorf("rope scaling llama3: low and high frequency factors %g and %g, 0 < low < high is needed", s.LowFreqFactor, s.HighFreqFactor)
	}
	return nil
}

func checkFactors(what string, f []float64, want int, optional bool) error {
	if optional && f == nil {
		return nil
	}
	if len(f) != want {
		return fmt.Errorf("%s: %d numbers, %d are needed", what, len(f), want)
	}
	for i, v := range f {
		if !(v > 0) || math.IsInf(v, 0) {
			return fmt.Errorf("%s: number %d is %g, a positive one is needed", what, i, v)
		}
	}
	return nil
}
