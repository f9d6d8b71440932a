package devicetest

import (
	"math"

	"quire/device"
	"quire/kvtransfer/page"
)

// long is the context of testAttentionAlone: longer than any split of a device's attention.
const long = 600

// testAttentionAlone: the last rows of a long sequence, computed in one chunk, one by one, in pages of another size and beside a
// neighbour, have the same bits.
func testAttentionAlone(b *bench) {
	for _, kv := range []device.Type{device.F16, device.Q8_0} {
		var want table
		for _, c := range []struct {
			pageSize  int
			chunks    []int
			neighbour bool
		}{{16, []int{long}, false}, {16, []int{590, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, false}, {24, []int{300, 290, 5, 5}, true}} {
			p := newLong(b, kv, c.pageSize)
			got := p.last(c.chunks, c.neighbour)
			p.pool.Free()
			if want == nil {
				want = got
			}
			for i := range want {
				if !sameBits(got[i], want[i]) {
					b.Errorf("%s: pages of %d, chunks %v, neighbour %t: row %d has other bits than in one chunk", kv, c.pageSize, c.chunks, c.neighbour, long-len(want)+i)
				}
			}
		}
	}
}

// newLong is newPaged with room for two long sequences.
func newLong(b *bench, kv device.Type, pageSize int) *paged {
	b.Helper()
	p := newPaged(b, kv, pageSize)
	p.pool.Free()
	s := p.pool.Spec()
	s.Pages = 2 * (long/pageSize + 1)
	var err error
	if p.pool, err = b.dev.Pool(s); err != nil {
		b.Fatal(err)
	}
	p.led = page.NewLedger(s.Number, s.Pages, pageSize)
	p.sin, p.cos = nil, nil
	for pos := range long {
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

// fixed is rows of numbers that depend on their place alone.
func fixed(from, rows, cols, salt int) table {
	t := make(table, rows)
	for i := range t {
		t[i] = make([]float32, cols)
		for j := range t[i] {
			t[i][j] = float32(math.Sin(float64((from+i)*cols+j)*0.7 + float64(salt)))
		}
	}
	return t
}

// last runs the chunks of a sequence and gives attention's output of the last ten rows.
func (p *paged) last(chunks []int, neighbour bool) table {
	p.Helper()
	a := p.seq(1, long)
	seqs := []*past{a}
	if neighbour {
		seqs = []*past{p.seq(2, long), a}
	}
	var out table
	for _, rows := range chunks {
		bt := &device.Batch{Pool: p.pool}
		var grants []page.Grant
		for _, s := range seqs {
			g, err := p.led.Grant(s.o, s.rows, s.rows+rows)
			if err != nil {
				p.Fatal(err)
			}
			grants = append(grants, g)
			bt.Seqs = append(bt.Seqs, device.Seq{Row: len(bt.Tokens), Rows: rows, From: s.rows, View: s.view, Grant: g})
			bt.Tokens = append(bt.Tokens, make([]int32, rows)...)
		}
		var q, k, v table
		for i := range seqs {
			salt := 10 * (len(seqs) - i) // the neighbour has other numbers
			q = append(q, fixed(a.rows, rows, heads*p.dim, salt)...)
			k = append(k, fixed(a.rows, rows, kvHeads*p.dim, salt+1)...)
			v = append(v, fixed(a.rows, rows, kvHeads*p.dim, salt+2)...)
		}
		qb, ob := p.buffer(q), p.empty(len(q), heads*p.dim)
		got := p.run(bt, ob, device.Rotate{Q: qb, K: p.buffer(k), V: p.buffer(v), Sin: p.tables[0], Cos: p.tables[1], Dims: turned},
			device.Attend{Q: qb, Out: ob, Scale: 0.2})
		out = append(out, got[len(got)-rows:]...)
		for i, s := range seqs {
			s.rows += rows
			if err := p.led.Settle(grants[i]); err != nil {
				p.Fatal(err)
			}
			var err error
			if s.view, err = p.led.Grow(s.o, s.rows); err != nil {
				p.Fatal(err)
			}
		}
	}
	return out[len(out)-10:]
}

// testCompare: rows that were computed again agree with the pages, and the first that does not is named.
func testCompare(b *bench) {
	for _, kv := range []device.Type{device.F16, device.F32, device.Q8_0} {
		p := newPaged(b, kv, 16)
		s := p.seq(1, 40)
		k, v := [layers]table{}, [layers]table{}
		for l := range layers {
			k[l], v[l] = b.random(40, kvHeads*p.dim), b.random(40, kvHeads*p.dim)
		}
		rotate := func(l, from, to int) device.Rotate {
			return device.Rotate{Layer: l, K: b.buffer(k[l][from:to]), V: b.buffer(v[l][from:to]), Sin: p.tables[0], Cos: p.tables[1], Dims: turned}
		}
		g, err := p.led.Grant(s.o, 0, 40)
		if err != nil {
			b.Fatal(err)
		}
		bt := &device.Batch{Pool: p.pool, Tokens: make([]int32, 40), Seqs: []device.Seq{{Rows: 40, View: s.view, Grant: g}}}
		if err := b.dev.Run(&device.Step{Batch: bt, Ops: []device.Op{rotate(0, 0, 40), rotate(1, 0, 40)}}); err != nil {
			b.Fatal(err)
		}
		if err := p.led.Settle(g); err != nil {
			b.Fatal(err)
		}
		if s.view, err = p.led.Grow(s.o, 40); err != nil {
			b.Fatal(err)
		}
		v[1][17][3] += 1
		for _, c := range []struct{ from, to, want int }{{0, 17, -1}, {18, 40, -1}, {10, 20, (7*layers+1)*2 + 1}, {17, 18, 3}} {
			n := c.to - c.from
			bt := &device.Batch{Pool: p.pool, Tokens: make([]int32, n), Seqs: []device.Seq{
				{Rows: n, From: c.from, View: s.view, Scratch: make([]byte, layers*n*p.pool.Spec().RowBytes())}}}
			differs := []int32{99}
			ops := []device.Op{rotate(0, c.from, c.to), rotate(1, c.from, c.to), device.Compare{Layers: layers, Differs: differs}}
			if err := b.dev.Run(&device.Step{Batch: bt, Ops: ops}); err != nil {
				b.Fatal(err)
			}
			if int(differs[0]) != c.want {
				b.Errorf("%s: rows %d to %d: %d, want %d", kv, c.from, c.to, differs[0], c.want)
			}
		}
		p.pool.Free()
	}
}
