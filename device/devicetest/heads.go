package devicetest

import (
	"encoding/binary"
	"math"

	"quire/device"
)

// testHeads: biases are added, then each head is normed, then heads turn: in the buffers and in what is stored. Each of the five
// vectors may be missing.
func testHeads(b *bench) {
	for without := range 6 {
		p := newPaged(b, device.F32, 16)
		bias := [3]table{b.random(1, heads*headDim), b.random(1, kvHeads*headDim), b.random(1, kvHeads*headDim)}
		norm := [2]table{b.random(1, headDim), b.random(1, headDim)}
		op := device.Rotate{
			Sin: p.tables[0], Cos: p.tables[1], Dims: turned, Eps: 1e-6, NormQ: b.buffer(norm[0]), NormK: b.buffer(norm[1]),
			Bias: device.Triple{Q: b.buffer(bias[0]), K: b.buffer(bias[1]), V: b.buffer(bias[2])},
		}
		switch without {
		case 0:
			op.Bias.Q, bias[0] = nil, nil
		case 1:
			op.Bias.K, bias[1] = nil, nil
		case 2:
			op.Bias.V, bias[2] = nil, nil
		case 3:
			op.NormQ, norm[0] = nil, nil
		case 4:
			op.NormK, norm[1] = nil, nil
		}
		p.checkHeads(op, bias, norm)
		p.pool.Free()
	}
}

// checkHeads runs rows through a Rotate of heads and compares with the same in float64.
func (p *paged) checkHeads(op device.Rotate, bias [3]table, norm [2]table) {
	p.Helper()
	const rows = 5
	s := p.seq(1, rows)
	g, err := p.led.Grant(s.o, 0, rows)
	if err != nil {
		p.Fatal(err)
	}
	q, k, v := p.random(rows, heads*headDim), p.random(rows, kvHeads*headDim), p.random(rows, kvHeads*headDim)
	qb := p.buffer(q)
	op.Q, op.K, op.V = qb, p.buffer(k), p.buffer(v)
	bt := &device.Batch{Pool: p.pool, Tokens: make([]int32, rows), Seqs: []device.Seq{{Rows: rows, View: s.view, Grant: g}}}
	got := p.run(bt, qb, op)
	if err := p.led.Settle(g); err != nil {
		p.Fatal(err)
	}
	if s.view, err = p.led.Grow(s.o, rows); err != nil {
		p.Fatal(err)
	}
	stored, err := p.pool.Read(s.view, device.Range{LayerTo: 1, RowTo: rows}, nil)
	if err != nil {
		p.Fatal(err)
	}
	for i := range rows {
		for j, x := range [][]float32{q[i], k[i], v[i]} {
			if bias[j] != nil {
				addTo(x, bias[j][0])
			}
			if j < 2 {
				if norm[j] != nil {
					normHeads(x, norm[j][0], float64(op.Eps))
				}
				p.turn(x, i, false)
			}
		}
		p.near("queries", got[i], wide(q[i]), exact32)
		n := kvHeads * headDim * 4
		p.near("keys", numbers(stored[2*i*n:][:n]), wide(k[i]), exact32)
		p.near("values", numbers(stored[(2*i+1)*n:][:n]), wide(v[i]), exact32)
	}
}

func addTo(x, y []float32) {
	for i, v := range y {
		x[i] += v
	}
}

// normHeads is RMSNorm of each head in float64.
func normHeads(x, w []float32, eps float64) {
	for ; len(x) > 0; x = x[len(w):] {
		var sum float64
		for _, v := range x[:len(w)] {
			sum += float64(v) * float64(v)
		}
		for i, v := range w {
			x[i] = float32(float64(x[i]) / math.Sqrt(sum/float64(len(w))+eps) * float64(v))
		}
	}
}

func wide(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

func numbers(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}
