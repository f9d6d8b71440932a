package safetensors_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"quire/model/safetensors"
)

func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

const good = `{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}}`

func TestParse(t *testing.T) {
	f, err := safetensors.Parse("x.safetensors", file(good, 32))
	if err != nil {
		t.Fatal(err)
	}
	a, b := f.Tensors["a"], f.Tensors["b"]
	if len(f.Tensors) != 2 || a.Rows() != 2 || a.Cols() != 3 || len(a.Data) != 24 || b.Rows() != 1 || b.Cols() != 4 || f.Metadata["format"] != "pt" {
		t.Errorf("%+v", f)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"empty", nil, "0 bytes, at least 8"},
		{"header longer than the file", binary.LittleEndian.AppendUint64(nil, 1<<60), "header of 1152921504606846976 bytes"},
		{"no object", file(`[]`, 0), "no JSON object"},
		{"broken JSON", file(`{"a":`, 0), "tensor a: EOF"},
		{"not closed", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}`, 4), "header"},
		{"type", file(`{"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}}`, 4), `type "F8_E4M3" does not load, these do: F32, F16, BF16`},
		{"size", file(`{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,20]}}`, 20), "takes 24 bytes, the header says 20"},
		{"truncated", file(good, 30), "bytes [24, 32) of 30: is the file truncated?"},
		{"backwards", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}}`, 8), "bytes [8, 4)"},
		{"negative offset", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}`, 8), "tensor a"},
		{"negative dimension", file(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, 4), "dimension 0"},
		{"wild dimensions", file(`{"a":{"dtype":"F32","shape":[2000000000,2000000000,2000000000],"data_offsets":[0,4]}}`, 4), "more bytes than can be counted"},
		{"twice", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), "tensor a comes twice"},
		{"overlap", file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), "overlap at byte 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := safetensors.Parse("lies.safetensors", c.b)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "safetensors: lies.safetensors: ") {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(file(good, 32))
	f.Add(file(`{}`, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := safetensors.Parse("fuzz", b)
		if err != nil {
			return
		}
		for name, x := range s.Tensors {
			if n, err := x.Type.RowBytes(x.Cols()); err != nil || n*x.Rows() != len(x.Data) {
				t.Errorf("tensor %s: %v in %d bytes", name, x.Shape, len(x.Data))
			}
		}
	})
}
