package devicetest

import (
	"quire/device"
	"quire/kvtransfer/page"
)

// refused reports what should have been an error and was none.
func (b *bench) refused(cases map[string]error) {
	b.Helper()
	for what, err := range cases {
		if err == nil {
			b.Errorf("%s was not refused", what)
		}
	}
}

// testRefusals: what breaks the contract is an error, before anything is computed or written.
func testRefusals(b *bench) {
	refuseRights(b)
	m, _ := b.weights(device.F32, 8, 8)
	in, out := b.buffer(b.random(2, 8)), b.empty(2, 8)
	run := func(rows int, op device.Op) error {
		return b.dev.Run(&device.Step{Batch: batch(rows), Ops: []device.Op{op}})
	}
	beyond := batch(1)
	beyond.Tokens[0] = 8
	nobody := batch(3)
	nobody.Seqs[0].Rows = 2
	_, short := b.dev.Matrix(device.Q8_0, 2, 32, make([]byte, 67))
	_, uneven := b.dev.Matrix(device.Q4_0, 1, 33, make([]byte, 18))
	_, noPool := b.dev.Pool(device.PoolSpec{})
	b.refused(map[string]error{
		"a short matrix":           short,
		"an uneven matrix":         uneven,
		"an empty pool":            noPool,
		"a buffer too small":       run(3, device.MatMul{In: in, Parts: []device.Part{{W: m, Out: out}}}),
		"a product into its input": run(2, device.MatMul{In: in, Parts: []device.Part{{W: m, Out: in}}}),
		"a product with nothing":   run(1, device.MatMul{In: in}),
		"a token beyond":           b.dev.Run(&device.Step{Batch: beyond, Ops: []device.Op{device.Embed{Out: out, Table: m}}}),
		"rows that are nobody's":   b.dev.Run(&device.Step{Batch: nobody}),
		"attention without pages":  run(1, device.Attend{Q: in, Out: out}),
		"no rows to gather":        run(1, device.Gather{In: in, Out: out}),
		"no rows to download":      run(1, device.Download{From: in}),
		"no buffer":                run(1, device.SwiGLU{}),
		"no step":                  b.dev.Run(nil),
	})
}

// refuseRights: no page is read or written without a real view or grant that covers it.
func refuseRights(b *bench) {
	p := newPaged(b, device.F16, 16)
	defer p.pool.Free()
	s := p.seq(1, 40)
	g, err := p.led.Grant(s.o, 0, 20)
	if err != nil {
		b.Fatal(err)
	}
	foreign := page.NewLedger(6, 64, 16)
	if _, err := foreign.Reserve(s.o, 40); err != nil {
		b.Fatal(err)
	}
	fv, err := foreign.Own(s.o)
	if err != nil {
		b.Fatal(err)
	}
	other := p.seq(2, 40)
	og, err := p.led.Grant(other.o, 0, 20)
	if err != nil {
		b.Fatal(err)
	}
	x := b.buffer(b.random(20, kvHeads*headDim))
	rotate := device.Rotate{K: x, V: x, Sin: p.tables[0], Cos: p.tables[1], Dims: turned}
	seq := func(sq device.Seq, rows int) error {
		sq.Rows = rows
		return b.dev.Run(&device.Step{
			Batch: &device.Batch{Pool: p.pool, Tokens: make([]int32, rows), Seqs: []device.Seq{sq}}, Ops: []device.Op{rotate},
		})
	}
	whole := device.Range{LayerTo: layers, RowTo: 1}
	frame := make([]byte, layers*p.pool.Spec().RowBytes())
	_, readZero := p.pool.Read(page.View{}, whole, nil)
	_, readForeign := p.pool.Read(fv, whole, nil)
	_, readUnwritten := p.pool.Read(s.view, whole, nil)
	b.refused(map[string]error{
		"a zero view":                seq(device.Seq{Grant: g}, 20),
		"a zero grant":               seq(device.Seq{View: s.view}, 20),
		"a view of another pool":     seq(device.Seq{View: fv, Grant: g}, 20),
		"a grant of another owner":   seq(device.Seq{View: s.view, Grant: og}, 20),
		"rows beyond the grant":      seq(device.Seq{View: s.view, Grant: g}, 21),
		"a start that was not read":  seq(device.Seq{From: 5, View: s.view, Grant: g}, 5),
		"scratch of unreadable rows": seq(device.Seq{View: s.view, Scratch: frame}, 1),
		"reading by a zero view":     readZero,
		"reading another pool":       readForeign,
		"reading unwritten rows":     readUnwritten,
		"writing by a zero grant":    p.pool.Write(page.Grant{}, whole, frame),
		"writing beyond the grant":   p.pool.Write(g, device.Range{LayerTo: layers, RowFrom: 20, RowTo: 21}, frame),
		"writing too little":         p.pool.Write(g, whole, frame[1:]),
		"layers beyond the model":    p.pool.Write(g, device.Range{LayerTo: layers + 1, RowTo: 1}, frame),
		"zeroing a page beyond":      p.pool.Zero([]page.ID{64}),
	})
	if err := seq(device.Seq{View: s.view, Grant: g}, 20); err != nil {
		b.Errorf("an honest step was refused: %v", err)
	}
}
