package cpu

import (
	"errors"
	"fmt"
	"unsafe"

	"quire/device"
)

func (p *plan) layRotate(o device.Rotate) error {
	if p.pool == nil {
		return fmt.Errorf("device/cpu: rotate: the batch has no pool")
	}
	s, rows := &p.pool.spec, len(p.batch.Tokens)
	k, err1 := p.buffer(o.K, rows, s.KVHeads*s.HeadDim)
	v, err2 := p.buffer(o.V, rows, s.KVHeads*s.HeadDim)
	sin, err3 := p.buffer(o.Sin, 1, o.Dims/2)
	cos, err4 := p.buffer(o.Cos, 1, o.Dims/2)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	var q *buffer
	if o.Q != nil {
		var err error
		if q, err = p.buffer(o.Q, rows, 0); err != nil {
			return err
		}
		if q.cols%s.HeadDim != 0 {
			return fmt.Errorf("device/cpu: rotate: queries of %d numbers, heads of %d", q.cols, s.HeadDim)
		}
	}
	if o.Layer < 0 || o.Layer >= s.Layers || o.Dims < 2 || o.Dims > s.HeadDim || o.Dims%2 != 0 {
		return fmt.Errorf("device/cpu: rotate: layer %d of %d, %d numbers of %d", o.Layer, s.Layers, o.Dims, s.HeadDim)
	}
	for i := range p.batch.Seqs {
		sq := &p.batch.Seqs[i]
		if to := sq.From + sq.Rows; to > sin.rows || to > cos.rows {
			return fmt.Errorf("device/cpu: rotate: position %d, tables of %d", to-1, min(sin.rows, cos.rows))
		}
		if need := (o.Layer + 1) * sq.Rows * s.RowBytes(); !sq.Grant.Valid() && len(sq.Scratch) < need {
			return fmt.Errorf("device/cpu: rotate: scratch of %d bytes, layer %d needs %d", len(sq.Scratch), o.Layer, need)
		}
	}
	h, err := p.headOps(o, q)
	if err != nil {
		return err
	}
	t := p.byRows(rows, runRotate)
	t.heads = h
	t.out, t.in, t.aux, t.sin, t.cos, t.layer, t.dims, t.flag = q, k, v, sin, cos, o.Layer, o.Dims, o.Interleaved
	return nil
}

func runRotate(p *plan, t *task, w *worker, item int) {
	s := &p.pool.spec
	from, to := t.span(item)
	n := s.RowBytes()
	rounded := (s.KVHeads*s.HeadDim + 31) / 32 * actBlock // of keys or values, with Q8_0
	if len(w.stored) < n+rounded {
		w.stored = alignedBytes(n + rounded)
	}
	tmp := w.stored[n:][:rounded]
	for i := from; i < to; i++ {
		sq := &p.batch.Seqs[p.seqOf[i]]
		pos := sq.From + i - sq.Row
		if t.out != nil {
			p.prepare(t.out.row(i), t.heads.bias[0], t.heads.norm[0], t.heads.eps)
			t.turn(p.dev.kern, t.out.row(i), pos, s.HeadDim)
		}
		p.prepare(t.in.row(i), t.heads.bias[1], t.heads.norm[1], t.heads.eps)
		p.prepare(t.aux.row(i), t.heads.bias[2], nil, 0)
		t.turn(p.dev.kern, t.in.row(i), pos, s.HeadDim)
		if !sq.Grant.Valid() {
			at := (t.layer*sq.Rows + i - sq.Row) * n
			p.storeRow(sq.Scratch[at:at+n], t.in.row(i), t.aux.row(i), tmp)
			continue
		}
		p.storeRow(w.stored[:n], t.in.row(i), t.aux.row(i), tmp)
		p.pool.writeRow(sq.Grant.Slot(pos/s.PageSize).Page, t.layer, pos%s.PageSize, w.stored[:n])
	}
}

// headOps is what is done to heads before they turn.
type headOps struct {
	bias [3]*buffer // of queries, keys, values: [1, cols], or nil
	norm [2]*buffer // of queries and keys: [1, headDim], or nil
	eps  float32
}

// headOps checks what a Rotate does to heads before they turn; q is its queries, nil for none.
func (p *plan) headOps(o device.Rotate, q *buffer) (headOps, error) {
	s := &p.pool.spec
	h := headOps{eps: o.Eps}
	cols := [3]int{0, s.KVHeads * s.HeadDim, s.KVHeads * s.HeadDim}
	if q != nil {
		cols[0] = q.cols
	}
	var err error
	for i, b := range [3]device.Buffer{o.Bias.Q, o.Bias.K, o.Bias.V} {
		if b == nil || cols[i] == 0 {
			continue
		}
		if h.bias[i], err = p.buffer(b, 1, cols[i]); err != nil {
			return h, err
		}
	}
	for i, b := range [2]device.Buffer{o.NormQ, o.NormK} {
		if b == nil || cols[i] == 0 {
			continue
		}
		if h.norm[i], err = p.buffer(b, 1, s.HeadDim); err != nil {
			return h, err
		}
	}
	return h, nil
}

// prepare adds a bias to a row and norms each of its heads, in place.
func (p *plan) prepare(x []float32, bias, norm *buffer, eps float32) {
	if bias != nil {
		for i, b := range bias.row(0) {
			x[i] += b
		}
	}
	if norm == nil {
		return
	}
	w := norm.row(0)
	for n := len(w); len(x) > 0; x = x[n:] {
		p.dev.kern.norm(x[:n], x[:n], w, normArgs{n: n, eps: eps})
	}
}

// storeRow turns a row of keys and values into what is stored of it. tmp is room for either as int8 activations.
func (p *plan) storeRow(dst []byte, k, v []float32, tmp []byte) {
	switch p.pool.size {
	case 1:
		p.dev.kern.storeBlocks(dst[:len(dst)/2], k, tmp)
		p.dev.kern.storeBlocks(dst[len(dst)/2:], v, tmp)
		return
	case 2:
		p.dev.kern.toHalf(halves(dst, len(k)), k)
		p.dev.kern.toHalf(halves(dst[len(k)*2:], len(v)), v)
		return
	}
	copy(dst, unsafe.Slice((*byte)(unsafe.Pointer(&k[0])), len(k)*4))
	copy(dst[len(k)*4:], unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*4))
}

// turn rotates each head of a row by the angles of its position.
func (t *task) turn(k *kernels, x []float32, pos, headDim int) {
	sin, cos := t.sin.row(pos), t.cos.row(pos)
	for ; len(x) > 0; x = x[headDim:] {
		k.turn(x[:t.dims], sin, cos, t.flag)
	}
}
