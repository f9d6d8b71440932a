package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// hfConfig is what a Hugging Face config.json says, as far as it matters here.
type hfConfig struct {
	Architectures    []string        `json:"architectures"`
	ModelType        string          `json:"model_type"`
	Vocab            int             `json:"vocab_size"`
	Dim              int             `json:"hidden_size"`
	FFN              int             `json:"intermediate_size"`
	Layers           int             `json:"num_hidden_layers"`
	Heads            int             `json:"num_attention_heads"`
	KVHeads          *int            `json:"num_key_value_heads"`
	HeadDim          *int            `json:"head_dim"`
	Context          int             `json:"max_position_embeddings"`
	Eps              *float64        `json:"rms_norm_eps"`
	Theta            *float64        `json:"rope_theta"`
	Act              string          `json:"hidden_act"`
	AttentionBias    bool            `json:"attention_bias"`
	MLPBias          bool            `json:"mlp_bias"`
	Tied             bool            `json:"tie_word_embeddings"`
	Window           *int            `json:"sliding_window"`
	UseWindow        bool            `json:"use_sliding_window"`
	LayerTypes       []string        `json:"layer_types"`
	PartialRotary    *float64        `json:"partial_rotary_factor"`
	RopeScaling      *hfRope         `json:"rope_scaling"`
	RopeParameters   *hfRope         `json:"rope_parameters"`
	Quantization     json.RawMessage `json:"quantization_config"`
	EOS              idOrIDs         `json:"eos_token_id"`
	BOS              idOrIDs         `json:"bos_token_id"`
	PretrainingTP    int             `json:"pretraining_tp"`
	OriginalMaxPosEm *int            `json:"original_max_position_embeddings"`
}

// hfRope is rope_scaling, or rope_parameters in newer files.
type hfRope struct {
	Type         string    `json:"type"`
	RopeType     string    `json:"rope_type"`
	Theta        *float64  `json:"rope_theta"`
	Factor       float64   `json:"factor"`
	Original     int       `json:"original_max_position_embeddings"`
	LowFreq      float64   `json:"low_freq_factor"`
	HighFreq     float64   `json:"high_freq_factor"`
	BetaFast     float64   `json:"beta_fast"`
	BetaSlow     float64   `json:"beta_slow"`
	Attention    float64   `json:"attention_factor"`
	MScale       float64   `json:"mscale"`
	MScaleAllDim float64   `json:"mscale_all_dim"`
	Short        []float64 `json:"short_factor"`
	Long         []float64 `json:"long_factor"`
}

// idOrIDs is a token id, several, or null.
type idOrIDs []int32

// UnmarshalJSON takes a number, a list of numbers, or null.
func (v *idOrIDs) UnmarshalJSON(b []byte) error {
	var one int32
	if string(b) == "null" {
		return nil
	}
	if json.Unmarshal(b, &one) == nil {
		*v = idOrIDs{one}
		return nil
	}
	return json.Unmarshal(b, (*[]int32)(v))
}

// hfArchitectures gives GGUF's names of the architectures that load.
var hfArchitectures = map[string]string{
	"LlamaForCausalLM": "llama", "MistralForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3",
}

func parseHFConfig(b []byte) (Config, hfConfig, error) {
	var h hfConfig
	if err := json.Unmarshal(b, &h); err != nil {
		return Config{}, h, err
	}
	if err := h.refuse(); err != nil {
		return Config{}, h, err
	}
	arch := hfArchitectures[h.Architectures[0]]
	c := Config{
		Architecture: arch, Bias: architectures[arch].bias, HeadNorm: architectures[arch].headNorm,
		Layers: h.Layers, Dim: h.Dim, FFN: h.FFN, Heads: h.Heads, KVHeads: h.Heads, Vocab: h.Vocab,
		Context: h.Context, Eps: 1e-6, Tied: h.Tied,
	}
	if h.KVHeads != nil {
		c.KVHeads = *h.KVHeads
	}
	switch {
	case arch == "qwen3":
		c.HeadDim = 128 // where the file does not say it
	case h.Heads > 0:
		c.HeadDim = h.Dim / h.Heads
	}
	if h.HeadDim != nil {
		c.HeadDim = *h.HeadDim
	}
	if h.Eps != nil {
		c.Eps = float32(*h.Eps)
	}
	if h.Window != nil && arch == "llama" { // Qwen's files name a window that use_sliding_window turns on
		c.limitToWindow(*h.Window)
	}
	c.Rope = h.rope(c.HeadDim)
	if err := checkRopeKind("rope_scaling rope_type", c.Rope.Scaling.Kind); err != nil {
		return Config{}, h, err
	}
	return c, h, c.Validate()
}

// refuse names what would change the computation and is not supported.
func (h hfConfig) refuse() error {
	if len(h.Architectures) != 1 || hfArchitectures[h.Architectures[0]] == "" {
		return fmt.Errorf("architectures %q does not load; what loads is %s", strings.Join(h.Architectures, ", "), Supported)
	}
	if h.Act != "" && h.Act != "silu" {
		return fmt.Errorf("hidden_act %q does not load, silu does", h.Act)
	}
	if h.AttentionBias || h.MLPBias {
		return fmt.Errorf("attention_bias %t, mlp_bias %t: such biases do not load", h.AttentionBias, h.MLPBias)
	}
	if h.UseWindow {
		return errors.New("use_sliding_window true: sliding windows do not load")
	}
	for _, t := range h.LayerTypes {
		if t != "full_attention" {
			return fmt.Errorf("layer_types %q does not load, full_attention does", t)
		}
	}
	if len(h.Quantization) > 0 && string(h.Quantization) != "null" {
		return errors.New("quantization_config is set: quantised safetensors do not load; use F32, F16 or BF16 ones, or a GGUF file")
	}
	return nil
}

func (h hfConfig) rope(headDim int) Rope {
	r := Rope{Base: 10000, Dims: headDim}
	if h.Theta != nil {
		r.Base = *h.Theta
	}
	if h.PartialRotary != nil && *h.PartialRotary > 0 && *h.PartialRotary < 1 {
		r.Dims = int(float64(headDim) * *h.PartialRotary)
	}
	p := h.RopeScaling
	if p == nil {
		p = h.RopeParameters
	}
	if p == nil {
		return r
	}
	if p.Theta != nil {
		r.Base = *p.Theta
	}
	kind := p.RopeType
	if kind == "" {
		kind = p.Type
	}
	if kind == "default" {
		return r
	}
	if kind == "su" {
		kind = "longrope"
	}
	r.Scaling = RopeScaling{
		Kind: kind, Factor: p.Factor, OriginalContext: p.Original, LowFreqFactor: p.LowFreq, HighFreqFactor: p.HighFreq,
		BetaFast: p.BetaFast, BetaSlow: p.BetaSlow, AttentionFactor: p.Attention, MScale: p.MScale, MScaleAllDim: p.MScaleAllDim,
		ShortFactors: p.Short, LongFactors: p.Long,
	}
	if r.Scaling.OriginalContext == 0 {
		r.Scaling.OriginalContext = h.Context
		if h.OriginalMaxPosEm != nil {
			r.Scaling.OriginalContext = *h.OriginalMaxPosEm
		}
	}
	return r
}
