package model

import (
	"encoding/binary"
	"fmt"
	"math"

	"quire/model/gguf"
	"quire/model/tensor"
)

// ggufConfig reads the shape from a GGUF file's metadata.
func ggufConfig(f *gguf.File) (Config, error) {
	arch := f.String("general.architecture", "")
	extra, ok := architectures[arch]
	if !ok {
		return Config{}, fmt.Errorf("general.architecture %q does not load; what loads is %s", arch, Supported)
	}
	p := arch + "."
	if n := f.Int(p+"expert_count", 0); n > 0 {
		return Config{}, fmt.Errorf("%sexpert_count %d: mixtures of experts do not load; what loads is %s", p, n, Supported)
	}
	key := func(k string) int { return f.Int(p+k, 0) }
	c := Config{
		Architecture: arch,
		Layers:       key("block_count"), Dim: key("embedding_length"), FFN: key("feed_forward_length"),
		Heads: key("attention.head_count"), KVHeads: f.Int(p+"attention.head_count_kv", key("attention.head_count")),
		Context: key("context_length"), Vocab: key("vocab_size"),
		Eps:  float32(f.Float(p+"attention.layer_norm_rms_epsilon", 0)),
		Bias: extra.bias, HeadNorm: extra.headNorm,
	}
	if c.Vocab == 0 {
		c.Vocab = len(f.Strings("tokenizer.ggml.tokens"))
	}
	if c.Heads > 0 {
		c.HeadDim = f.Int(p+"attention.key_length", c.Dim/c.Heads)
	}
	if v := f.Int(p+"attention.value_length", c.HeadDim); v != c.HeadDim {
		return Config{}, fmt.Errorf("keys of %d and values of %d numbers: heads of two sizes do not load", c.HeadDim, v)
	}
	_, untied := f.Tensors["output.weight"]
	c.Tied = !untied
	var err error
	if c.Rope, err = ggufRope(f, p, c.HeadDim); err != nil {
		return Config{}, err
	}
	window := key("attention.sliding_window")
	if window > 0 && arch != "llama" {
		return Config{}, fmt.Errorf("%sattention.sliding_window %d: sliding windows do not load", p, window)
	}
	c.limitToWindow(window)
	return c, c.Validate()
}

// limitToWindow keeps sequences within a sliding window, where it changes nothing: windows are not computed.
func (c *Config) limitToWindow(window int) {
	if window > 0 && window < c.Context {
		c.Context = window
	}
}

// ggufRope reads how positions turn; arch is the prefix of the keys. Llama's rows are stored so that neighbours turn together,
// other architectures' are as their makers have them.
func ggufRope(f *gguf.File, arch string, headDim int) (Rope, error) {
	p := arch + "rope."
	r := Rope{Base: f.Float(p+"freq_base", 10000), Dims: f.Int(p+"dimension_count", headDim), Interleaved: arch == "llama."}
	s := RopeScaling{
		Kind: f.String(p+"scaling.type", ""), Factor: f.Float(p+"scaling.factor", 0),
		OriginalContext: f.Int(p+"scaling.original_context_length", f.Int(arch+"context_length", 0)),
		AttentionFactor: f.Float(p+"scaling.attn_factor", 0),
		BetaFast:        f.Float(p+"scaling.yarn_beta_fast", 0), BetaSlow: f.Float(p+"scaling.yarn_beta_slow", 0),
	}
	if old := f.Float(p+"scale_linear", 0); s.Kind == "" && old > 1 {
		s.Kind, s.Factor = "linear", old
	}
	if s.Kind == "none" {
		s = RopeScaling{}
	}
	if err := checkRopeKind(p+"scaling.type", s.Kind); err != nil {
		return r, err
	}
	switch s.Kind {
	case "yarn":
		// GGUF's attn_factor multiplies what follows from the factor.
		if s.AttentionFactor > 0 && s.Factor > 1 {
			s.AttentionFactor *= 0.1*math.Log(s.Factor) + 1
		}
	case "longrope":
		var err error
		if s.ShortFactors, err = ggufFactors(f, "rope_factors_short.weight"); err != nil {
			return r, err
		}
		if s.LongFactors, err = ggufFactors(f, "rope_factors_long.weight"); err != nil {
			return r, err
		}
		delete(f.Tensors, "rope_factors_short.weight")
		delete(f.Tensors, "rope_factors_long.weight")
	}
	r.Scaling = s
	var err error
	r.Factors, err = ggufFactors(f, "rope_freqs.weight")
	return r, err
}

// ggufGeneration reads what a file suggests for sampling.
func ggufGeneration(f *gguf.File) Generation {
	var g hfGeneration
	for key, to := range map[string]**float32{
		"temp": &g.Temperature, "top_p": &g.TopP, "min_p": &g.MinP, "penalty_repeat": &g.RepetitionPenalty,
	} {
		if key = "general.sampling." + key; f.Has(key) {
			v := float32(f.Float(key, -1))
			*to = &v
		}
	}
	if key := "general.sampling.top_k"; f.Has(key) {
		v := f.Int(key, -1)
		g.TopK = &v
	}
	return g.Generation()
}

// ggufFactors reads a small F32 vector; nil when it is not there.
func ggufFactors(f *gguf.File, name string) ([]float64, error) {
	t, ok := f.Tensors[name]
	if !ok {
		return nil, nil
	}
	if t.Type != tensor.F32 || len(t.Shape) != 1 {
		return nil, fmt.Errorf("tensor %s: %s %v, a vector of F32 is needed", name, t.Type, t.Shape)
	}
	out := make([]float64, t.Shape[0])
	for i := range out {
		out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:])))
	}
	return out, nil
}
