package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"quire/device"
)

// TestVariantsTiles: any number of rows and panels at a time gives the bits that each row gives with each panel alone.
func TestVariantsTiles(t *testing.T) {
	forVariants(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(21, 22))
		for _, typ := range types {
			p := newTileProduct(t, r, typ, k)
			for rows := 1; rows <= tileProductRows; rows++ {
				for panels := 1; panels <= tileProductPanels; panels++ {
					add := (rows+panels)%2 == 0
					got, want := p.start(), p.start()
					p.run(got, 0, rows, 0, panels, add)
					for i := range rows {
						for j := range panels {
							p.run(want, i, 1, j, 1, add)
						}
					}
					if !slices.Equal(got, want) {
						t.Fatalf("%s: %d rows with %d panels differ from each alone", typ, rows, panels)
					}
				}
			}
		}
	})
}

const (
	tileProductRows   = 23
	tileProductPanels = 3
)

// tileProduct is a product of up to 23 rows with up to 3 panels, as a plan would do it with a variant's kernels.
type tileProduct struct {
	p      *plan
	t      *task
	m      *matrix
	starts []float32
	out    *buffer
}

func newTileProduct(t *testing.T, r *rand.Rand, typ device.Type, k *kernels) *tileProduct {
	d := newDevice(t, Options{Threads: 1, Variant: k.name})
	cols := blockCols(typ, 96)
	if !typ.Quantised() {
		cols = 90
	}
	m, err := d.Matrix(typ, tileProductPanels*panelRows, cols, randomWeights(r, typ, tileProductPanels*panelRows, cols))
	if err != nil {
		t.Fatal(err)
	}
	in, _ := d.Buffer(tileProductRows, cols)
	out, _ := d.Buffer(tileProductRows, tileProductPanels*panelRows)
	_ = d.Upload(in, 0, randomFloats(r, tileProductRows*cols))
	p := &tileProduct{p: &plan{dev: d}, m: m.(*matrix), out: out.(*buffer), starts: randomFloats(r, len(out.(*buffer).data))}
	p.t = &task{in: in.(*buffer), rows: tileProductRows}
	if rd, ok := d.rounding(typ); ok {
		d.acts[rd] = alignedBytes(tileProductRows*rd.bytes(cols) + slack)
		for i := range tileProductRows {
			k.round(rd, d.acts[rd][i*rd.bytes(cols):], p.t.in, i)
		}
	}
	return p
}

// start is what the output holds before.
func (p *tileProduct) start() []float32 { return slices.Clone(p.starts) }

func (p *tileProduct) run(out []float32, row, rows, panel, panels int, add bool) {
	p.t.flag = add
	copy(p.out.data, out)
	p.t.multiply(p.p, &worker{}, cut{part: &part{w: p.m, out: p.out}, row: row, rows: rows, panel: panel, panels: panels})
	copy(out, p.out.data)
}

// roundBrain rounds to the nearest BF16, ties to even, denormals to zero.
func roundBrain(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7f800000 == 0 {
		return uint16(b>>16) & 0x8000
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// TestVariantsBrain: products of BF16 with BF16 are those of plain Go with each product rounded, within a few units of the last
// place of the largest sum; denormals count as zero.
func TestVariantsBrain(t *testing.T) {
	forVariants(t, func(t *testing.T, k *kernels) {
		if k.brainRows == nil {
			t.Skip("the variant multiplies BF16 with F32")
		}
		const depth, rows = 72, 5
		r := rand.New(rand.NewPCG(17, 18))
		for round := range 20 {
			w, x := make([]uint16, depth*panelRows), randomFloats(r, rows*depth)
			for i := range w {
				w[i] = roundBrain(float32(r.NormFloat64()))
			}
			if round%2 == 1 {
				w[r.IntN(len(w))], x[r.IntN(len(x))] = 1, math.Float32frombits(0x7fffff) // denormals
			}
			acts, got, want := make([]uint16, len(x)), make([]float32, rows*panelRows), make([]float32, rows*panelRows)
			k.toBrain(unsafe.Pointer(&acts[0]), unsafe.Pointer(&x[0]), len(x))
			for i, v := range x {
				if acts[i] != roundBrain(v) {
					t.Fatalf("%g (%08x) rounds to %04x, want %04x", v, math.Float32bits(v), acts[i], roundBrain(v))
				}
			}
			for i := range rows {
				for lane := range panelRows {
					sum := &want[i*panelRows+lane]
					for c := range depth {
						*sum += float32(device.FromBF16(w[brainAt(c, lane)]) * device.FromBF16(acts[i*depth+c]))
					}
				}
			}
			k.brainRows(floatArgs{w: unsafe.Pointer(&w[0]), x: unsafe.Pointer(&acts[0]), out: unsafe.Pointer(&got[0]), xStride: depth * 2, outStride: 64,
				depth: depth, panels: 1}, rows)
			compare(t, fmt.Sprintf("round %d", round), got, want, 1e-6)
		}
	})
}

// TestVariantsDenormals: the smallest numbers that weights, activations and keys can hold are worth what they are in every variant.
func TestVariantsDenormals(t *testing.T) {
	forVariants(t, func(t *testing.T, k *kernels) {
		const depth = 64
		r := rand.New(rand.NewPCG(19, 20))
		w, x := make([]float32, depth*panelRows), make([]float32, 3*depth)
		for i := range w {
			w[i] = math.Float32frombits(r.Uint32() & 0x807fffff)
		}
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		got, want := make([]float32, 3*panelRows), make([]float32, 3*panelRows)
		a := floatArgs{w: unsafe.Pointer(&w[0]), x: unsafe.Pointer(&x[0]), wStride: 64, xStride: depth * 4, outStride: 64, depth: depth, panels: 1}
		a.out = unsafe.Pointer(&got[0])
		k.floatRows(a, 3)
		a.out = unsafe.Pointer(&want[0])
		portable.floatRows(a, 3)
		compare(t, "floats", got, want, 1e-5)
		if slices.Max(want) == 0 {
			t.Fatal("nothing is left of the denormals")
		}
	})
}
