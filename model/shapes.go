package model

import (
	"fmt"
	"strings"

	"quire/model/tensor"
)

// Tensor is one stored weight, under its GGUF name whatever the file was:
//
//	token_embd.weight            [Vocab, Dim]
//	blk.N.attn_norm.weight       [Dim]
//	blk.N.attn_q.weight          [Heads*HeadDim, Dim]
//	blk.N.attn_k.weight          [KVHeads*HeadDim, Dim]
//	blk.N.attn_v.weight          [KVHeads*HeadDim, Dim]
//	blk.N.attn_q.bias            [Heads*HeadDim], with Bias
//	blk.N.attn_k.bias            [KVHeads*HeadDim], with Bias
//	blk.N.attn_v.bias            [KVHeads*HeadDim], with Bias
//	blk.N.attn_q_norm.weight     [HeadDim], with HeadNorm
//	blk.N.attn_k_norm.weight     [HeadDim], with HeadNorm
//	blk.N.attn_output.weight     [Dim, Heads*HeadDim]
//	blk.N.ffn_norm.weight        [Dim]
//	blk.N.ffn_gate.weight        [FFN, Dim]
//	blk.N.ffn_up.weight          [FFN, Dim]
//	blk.N.ffn_down.weight        [Dim, FFN]
//	output_norm.weight           [Dim]
//	output.weight                [Vocab, Dim], unless Tied
type Tensor = tensor.Tensor

// want is one tensor that a model must have.
type want struct {
	name  string
	shape []int
	norm  bool // a vector, a norm's or a bias: plain types only
}

// wants lists the tensors of a model in the order of the computation.
func (c Config) wants() []want {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	list := []want{{"token_embd.weight", []int{c.Vocab, c.Dim}, false}}
	for i := range c.Layers {
		n := func(s string) string { return fmt.Sprintf("blk.%d.%s.weight", i, s) }
		list = append(list,
			want{n("attn_norm"), []int{c.Dim}, true},
			want{n("attn_q"), []int{q, c.Dim}, false},
			want{n("attn_k"), []int{kv, c.Dim}, false},
			want{n("attn_v"), []int{kv, c.Dim}, false},
			want{n("attn_output"), []int{c.Dim, q}, false},
			want{n("ffn_norm"), []int{c.Dim}, true},
			want{n("ffn_gate"), []int{c.FFN, c.Dim}, false},
			want{n("ffn_up"), []int{c.FFN, c.Dim}, false},
			want{n("ffn_down"), []int{c.Dim, c.FFN}, false})
		if c.Bias {
			b := func(s string) string { return fmt.Sprintf("blk.%d.%s.bias", i, s) }
			list = append(list, want{b("attn_q"), []int{q}, true}, want{b("attn_k"), []int{kv}, true}, want{b("attn_v"), []int{kv}, true})
		}
		if c.HeadNorm {
			list = append(list, want{n("attn_q_norm"), []int{c.HeadDim}, true}, want{n("attn_k_norm"), []int{c.HeadDim}, true})
		}
	}
	list = append(list, want{"output_norm.weight", []int{c.Dim}, true})
	if !c.Tied {
		list = append(list, want{"output.weight", []int{c.Vocab, c.Dim}, false})
	}
	return list
}

// checkTensors makes sure that the file holds what the config needs, in the right shapes, and nothing that would have to be
// computed with but is not.
func (c Config) checkTensors(have map[string]Tensor) error {
	known := map[string]bool{"rope_freqs.weight": true}
	for _, w := range c.wants() {
		t, ok := have[w.name]
		if !ok {
			return fmt.Errorf("tensor %s is missing: a model of %d layers needs it with shape %v", w.name, c.Layers, w.shape)
		}
		if !equal(t.Shape, w.shape) {
			return fmt.Errorf("tensor %s: shape %v, the config needs %v", w.name, t.Shape, w.shape)
		}
		if elems, _ := t.Type.Block(); w.norm && elems > 1 {
			return fmt.Errorf("tensor %s: a vector of type %s does not load, F32, F16 and BF16 do", w.name, t.Type)
		}
		known[w.name] = true
	}
	for name, t := range have {
		if !known[name] && !ignorable(name) {
			return fmt.Errorf("tensor %s %v has no place in a model of %d layers: what loads is %s", name, t.Shape, c.Layers, Supported)
		}
	}
	return nil
}

// ignorable names tensors that some files carry and no computation needs.
func ignorable(name string) bool {
	return strings.HasSuffix(name, "rotary_emb.inv_freq") || strings.HasSuffix(name, ".attn_rot_embd") ||
		strings.HasSuffix(name, "attn_rot_embd.weight") || name == "output.weight"
}

func equal(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
