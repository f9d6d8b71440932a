package sim

import (
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/model"
)

// No stale write: whoever writes a row has its page now, in the generation of its grant.
func (s *shadow) write(p *proc, k kvtransfer.Key, g page.Grant, r model.Range) {
	o := k.Owner()
	for row := r.RowFrom; row < r.RowTo; row++ {
		slot := g.Slot(row / s.size)
		h := &s.pages[slot.Page]
		if !h.taken && !s.decode {
			*h = held{owner: o, gen: slot.Gen, taken: true}
		}
		if !h.taken || h.owner != o || h.gen != slot.Gen || g.Owner() != o {
			s.w.fail("writes", "%s: %s writes row %d into page %d generation %d, which is %s's in generation %d (taken: %t)",
				p, o, row, slot.Page, slot.Gen, h.owner, h.gen, h.taken)
			return
		}
		for l := r.LayerFrom; l < r.LayerTo; l++ {
			s.wrote[l][int(slot.Page)*s.size+row%s.size] = o
		}
	}
}
