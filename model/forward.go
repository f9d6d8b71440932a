package model

import (
	"fmt"
	"math/bits"

	"quire/device"
)

// forward is a model's forward pass as a recorded list of ops, with the working memory that they name. Rows of all buffers are
// rows of a batch.
type forward struct {
	w    *Weights
	rows int // room for so many rows

	hidden device.Buffer // [rows, Dim] the residual stream
	normed device.Buffer // [rows, Dim]
	q      device.Buffer // [rows, Heads*HeadDim]
	k, v   device.Buffer // [rows, KVHeads*HeadDim]
	mixed  device.Buffer // [rows, Heads*HeadDim] attention's output
	gate   device.Buffer // [rows, FFN]
	up     device.Buffer // [rows, FFN]
	body   []device.Op   // from tokens to hidden

	chosen int           // room for so many rows of logits
	last   device.Buffer // [chosen, Dim]
	logits device.Buffer // [chosen, Vocab]
}

// fit makes room for a batch of rows, of which chosen want logits.
func (f *forward) fit(rows, chosen int) error {
	c := f.w.Config
	if rows > f.rows {
		rows = roomy(rows)
		m := maker{dev: f.w.dev, rows: rows}
		f.hidden, f.normed = m.buffer(c.Dim), m.buffer(c.Dim)
		f.q, f.mixed = m.buffer(c.Heads*c.HeadDim), m.buffer(c.Heads*c.HeadDim)
		f.k, f.v = m.buffer(c.KVHeads*c.HeadDim), m.buffer(c.KVHeads*c.HeadDim)
		f.gate, f.up = m.buffer(c.FFN), m.buffer(c.FFN)
		if m.err != nil {
			return fmt.Errorf("model: forward: room for %d rows: %w", rows, m.err)
		}
		f.rows = rows
		f.record()
	}
	if chosen > f.chosen {
		chosen = roomy(chosen)
		m := maker{dev: f.w.dev, rows: chosen}
		f.last, f.logits = m.buffer(c.Dim), m.buffer(c.Vocab)
		if m.err != nil {
			return fmt.Errorf("model: forward: room for %d rows of logits: %w", chosen, m.err)
		}
		f.chosen = chosen
	}
	return nil
}

// roomy is the next power of two, so that batches that grow row by row do not make new buffers each time.
func roomy(n int) int { return 1 << bits.Len(uint(n-1)) }

// record writes the ops of all layers down.
func (f *forward) record() {
	c := f.w.Config
	f.body = append(f.body[:0], device.Embed{Out: f.hidden, Table: f.w.embed})
	for i := range f.w.layers {
		l := &f.w.layers[i]
		f.body = append(f.body,
			device.Norm{Out: f.normed, In: f.hidden, Weight: l.attnNorm, Eps: c.Eps},
			device.MatMul{In: f.normed, Parts: []device.Part{{W: l.q, Out: f.q}, {W: l.k, Out: f.k}, {W: l.v, Out: f.v}}},
			f.rotate(i, f.q),
			device.Attend{Layer: i, Q: f.q, Out: f.mixed, Scale: f.w.attnScale()},
			device.MatMul{In: f.mixed, Parts: []device.Part{{W: l.o, Out: f.hidden}}, Add: true},
			device.Norm{Out: f.normed, In: f.hidden, Weight: l.ffnNorm, Eps: c.Eps},
			device.MatMul{In: f.normed, Parts: []device.Part{{W: l.gate, Out: f.gate}, {W: l.up, Out: f.up}}},
			device.SwiGLU{Out: f.gate, Gate: f.gate, Up: f.up},
			device.MatMul{In: f.gate, Parts: []device.Part{{W: l.down, Out: f.hidden}}, Add: true})
	}
}

func (f *forward) rotate(layer int, q device.Buffer) device.Op {
	r, l := f.w.Config.Rope, &f.w.layers[layer]
	return device.Rotate{
		Layer: layer, Q: q, K: f.k, V: f.v, Sin: f.w.sin, Cos: f.w.cos, Dims: r.Dims, Interleaved: r.Interleaved,
		Bias: l.bias, NormQ: l.normQ, NormK: l.normK, Eps: f.w.Config.Eps,
	}
}

// firstKeys is the ops that give keys and values of layer 0, and nothing else.
func (f *forward) firstKeys() []device.Op {
	l := &f.w.layers[0]
	return []device.Op{
		device.Embed{Out: f.hidden, Table: f.w.embed},
		device.Norm{Out: f.normed, In: f.hidden, Weight: l.attnNorm, Eps: f.w.Config.Eps},
		device.MatMul{In: f.normed, Parts: []device.Part{{W: l.k, Out: f.k}, {W: l.v, Out: f.v}}},
		f.rotate(0, nil),
	}
}

// outputs is which rows of the last layer leave the device, and where to.
type outputs struct {
	hiddenRows []int
	hidden     [][]float32 // each [Dim]
	logitRows  []int
	logits     [][]float32 // each [Vocab]
	choice                 // of the rows of logits; empty where the host chooses all
	differs    []int32     // of each work: what Compare found; nil when nothing was compared
}

// tail is the ops after the last layer: what is asked for, down to the host.
func (f *forward) tail(o *outputs) []device.Op {
	ops := make([]device.Op, 0, 5)
	if n := len(o.logitRows); n > 0 {
		ops = append(ops,
			device.Gather{Out: f.last, In: f.hidden, Rows: o.logitRows},
			device.Norm{Out: f.last, In: f.last, Weight: f.w.norm, Eps: f.w.Config.Eps, Rows: n},
			device.MatMul{In: f.last, Parts: []device.Part{{W: f.w.output, Out: f.logits}}, Rows: n})
		ops = append(ops, f.choices(o)...)
	}
	if len(o.hiddenRows) > 0 {
		ops = append(ops, device.Download{From: f.hidden, Rows: o.hiddenRows, To: o.hidden})
	}
	return ops
}

// maker makes buffers of the same number of rows; its first error stays.
type maker struct {
	dev  device.Device
	rows int
	err  error
}

func (m *maker) buffer(cols int) device.Buffer {
	if m.err != nil {
		return nil
	}
	b, err := m.dev.Buffer(m.rows, cols)
	m.err = err
	return b
}
