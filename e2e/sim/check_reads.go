package sim

import (
	"quire/decode"
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/model"
)

// readsCheck: no kernel reads before the verdict is in the journal.
type readsCheck struct {
	w  *World
	ok map[readKey]bool
}

type readKey struct {
	peer kvtransfer.Peer
	key  kvtransfer.Key
}

// verdict sees what the gate said: a yes is over exactly the rows that were promised, in pages for all of them.
func (c *readsCheck) verdict(p kvtransfer.Peer, f decode.Fact) {
	if f.Kind != decode.FactVerdict || !f.OK {
		return
	}
	if f.Sent != f.N-f.C || f.Frames < 1 || len(f.Pages)*f.PageSize < f.N+f.MaxTokens {
		c.w.fail("reads", "%s: the gate admits %s with %d rows sent in %d frames, promised %d - %d in %d pages of %d", p, f.Key, f.Sent, f.Frames,
			f.N, f.C, len(f.Pages), f.PageSize)
	}
}

// acked notes that the bus has acknowledged a verdict.
func (c *readsCheck) acked(p kvtransfer.Peer, f decode.Fact) {
	if f.Kind == decode.FactVerdict && f.OK {
		c.ok[readKey{p, f.Key}] = true
	}
}

// read sees rows read: their pages are the reader's now, it wrote each of them itself since they were zeroed, and on decode the
// verdict came before.
func (s *shadow) read(p *proc, k kvtransfer.Key, v page.View, r model.Range) {
	o := k.Owner()
	if s.decode && !s.w.plan.decode.JournalOptional && !s.w.verdicts.ok[readKey{p.peer, k}] {
		s.w.fail("reads", "%s: %s reads rows [%d, %d) and the journal has no verdict", p, o, r.RowFrom, r.RowTo)
		return
	}
	for row := r.RowFrom; row < r.RowTo; row++ {
		slot := v.Slot(row / s.size)
		h := s.pages[slot.Page]
		if !h.taken || h.owner != o || h.gen != slot.Gen || v.Owner() != o {
			s.w.fail("reads", "%s: %s reads row %d of page %d generation %d, which is %s's in generation %d (taken: %t)",
				p, o, row, slot.Page, slot.Gen, h.owner, h.gen, h.taken)
			return
		}
		for l := r.LayerFrom; l < r.LayerTo; l++ {
			if w := s.wrote[l][int(slot.Page)*s.size+row%s.size]; w != o {
				s.w.fail("reads", "%s: %s reads layer %d row %d, which %s wrote", p, o, l, row, w)
				return
			}
		}
	}
}
