package gguf

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"quire/model/tensor"
)

// File is a parsed GGUF file. Tensors borrow from the bytes that were parsed.
type File struct {
	Name    string // for messages
	Version uint32
	Meta    map[string]any // see Value types at the accessors below
	Tensors map[string]tensor.Tensor
}

// ggml's numbers of the types that load.
var ggmlTypes = map[uint32]tensor.Type{
	0: tensor.F32, 1: tensor.F16, 2: tensor.Q4_0, 3: tensor.Q4_1, 6: tensor.Q5_0, 7: tensor.Q5_1, 8: tensor.Q8_0,
	12: tensor.Q4_K, 13: tensor.Q5_K, 14: tensor.Q6_K, 30: tensor.BF16,
}

// ggmlNames are known types that do not load, for messages.
var ggmlNames = map[uint32]string{
	9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS",
	17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16",
	26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}

// IsGGUF says whether the bytes begin as a GGUF file does.
func IsGGUF(b []byte) bool { return len(b) >= 4 && string(b[:4]) == "GGUF" }

// Parse reads the header in b, which is the whole file, and slices its tensors. Errors name the file, the tensor or key, and
// the numbers that do not fit.
func Parse(name string, b []byte) (*File, error) {
	f := &File{Name: name}
	if err := f.parse(b); err != nil {
		return nil, fmt.Errorf("gguf: %s: %w", name, err)
	}
	return f, nil
}

func (f *File) parse(b []byte) error {
	if !IsGGUF(b) {
		return fmt.Errorf("no GGUF file: it begins with %q", b[:min(4, len(b))])
	}
	c := &cursor{b: b, at: 4}
	f.Version = c.u32("version")
	if c.err == nil && f.Version != 2 && f.Version != 3 {
		return fmt.Errorf("version %d, versions 2 and 3 load", f.Version)
	}
	nt := c.count("tensors", 24, maxTensors)
	pairs := c.count("key/value pairs", 13, maxPairs)
	f.Meta = make(map[string]any, pairs)
	for range pairs {
		key := c.str("key")
		value := c.value(key, c.u32(key), 0)
		if c.err != nil {
			return c.err
		}
		if _, twice := f.Meta[key]; twice {
			return fmt.Errorf("key %q comes twice", key)
		}
		f.Meta[key] = value
	}
	infos := make([]info, 0, nt)
	for i := range nt {
		infos = append(infos, c.info(i))
		if c.err != nil {
			return c.err
		}
	}
	if c.err != nil {
		return c.err
	}
	return f.slice(infos, b, c.at)
}

// info is a tensor's description as stored.
type info struct {
	name   string
	shape  []int // outermost first
	kind   uint32
	offset uint64
}

func (c *cursor) info(i int) info {
	t := info{name: c.str(fmt.Sprintf("name of tensor %d", i))}
	n := c.u32(t.name)
	if c.err == nil && (n == 0 || n > 4) {
		c.fail("tensor %s: %d dimensions, 1 to 4 are possible", t.name, n)
	}
	if c.err != nil {
		return t
	}
	t.shape = make([]int, n)
	for j := range t.shape {
		d := c.u64(t.name)
		if d > math.MaxInt32 {
			c.fail("tensor %s: dimension %d is %d, at most %d is possible", t.name, j, d, math.MaxInt32)
			return t
		}
		t.shape[len(t.shape)-1-j] = int(d)
	}
	t.kind = c.u32(t.name)
	t.offset = c.u64(t.name)
	return t
}

// slice turns descriptions into tensors: types known, sizes within the file, names once, no two overlapping.
func (f *File) slice(infos []info, b []byte, headerEnd int) error {
	align := f.Int("general.alignment", 32)
	if align <= 0 || align > 1<<20 || align%8 != 0 {
		return fmt.Errorf("general.alignment %d, a multiple of 8 up to %d is possible", align, 1<<20)
	}
	start := (headerEnd + align - 1) / align * align
	f.Tensors = make(map[string]tensor.Tensor, len(infos))
	type span struct {
		from, to int
		name     string
	}
	spans := make([]span, 0, len(infos))
	for _, t := range infos {
		kind, ok := ggmlTypes[t.kind]
		if !ok {
			return fmt.Errorf("tensor %s: type %s does not load, these do: %s", t.name, typeName(t.kind), tensor.Supported())
		}
		size, err := tensor.Size(kind, t.shape)
		if err != nil {
			return fmt.Errorf("tensor %s: %w", t.name, err)
		}
		if t.offset%uint64(align) != 0 {
			return fmt.Errorf("tensor %s: offset %d is no multiple of the alignment %d", t.name, t.offset, align)
		}
		if t.offset > uint64(max(0, len(b)-start)) || size > len(b)-start-int(t.offset) {
			return fmt.Errorf("tensor %s: %s %v takes %d bytes from %d on, the file ends at %d: is it truncated?",
				t.name, kind, t.shape, size, uint64(start)+t.offset, len(b))
		}
		if _, twice := f.Tensors[t.name]; twice {
			return fmt.Errorf("tensor %s comes twice", t.name)
		}
		from := start + int(t.offset)
		f.Tensors[t.name] = tensor.Tensor{Name: t.name, Type: kind, Shape: t.shape, Data: b[from : from+size : from+size]}
		spans = append(spans, span{from, from + size, t.name})
	}
	sort.Slice(spans, func(i, j int) bool { return spans[i].from < spans[j].from })
	for i := 1; i < len(spans); i++ {
		if spans[i].from < spans[i-1].to {
			return fmt.Errorf("tensors %s and %s overlap at byte %d", spans[i-1].name, spans[i].name, spans[i].from)
		}
	}
	return nil
}

func typeName(t uint32) string {
	if name, ok := ggmlNames[t]; ok {
		return fmt.Sprintf("%s (%d)", name, t)
	}
	return fmt.Sprintf("%d", t)
}

// Keys lists the metadata keys in order, for display.
func (f *File) Keys() []string {
	keys := make([]string, 0, len(f.Meta))
	for k := range f.Meta {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// Has says whether the key is there.
func (f *File) Has(key string) bool { _, ok := f.Meta[key]; return ok }

// String gives a string value, or def.
func (f *File) String(key, def string) string {
	if s, ok := f.Meta[key].(string); ok {
		return strings.Clone(s)
	}
	return def
}

// Int gives a whole number that fits an int, or def.
func (f *File) Int(key string, def int) int {
	if n, ok := f.Meta[key].(int64); ok && n == int64(int(n)) {
		return int(n)
	}
	return def
}

// Float gives a number, or def.
func (f *File) Float(key string, def float64) float64 {
	switch n := f.Meta[key].(type) {
	case float64:
		return n
	case int64:
		return float64(n)
	}
	return def
}

// Bool gives a truth value, or def.
func (f *File) Bool(key string, def bool) bool {
	if v, ok := f.Meta[key].(bool); ok {
		return v
	}
	return def
}

// Strings gives an array of strings, or nil.
func (f *File) Strings(key string) []string { s, _ := f.Meta[key].([]string); return s }

// Ints gives an array of whole numbers, or nil.
func (f *File) Ints(key string) []int64 { s, _ := f.Meta[key].([]int64); return s }

// Floats gives an array of numbers, or nil.
func (f *File) Floats(key string) []float64 { s, _ := f.Meta[key].([]float64); return s }
