// Package gguftest writes GGUF files for tests, true ones and lying ones.
package gguftest

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Tensor is one tensor of a file. Dims are innermost first, as GGUF has them.
type Tensor struct {
	Name   string
	Dims   []uint64
	Type   uint32
	Offset uint64 // from the start of the data
}

// Pair is one key with a value: string, uint32, int32, float32, bool, uint64, []string, []float32 or []int32. Raw values are
// written as they are, type number included.
type Pair struct {
	Key   string
	Value any
}

// Raw is a value's bytes, its type number included.
type Raw []byte

// File is what Bytes writes. Zero Version is 3; negative counts mean the true ones.
type File struct {
	Magic       string // "" = GGUF
	Version     uint32
	TensorCount int64 // -1 = len(Tensors)
	PairCount   int64 // -1 = len(Pairs)
	Pairs       []Pair
	Tensors     []Tensor
	Data        []byte
	Alignment   int // of the data, 0 = 32
}

// Bytes gives the file.
func (f File) Bytes() []byte {
	var b bytes.Buffer
	put := func(v any) {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	str := func(s string) { put(uint64(len(s))); b.WriteString(s) }
	magic, version := f.Magic, f.Version
	if magic == "" {
		magic = "GGUF"
	}
	if version == 0 {
		version = 3
	}
	count := func(n int64, have int) int64 {
		if n < 0 {
			return int64(have)
		}
		return n
	}
	b.WriteString(magic)
	put(version)
	put(count(f.TensorCount, len(f.Tensors)))
	put(count(f.PairCount, len(f.Pairs)))
	for _, p := range f.Pairs {
		str(p.Key)
		value(&b, p.Value, put, str)
	}
	for _, t := range f.Tensors {
		str(t.Name)
		put(uint32(len(t.Dims)))
		put(t.Dims)
		put(t.Type)
		put(t.Offset)
	}
	align := f.Alignment
	if align == 0 {
		align = 32
	}
	for b.Len()%align != 0 {
		b.WriteByte(0)
	}
	b.Write(f.Data)
	return b.Bytes()
}

func value(b *bytes.Buffer, v any, put func(any), str func(string)) {
	array := func(kind uint32, n int) { put(uint32(9)); put(kind); put(uint64(n)) }
	switch v := v.(type) {
	case Raw:
		b.Write(v)
	case string:
		put(uint32(8))
		str(v)
	case uint32:
		put(uint32(4))
		put(v)
	case int32:
		put(uint32(5))
		put(v)
	case float32:
		put(uint32(6))
		put(v)
	case bool:
		put(uint32(7))
		put(v)
	case uint64:
		put(uint32(10))
		put(v)
	case []string:
		array(8, len(v))
		for _, s := range v {
			str(s)
		}
	case []float32:
		array(6, len(v))
		put(v)
	case []int32:
		array(5, len(v))
		put(v)
	default:
		panic(fmt.Sprintf("gguftest: no way to write %T", v))
	}
}

// Tiny is a whole model of one layer, F32 throughout, with a SentencePiece vocabulary of six tokens and 256 bytes: dim 4,
// 2 heads of 2, 1 key/value head, feed-forward 8. Its weights are zeros.
func Tiny() File {
	tokens, kinds := []string{"<unk>", "<s>", "</s>", "\u2581", "a", "b", "\u2581a"}, []int32{2, 3, 3, 1, 1, 1, 1}
	for i := range 256 {
		tokens, kinds = append(tokens, fmt.Sprintf("<0x%02X>", i)), append(kinds, 6)
	}
	scores := make([]float32, len(tokens))
	scores[3], scores[4], scores[5], scores[6] = -3, -1, -2, -0.5
	vocab := uint64(len(tokens))
	f := File{TensorCount: -1, PairCount: -1, Pairs: []Pair{
		{"general.architecture", "llama"}, {"general.name", "tiny"},
		{"llama.block_count", uint32(1)}, {"llama.context_length", uint32(64)}, {"llama.embedding_length", uint32(4)},
		{"llama.feed_forward_length", uint32(8)}, {"llama.attention.head_count", uint32(2)}, {"llama.attention.head_count_kv", uint32(1)},
		{"llama.attention.layer_norm_rms_epsilon", float32(1e-5)}, {"llama.rope.dimension_count", uint32(2)},
		{"tokenizer.ggml.model", "llama"}, {"tokenizer.ggml.tokens", tokens}, {"tokenizer.ggml.scores", scores},
		{"tokenizer.ggml.token_type", kinds}, {"tokenizer.ggml.bos_token_id", uint32(1)}, {"tokenizer.ggml.eos_token_id", uint32(2)},
	}}
	for _, t := range []Tensor{
		{Name: "token_embd.weight", Dims: []uint64{4, vocab}}, {Name: "output_norm.weight", Dims: []uint64{4}},
		{Name: "blk.0.attn_norm.weight", Dims: []uint64{4}}, {Name: "blk.0.attn_q.weight", Dims: []uint64{4, 4}},
		{Name: "blk.0.attn_k.weight", Dims: []uint64{4, 2}}, {Name: "blk.0.attn_v.weight", Dims: []uint64{4, 2}},
		{Name: "blk.0.attn_output.weight", Dims: []uint64{4, 4}}, {Name: "blk.0.ffn_norm.weight", Dims: []uint64{4}},
		{Name: "blk.0.ffn_gate.weight", Dims: []uint64{4, 8}}, {Name: "blk.0.ffn_up.weight", Dims: []uint64{4, 8}},
		{Name: "blk.0.ffn_down.weight", Dims: []uint64{8, 4}},
	} {
		f.Add(t, 4)
	}
	return f
}

// Add appends a tensor and zeros for its data, of so many bytes a number.
func (f *File) Add(t Tensor, bytesEach int) {
	size := bytesEach
	for _, d := range t.Dims {
		size *= int(d)
	}
	t.Offset = uint64(len(f.Data))
	f.Tensors = append(f.Tensors, t)
	f.Data = append(f.Data, make([]byte, (size+31)/32*32)...)
}

// Set replaces the value of a key, or adds it; a nil value takes the key away.
func (f *File) Set(key string, v any) {
	for i, p := range f.Pairs {
		if p.Key != key {
			continue
		}
		if v == nil {
			f.Pairs = append(f.Pairs[:i:i], f.Pairs[i+1:]...)
		} else {
			f.Pairs = append([]Pair(nil), f.Pairs...)
			f.Pairs[i].Value = v
		}
		return
	}
	if v != nil {
		f.Pairs = append(f.Pairs, Pair{key, v})
	}
}
