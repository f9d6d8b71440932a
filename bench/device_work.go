package bench

import (
	"fmt"

	"quire/device"
	"quire/kvtransfer/page"
)

// Names of works that others are measured against, or again.
const (
	copyName    = "copy (gather)"
	decodeName  = "attention, decode"
	prefillName = "attention, prefill"
)

// productName is of the product that is the ceiling of others.
const productName = "product F32, prefill"

// deviceRun is a device with the buffers and the pool that works use.
type deviceRun struct {
	o    DeviceOptions
	dev  device.Device
	pool device.Pool
	led  *page.Ledger
	err  error // the first
}

func (r *deviceRun) buffer(rows, cols int) device.Buffer {
	if r.err != nil {
		return nil
	}
	var b device.Buffer
	b, r.err = r.dev.Buffer(rows, cols)
	return b
}

// plain is a batch without pages.
func plain(rows int) *device.Batch {
	return &device.Batch{Tokens: make([]int32, rows), Seqs: []device.Seq{{Rows: rows}}}
}

func (r *deviceRun) headDim() int {
	if r.o.Dim%128 == 0 {
		return 128
	}
	return 32
}

// works lists everything that is measured.
func (r *deviceRun) works() ([]deviceWork, error) {
	o := r.o
	head := r.headDim()
	if o.Dim%(head*o.Group) != 0 {
		return nil, fmt.Errorf("bench: device: --dim %d: no multiple of %d heads of %d", o.Dim, o.Group, head)
	}
	var out []deviceWork
	rows := max(o.Rows, 4096)
	from, to := r.buffer(rows, o.Dim), r.buffer(rows, o.Dim)
	all := make([]int, rows)
	for i := range all {
		all[i] = i
	}
	out = append(out, deviceWork{name: copyName, bytes: float64(2 * rows * o.Dim * 4), run: r.repeat(plain(rows), device.Gather{In: from, Out: to, Rows: all})})
	for _, t := range []device.Type{device.F32, device.BF16, device.Q8_0, device.Q4_K} {
		n, size := t.Block()
		if o.Dim%n != 0 || r.err != nil {
			continue
		}
		weights := o.Dim * o.Dim / n * size
		var w device.Matrix
		w, r.err = r.dev.Matrix(t, o.Dim, o.Dim, make([]byte, weights))
		for _, k := range []struct {
			name string
			rows int
		}{{"one row", 1}, {"batch of 8", 8}, {"prefill", o.Rows}} {
			op := device.MatMul{In: from, Parts: []device.Part{{W: w, Out: to}}, Rows: k.rows}
			out = append(out, deviceWork{name: fmt.Sprintf("product %s, %s", t, k.name), bytes: float64(weights + 2*k.rows*o.Dim*4),
				flops: 2 * float64(k.rows) * float64(o.Dim) * float64(o.Dim), run: r.repeat(plain(k.rows), op)})
		}
	}
	weight := r.buffer(1, o.Dim)
	out = append(out,
		deviceWork{name: "norm, prefill", bytes: float64(2 * o.Rows * o.Dim * 4), run: r.repeat(plain(o.Rows), device.Norm{In: from, Out: to, Weight: weight, Eps: 1})},
		deviceWork{name: "swiglu, prefill", bytes: float64(3 * o.Rows * o.Dim * 4), run: r.repeat(plain(o.Rows), device.SwiGLU{Gate: from, Up: to, Out: to})})
	if r.err != nil {
		return nil, r.err
	}
	paged, err := r.pagedWorks(from, to)
	return append(out, paged...), err
}

// pagedWorks is attention over sequences of o.Context rows, and frames.
func (r *deviceRun) pagedWorks(q, out device.Buffer) ([]deviceWork, error) {
	o := r.o
	head := r.headDim()
	spec := device.PoolSpec{Number: 1, PageSize: o.PageSize, Layers: 1, KVHeads: o.Dim / head / o.Group, HeadDim: head, Type: device.F16}
	spec.Pages = (o.Batch + 1) * ((o.Context+o.Rows)/o.PageSize + 1)
	var err error
	if r.pool, err = r.dev.Pool(spec); err != nil {
		return nil, err
	}
	r.led = page.NewLedger(1, spec.Pages, spec.PageSize)
	decode := &device.Batch{Pool: r.pool, Tokens: make([]int32, o.Batch)}
	var first device.Seq
	var frame []byte
	for i := range o.Batch {
		s, f, err := r.sequence(uint32(i + 1))
		if err != nil {
			return nil, err
		}
		first, frame = s, f
		s.Row, s.Rows = i, 1
		decode.Seqs = append(decode.Seqs, s)
	}
	first.Rows = o.Rows
	prefill := &device.Batch{Pool: r.pool, Tokens: make([]int32, o.Rows), Seqs: []device.Seq{first}}
	attend := device.Attend{Q: q, Out: out, Scale: 0.1}
	read := float64((o.Context + 1) * spec.RowBytes())
	pairs := float64(o.Rows)*float64(o.Context) + float64(o.Rows)*float64(o.Rows)/2
	view := first.View
	spare, err := r.led.Reserve(page.Owner{Attempt: uint32(o.Batch + 1)}, o.Context) // zeroed again and again, and read by nobody
	if err != nil {
		return nil, err
	}
	ids := make([]page.ID, len(spare))
	for i, s := range spare {
		ids[i] = s.Page
	}
	rows := device.Range{LayerTo: 1, RowTo: len(frame) / spec.RowBytes()}
	return []deviceWork{
		{name: decodeName, bytes: read * float64(o.Batch), flops: 4 * float64(o.Batch) * float64(o.Context+1) * float64(o.Dim), run: r.repeat(decode, attend)},
		{name: prefillName, bytes: read + float64(o.Rows*spec.RowBytes()), flops: 4 * pairs * float64(o.Dim), run: r.repeat(prefill, attend)},
		{name: "frame out of pages", bytes: float64(len(frame)), run: func(n int) (err error) {
			for range n {
				if frame, err = r.pool.Read(view, rows, frame[:0]); err != nil {
					return err
				}
			}
			return nil
		}},
		{name: "zero a sequence's pages", bytes: float64(len(ids) * spec.PageSize * spec.RowBytes()), run: func(n int) error {
			for range n {
				if err := r.pool.Zero(ids); err != nil {
					return err
				}
			}
			return nil
		}},
	}, nil
}

// sequence owns o.Context rows of zeros, written by frames, and a grant for o.Rows more. frame is the last one of them.
func (r *deviceRun) sequence(n uint32) (device.Seq, []byte, error) {
	o, spec := r.o, r.pool.Spec()
	who := page.Owner{Attempt: n}
	var s device.Seq
	if _, err := r.led.Reserve(who, o.Context+o.Rows); err != nil {
		return s, nil, err
	}
	if _, err := r.led.Own(who); err != nil {
		return s, nil, err
	}
	g, err := r.led.Grant(who, 0, o.Context)
	if err != nil {
		return s, nil, err
	}
	per := max(1, min(o.Context, (1<<20)/spec.RowBytes()))
	frame := make([]byte, per*spec.RowBytes())
	for at := 0; at < o.Context; at += per {
		rows := min(per, o.Context-at)
		if err := r.pool.Write(g, device.Range{LayerTo: 1, RowFrom: at, RowTo: at + rows}, frame[:rows*spec.RowBytes()]); err != nil {
			return s, nil, err
		}
	}
	if err := r.led.Settle(g); err != nil {
		return s, nil, err
	}
	view, err := r.led.Grow(who, o.Context)
	if err != nil {
		return s, nil, err
	}
	grant, err := r.led.Grant(who, o.Context, o.Context+o.Rows)
	return device.Seq{From: o.Context, View: view, Grant: grant}, frame, err
}
