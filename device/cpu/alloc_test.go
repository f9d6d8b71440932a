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
	b := manySequences(t, d, spec, prompt, seqs)
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

// manySequences is a batch of sequences that hold so many rows, zeros, each with one more to compute.
func manySequences(t testing.TB, d *Device, spec device.PoolSpec, past, seqs int) *device.Batch {
	t.Helper()
	pool, err := d.Pool(spec)
	if err != nil {
		t.Fatal(err)
	}
	ledger := page.NewLedger(spec.Number, spec.Pages, spec.PageSize)
	b := &device.Batch{Pool: pool, Tokens: make([]int32, seqs)}
	for i := range seqs {
		b.Tokens[i] = int32(i)
		b.Seqs = append(b.Seqs, sequence(t, ledger, page.Owner{Attempt: uint32(i + 1)}, device.Seq{Row: i, Rows: 1, From: past}))
	}
	return b
}

// ownBatch is a batch of one sequence that holds so many rows, zeros, with more to compute.
func ownBatch(t testing.TB, d *Device, spec device.PoolSpec, past, rows int) *device.Batch {
	t.Helper()
	pool, err := d.Pool(spec)
	if err != nil {
		t.Fatal(err)
	}
	ledger := page.NewLedger(spec.Number, spec.Pages, spec.PageSize)
	s := sequence(t, ledger, page.Owner{Attempt: 1}, device.Seq{Rows: rows, From: past})
	return &device.Batch{Pool: pool, Tokens: make([]int32, rows), Seqs: []device.Seq{s}}
}

// sequence gives a sequence its pages: its past may be read, its rows written.
func sequence(t testing.TB, ledger *page.Ledger, o page.Owner, s device.Seq) device.Seq {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	_, err := ledger.Reserve(o, s.From+s.Rows)
	must(err)
	_, err = ledger.Own(o)
	must(err)
	past, err := ledger.Grant(o, 0, s.From)
	must(err)
	must(ledger.Settle(past))
	s.View, err = ledger.Grow(o, s.From)
	must(err)
	s.Grant, err = ledger.Grant(o, s.From, s.From+s.Rows)
	must(err)
	return s
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
