package device

import "fmt"

// CheckBatch makes sure of everything that a batch promises: rows partitioned, views and grants real, of this pool, of one owner
// and covering what is read and written. What it refuses is a bug of the caller.
func CheckBatch(b *Batch) error {
	if b == nil || len(b.Tokens) == 0 {
		return fmt.Errorf("device: batch: no rows")
	}
	next := 0
	for i := range b.Seqs {
		s := &b.Seqs[i]
		if s.Row != next || s.Rows < 1 || s.From < 0 {
			return fmt.Errorf("device: batch: sequence %d: row %d, rows %d, from %d, expected row %d", i, s.Row, s.Rows, s.From, next)
		}
		next += s.Rows
		if b.Pool == nil {
			continue
		}
		if err := checkSeq(b.Pool.Spec(), s); err != nil {
			return fmt.Errorf("%w (sequence %d)", err, i)
		}
	}
	if next != len(b.Tokens) {
		return fmt.Errorf("device: batch: %d tokens, sequences have %d rows", len(b.Tokens), next)
	}
	return nil
}

func checkSeq(p PoolSpec, s *Seq) error {
	to := s.From + s.Rows
	if err := p.CheckView(s.View, 0); err != nil {
		return err
	}
	if !s.Grant.Valid() {
		if len(s.Scratch) == 0 {
			return fmt.Errorf("device: grant: none, and no scratch either: rows %d to %d have nowhere to go", s.From, to)
		}
		if size := s.Rows * p.RowBytes(); len(s.Scratch)%size != 0 {
			return fmt.Errorf("device: scratch: %d bytes, a layer of %d rows takes %d", len(s.Scratch), s.Rows, size)
		}
		return p.CheckView(s.View, to)
	}
	if err := p.CheckView(s.View, s.From); err != nil {
		return err
	}
	if err := p.CheckGrant(s.Grant, s.From, to); err != nil {
		return err
	}
	if s.Grant.Owner() != s.View.Owner() {
		return fmt.Errorf("device: grant: its owner is not the view's")
	}
	if pages := (to + p.PageSize - 1) / p.PageSize; s.View.Pages() < pages {
		return fmt.Errorf("device: view: %d pages, row %d needs %d", s.View.Pages(), to-1, pages)
	}
	for i := s.From / p.PageSize; i <= (to-1)/p.PageSize; i++ {
		if s.Grant.Slot(i) != s.View.Slot(i) {
			return fmt.Errorf("device: grant: page %d of the sequence is %v, the view's %v", i, s.Grant.Slot(i), s.View.Slot(i))
		}
	}
	return nil
}

// CheckCompare makes sure that sequences with Scratch have room in it for the layers that are compared, and views that cover their
// rows (CheckBatch saw to that).
func CheckCompare(b *Batch, o Compare) error {
	s := b.Pool.Spec()
	if o.Layers < 1 || o.Layers > s.Layers || len(o.Differs) != len(b.Seqs) {
		return fmt.Errorf("device: compare: %d layers of %d, results for %d of %d sequences", o.Layers, s.Layers, len(o.Differs), len(b.Seqs))
	}
	for i := range b.Seqs {
		if sq := &b.Seqs[i]; !sq.Grant.Valid() && len(sq.Scratch) < o.Layers*sq.Rows*s.RowBytes() {
			return fmt.Errorf("device: compare: sequence %d: scratch of %d bytes, %d layers of %d rows take more", i, len(sq.Scratch), o.Layers, sq.Rows)
		}
	}
	return nil
}
