package cpu

import (
	"math/rand/v2"
	"testing"

	"quire/device"
	"quire/kvtransfer/page"
)

// decodeStep is a model's step for some sequences that hold a prompt already: every kind of op, every type of weights.
func decodeStep(t testing.TB, d *Device, seqs int) *device.Step {
	t.Helper()
	const dim, heads, kvHeads, headDim, prompt = 256, 4, 2, 64, 70
	r := rand.New(rand.NewPCG(1, 1))
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	buffer := func(rows, cols int) device.Buffer {
		b, err := d.Buffer(rows, cols)
		must(err)
		must(d.Upload(b, 0, randomFloats(r, rows*cols)))
		return b
	}
	matrix := func(typ device.Type, rows int) device.Matrix {
		m, err := d.Matrix(typ, rows, dim, randomWeights(r, typ, rows, dim))
		must(err)
		return m
	}
	spec := device.PoolSpec{Number: 1, Pages: 8 * seqs, PageSize: 16, Layers: len(types), KVHeads: kvHeads, HeadDim: headDim, Type: device.F16}
	pool, err := d.Pool(spec)
	must(err)
	ledger := page.NewLedger(spec.Number, spec.Pages, spec.PageSize)
	b := &device.Batch{Pool: pool, Tokens: make([]int32, seqs)}
	for i := range seqs {
		o := page.Owner{Attempt: uint32(i + 1)}
		_, err := ledger.Reserve(o, prompt+1)
		must(err)
		_, err = ledger.Own(o)
		must(err)
		past, err := ledger.Grant(o, 0, prompt)
		must(err)
		must(pool.Write(past, device.Range{LayerTo: spec.Layers, RowTo: prompt}, make([]byte, spec.Layers*prompt*spec.RowBytes())))
		must(ledger.Settle(past))
		v, err := ledger.Grow(o, prompt)
		must(err)
		g, err := ledger.Grant(o, prompt, prompt+1)
		must(err)
		b.Tokens[i] = int32(i)
		b.Seqs = append(b.Seqs, device.Seq{Row: i, Rows: 1, From: prompt, View: v, Grant: g})
	}
	hidden, normed, weight := buffer(seqs, dim), buffer(seqs, dim), buffer(1, dim)
	q, k, v := buffer(seqs, heads*headDim), buffer(seqs, kvHeads*headDim), buffer(seqs, kvHeads*headDim)
	sin, cos := buffer(prompt+1, headDim/2), buffer(prompt+1, headDim/2)
	ops := []device.Op{device.Embed{Out: hidden, Table: matrix(device.Q8_0, 100)}}
	for i, typ := range types {
		ops = append(ops,
			device.Norm{Out: normed, In: hidden, Weight: weight, Eps: 1e-5},
			device.MatMul{In: normed, Parts: []device.Part{{W: matrix(typ, heads*headDim), Out: q}, {W: matrix(typ, kvHeads*headDim), Out: k}, {W: matrix(device.F16, kvHeads*headDim), Out: v}}},
			device.Rotate{Layer: i, Q: q, K: k, V: v, Sin: sin, Cos: cos, Dims: headDim},
			device.Attend{Layer: i, Q: q, Out: q, Scale: 0.125},
			device.MatMul{In: q, Parts: []device.Part{{W: matrix(typ, dim), Out: hidden}}, Add: true},
			device.SwiGLU{Out: normed, Gate: normed, Up: hidden})
	}
	last := buffer(seqs, dim)
	down := device.Download{From: last}
	for i := range seqs {
		down.Rows, down.To = append(down.Rows, i), append(down.To, make([]float32, dim))
	}
	ops = append(ops, device.Gather{Out: last, In: hidden, Rows: down.Rows}, down)
	return &device.Step{Batch: b, Ops: ops}
}

// TestSteadyStateAllocates: a step like the one before it allocates nothing, whatever the kernels and the batch. Workers make their
// scratch memory when they first need it, which may be late on a busy machine: one of some runs in a row has to be without.
func TestSteadyStateAllocates(t *testing.T) {
	for _, k := range variants() {
		for _, seqs := range []int{1, 5, 16} {
			if k == portable && seqs > 1 {
				continue // the same code, slowly
			}
			d := newDevice(t, Options{Threads: 2, Variant: k.name})
			s := decodeStep(t, d, seqs)
			run := func() {
				if err := d.Run(s); err != nil {
					t.Fatal(err)
				}
			}
			least := testing.AllocsPerRun(2, run)
			for range 30 {
				if least > 0 {
					least = min(least, testing.AllocsPerRun(2, run))
				}
			}
			if least > 0 {
				t.Errorf("%s, %d sequences: a step of %d ops allocates %g times", k.name, seqs, len(s.Ops), least)
			}
			_ = d.Close()
		}
	}
}
