// Package safetensors reads safetensors files: where each tensor lies.
//
//	u64 header length (little endian)  header (JSON)  data
//	header: {"name": {"dtype": "F32", "shape": [rows, cols], "data_offsets": [from, to)}, "__metadata__": {...}}
//
// Offsets count from the start of the data. Lengths are checked against the file before anything is allocated; data is only
// sliced, never read.
package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"sort"

	"quire/model/tensor"
)

// maxHeader is the longest header in bytes, as the format's authors limit it.
const maxHeader = 100 << 20

var types = map[string]tensor.Type{"F32": tensor.F32, "F16": tensor.F16, "BF16": tensor.BF16}

// Supported lists the types that load, for messages.
const Supported = "F32, F16, BF16"

// File is a parsed safetensors file. Tensors borrow from the bytes that were parsed.
type File struct {
	Name     string // for messages
	Metadata map[string]string
	Tensors  map[string]tensor.Tensor
}

type entry struct {
	DType   string    `json:"dtype"`
	Shape   []int64   `json:"shape"`
	Offsets [2]uint64 `json:"data_offsets"`
}

// Parse reads the header in b, which is the whole file, and slices its tensors. Errors name the file, the tensor and the numbers
// that do not fit.
func Parse(name string, b []byte) (*File, error) {
	f := &File{Name: name}
	if err := f.parse(b); err != nil {
		return nil, fmt.Errorf("safetensors: %s: %w", name, err)
	}
	return f, nil
}

func (f *File) parse(b []byte) error {
	if len(b) < 8 {
		return fmt.Errorf("%d bytes, at least 8 are needed", len(b))
	}
	n := binary.LittleEndian.Uint64(b)
	if n > maxHeader || n > uint64(len(b)-8) {
		return fmt.Errorf("header of %d bytes, the file has %d left and at most %d are possible", n, len(b)-8, maxHeader)
	}
	entries, err := f.header(b[8 : 8+n])
	if err != nil {
		return err
	}
	return f.slice(entries, b[8+n:])
}

// header reads the JSON object by hand, so that a name that comes twice is seen.
func (f *File) header(b []byte) (map[string]entry, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("header: no JSON object at byte 8")
	}
	entries := map[string]entry{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("header: %w", err)
		}
		name, _ := t.(string)
		if name == "__metadata__" {
			if f.Metadata != nil {
				return nil, fmt.Errorf("header: __metadata__ comes twice")
			}
			f.Metadata = map[string]string{}
			if err := dec.Decode(&f.Metadata); err != nil {
				return nil, fmt.Errorf("header: __metadata__: %w", err)
			}
			continue
		}
		if _, twice := entries[name]; twice {
			return nil, fmt.Errorf("tensor %s comes twice", name)
		}
		var e entry
		if err := dec.Decode(&e); err != nil {
			return nil, fmt.Errorf("tensor %s: %w", name, err)
		}
		entries[name] = e
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	return entries, nil
}

func (f *File) slice(entries map[string]entry, data []byte) error {
	f.Tensors = make(map[string]tensor.Tensor, len(entries))
	names := make([]string, 0, len(entries))
	for name, e := range entries {
		t, err := e.tensor(name, data)
		if err != nil {
			return fmt.Errorf("tensor %s: %w", name, err)
		}
		f.Tensors[name] = t
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool { return entries[names[i]].Offsets[0] < entries[names[j]].Offsets[0] })
	for i := 1; i < len(names); i++ {
		if a, b := entries[names[i-1]], entries[names[i]]; b.Offsets[0] < a.Offsets[1] {
			return fmt.Errorf("tensors %s and %s overlap at byte %d of the data", names[i-1], names[i], b.Offsets[0])
		}
	}
	return nil
}

func (e entry) tensor(name string, data []byte) (tensor.Tensor, error) {
	kind, ok := types[e.DType]
	if !ok {
		return tensor.Tensor{}, fmt.Errorf("type %q does not load, these do: %s", e.DType, Supported)
	}
	shape := make([]int, len(e.Shape))
	for i, d := range e.Shape {
		if d <= 0 || d > math.MaxInt32 {
			return tensor.Tensor{}, fmt.Errorf("dimension %d of %v, 1 to %d is possible", i, e.Shape, math.MaxInt32)
		}
		shape[i] = int(d)
	}
	if len(shape) == 0 {
		shape = []int{1}
	}
	size, err := tensor.Size(kind, shape)
	if err != nil {
		return tensor.Tensor{}, err
	}
	from, to := e.Offsets[0], e.Offsets[1]
	if from > to || to > uint64(len(data)) {
		return tensor.Tensor{}, fmt.Errorf("bytes [%d, %d) of %d: is the file truncated?", from, to, len(data))
	}
	if to-from != uint64(size) {
		return tensor.Tensor{}, fmt.Errorf("%s %v takes %d bytes, the header says %d", kind, shape, size, to-from)
	}
	return tensor.Tensor{Name: name, Type: kind, Shape: shape, Data: data[from:to:to]}, nil
}
