//go:build cuda && linux

package cuda

import (
	"errors"
	"fmt"

	"gorgonia.org/cu"

	"quire/device"
)

// Sizes that kernel/attention.cuh fixes too.
const (
	tilePositions  = 64
	splitPositions = 256
	stageBytes     = 16 << 10
)

const (
	maxLines  = 16      // query heads of rows that a block computes together, at most
	linesDims = 2048    // lines times the size of a head, at most
	partials  = 1 << 11 // splits that have a block of their own in one step, at most; more are computed one after another
	fewLines  = 2 * maxLines
)

// attention is how a step's rows are cut into blocks. All layers use it again.
type attention struct {
	group        int // query heads to a key head; 0: not cut yet
	lines, stage int
	rows, splits cu.DevicePtr // items of attend_rows, and of attend_split
	joins        cu.DevicePtr // the first split of each block of lines
	nRows        int
	nSplits      int
	nJoins       int
}

func (p *plan) layAttend(o device.Attend) error {
	if p.pool == nil {
		return fmt.Errorf("device/cuda: attend: the batch has no pool")
	}
	s, rows := &p.pool.spec, len(p.batch.Tokens)
	q, err1 := p.buffer(o.Q, rows, 0)
	out, err2 := p.buffer(o.Out, rows, 0)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if q.cols != out.cols || q.cols%(s.KVHeads*s.HeadDim) != 0 || o.Layer < 0 || o.Layer >= s.Layers {
		return fmt.Errorf("device/cuda: attend: layer %d of %d, queries of %d numbers, %d heads of %d", o.Layer, s.Layers, q.cols, s.KVHeads, s.HeadDim)
	}
	group := q.cols / (s.KVHeads * s.HeadDim)
	a := &p.attn
	switch a.group {
	case 0:
		p.cut(group)
	case group:
	default:
		return fmt.Errorf("device/cuda: attend: %d query heads to a key head, %d before in the same step", group, a.group)
	}
	shape := put(&p.room, []shapeRec{{
		layer: int32(o.Layer), group: int32(group), dim: int32(s.HeadDim), lines: int32(a.lines), qStride: int32(q.stride),
		outStride: int32(out.stride), scale: o.Scale, stage: int32(a.stage),
	}})
	shared := stageBytes + a.lines*(2*s.HeadDim+tilePositions+3)*4
	if a.nRows > 0 {
		if err := p.add("attend_rows", a.nRows, 1, 128, p.rec, p.pool.rec, shape, a.rows, q.at, out.at); err != nil {
			return err
		}
		p.last().shared = shared + a.lines*(s.HeadDim+2)*4
	}
	if a.nSplits == 0 {
		return nil
	}
	if err := p.add("attend_split", a.nSplits, 1, 128, p.rec, p.pool.rec, shape, a.splits, q.at, p.state, p.outs); err != nil {
		return err
	}
	p.last().shared = shared
	return p.add("attend_join", a.nJoins, a.lines, 64, p.rec, shape, a.joins, p.state, p.outs, out.at)
}

func (p *plan) last() *launch { return &p.cmds[len(p.cmds)-1].launch }

// cut makes the items: blocks of lines of one sequence and key head. Those of few rows over long contexts are cut by splits too.
func (p *plan) cut(group int) {
	s := &p.pool.spec
	a := attention{group: group, lines: min(maxLines, linesDims/s.HeadDim), stage: tilePositions}
	for a.stage*p.pool.head > stageBytes {
		a.stage /= 2
	}
	var whole, split, join []itemRec
	for i := range p.batch.Seqs {
		sq := &p.batch.Seqs[i]
		all := sq.Rows * group
		for line := 0; line < all; line += a.lines {
			n := min(a.lines, all-line)
			splits := (sq.From+(line+n-1)/group)/splitPositions + 1
			for head := range s.KVHeads {
				it := itemRec{seq: int32(i), head: int32(head), line: int32(line), lines: int32(n)}
				if all > fewLines || splits < 2 || len(split)+splits > partials {
					whole = append(whole, it)
					continue
				}
				it.partial = int32(len(split))
				join = append(join, it)
				for j := range splits {
					it.split, it.partial = int32(j), int32(len(split))
					split = append(split, it)
				}
			}
		}
	}
	a.nRows, a.nSplits, a.nJoins = len(whole), len(split), len(join)
	a.rows, a.splits, a.joins = put(&p.room, whole), put(&p.room, split), put(&p.room, join)
	p.attn = a
}
