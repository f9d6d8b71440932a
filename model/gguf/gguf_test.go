package gguf_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"quire/model/gguf"
	"quire/model/gguf/gguftest"
)

func TestParse(t *testing.T) {
	src := gguftest.Tiny()
	src.Set("x.big", uint64(1<<63))
	src.Set("x.bool", true)
	src.Set("x.int", int32(-5))
	f, err := gguf.Parse("tiny.gguf", src.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if f.Version != 3 || len(f.Tensors) != 11 || f.String("general.name", "") != "tiny" || f.Int("llama.block_count", 0) != 1 ||
		!f.Bool("x.bool", false) || f.Int("x.int", 0) != -5 || f.Meta["x.big"] != uint64(1<<63) || f.Int("x.big", 7) != 7 ||
		f.Float("llama.attention.layer_norm_rms_epsilon", 0) == 0 || len(f.Strings("tokenizer.ggml.tokens")) != 263 ||
		len(f.Floats("tokenizer.ggml.scores")) != 263 || len(f.Ints("tokenizer.ggml.token_type")) != 263 || !f.Has("x.int") ||
		len(f.Keys()) != len(src.Pairs) {
		t.Errorf("%+v", f.Keys())
	}
	gate := f.Tensors["blk.0.ffn_gate.weight"]
	if gate.Rows() != 8 || gate.Cols() != 4 || len(gate.Data) != 128 {
		t.Errorf("%v %v %d bytes", gate.Name, gate.Shape, len(gate.Data))
	}
}

func TestRefused(t *testing.T) {
	u32, u64 := binary.LittleEndian.AppendUint32, binary.LittleEndian.AppendUint64
	array := func(kind uint32, n uint64) gguftest.Raw { return u64(u32(u32(nil, 9), kind), n) }
	for _, c := range []struct {
		name string
		set  func(f *gguftest.File)
		want string
	}{
		{"magic", func(f *gguftest.File) { f.Magic = "GGML" }, `begins with "GGML"`},
		{"version", func(f *gguftest.File) { f.Version = 9 }, "version 9"},
		{"count of tensors", func(f *gguftest.File) { f.TensorCount = 60000 }, "60000 of at least 24 bytes each"},
		{"wild count of tensors", func(f *gguftest.File) { f.TensorCount = 1 << 62 }, "at most 65536"},
		{"count of pairs", func(f *gguftest.File) { f.PairCount = 1 << 40 }, "at most 65536"},
		{"string length", func(f *gguftest.File) { f.Set("k", gguftest.Raw(u64(u32(nil, 8), 1<<60))) }, "k length: 1152921504606846976"},
		{"array length", func(f *gguftest.File) { f.Set("k", array(4, 1<<50)) }, "k length: 1125899906842624"},
		{"array longer than the file", func(f *gguftest.File) { f.Set("k", array(10, 8<<10)) }, "k length: 8192 of at least 8 bytes each"},
		{"type of an array", func(f *gguftest.File) { f.Set("k", array(77, 1)) }, "k: unknown element type 77"},
		{"nested arrays", func(f *gguftest.File) {
			f.Set("k", append(array(9, 1), append(array(9, 1)[4:], array(9, 1)[4:]...)...))
		}, "nested deeper"},
		{"type of a value", func(f *gguftest.File) { f.Set("k", gguftest.Raw(u32(nil, 13))) }, "k: unknown value type 13"},
		{"key twice", func(f *gguftest.File) { f.Pairs = append(f.Pairs, f.Pairs[0]) }, `key "general.architecture" comes twice`},
		{"tensor twice", func(f *gguftest.File) { f.Tensors = append(f.Tensors, f.Tensors[3]) }, "comes twice"},
		{"overlap", func(f *gguftest.File) { f.Tensors[3].Offset = f.Tensors[4].Offset }, "overlap"},
		{"no dimensions", func(f *gguftest.File) { f.Tensors[2].Dims = nil }, "0 dimensions"},
		{"five dimensions", func(f *gguftest.File) { f.Tensors[2].Dims = make([]uint64, 5) }, "5 dimensions"},
		{"zero dimension", func(f *gguftest.File) { f.Tensors[2].Dims[0] = 0 }, "not positive"},
		{"wild dimension", func(f *gguftest.File) { f.Tensors[2].Dims[0] = 1 << 40 }, "dimension 0 is 1099511627776"},
		{"product overflows", func(f *gguftest.File) {
			f.Tensors[2].Dims = []uint64{1 << 30, 1 << 30, 1 << 30, 1 << 30}
		}, "more bytes than can be counted"},
		{"type Q3_K", func(f *gguftest.File) { f.Tensors[3].Type = 11 }, "type Q3_K (11) does not load, these do: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K"},
		{"type unknown", func(f *gguftest.File) { f.Tensors[3].Type = 99 }, "type 99 does not load"},
		{"row of no whole blocks", func(f *gguftest.File) { f.Tensors[3].Type = 8 }, "no whole number of Q8_0 blocks"},
		{"offset not aligned", func(f *gguftest.File) { f.Tensors[3].Offset += 4 }, "no multiple of the alignment 32"},
		{"offset beyond the file", func(f *gguftest.File) { f.Tensors[3].Offset = 1 << 40 }, "is it truncated?"},
		{"offset that overflows", func(f *gguftest.File) { f.Tensors[3].Offset = 1<<64 - 32 }, "is it truncated?"},
		{"alignment", func(f *gguftest.File) { f.Set("general.alignment", uint32(7)) }, "general.alignment 7"},
		{"data cut", func(f *gguftest.File) { f.Data = f.Data[:len(f.Data)-40] }, "is it truncated?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := gguftest.Tiny()
			c.set(&f)
			_, err := gguf.Parse("lies.gguf", f.Bytes())
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "gguf: lies.gguf: ") {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// TestTruncatedAnywhere cuts a good file at every byte of its header and a few of its data.
func TestTruncatedAnywhere(t *testing.T) {
	whole := gguftest.Tiny().Bytes()
	for n := range whole {
		if _, err := gguf.Parse("cut.gguf", whole[:n:n]); err == nil {
			t.Fatalf("%d bytes of %d are taken for a whole file", n, len(whole))
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(gguftest.Tiny().Bytes())
	small := gguftest.File{TensorCount: -1, PairCount: -1, Pairs: []gguftest.Pair{{Key: "a", Value: "b"}, {Key: "c", Value: []float32{1}}}}
	small.Add(gguftest.Tensor{Name: "t", Dims: []uint64{32, 2}, Type: 0}, 4)
	f.Add(small.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := gguf.Parse("fuzz.gguf", b)
		if err != nil {
			return
		}
		for name, x := range file.Tensors {
			if n, err := x.Type.RowBytes(x.Cols()); err != nil || n*x.Rows() != len(x.Data) {
				t.Errorf("tensor %s: %v in %d bytes", name, x.Shape, len(x.Data))
			}
		}
	})
}
