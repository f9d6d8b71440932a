package model

import (
	"cmp"
	"slices"

	"quire/device"
	"quire/model/tensor"
)

// TypeUse is how much of a model is stored in one type.
type TypeUse struct {
	Type    string `json:"type"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

// Types lists the types that the tensors are stored in, those of most bytes first. Nil after OpenTokenizer.
func (s *Source) Types() []TypeUse {
	uses := map[tensor.Type]TypeUse{}
	for _, t := range s.Tensors {
		u := uses[t.Type]
		uses[t.Type] = TypeUse{t.Type.String(), u.Tensors + 1, u.Bytes + int64(len(t.Data))}
	}
	var out []TypeUse
	for _, u := range uses {
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b TypeUse) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Type, b.Type)) })
	return out
}

// RowBytes is what keys and values of one token take in all layers; 0 for a type that the model's heads do not fit.
func (c Config) RowBytes(kv device.Type) int {
	return c.Layers * device.PoolSpec{KVHeads: c.KVHeads, HeadDim: c.HeadDim, Type: kv}.RowBytes()
}

// Format is one type of weights that loads.
type Format struct {
	Type        string
	Bits        float64 // of a weight, scales included
	GGUF        bool
	Safetensors bool
}

// Formats lists the types of weights that load, in every architecture that does.
func Formats() []Format {
	var out []Format
	for t := tensor.F32; t.Valid(); t++ {
		numbers, bytes := t.Block()
		out = append(out, Format{t.String(), 8 * float64(bytes) / float64(numbers), true, numbers == 1})
	}
	return out
}

// Architectures lists the architectures that load, by GGUF's names.
func Architectures() []string {
	var out []string
	for a := range architectures {
		out = append(out, a)
	}
	slices.Sort(out)
	return out
}
