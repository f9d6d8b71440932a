package cpu

import (
	"bytes"
	"fmt"

	"quire/device"
)

func (p *plan) layCompare(o device.Compare) error {
	if p.pool == nil {
		return fmt.Errorf("device/cpu: compare: the batch has no pool")
	}
	if err := device.CheckCompare(p.batch, o); err != nil {
		return err
	}
	t := p.add(len(p.batch.Seqs), runCompare)
	t.dims, t.differs = o.Layers, o.Differs
	return nil
}

// runCompare is the comparison of one sequence.
func runCompare(p *plan, t *task, w *worker, item int) {
	sq, s := &p.batch.Seqs[item], &p.pool.spec
	t.differs[item] = -1
	if sq.Grant.Valid() {
		return
	}
	n, layers := s.RowBytes(), t.dims
	if len(w.stored) < n {
		w.stored = alignedBytes(n)
	}
	for row := range sq.Rows {
		pos := sq.From + row
		for layer := range layers {
			p.pool.readRow(sq.View.Slot(pos/s.PageSize).Page, layer, pos%s.PageSize, w.stored[:n])
			mine := sq.Scratch[(layer*sq.Rows+row)*n:][:n]
			for part := range 2 {
				if from, to := part*n/2, (part+1)*n/2; !bytes.Equal(mine[from:to], w.stored[from:to]) {
					t.differs[item] = int32((row*layers+layer)*2 + part)
					return
				}
			}
		}
	}
}
