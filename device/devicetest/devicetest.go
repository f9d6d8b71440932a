// Package devicetest is the conformance suite of device.Device: every op against a plain float64 computation of the same thing,
// equality of a row's bits whatever surrounds it, and the refusals.
package devicetest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"quire/device"
)

// Run checks a device. open makes a fresh one; the suite closes it.
func Run(t *testing.T, open func(t *testing.T) device.Device) {
	for _, c := range []struct {
		name string
		test func(*bench)
	}{
		{"Embed", testEmbed}, {"MatMul", testMatMul}, {"MatMulRowAlone", testMatMulRowAlone}, {"Norm", testNorm}, {"SwiGLU", testSwiGLU},
		{"Gather", testGather}, {"Attention", testAttention}, {"Scratch", testScratch}, {"Compare", testCompare}, {"AttentionAlone", testAttentionAlone}, {"Pool", testPool}, {"Refusals", testRefusals},
		{"Heads", testHeads}, {"Probe", testProbe},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := open(t)
			defer func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}()
			c.test(&bench{T: t, dev: d, r: rand.New(rand.NewPCG(1, 2))})
		})
	}
}

// bench is a device under test with helpers that end the test on an error.
type bench struct {
	*testing.T
	dev device.Device
	r   *rand.Rand
}

// table is rows of numbers on the host.
type table [][]float32

func (b *bench) random(rows, cols int) table {
	t := make(table, rows)
	for i := range t {
		t[i] = make([]float32, cols)
		for j := range t[i] {
			t[i][j] = float32(b.r.NormFloat64())
		}
	}
	return t
}

// buffer makes a buffer with the numbers of a table.
func (b *bench) buffer(t table) device.Buffer {
	b.Helper()
	buf := b.empty(len(t), len(t[0]))
	for i, row := range t {
		if err := b.dev.Upload(buf, i, row); err != nil {
			b.Fatal(err)
		}
	}
	return buf
}

func (b *bench) empty(rows, cols int) device.Buffer {
	b.Helper()
	buf, err := b.dev.Buffer(rows, cols)
	if err != nil {
		b.Fatal(err)
	}
	return buf
}

// batch is rows tokens of one sequence without pages.
func batch(rows int) *device.Batch {
	return &device.Batch{Tokens: make([]int32, rows), Seqs: []device.Seq{{Rows: rows}}}
}

// run runs ops over a batch and gives the rows of a buffer.
func (b *bench) run(bt *device.Batch, out device.Buffer, ops ...device.Op) table {
	b.Helper()
	dl := device.Download{From: out}
	t := make(table, out.Rows())
	for i := range t {
		t[i] = make([]float32, out.Cols())
		dl.Rows, dl.To = append(dl.Rows, i), append(dl.To, t[i])
	}
	if err := b.dev.Run(&device.Step{Batch: bt, Ops: append(ops, dl)}); err != nil {
		b.Fatal(err)
	}
	return t
}

// near checks a row against the reference, to within a part of the reference's largest number.
func (b *bench) near(what string, got []float32, want []float64, part float64) {
	b.Helper()
	top := 1e-3
	for _, w := range want {
		top = math.Max(top, math.Abs(w))
	}
	for i, w := range want {
		if d := math.Abs(float64(got[i]) - w); !(d <= part*top) {
			b.Fatalf("%s: number %d is %g, want %g: off by %.2g of the largest, at most %.2g is right", what, i, got[i], w, d/top, part)
		}
	}
}

func sameBits(a, b []float32) bool {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return len(a) == len(b)
}

// weights makes a matrix of a type and the numbers that it stands for.
func (b *bench) weights(t device.Type, rows, cols int) (device.Matrix, table) {
	b.Helper()
	var src []byte
	n, _ := t.Block()
	for range rows * cols / n {
		src = b.block(src, t)
	}
	m, err := b.dev.Matrix(t, rows, cols, src)
	if err != nil {
		b.Fatal(err)
	}
	return m, decode(t, src, rows, cols)
}

// block appends a random block of a type.
func (b *bench) block(dst []byte, t device.Type) []byte {
	f := float32(b.r.NormFloat64())
	switch t {
	case device.F32:
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(f))
	case device.F16:
		return binary.LittleEndian.AppendUint16(dst, device.ToF16(f))
	case device.BF16:
		return binary.LittleEndian.AppendUint16(dst, uint16(math.Float32bits(f)>>16))
	}
	at := len(dst)
	_, size := t.Block()
	for range size {
		dst = append(dst, byte(b.r.Uint32()))
	}
	for i, factor := range device.Factors(t) {
		n, _ := t.Block()
		part := [2][2]float32{{64, 8}, {4096, 4096}}[n/256][i] // the K types multiply their factors by up to 63 or 127
		binary.LittleEndian.PutUint16(dst[at+factor:], device.ToF16(float32(b.r.NormFloat64())/part))
	}
	return dst
}

// blockCols is the number of columns nearest above n that is a whole number of blocks.
func blockCols(t device.Type, n int) int {
	size, _ := t.Block()
	return (n + size - 1) / size * size
}

// decode gives the numbers of rows of a type, straight from the formats' definitions.
func decode(t device.Type, src []byte, rows, cols int) table {
	out := make(table, rows)
	half := func() float32 {
		v := device.FromF16(binary.LittleEndian.Uint16(src))
		src = src[2:]
		return v
	}
	for r := range out {
		for len(out[r]) < cols {
			switch t {
			case device.F32:
				out[r] = append(out[r], math.Float32frombits(binary.LittleEndian.Uint32(src)))
				src = src[4:]
			case device.F16:
				out[r] = append(out[r], half())
			case device.BF16:
				out[r] = append(out[r], device.FromBF16(binary.LittleEndian.Uint16(src)))
				src = src[2:]
			case device.Q8_0:
				d := half()
				for _, q := range src[:32] {
					out[r] = append(out[r], d*float32(int8(q)))
				}
				src = src[32:]
			case device.Q5_0, device.Q5_1, device.Q4_K, device.Q5_K, device.Q6_K:
				_, size := t.Block()
				out[r] = append(out[r], decodeBits(t, src[:size])...)
				src = src[size:]
			default:
				d, low := half(), float32(0)
				less := 8
				if t == device.Q4_1 {
					low, less = half(), 0
				}
				for i := range 32 {
					q := int(src[i%16]>>(i/16*4)&15) - less
					out[r] = append(out[r], d*float32(q)+low)
				}
				src = src[16:]
			}
		}
	}
	return out
}
