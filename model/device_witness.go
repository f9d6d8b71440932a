package model

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"quire/device"
	"quire/kvtransfer/page"
)

// WitnessChunk is how many rows of layer 0 are computed again at a time.
const WitnessChunk = 256

// WitnessRows computes layer 0's keys and values of rows [from, from+len(tokens)) again and compares them with the pages.
func (e *deviceEngine) WitnessRows(v page.View, tokens []int32, from int) (int, error) {
	spec := e.pool.Spec()
	if err := spec.CheckView(v, from+len(tokens)); err != nil {
		return -1, bug(err)
	}
	if from < 0 || from+len(tokens) > e.info.Context {
		return -1, bug(fmt.Errorf("model: witness: rows %d to %d, the context takes %d", from, from+len(tokens), e.info.Context))
	}
	for _, t := range tokens {
		if t < 0 || int(t) >= e.info.Vocab {
			return -1, bug(fmt.Errorf("model: witness: a token is beyond the vocabulary of %d", e.info.Vocab))
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for at := 0; at < len(tokens); at += WitnessChunk {
		chunk := tokens[at:min(at+WitnessChunk, len(tokens))]
		if err := e.fwd.fit(len(chunk), 0); err != nil {
			return -1, failed(err)
		}
		s := device.Seq{Rows: len(chunk), From: from + at, View: v, Scratch: make([]byte, len(chunk)*spec.RowBytes())}
		b := &device.Batch{Pool: e.pool, Tokens: chunk, Seqs: []device.Seq{s}}
		differs := []int32{-1}
		ops := e.fwd.firstKeys()
		if e.exact() {
			ops = append(ops, device.Compare{Layers: 1, Differs: differs})
		}
		if err := e.w.dev.Run(&device.Step{Batch: b, Ops: ops}); err != nil {
			return -1, failed(err)
		}
		if !e.exact() {
			row, err := e.nearRows(v, &s)
			if row >= 0 || err != nil {
				return row, err
			}
		}
		if differs[0] >= 0 {
			return s.From + int(differs[0])/2, nil
		}
	}
	return -1, nil
}

// exact says whether witnesses are compared bit for bit, which the device does.
func (e *deviceEngine) exact() bool { return e.bounds.KV == 0 }

// nearRows compares rows of layer 0 in the sequence's scratch with the pages, within the bounds: the first that differs, or -1.
func (e *deviceEngine) nearRows(v page.View, s *device.Seq) (int, error) {
	stored, err := e.pool.Read(v, device.Range{LayerTo: 1, RowFrom: s.From, RowTo: s.From + s.Rows}, nil)
	if err != nil {
		return -1, bug(err)
	}
	n := e.pool.Spec().RowBytes()
	for i := range s.Rows {
		if !e.same(s.Scratch[i*n:(i+1)*n], stored[i*n:(i+1)*n]) {
			return s.From + i, nil
		}
	}
	return -1, nil
}

// differs is the layer and part that a Compare of one row found, as results name them; "" for none.
func differs(at int32) string {
	if at < 0 {
		return ""
	}
	return fmt.Sprintf("layer %d %s", at/2, [...]string{"k", "v"}[at%2])
}

// nearRow compares keys and values of a witness step in scratch with the received row, within the bounds; "" when all agree.
func (e *deviceEngine) nearRow(w *Work, computed []byte) (string, error) {
	received, err := e.pool.Read(w.View, device.Range{LayerTo: e.info.Layers, RowFrom: w.From, RowTo: w.From + 1}, nil)
	if err != nil {
		return "", err
	}
	n := e.pool.Spec().RowBytes() / 2
	for i := range 2 * e.info.Layers {
		if !e.same(computed[i*n:(i+1)*n], received[i*n:(i+1)*n]) {
			return differs(int32(i)), nil
		}
	}
	return "", nil
}

// witness says where what a witness step computed differs from the received row and hidden vector; "" when all agree. found is what
// the device's comparison of the row gave.
func (e *deviceEngine) witness(w *Work, computed []byte, found int32, hidden []float32) (string, error) {
	what, err := differs(found), error(nil)
	if !e.exact() {
		what, err = e.nearRow(w, computed)
	}
	if what != "" || err != nil {
		return what, err
	}
	for i, h := range hidden {
		if !near(h, w.Want[i], e.bounds.Hidden) {
			return "hidden", nil
		}
	}
	return "", nil
}

// same compares stored keys or values: equal bits, or within the bounds.
func (e *deviceEngine) same(a, b []byte) bool {
	if e.bounds.KV == 0 || bytes.Equal(a, b) {
		return bytes.Equal(a, b)
	}
	typ := e.pool.Spec().Type
	x, y := stored(a, typ), stored(b, typ)
	for i := range x {
		if !near(x[i], y[i], e.bounds.KV) {
			return false
		}
	}
	return true
}

// stored gives the numbers that keys or values as stored stand for.
func stored(b []byte, typ device.Type) []float32 {
	var out []float32
	n, size := typ.Block()
	for ; len(b) >= size; b = b[size:] {
		switch typ {
		case device.F32:
			out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(b)))
		case device.F16:
			out = append(out, device.FromF16(binary.LittleEndian.Uint16(b)))
		default:
			scale := device.FromF16(binary.LittleEndian.Uint16(b))
			for _, q := range b[2 : 2+n] {
				out = append(out, scale*float32(int8(q)))
			}
		}
	}
	return out
}

// near says whether a is b, bit for bit, or within a bound that is not zero.
func near(a, b, bound float32) bool {
	if math.Float32bits(a) == math.Float32bits(b) {
		return true
	}
	return bound > 0 && math.Abs(float64(a-b)) <= float64(bound)*(1+math.Abs(float64(b)))
}
