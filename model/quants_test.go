package model_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"quire/device"
	"quire/device/cpu"
	"quire/model"
	"quire/model/gguf/gguftest"
	"quire/model/tensor"
)

// ggmlNumbers is how GGUF files number the types.
var ggmlNumbers = map[device.Type]uint32{
	device.F32: 0, device.F16: 1, device.Q4_0: 2, device.Q4_1: 3, device.Q5_0: 6, device.Q5_1: 7, device.Q8_0: 8,
	device.Q4_K: 12, device.Q5_K: 13, device.Q6_K: 14, device.BF16: 30,
}

// drawn is a model of random weights: dim 256, 4 heads of 64, 2 key/value heads, feed-forward 256, the vocabulary of
// gguftest.Tiny. typeOf says how each matrix is stored.
type drawn struct {
	gguftest.File
	r      *rand.Rand
	plain  gguftest.File // the same numbers in F32
	dev    device.Device
	typeOf func(name string) device.Type
	t      testing.TB
}

func draw(t testing.TB, layers int, typeOf func(name string) device.Type) *drawn {
	t.Helper()
	dev, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	d := &drawn{File: gguftest.Tiny(), r: rand.New(rand.NewPCG(1, 2)), dev: dev, typeOf: typeOf, t: t}
	d.Tensors, d.Data = nil, nil
	for key, v := range map[string]int{
		"block_count": layers, "embedding_length": 256, "feed_forward_length": 256, "attention.head_count": 4,
		"attention.head_count_kv": 2, "rope.dimension_count": 64, "context_length": 512,
	} {
		d.Set("llama."+key, uint32(v))
	}
	d.plain = d.File
	d.matrix("token_embd", 263, 256)
	for i := range layers {
		n := func(s string) string { return fmt.Sprintf("blk.%d.%s", i, s) }
		d.norm(n("attn_norm"))
		d.matrix(n("attn_q"), 256, 256)
		d.matrix(n("attn_k"), 128, 256)
		d.matrix(n("attn_v"), 128, 256)
		d.matrix(n("attn_output"), 256, 256)
		d.norm(n("ffn_norm"))
		d.matrix(n("ffn_gate"), 256, 256)
		d.matrix(n("ffn_up"), 256, 256)
		d.matrix(n("ffn_down"), 256, 256)
	}
	d.norm("output_norm")
	return d
}

func (d *drawn) norm(name string) {
	ones := make([]float32, 256)
	for i := range ones {
		ones[i] = 1
	}
	for _, f := range []*gguftest.File{&d.File, &d.plain} {
		put(f, name, []uint64{256}, 0, floatBytes(ones))
	}
}

// matrix draws a matrix of random blocks and puts it in as it is, and dequantised.
func (d *drawn) matrix(name string, rows, cols int) {
	d.t.Helper()
	typ := d.typeOf(name)
	numbers, size := typ.Block()
	src := make([]byte, rows*cols/numbers*size)
	for i := range src {
		src[i] = byte(d.r.Uint32())
	}
	for i := 0; i < len(src); i += size {
		d.block(typ, src[i:i+size])
	}
	dims := []uint64{uint64(cols), uint64(rows)}
	put(&d.File, name, dims, ggmlNumbers[typ], src)
	put(&d.plain, name, dims, 0, floatBytes(d.widened(typ, rows, cols, src)))
}

// block gives a block of random bytes factors that make weights of about 0.06.
func (d *drawn) block(typ device.Type, b []byte) {
	f := float32(d.r.NormFloat64()) * 0.06
	switch typ {
	case device.F32:
		binary.LittleEndian.PutUint32(b, math.Float32bits(f))
	case device.F16:
		binary.LittleEndian.PutUint16(b, device.ToF16(f))
	case device.BF16:
		binary.LittleEndian.PutUint16(b, uint16(math.Float32bits(f)>>16))
	}
	scale := map[device.Type]float32{
		device.Q8_0: 73, device.Q4_0: 5, device.Q4_1: 5, device.Q5_0: 9, device.Q5_1: 9, device.Q4_K: 31 * 5, device.Q5_K: 31 * 9, device.Q6_K: 73 * 18,
	}[typ]
	for i, at := range device.Factors(typ) {
		v := float32(math.Abs(float64(f))) / scale
		switch {
		case i == 1 && (typ == device.Q4_1 || typ == device.Q5_1):
			v *= -scale * 1.5 // of weights around zero
		case i == 1:
			v *= scale / 20
		}
		binary.LittleEndian.PutUint16(b[at:], device.ToF16(v))
	}
}

// widened gives the numbers of a matrix, row after row.
func (d *drawn) widened(typ device.Type, rows, cols int, src []byte) []float32 {
	d.t.Helper()
	m, err := d.dev.Matrix(typ, rows, cols, src)
	if err != nil {
		d.t.Fatal(err)
	}
	out, err := d.dev.Buffer(rows, cols)
	if err != nil {
		d.t.Fatal(err)
	}
	numbers, dl := make([]float32, rows*cols), device.Download{From: out}
	b := &device.Batch{Seqs: []device.Seq{{Rows: rows}}}
	for i := range rows {
		b.Tokens = append(b.Tokens, int32(i))
		dl.Rows, dl.To = append(dl.Rows, i), append(dl.To, numbers[i*cols:(i+1)*cols])
	}
	if err := d.dev.Run(&device.Step{Batch: b, Ops: []device.Op{device.Embed{Out: out, Table: m}, dl}}); err != nil {
		d.t.Fatal(err)
	}
	return numbers
}

func floatBytes(f []float32) []byte {
	b := make([]byte, 0, 4*len(f))
	for _, v := range f {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// put appends a tensor with its data.
func put(f *gguftest.File, name string, dims []uint64, kind uint32, data []byte) {
	f.Tensors = append(f.Tensors, gguftest.Tensor{Name: name + ".weight", Dims: dims, Type: kind, Offset: uint64(len(f.Data))})
	f.Data = append(f.Data, data...)
	f.Data = append(f.Data, make([]byte, (32-len(data)%32)%32)...)
}

func openFile(t testing.TB, f gguftest.File) *model.Source {
	t.Helper()
	return open(t, write(t, filepath.Join(t.TempDir(), "drawn.gguf"), f.Bytes()))
}

// mixed gives every layer another type, as files do whose rows are no whole number of long blocks.
func mixed(name string) device.Type {
	all := []device.Type{device.Q4_K, device.Q5_K, device.Q6_K, device.Q5_0, device.Q5_1}
	switch {
	case name == "token_embd":
		return device.Q6_K
	case strings.HasSuffix(name, "ffn_down"):
		return device.Q8_0
	}
	return all[int(name[4]-'0')%len(all)]
}

// TestTypes: a model of each type, and of many at once, gives the logits of the same numbers in F32; with int8 activations
// about so.
func TestTypes(t *testing.T) {
	tokens := story(20, 263, 4)
	check := func(t *testing.T, layers int, typeOf func(string) device.Type) {
		d := draw(t, layers, typeOf)
		o := rigOptions{cpu.Options{Activations: "f32"}, model.EngineOptions{KVType: device.F32}}
		want := newRig(t, openFile(t, d.plain), o).seq(len(tokens)).logits(tokens...)
		for acts, bound := range map[string]float64{"f32": 1e-5, "int8": 0.06} {
			o.cpu.Activations = acts
			got := newRig(t, openFile(t, d.File), o).seq(len(tokens)).logits(tokens...)
			var top, worst float64
			for i := range want {
				for j, w := range want[i] {
					top = math.Max(top, math.Abs(float64(w)))
					worst = math.Max(worst, math.Abs(float64(w-got[i][j])))
				}
			}
			t.Logf("%s: largest difference of a logit %.2g of %.3g", acts, worst, top)
			if !(worst <= bound*top) {
				t.Errorf("%s: logits differ by %.2g of the largest, at most %g is right", acts, worst/top, bound)
			}
		}
	}
	for typ := device.F32; typ.Valid(); typ++ {
		t.Run(typ.String(), func(t *testing.T) { check(t, 1, func(string) device.Type { return typ }) })
	}
	t.Run("mixed", func(t *testing.T) { check(t, 5, mixed) })
}

// TestMixedFile: a file that ggml quantised, with five types of five and six bits and of 256 numbers a block, gives the logits that
// llama.cpp computes from the same numbers in F32 (testdata/mixed.py); with int8 activations about so.
func TestMixedFile(t *testing.T) {
	var g struct {
		Tokens []int32     `json:"tokens"`
		Rows   []int       `json:"rows"`
		Logits [][]float64 `json:"logits"`
	}
	readJSON(t, filepath.Join("testdata", "mixed.json"), &g)
	src := open(t, filepath.Join("testdata", "mixed.gguf"))
	for acts, bound := range map[string]float64{"f32": 1e-4, "int8": 0.15} {
		r := newRig(t, src, rigOptions{cpu.Options{Activations: acts}, model.EngineOptions{KVType: device.F32}})
		got := r.seq(len(g.Tokens)).logits(g.Tokens...)
		var worst float64
		for i, row := range g.Rows {
			for j, want := range g.Logits[i] {
				worst = math.Max(worst, math.Abs(float64(got[row][j])-want))
			}
		}
		t.Logf("%s: largest difference of a logit: %.2g", acts, worst)
		if !(worst < bound) {
			t.Errorf("%s: largest difference of a logit: %g, below %g is right", acts, worst, bound)
		}
	}
}

// TestTensorTypes: files and devices agree on what a type is.
func TestTensorTypes(t *testing.T) {
	for typ := tensor.F32; typ.Valid(); typ++ {
		d := device.Type(0)
		for dt := device.F32; dt.Valid(); dt++ {
			if dt.String() == typ.String() {
				d = dt
			}
		}
		n, size := typ.Block()
		if dn, dsize := d.Block(); dn != n || dsize != size {
			t.Errorf("%s: blocks of %d numbers in %d bytes in files, of %d in %d on devices", typ, n, size, dn, dsize)
		}
	}
}
