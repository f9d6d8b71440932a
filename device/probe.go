package device

import (
	"encoding/binary"
	"fmt"
	"math"

	"quire/kvtransfer/page"
)

// Shape of the probe: odd sizes, so that partial panels, tiles and pages are met.
const (
	probeRows    = 3
	probeDim     = 64
	probeOut     = 40
	probeKVHeads = 2
	probeHead    = 16
	probeWide    = 256 // for types whose blocks are longer than probeDim
	probePast    = 67  // rows before the probe's: more than one tile of attention
)

// Probe runs a fixed step through every kind of op and every type of weights, and returns the bits of its results. Devices that
// give other bits anywhere very likely give other bits here.
func Probe(d Device, kv Type) ([]byte, error) {
	pr := probe{dev: d, seed: 1}
	head := probeHead
	if kv.Quantised() {
		head = 32
	}
	spec := PoolSpec{Number: 1, Pages: 8, PageSize: 16, Layers: 1, KVHeads: probeKVHeads, HeadDim: head, Type: kv}
	pool, err := d.Pool(spec)
	if err != nil {
		return nil, err
	}
	defer pool.Free()
	rows := probePast + probeRows
	x, y := pr.buffer(rows, probeDim, true), pr.buffer(rows, probeDim, false)
	weight := pr.buffer(1, probeDim, true)
	k, v := pr.buffer(rows, probeKVHeads*head, true), pr.buffer(rows, probeKVHeads*head, true)
	sin, cos := pr.buffer(rows, head/2, true), pr.buffer(rows, head/2, true)
	ops := []Op{
		Norm{Out: y, In: x, Weight: weight, Eps: 1e-5},
		Rotate{Layer: 0, Q: x, K: k, V: v, Sin: sin, Cos: cos, Dims: head},
		Attend{Layer: 0, Q: x, Out: x, Scale: 0.25},
		SwiGLU{Out: y, Gate: y, Up: x},
	}
	outs := []Buffer{x, y}
	wide := pr.buffer(rows, probeWide, true)
	for t := F32; t.Valid(); t++ {
		in, out := y, pr.buffer(rows, probeOut, false)
		cols := probeDim
		if n, _ := t.Block(); probeDim%n != 0 {
			in, cols = wide, probeWide
		}
		ops = append(ops, MatMul{In: in, Parts: []Part{{W: pr.matrix(t, cols), Out: out}}})
		outs = append(outs, out)
	}
	last := make([]int, probeRows)
	var results [][]float32
	for i := range last {
		last[i] = probePast + i
	}
	for _, b := range outs {
		to := make([][]float32, probeRows)
		for i := range to {
			to[i] = make([]float32, b.Cols())
		}
		ops = append(ops, Download{From: b, Rows: last, To: to})
		results = append(results, to...)
	}
	if pr.err != nil {
		return nil, pr.err
	}
	batch, err := probeBatch(pool, rows)
	if err != nil {
		return nil, err
	}
	if err := d.Run(&Step{Batch: batch, Ops: ops}); err != nil {
		return nil, err
	}
	var bits []byte
	for _, row := range results {
		for _, f := range row {
			bits = binary.LittleEndian.AppendUint32(bits, math.Float32bits(f))
		}
	}
	return bits, nil
}

// probeBatch is one sequence of so many rows from position 0, with pages from a ledger of its own.
func probeBatch(pool Pool, rows int) (*Batch, error) {
	s := pool.Spec()
	l, o := page.NewLedger(s.Number, s.Pages, s.PageSize), page.Owner{Attempt: 1}
	if _, err := l.Reserve(o, rows); err != nil {
		return nil, err
	}
	v, err := l.Own(o)
	if err != nil {
		return nil, err
	}
	g, err := l.Grant(o, 0, rows)
	if err != nil {
		return nil, err
	}
	return &Batch{Pool: pool, Tokens: make([]int32, rows), Seqs: []Seq{{Rows: rows, View: v, Grant: g}}}, nil
}

// probe makes buffers and matrices of fixed numbers; its first error stays.
type probe struct {
	dev  Device
	seed uint32
	err  error
}

// next is a fixed sequence of numbers in [0, 1<<24).
func (p *probe) next() uint32 {
	p.seed = p.seed*1664525 + 1013904223
	return p.seed >> 8
}

func (p *probe) float() float32 { return float32(p.next())/(1<<23) - 1 }

func (p *probe) buffer(rows, cols int, filled bool) Buffer {
	if p.err != nil {
		return nil
	}
	b, err := p.dev.Buffer(rows, cols)
	if err == nil && filled {
		data := make([]float32, rows*cols)
		for i := range data {
			data[i] = p.float()
		}
		err = p.dev.Upload(b, 0, data)
	}
	p.err = err
	return b
}

func (p *probe) matrix(t Type, cols int) Matrix {
	if p.err != nil {
		return nil
	}
	n, err := t.RowBytes(cols)
	if err != nil {
		p.err = err
		return nil
	}
	src := make([]byte, 0, n*probeOut)
	for len(src) < n*probeOut {
		src = p.block(src, t)
	}
	m, err := p.dev.Matrix(t, probeOut, cols, src)
	if err != nil {
		p.err = fmt.Errorf("device: probe: %w", err)
	}
	return m
}

// block appends one block of a type, or one number of a plain type.
func (p *probe) block(dst []byte, t Type) []byte {
	switch t {
	case F32:
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(p.float()))
	case F16:
		return binary.LittleEndian.AppendUint16(dst, ToF16(p.float()))
	case BF16:
		return binary.LittleEndian.AppendUint16(dst, uint16(math.Float32bits(p.float())>>16))
	}
	at := len(dst)
	_, size := t.Block()
	for range size {
		dst = append(dst, byte(p.next()))
	}
	for i, f := range Factors(t) {
		binary.LittleEndian.PutUint16(dst[at+f:], ToF16(p.float()/[...]float32{16, 1}[i]))
	}
	return dst
}
