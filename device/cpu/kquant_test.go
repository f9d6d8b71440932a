package cpu

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"quire/device"
)

// exactWeights gives rows of a quantised type whose scales are small whole numbers, so that sums of products with whole
// activations are exact in F32. Every third block has runs of extreme weights.
func exactWeights(r *rand.Rand, t device.Type, rows, cols int) []byte {
	src := randomWeights(r, t, rows, cols)
	_, size := t.Block()
	for i := 0; i < len(src); i += size {
		block := src[i : i+size]
		extremes := block[size-16:]
		switch t {
		case device.Q4_K, device.Q5_K: // scales and minima up to 3
			for j := range 12 {
				block[4+j] &= []byte{0x03, 0x03, 0x33}[j/4]
			}
		case device.Q6_K: // scales of -4 to 3
			for j := range 16 {
				block[192+j] = byte(int8(block[192+j]) >> 5)
			}
			extremes = block[16*(i/size%12):][:16]
		}
		for j, f := range device.Factors(t) {
			*(*uint16)(unsafe.Pointer(&block[f])) = device.ToF16(float32(1 + j))
		}
		if i/size%3 == 0 {
			for j := range extremes {
				extremes[j] = [...]byte{0x80, 0xff, 0x7f, 0x00}[i/size/3%4]
			}
		}
	}
	return src
}

// TestVariantsInt8Extremes: the largest weights, scales and activations that a block can have overflow no step of a product.
func TestVariantsInt8Extremes(t *testing.T) {
	forVariants(t, func(t *testing.T, k *kernels) {
		d := newDevice(t, Options{Threads: 1})
		for _, typ := range types[3:] {
			for _, fill := range []byte{0x00, 0xff, 0x80, 0x7f} {
				cols := blockCols(typ, 32)
				n, _ := typ.RowBytes(cols)
				src := make([]byte, panelRows*n)
				for i := range src {
					src[i] = fill
				}
				for lane := range panelRows {
					for _, f := range device.Factors(typ) {
						*(*uint16)(unsafe.Pointer(&src[lane*n+f])) = device.ToF16(1)
					}
				}
				mat, err := d.Matrix(typ, panelRows, cols, src)
				if err != nil {
					t.Fatal(err)
				}
				x := alignedFloats(4 * cols)
				for i := range x {
					x[i] = float32([...]int{127, -127}[i/cols%2])
					if i%cols >= 32 {
						x[i] = 0 // one run, so that the sum is exact
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
				for i, row := range [][]float32{x[:32], x[cols : cols+32]} {
					w := make([]float32, cols)
					mat.(*matrix).unpack(0, w)
					var sum float64
					for c, v := range row {
						sum += float64(v) * float64(w[c])
					}
					if float64(want[i*panelRows]) != sum {
						t.Errorf("%s filled with %#02x: %g, want %g", typ, fill, want[i*panelRows], sum)
					}
				}
			}
		}
	})
}

// TestGoldenQuants: every quantised type stands for the numbers that the Python package gguf reads, to the bit, row by row and panel by
// panel (testdata/quants.py).
func TestGoldenQuants(t *testing.T) {
	b, err := os.ReadFile("testdata/quants.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden map[string]struct{ Row, Numbers []byte }
	if err := json.Unmarshal(b, &golden); err != nil {
		t.Fatal(err)
	}
	d := newDevice(t, Options{Threads: 1})
	for _, typ := range types[3:] {
		g, ok := golden[typ.String()]
		if !ok {
			t.Errorf("%s has no golden row", typ)
			continue
		}
		cols := len(g.Numbers) / 4
		var src []byte
		for range panelRows {
			src = append(src, g.Row...)
		}
		m, err := d.Matrix(typ, panelRows, cols, src)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range variants() {
			wide := alignedFloats(cols * panelRows)
			k.dequant(typ, wide, unsafe.Pointer(&m.(*matrix).data[0]))
			for i, v := range wide {
				want := math.Float32frombits(binary.LittleEndian.Uint32(g.Numbers[i/panelRows*4:]))
				if v != want {
					t.Fatalf("%s, %s: column %d of row %d is %g, want %g", k.name, typ, i/panelRows, i%panelRows, v, want)
				}
			}
		}
	}
}
