package cpu

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"quire/device"
)

// perSecond runs f b.N times on one thread and reports work per second of that thread's processor time, so that other load on
// the machine counts little.
func perSecond(b *testing.B, unit string, work float64, f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f()
	b.ResetTimer()
	start := threadSeconds()
	for range b.N {
		f()
	}
	if s := threadSeconds() - start; s > 0 {
		b.ReportMetric(work*float64(b.N)/s/1e9, unit)
	}
}

// BenchmarkFloatTile is the F32 product alone, all in the first two caches: GFLOP/s beside the processor's peak (2 vectors of
// 4 multiply-adds a cycle on Zen 1: 16 a cycle).
func BenchmarkFloatTile(b *testing.B) {
	for _, k := range variants() {
		for _, rows := range []int{1, 2, 3, 4, 6, 48} {
			b.Run(fmt.Sprintf("%s/%d", k.name, rows), func(b *testing.B) {
				const depth = 576
				r := rand.New(rand.NewPCG(1, 1))
				w, x, out := randomFloats(r, depth*panelRows), randomFloats(r, rows*(depth+32)), randomFloats(r, rows*panelRows)
				a := floatArgs{
					w: unsafe.Pointer(&w[0]), x: unsafe.Pointer(&x[0]), out: unsafe.Pointer(&out[0]), wStride: 64,
					xStride: (depth + 32) * 4, outStride: 64, depth: depth, panels: 1,
				}
				perSecond(b, "GFLOP/s", float64(2*depth*panelRows*rows), func() { k.floatRows(a, rows) })
			})
		}
	}
}

// BenchmarkInt8Tile is the product with int8 activations alone: GOP/s.
func BenchmarkInt8Tile(b *testing.B) {
	for _, k := range variants() {
		for _, typ := range types[3:] {
			for _, rows := range []int{1, 2, 4, 6, 48} {
				b.Run(fmt.Sprintf("%s/%s/%d", k.name, typ, rows), func(b *testing.B) {
					depth := blockCols(typ, 576)
					r := rand.New(rand.NewPCG(1, 1))
					d := newDevice(b, Options{Threads: 1})
					m, err := d.Matrix(typ, panelRows, depth, randomWeights(r, typ, panelRows, depth))
					if err != nil {
						b.Fatal(err)
					}
					x := randomFloats(r, rows*depth)
					acts := alignedBytes(rows * actBytes(depth))
					k.quantise(unsafe.Pointer(&acts[0]), unsafe.Pointer(&x[0]), rows*depth/32)
					out := make([]float32, rows*panelRows)
					a := int8Args{
						w: unsafe.Pointer(&m.(*matrix).data[0]), x: unsafe.Pointer(&acts[0]), out: unsafe.Pointer(&out[0]),
						xStride: actBytes(depth), outStride: 64, blocks: depth / 32, panels: 1,
					}
					perSecond(b, "GOP/s", float64(2*depth*panelRows*rows), func() { k.int8Rows(typ, a, rows) })
				})
			}
		}
	}
}

// BenchmarkStream is a product of one row with a matrix larger than the caches: GB/s of weights.
func BenchmarkStream(b *testing.B) {
	for _, k := range variants() {
		for _, typ := range types {
			b.Run(k.name+"/"+typ.String(), func(b *testing.B) { benchmarkStream(b, k, typ) })
		}
	}
}

func benchmarkStream(b *testing.B, k *kernels, typ device.Type) {
	const rows, depth = 1 << 15, 2048
	r := rand.New(rand.NewPCG(1, 1))
	d := newDevice(b, Options{Threads: 1, Variant: k.name})
	src := randomWeights(r, typ, 64, depth)
	all := make([]byte, 0, len(src)*rows/64)
	for range rows / 64 {
		all = append(all, src...)
	}
	m, err := d.Matrix(typ, rows, depth, all)
	if err != nil {
		b.Fatal(err)
	}
	x, _ := d.Buffer(1, depth)
	out, _ := d.Buffer(1, rows)
	_ = d.Upload(x, 0, randomFloats(r, depth))
	p := &plan{dev: d, batch: &device.Batch{Tokens: make([]int32, 1)}}
	if err := p.layMatMul(device.MatMul{In: x, Parts: []device.Part{{W: m, Out: out}}}); err != nil {
		b.Fatal(err)
	}
	w := &worker{acted: [2]int{-1, -1}}
	perSecond(b, "GB/s", float64(m.Bytes()), func() {
		for i := range p.tasks[0].items {
			p.tasks[0].run(p, p.tasks[0], w, i)
		}
	})
}

// BenchmarkProduct is whole products as a prompt and a batch of 16 have them, rounding of activations included, on one thread: GOP/s.
func BenchmarkProduct(b *testing.B) {
	for _, k := range variants() {
		for _, typ := range types {
			for _, shape := range [][3]int{{512, 1536, 576}, {512, 576, 1536}, {16, 1536, 576}, {16, 576, 1536}} {
				rows, outs, depth := shape[0], shape[1], shape[2]
				depth = roundUp(depth, blockCols(typ, 1))
				b.Run(fmt.Sprintf("%s/%s/%dx%dx%d", k.name, typ, rows, outs, depth), func(b *testing.B) {
					if k == portable && testing.Short() {
						b.Skip("slow")
					}
					r := rand.New(rand.NewPCG(1, 1))
					d := newDevice(b, Options{Threads: 1, Variant: k.name})
					m, err := d.Matrix(typ, outs, depth, randomWeights(r, typ, outs, depth))
					if err != nil {
						b.Fatal(err)
					}
					x, _ := d.Buffer(rows, depth)
					out, _ := d.Buffer(rows, outs)
					_ = d.Upload(x, 0, randomFloats(r, rows*depth))
					p := &plan{dev: d, batch: &device.Batch{Tokens: make([]int32, rows)}}
					if err := p.layMatMul(device.MatMul{In: x, Parts: []device.Part{{W: m, Out: out}}}); err != nil {
						b.Fatal(err)
					}
					w := &worker{}
					perSecond(b, "GOP/s", 2*float64(rows)*float64(outs)*float64(depth), func() {
						w.acted = [2]int{-1, -1}
						for _, t := range p.tasks {
							for i := range t.items {
								t.run(p, t, w, i)
							}
						}
					})
				})
			}
		}
	}
}

// BenchmarkRows is the kernels along a row of 576 numbers: numbers per second.
func BenchmarkRows(b *testing.B) {
	const n = 576
	for _, k := range variants() {
		r := rand.New(rand.NewPCG(1, 1))
		x, y, out := randomFloats(r, n), randomFloats(r, n), randomFloats(r, n)
		half := make([]uint16, n)
		acts := alignedBytes(actBytes(n))
		for name, f := range map[string]func(){
			"norm":     func() { k.norm(out, x, y, normArgs{n: n, eps: 1e-5}) },
			"swiglu":   func() { k.swiGLU(out, x, y) },
			"quantise": func() { k.quantise(unsafe.Pointer(&acts[0]), unsafe.Pointer(&x[0]), n/32) },
			"half":     func() { k.toHalf(half, x) },
			"widen":    func() { k.widen(unsafe.Pointer(&out[0]), 32, unsafe.Pointer(&half[0]), n/8) },
			"times":    func() { k.times(out, x, 0.125) },
			"turn": func() {
				for i := 0; i < n; i += 64 {
					k.turn(out[i:i+64], x[:32], y[:32], false)
				}
			},
			"turn pairs": func() {
				for i := 0; i < n; i += 64 {
					k.turn(out[i:i+64], x[:32], y[:32], true)
				}
			},
			"softmax": func() {
				st := softState{max: 1}
				for i := 0; i < n; i += tileRows {
					k.softmax((*[tileRows]float32)(out[i:]), tileRows, &st, x[:64])
				}
			},
		} {
			b.Run(k.name+"/"+name, func(b *testing.B) { perSecond(b, "Gnum/s", n, f) })
		}
	}
}

// BenchmarkDequant widens a panel of 576 columns: numbers per second.
func BenchmarkDequant(b *testing.B) {
	for _, k := range variants() {
		for _, typ := range types[1:] {
			b.Run(k.name+"/"+typ.String(), func(b *testing.B) {
				depth := roundUp(576, blockCols(typ, 1))
				r := rand.New(rand.NewPCG(1, 1))
				m, err := newDevice(b, Options{Threads: 1}).Matrix(typ, panelRows, depth, randomWeights(r, typ, panelRows, depth))
				if err != nil {
					b.Fatal(err)
				}
				out, src := alignedFloats(depth*panelRows), unsafe.Pointer(&m.(*matrix).data[0])
				perSecond(b, "Gnum/s", float64(depth*panelRows), func() { k.dequant(typ, out, src) })
			})
		}
	}
}

// BenchmarkAttend is attention of 9 query heads that share 3 key heads of 64 numbers, behind 512 rows, on one thread: a decode row, and 64 rows of
// a prompt. GFLOP/s counts both products.
func BenchmarkAttend(b *testing.B) {
	for _, k := range variants() {
		for _, kv := range []device.Type{device.F16, device.F32, device.Q8_0} {
			for _, rows := range []int{1, 64} {
				b.Run(fmt.Sprintf("%s/%s/%d", k.name, kv, rows), func(b *testing.B) {
					const past, heads, kvHeads, headDim = 512, 9, 3, 64
					d := newDevice(b, Options{Threads: 1, Variant: k.name})
					p := &plan{dev: d, batch: ownBatch(b, d, device.PoolSpec{Number: 1, Pages: 64, PageSize: 16, Layers: 1, KVHeads: kvHeads, HeadDim: headDim, Type: kv}, past, rows)}
					p.pool, p.seqOf = p.batch.Pool.(*pool), make([]int32, rows)
					q, _ := d.Buffer(rows, heads*headDim)
					out, _ := d.Buffer(rows, heads*headDim)
					_ = d.Upload(q, 0, randomFloats(rand.New(rand.NewPCG(1, 1)), rows*heads*headDim))
					if err := p.layAttend(device.Attend{Q: q, Out: out, Scale: 0.125}); err != nil {
						b.Fatal(err)
					}
					w := &worker{}
					perSecond(b, "GFLOP/s", 4*heads*headDim*float64(rows)*(past+float64(rows+1)/2), func() {
						for i := range p.tasks[0].items {
							p.tasks[0].run(p, p.tasks[0], w, i)
						}
					})
				})
			}
		}
	}
}
