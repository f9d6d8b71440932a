//go:build cuda && linux

package cuda

import (
	"errors"
	"fmt"

	"quire/device"
)

func (p *plan) layRotate(o device.Rotate) error {
	if p.pool == nil {
		return fmt.Errorf("device/cuda: rotate: the batch has no pool")
	}
	s, rows := &p.pool.spec, len(p.batch.Tokens)
	k, err1 := p.buffer(o.K, rows, s.KVHeads*s.HeadDim)
	v, err2 := p.buffer(o.V, rows, s.KVHeads*s.HeadDim)
	sin, err3 := p.buffer(o.Sin, 1, o.Dims/2)
	cos, err4 := p.buffer(o.Cos, 1, o.Dims/2)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	if o.Layer < 0 || o.Layer >= s.Layers || o.Dims < 2 || o.Dims > s.HeadDim || o.Dims%2 != 0 {
		return fmt.Errorf("device/cuda: rotate: layer %d of %d, %d numbers of %d", o.Layer, s.Layers, o.Dims, s.HeadDim)
	}
	rope := ropeRec{
		k: uint64(k.at), sin: uint64(sin.at), cos: uint64(cos.at), kvHeads: int32(s.KVHeads), headDim: int32(s.HeadDim),
		dims: int32(o.Dims), kStride: int32(k.stride), angleStride: int32(sin.stride), interleavedRotation: int32(arg(o.Interleaved)),
	}
	if o.Q != nil {
		q, err := p.buffer(o.Q, rows, 0)
		if err != nil {
			return err
		}
		if q.cols%s.HeadDim != 0 {
			return fmt.Errorf("device/cuda: rotate: queries of %d numbers, heads of %d", q.cols, s.HeadDim)
		}
		rope.q, rope.qHeads, rope.qStride = uint64(q.at), int32(q.cols/s.HeadDim), int32(q.stride)
	}
	for i := range p.batch.Seqs {
		sq := &p.batch.Seqs[i]
		if to := sq.From + sq.Rows; to > sin.rows || to > cos.rows {
			return fmt.Errorf("device/cuda: rotate: position %d, tables of %d", to-1, min(sin.rows, cos.rows))
		}
		if need := (o.Layer + 1) * sq.Rows * s.RowBytes(); !sq.Grant.Valid() && len(sq.Scratch) < need {
			return fmt.Errorf("device/cuda: rotate: scratch of %d bytes, layer %d needs %d", len(sq.Scratch), o.Layer, need)
		}
	}
	if err := p.layHeads(o, k, v); err != nil {
		return err
	}
	if err := p.add("rotate", rows, 1, 128, p.rec, put(&p.room, []ropeRec{rope})); err != nil {
		return err
	}
	return p.add("store", rows, 1, 128, p.rec, p.pool.rec, k.at, v.at, o.Layer, k.stride, v.stride)
}

// layHeads appends what is done to heads before they turn, if anything.
func (p *plan) layHeads(o device.Rotate, k, v *buffer) error {
	s := &p.pool.spec
	h := headsRec{x: [3]uint64{0, uint64(k.at), uint64(v.at)}, headDim: int32(s.HeadDim), eps: o.Eps}
	h.stride = [3]int32{0, int32(k.stride), int32(v.stride)}
	h.heads = [3]int32{0, int32(s.KVHeads), int32(s.KVHeads)}
	if o.Q != nil {
		q, err := p.buffer(o.Q, 1, 0)
		if err != nil {
			return err
		}
		h.x[0], h.stride[0], h.heads[0] = uint64(q.at), int32(q.stride), int32(q.cols/s.HeadDim)
	}
	wanted := false
	for i, b := range [3]device.Buffer{o.Bias.Q, o.Bias.K, o.Bias.V} {
		if b == nil || h.heads[i] == 0 {
			continue
		}
		buf, err := p.buffer(b, 1, int(h.heads[i])*s.HeadDim)
		if err != nil {
			return err
		}
		h.bias[i], wanted = uint64(buf.at), true
	}
	for i, b := range [2]device.Buffer{o.NormQ, o.NormK} {
		if b == nil || h.heads[i] == 0 {
			continue
		}
		buf, err := p.buffer(b, 1, s.HeadDim)
		if err != nil {
			return err
		}
		h.norm[i], wanted = uint64(buf.at), true
	}
	if !wanted {
		return nil
	}
	return p.add("heads", len(p.batch.Tokens), 1, 128, put(&p.room, []headsRec{h}))
}
