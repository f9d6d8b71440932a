package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"quire/device"
)

var types = []device.Type{
	device.F32, device.F16, device.BF16, device.Q8_0, device.Q4_0, device.Q4_1, device.Q5_0, device.Q5_1, device.Q4_K, device.Q5_K, device.Q6_K,
}

// blockCols is the number of columns nearest above n that is a whole number of blocks.
func blockCols(t device.Type, n int) int {
	size, _ := t.Block()
	return roundUp(n, size)
}

// randomWeights gives rows of bytes of a type, with every value that a byte can have among the quantised ones.
func randomWeights(r *rand.Rand, t device.Type, rows, cols int) []byte {
	rowBytes, _ := t.RowBytes(cols)
	b := make([]byte, rows*rowBytes)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	numbers, block := t.Block()
	switch t {
	case device.F32:
		for i := 0; i < len(b); i += 4 {
			*(*float32)(unsafe.Pointer(&b[i])) = float32(r.NormFloat64())
		}
	case device.F16:
		for i := 0; i < len(b); i += 2 {
			*(*uint16)(unsafe.Pointer(&b[i])) = device.ToF16(float32(r.NormFloat64()))
		}
	case device.BF16:
		for i := 0; i < len(b); i += 2 {
			*(*uint16)(unsafe.Pointer(&b[i])) = uint16(math.Float32bits(float32(r.NormFloat64())) >> 16)
		}
	}
	for i := 0; t.Quantised() && i < len(b); i += block {
		for j, factor := range device.Factors(t) {
			part := [2][2]float32{{50, 1}, {3000, 100}}[numbers/superCols][j]
			*(*uint16)(unsafe.Pointer(&b[i+factor])) = device.ToF16(float32(r.NormFloat64()) / part)
		}
	}
	return b
}

func randomFloats(r *rand.Rand, n int) []float32 {
	f := alignedFloats(n)
	for i := range f {
		f[i] = float32(r.NormFloat64() * math.Exp(r.NormFloat64()))
	}
	return f
}

func newDevice(t testing.TB, o Options) *Device {
	t.Helper()
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d.(*Device)
}

// forVariants runs a test for each assembly variant of this machine.
func forVariants(t *testing.T, run func(t *testing.T, k *kernels)) {
	fast := fastKernels()
	if len(fast) == 0 {
		t.Skip("no assembly variant runs on this processor")
	}
	for _, k := range fast {
		t.Run(k.name, func(t *testing.T) { run(t, k) })
	}
}

// close checks that numbers agree to within a part of the largest.
func compare(t *testing.T, what string, got, want []float32, bound float64) {
	t.Helper()
	var top float64
	for _, v := range want {
		top = math.Max(top, math.Abs(float64(v)))
	}
	for i := range want {
		if d := math.Abs(float64(got[i] - want[i])); !(d <= bound*top) {
			t.Fatalf("%s: number %d is %g, want %g (off by %g of the largest)", what, i, got[i], want[i], d/top)
		}
	}
}

func TestVariantsFloat(t *testing.T) {
	forVariants(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(1, 2))
		for rows := 1; rows <= 14; rows++ {
			for _, depth := range []int{1, 3, 8, 64, 175} {
				w, x := randomFloats(r, depth*panelRows), randomFloats(r, rows*(depth+5))
				out := randomFloats(r, rows*32)
				want := append([]float32(nil), out...)
				a := floatArgs{
					w: unsafe.Pointer(&w[0]), x: unsafe.Pointer(&x[0]), wStride: 64, xStride: (depth + 5) * 4, outStride: 128,
					depth: depth, add: rows%2 == 0, panels: 1,
				}
				a.out = unsafe.Pointer(&out[0])
				k.floatRows(a, rows)
				a.out = unsafe.Pointer(&want[0])
				portable.floatRows(a, rows)
				compare(t, fmt.Sprintf("%d rows of %d", rows, depth), out, want, 1e-5)
			}
		}
	})
}

// TestVariantsHalfRows: weights multiplied as they are give the same bits as weights widened first.
func TestVariantsHalfRows(t *testing.T) {
	forVariants(t, func(t *testing.T, k *kernels) {
		const depth = 72
		r := rand.New(rand.NewPCG(15, 16))
		d := newDevice(t, Options{Threads: 1})
		for _, typ := range []device.Type{device.F16, device.BF16} {
			mat, err := d.Matrix(typ, panelRows, depth, randomWeights(r, typ, panelRows, depth))
			if err != nil {
				t.Fatal(err)
			}
			src, wide := unsafe.Pointer(&mat.(*matrix).data[0]), alignedFloats(depth*panelRows)
			k.dequant(typ, wide, src)
			for rows := 1; rows <= 9; rows++ {
				x, got, want := randomFloats(r, rows*depth), randomFloats(r, rows*panelRows), randomFloats(r, rows*panelRows)
				a := floatArgs{w: src, x: unsafe.Pointer(&x[0]), out: unsafe.Pointer(&got[0]), wStride: 32, xStride: depth * 4, outStride: 64, depth: depth, panels: 1}
				k.halfRows(typ, a, rows)
				a.w, a.wStride, a.out = unsafe.Pointer(&wide[0]), 64, unsafe.Pointer(&want[0])
				k.floatRows(a, rows)
				compare(t, fmt.Sprintf("%s, %d rows", typ, rows), got, want, 0)
			}
		}
	})
}

func TestVariantsInt8(t *testing.T) {
	forVariants(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(3, 4))
		d := newDevice(t, Options{Threads: 1})
		for _, typ := range types[3:] {
			for rows := 1; rows <= 7; rows++ {
				const panels = 3
				blocks := blockCols(typ, 160) / 32
				mat, err := d.Matrix(typ, panels*panelRows, blocks*32, randomWeights(r, typ, panels*panelRows, blocks*32))
				if err != nil {
					t.Fatal(err)
				}
				x := randomFloats(r, rows*blocks*32)
				acts := alignedBytes(rows * blocks * actBlock)
				quantiseGo(unsafe.Pointer(&acts[0]), unsafe.Pointer(&x[0]), rows*blocks)
				out, want := make([]float32, rows*panels*panelRows), make([]float32, rows*panels*panelRows)
				a := int8Args{
					w: unsafe.Pointer(&mat.(*matrix).data[0]), x: unsafe.Pointer(&acts[0]), out: unsafe.Pointer(&out[0]),
					xStride: blocks * actBlock, outStride: panels * panelRows * 4, blocks: blocks, panels: panels,
				}
				k.int8Rows(typ, a, rows)
				a.out = unsafe.Pointer(&want[0])
				portable.int8Rows(typ, a, rows)
				compare(t, fmt.Sprintf("%s, %d rows", typ, rows), out, want, 1e-6)
			}
		}
	})
}

// TestVariantsInt8Exact: with scales of 1 every sum is a small integer, so the variants must agree to the bit, the extremes of
// both factors included.
func TestVariantsInt8Exact(t *testing.T) {
	forVariants(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(5, 6))
		d := newDevice(t, Options{Threads: 1})
		for _, typ := range types[3:] {
			cols := blockCols(typ, 64)
			mat, err := d.Matrix(typ, panelRows, cols, exactWeights(r, typ, panelRows, cols))
			if err != nil {
				t.Fatal(err)
			}
			x := alignedFloats(4 * cols)
			for i := range x {
				x[i] = float32(r.IntN(255) - 127)
				if i < cols {
					x[i] = 127
				} else if i < 2*cols {
					x[i] = -127
				}
				if i%32 == 0 {
					x[i] = 127 // a scale of 1
				}
			}
			acts := alignedBytes(4 * actBytes(cols))
			k.quantise(unsafe.Pointer(&acts[0]), unsafe.Pointer(&x[0]), 4*cols/32)
			out, want := make([]float32, 64), make([]float32, 64)
			a := int8Args{
				w: unsafe.Pointer(&mat.(*matrix).data[0]), x: unsafe.Pointer(&acts[0]), out: unsafe.Pointer(&out[0]),
				xStride: actBytes(cols), outStride: 64, blocks: cols / 32, panels: 1,
			}
			k.int8Rows(typ, a, 4)
			a.out = unsafe.Pointer(&want[0])
			portable.int8Rows(typ, a, 4)
			compare(t, typ.String(), out, want, 0)
		}
	})
}

func TestVariantsQuantise(t *testing.T) {
	forVariants(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(7, 8))
		x := randomFloats(r, 32*64)
		clear(x[64:96])
		got, want := alignedBytes(64*actBlock), alignedBytes(64*actBlock)
		k.quantise(unsafe.Pointer(&got[0]), unsafe.Pointer(&x[0]), 64)
		portable.quantise(unsafe.Pointer(&want[0]), unsafe.Pointer(&x[0]), 64)
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("block %d byte %d is %d, want %d", i/actBlock, i%actBlock, got[i], want[i])
			}
		}
	})
}

func TestVariantsDequant(t *testing.T) {
	forVariants(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(9, 10))
		d := newDevice(t, Options{Threads: 1})
		for _, typ := range types[1:] {
			cols := blockCols(typ, 96)
			mat, err := d.Matrix(typ, panelRows, cols, randomWeights(r, typ, panelRows, cols))
			if err != nil {
				t.Fatal(err)
			}
			got, want := alignedFloats(cols*panelRows), alignedFloats(cols*panelRows)
			src := unsafe.Pointer(&mat.(*matrix).data[0])
			k.dequant(typ, got, src)
			portable.dequant(typ, want, src)
			compare(t, typ.String(), got, want, 0)
			row := make([]float32, cols)
			for lane := range panelRows {
				mat.(*matrix).unpack(lane, row)
				for c := range row {
					if row[c] != got[c*panelRows+lane] {
						t.Fatalf("%s: row %d column %d unpacks to %g, the panel holds %g", typ, lane, c, row[c], got[c*panelRows+lane])
					}
				}
			}
		}
	})
}

func TestVariantsRows(t *testing.T) {
	forVariants(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(11, 12))
		for _, n := range []int{8, 24, 64, 176, 200, 576} {
			x, w, u := randomFloats(r, n), randomFloats(r, n), randomFloats(r, n)
			x[0], x[1] = 100, -100
			got, want := make([]float32, n), make([]float32, n)
			k.norm(got, x, w, normArgs{n: n, eps: 1e-5})
			portable.norm(want, x, w, normArgs{n: n, eps: 1e-5})
			compare(t, "norm", got, want, 1e-6)
			k.swiGLU(got, x, u)
			portable.swiGLU(want, x, u)
			compare(t, "swiglu", got, want, 1e-6)
		}
		for n := 1; n <= tileRows; n += 3 {
			var a, b [tileRows]float32
			copy(a[:], randomFloats(r, tileRows))
			b = a
			out := randomFloats(r, 32)
			want := append([]float32(nil), out...)
			sa, sb := softState{0.5, 3}, softState{0.5, 3}
			k.softmax(&a, n, &sa, out)
			portable.softmax(&b, n, &sb, want)
			compare(t, "softmax weights", a[:], b[:], 1e-6)
			compare(t, "softmax output", out, want, 1e-6)
			compare(t, "softmax state", []float32{sa.max, sa.sum}, []float32{sb.max, sb.sum}, 1e-6)
		}
	})
}

func TestVariantsHalf(t *testing.T) {
	forVariants(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(13, 14))
		x := make([]float32, 0, 1<<12)
		for len(x) < 1<<12-9 {
			x = append(x, math.Float32frombits(r.Uint32()&^0x7f800000|uint32(90+r.IntN(60))<<23))
		}
		x = append(x, 0, float32(math.Copysign(0, -1)), 65504, 65519, 65520, 1e9, -1e9, float32(math.Inf(1)), 5.9604645e-08)
		got, want := make([]uint16, len(x)), make([]uint16, len(x))
		k.toHalf(got, x)
		portable.toHalf(want, x)
		for i := range x {
			if got[i] != want[i] {
				t.Fatalf("%g (%08x): %04x, want %04x", x[i], math.Float32bits(x[i]), got[i], want[i])
			}
		}
		all := make([]uint16, 0, 1<<16)
		for i := range 1 << 16 {
			if i&0x7c00 != 0x7c00 {
				all = append(all, uint16(i))
			}
		}
		a, b := make([]float32, len(all)), make([]float32, len(all))
		k.widen(unsafe.Pointer(&a[0]), 32, unsafe.Pointer(&all[0]), len(all)/8)
		portable.widen(unsafe.Pointer(&b[0]), 32, unsafe.Pointer(&all[0]), len(all)/8)
		for i := range a {
			if math.Float32bits(a[i]) != math.Float32bits(b[i]) || device.ToF16(a[i]) != all[i] {
				t.Fatalf("%04x: %g, want %g, back %04x", all[i], a[i], b[i], device.ToF16(a[i]))
			}
		}
	})
}

func TestExp(t *testing.T) {
	for x := -87.0; x < 88; x += 0.0137 {
		got, want := float64(expGo(float32(x))), math.Exp(float64(float32(x)))
		if math.Abs(got-want) > 2.5e-7*want {
			t.Fatalf("exp(%g) = %g, want %g", x, got, want)
		}
	}
	if expGo(0) != 1 || expGo(float32(math.Inf(-1))) != 0 {
		t.Fatalf("exp(0) = %g, exp(-inf) = %g", expGo(0), expGo(float32(math.Inf(-1))))
	}
}
