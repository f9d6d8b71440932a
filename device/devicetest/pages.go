package devicetest

import (
	"bytes"
	"math"
	"testing"

	"quire/device"
	"quire/kvtransfer/page"
)

// Shape of the attention tests.
const (
	heads, kvHeads, headDim = 6, 2, 24
	layers                  = 2
	turned                  = 16 // numbers of a head that turn
	positions               = 200
)

// paged is a pool, its ledger, and the host's copy of what each sequence stored.
type paged struct {
	*bench
	pool     device.Pool
	dim      int // of a head
	led      *page.Ledger
	sin, cos table
	tables   [2]device.Buffer
}

// past is a sequence: its right to read, and its keys and values as stored, by layer and position.
type past struct {
	o    page.Owner
	view page.View
	rows int
	k, v [layers]table
}

func newPaged(b *bench, kv device.Type, pageSize int) *paged {
	b.Helper()
	dim := headDim
	if kv.Quantised() {
		dim = 32
	}
	s := device.PoolSpec{Number: 5, Pages: 64, PageSize: pageSize, Layers: layers, KVHeads: kvHeads, HeadDim: dim, Type: kv}
	pool, err := b.dev.Pool(s)
	if err != nil {
		b.Fatal(err)
	}
	p := &paged{bench: b, pool: pool, dim: dim, led: page.NewLedger(5, 64, pageSize)}
	for pos := range positions {
		sin, cos := make([]float32, turned/2), make([]float32, turned/2)
		for i := range sin {
			s, c := math.Sincos(float64(pos) / math.Pow(100, float64(i)/8))
			sin[i], cos[i] = float32(s), float32(c)
		}
		p.sin, p.cos = append(p.sin, sin), append(p.cos, cos)
	}
	p.tables = [2]device.Buffer{b.buffer(p.sin), b.buffer(p.cos)}
	return p
}

func (p *paged) seq(n byte, rows int) *past {
	p.Helper()
	s := &past{o: page.Owner{Handoff: [16]byte{n}, Attempt: 1}}
	if _, err := p.led.Reserve(s.o, rows); err != nil {
		p.Fatal(err)
	}
	var err error
	if s.view, err = p.led.Own(s.o); err != nil {
		p.Fatal(err)
	}
	return s
}

// testAttention runs two sequences in uneven chunks over scattered pages and compares each row with the whole computation in
// float64 on the keys and values as stored.
func testAttention(b *bench) {
	for _, c := range []struct {
		kv          device.Type
		pageSize    int
		interleaved bool
	}{
		{device.F16, 16, true}, {device.F32, 5, false}, {device.F16, 12, false}, {device.F16, 64, true},
		{device.Q8_0, 16, true}, {device.Q8_0, 5, false}, {device.Q8_0, 128, false},
	} {
		p := newPaged(b, c.kv, c.pageSize)
		a, z := p.seq(1, 150), p.seq(2, 150)
		for _, n := range [][2]int{{1, 3}, {70, 1}, {5, 66}, {60, 1}, {1, 40}} {
			p.chunk(c.interleaved, c.kv, []*past{a, z}, n[:])
		}
		p.pool.Free()
	}
}

// chunk computes the next rows of some sequences and checks them.
func (p *paged) chunk(interleaved bool, kv device.Type, seqs []*past, rows []int) {
	p.Helper()
	bt := &device.Batch{Pool: p.pool}
	var grants []page.Grant
	for i, s := range seqs {
		g, err := p.led.Grant(s.o, s.rows, s.rows+rows[i])
		if err != nil {
			p.Fatal(err)
		}
		grants = append(grants, g)
		bt.Seqs = append(bt.Seqs, device.Seq{Row: len(bt.Tokens), Rows: rows[i], From: s.rows, View: s.view, Grant: g})
		bt.Tokens = append(bt.Tokens, make([]int32, rows[i])...)
	}
	part := 2e-3
	if kv.Quantised() {
		part = 1e-2 // a number on the border between two int8 may fall to either side
	}
	for layer := range layers {
		q, k, v := p.random(len(bt.Tokens), heads*p.dim), p.random(len(bt.Tokens), kvHeads*p.dim), p.random(len(bt.Tokens), kvHeads*p.dim)
		out := p.empty(len(bt.Tokens), heads*p.dim)
		qb := p.buffer(q)
		got := p.run(bt, out,
			device.Rotate{Layer: layer, Q: qb, K: p.buffer(k), V: p.buffer(v), Sin: p.tables[0], Cos: p.tables[1], Dims: turned, Interleaved: interleaved},
			device.Attend{Layer: layer, Q: qb, Out: out, Scale: 0.3})
		for i, s := range seqs {
			sq := bt.Seqs[i]
			for r := range sq.Rows {
				pos := sq.From + r
				p.turn(q[sq.Row+r], pos, interleaved)
				p.turn(k[sq.Row+r], pos, interleaved)
				s.k[layer] = append(s.k[layer], asStored(kv, k[sq.Row+r]))
				s.v[layer] = append(s.v[layer], asStored(kv, v[sq.Row+r]))
				p.near("attention", got[sq.Row+r], attend(s, layer, q[sq.Row+r]), part)
			}
		}
	}
	for i, s := range seqs {
		s.rows += rows[i]
		if err := p.led.Settle(grants[i]); err != nil {
			p.Fatal(err)
		}
		var err error
		if s.view, err = p.led.Grow(s.o, s.rows); err != nil {
			p.Fatal(err)
		}
	}
}

func (p *paged) turn(x []float32, pos int, interleaved bool) {
	for h := 0; h < len(x); h += p.dim {
		for i := range turned / 2 {
			a, b := h+i, h+i+turned/2
			if interleaved {
				a, b = h+2*i, h+2*i+1
			}
			s, c := float64(p.sin[pos][i]), float64(p.cos[pos][i])
			u, v := float64(x[a]), float64(x[b])
			x[a], x[b] = float32(u*c-v*s), float32(u*s+v*c)
		}
	}
}

func asStored(kv device.Type, row []float32) []float32 {
	out := append([]float32(nil), row...)
	switch kv {
	case device.F16:
		for i, v := range out {
			out[i] = device.FromF16(device.ToF16(v))
		}
	case device.Q8_0:
		for b := 0; b < len(out); b += 32 {
			roundBlock(out[b : b+32])
		}
	}
	return out
}

// roundBlock rounds numbers to those that a block of Q8_0 of them stands for.
func roundBlock(x []float32) {
	var top float64
	for _, v := range x {
		top = math.Max(top, math.Abs(float64(v)))
	}
	scale := float64(device.FromF16(device.ToF16(float32(top / 127))))
	for i, v := range x {
		x[i] = float32(math.RoundToEven(float64(v)*127/top) * scale)
	}
}

// attend is attention of one turned query row over all stored rows, in float64.
func attend(s *past, layer int, q []float32) []float64 {
	out := make([]float64, len(q))
	dim := len(q) / heads
	for h := range heads {
		kv := h / (heads / kvHeads) * dim
		scores := make([]float64, len(s.k[layer]))
		top := math.Inf(-1)
		for t, k := range s.k[layer] {
			for d := range dim {
				scores[t] += float64(q[h*dim+d]) * float64(k[kv+d]) * 0.3
			}
			top = math.Max(top, scores[t])
		}
		var sum float64
		for t := range scores {
			scores[t] = math.Exp(scores[t] - top)
			sum += scores[t]
		}
		for t, v := range s.v[layer] {
			for d := range dim {
				out[h*dim+d] += scores[t] / sum * float64(v[kv+d])
			}
		}
	}
	return out
}

// testScratch: a row computed again into scratch equals the stored one, which stays as it was.
func testScratch(b *bench) {
	for _, kv := range []device.Type{device.F16, device.F32, device.Q8_0} {
		p := newPaged(b, kv, 16)
		p.checkScratch()
		p.pool.Free()
	}
}

func (p *paged) checkScratch() {
	p.Helper()
	b := p.bench
	s := p.seq(1, 20)
	g, err := p.led.Grant(s.o, 0, 20)
	if err != nil {
		b.Fatal(err)
	}
	k, v := b.random(20, kvHeads*p.dim), b.random(20, kvHeads*p.dim)
	bt := &device.Batch{Pool: p.pool, Tokens: make([]int32, 20), Seqs: []device.Seq{{Rows: 20, View: s.view, Grant: g}}}
	kb, vb := b.buffer(k), b.buffer(v)
	rotate := device.Rotate{Layer: 0, K: kb, V: vb, Sin: p.tables[0], Cos: p.tables[1], Dims: turned}
	b.run(bt, kb, rotate)
	if err := p.led.Settle(g); err != nil {
		b.Fatal(err)
	}
	if s.view, err = p.led.Grow(s.o, 20); err != nil {
		b.Fatal(err)
	}
	before, err := p.pool.Read(s.view, device.Range{LayerTo: 1, RowTo: 20}, nil)
	if err != nil {
		b.Fatal(err)
	}
	n := p.pool.Spec().RowBytes()
	scratch := make([]byte, 5*n)
	again := &device.Batch{Pool: p.pool, Tokens: make([]int32, 5), Seqs: []device.Seq{{Rows: 5, From: 9, View: s.view, Scratch: scratch}}}
	rotate.K, rotate.V = b.buffer(k[9:14]), b.buffer(v[9:14])
	b.run(again, rotate.K, rotate)
	if !bytes.Equal(scratch, before[9*n:14*n]) {
		b.Error("rows computed into scratch differ from the stored ones")
	}
	after, err := p.pool.Read(s.view, device.Range{LayerTo: 1, RowTo: 20}, nil)
	if err != nil || !bytes.Equal(before, after) {
		b.Errorf("the stored rows changed, %v", err)
	}
}

func testPool(b *bench) {
	for _, kv := range []device.Type{device.F16, device.F32, device.Q8_0} {
		for _, size := range []int{16, 5, 1} {
			b.Run(kv.String(), func(t *testing.T) {
				roundTrip(newPaged(&bench{T: t, dev: b.dev, r: b.r}, kv, size))
			})
		}
	}
}

// roundTrip writes frames of odd ranges and reads them back in others.
func roundTrip(p *paged) {
	defer p.pool.Free()
	const rows = 33
	s := p.seq(1, rows)
	g, err := p.led.Grant(s.o, 0, rows)
	if err != nil {
		p.Fatal(err)
	}
	n := p.pool.Spec().RowBytes()
	frame := make([]byte, layers*rows*n)
	for i := range frame {
		frame[i] = byte(p.r.Uint32())
	}
	for l := range layers {
		for _, r := range [][2]int{{20, rows}, {0, 20}} {
			part := frame[(l*rows+r[0])*n : (l*rows+r[1])*n]
			if err := p.pool.Write(g, device.Range{LayerFrom: l, LayerTo: l + 1, RowFrom: r[0], RowTo: r[1]}, part); err != nil {
				p.Fatal(err)
			}
		}
	}
	if err := p.led.Settle(g); err != nil {
		p.Fatal(err)
	}
	if s.view, err = p.led.Grow(s.o, rows); err != nil {
		p.Fatal(err)
	}
	got, err := p.pool.Read(s.view, device.Range{LayerTo: layers, RowTo: rows}, []byte("kept"))
	if err != nil || !bytes.Equal(got, append([]byte("kept"), frame...)) {
		p.Fatalf("what was read is not what was written, %v", err)
	}
	var ids []page.ID
	for i := range s.view.Pages() {
		ids = append(ids, s.view.Slot(i).Page)
	}
	if p.pool.NonZero(ids) != int(ids[0]) {
		p.Errorf("a full page counts as zero")
	}
	if err := p.pool.Zero(ids); err != nil || p.pool.NonZero(ids) != -1 {
		p.Errorf("pages are not zero after Zero, %v", err)
	}
}
