package devicetest

import (
	"math"
	"slices"

	"quire/device"
)

// Parts of the largest number that a result may be off by.
const (
	exact32 = 1e-5 // f32 arithmetic
	byInt8  = 4e-2 // activations rounded to int8
	byBrain = 8e-3 // activations rounded to BF16
)

func testEmbed(b *bench) {
	for t := device.F32; t.Valid(); t++ {
		cols := blockCols(t, 64)
		m, want := b.weights(t, 37, cols)
		bt := batch(5)
		copy(bt.Tokens, []int32{0, 36, 16, 15, 16})
		out := b.empty(5, cols)
		for i, row := range b.run(bt, out, device.Embed{Out: out, Table: m}) {
			if !slices.Equal(row, want[bt.Tokens[i]]) {
				b.Errorf("%s: row %d is not row %d of the table", t, i, bt.Tokens[i])
			}
		}
	}
}

func testMatMul(b *bench) {
	for t := device.F32; t.Valid(); t++ {
		cols := blockCols(t, 96)
		if !t.Quantised() {
			cols = 100 // no multiple of anything
		}
		part := exact32
		if b.dev.Info().Activations == "int8" {
			switch {
			case t.Quantised():
				part = byInt8
			case t == device.BF16:
				part = byBrain
			}
		}
		m, w := b.weights(t, 53, cols)
		m2, w2 := b.weights(t, 16, cols)
		for rows := 1; rows <= 14; rows++ {
			x := b.random(rows, cols)
			start := b.random(rows, 53)
			in, out, out2 := b.buffer(x), b.buffer(start), b.empty(rows, 16)
			add := rows%2 == 0
			op := device.MatMul{In: in, Parts: []device.Part{{W: m, Out: out}}, Add: add}
			if !add {
				op.Parts = append(op.Parts, device.Part{W: m2, Out: out2})
			}
			got := b.run(batch(rows), out, op)
			for i := range got {
				b.near(t.String(), got[i], product(w, x[i], start[i], add), part)
			}
			if !add {
				for i, row := range b.run(batch(rows), out2) {
					b.near(t.String()+", second matrix", row, product(w2, x[i], nil, false), part)
				}
			}
		}
	}
}

// product is w*x, plus start with add, in float64.
func product(w table, x, start []float32, add bool) []float64 {
	out := make([]float64, len(w))
	for r := range w {
		for c := range x {
			out[r] += float64(w[r][c]) * float64(x[c])
		}
		if add {
			out[r] += float64(start[r])
		}
	}
	return out
}

// testMatMulRowAlone: a row's bits do not depend on how many are computed together.
func testMatMulRowAlone(b *bench) {
	for t := device.F32; t.Valid(); t++ {
		m, _ := b.weights(t, 40, blockCols(t, 64))
		x := b.random(19, blockCols(t, 64))
		all := b.multiply(m, x)
		for i := range x {
			if !sameBits(b.multiply(m, x[i:i+1])[0], all[i]) {
				b.Errorf("%s: row %d of 19 differs from the same row alone", t, i)
			}
		}
	}
}

func (b *bench) multiply(m device.Matrix, x table) table {
	b.Helper()
	out := b.empty(len(x), m.Rows())
	return b.run(batch(len(x)), out, device.MatMul{In: b.buffer(x), Parts: []device.Part{{W: m, Out: out}}})
}

func testNorm(b *bench) {
	x, w := b.random(3, 72), b.random(1, 72)
	out := b.empty(3, 72)
	got := b.run(batch(3), out, device.Norm{Out: out, In: b.buffer(x), Weight: b.buffer(w), Eps: 1e-5})
	for i := range x {
		var sum float64
		for _, v := range x[i] {
			sum += float64(v) * float64(v)
		}
		want := make([]float64, 72)
		for j, v := range x[i] {
			want[j] = float64(v) / math.Sqrt(sum/72+1e-5) * float64(w[0][j])
		}
		b.near("norm", got[i], want, exact32)
	}
}

func testSwiGLU(b *bench) {
	for _, n := range [][2]int{{3, 88}, {1, 1100}, {40, 300}, {2, 700}} {
		rows, cols := n[0], n[1]
		gate, up := b.random(rows, cols), b.random(rows, cols)
		gate[0][0], gate[0][1], gate[rows-1][cols-1] = 90, -90, -200
		out := b.empty(rows, cols)
		got := b.run(batch(rows), out, device.SwiGLU{Out: out, Gate: b.buffer(gate), Up: b.buffer(up)})
		for i := range gate {
			want := make([]float64, cols)
			for j, g := range gate[i] {
				want[j] = float64(g) / (1 + math.Exp(-float64(g))) * float64(up[i][j])
			}
			b.near("swiglu", got[i], want, exact32)
		}
	}
}

func testGather(b *bench) {
	x := b.random(6, 33)
	rows := []int{5, 0, 3}
	out := b.empty(3, 33)
	got := b.run(batch(6), out, device.Gather{Out: out, In: b.buffer(x), Rows: rows})
	for i, r := range rows {
		if !sameBits(got[i], x[r]) {
			b.Errorf("row %d is not row %d", i, r)
		}
	}
}

func testProbe(b *bench) {
	for _, kv := range []device.Type{device.F16, device.F32, device.Q8_0} {
		first, err := device.Probe(b.dev, kv)
		if err != nil {
			b.Fatal(err)
		}
		again, err := device.Probe(b.dev, kv)
		if err != nil {
			b.Fatal(err)
		}
		if string(first) != string(again) {
			b.Errorf("the probe gives other bits the second time (%s)", kv)
		}
	}
}
