package sim

import (
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/model"
)

// pagesCheck: every page has one owner, and the states' counts sum to the pool, always, as each process sees itself.
type pagesCheck struct{ w *World }

// verify asks a loop after each event.
func (c *pagesCheck) verify(p kvtransfer.Peer, verify func() error) {
	if err := verify(); err != nil {
		c.w.fail("pages", "%s: %v", p, err)
	}
}

// beat adds up what a heartbeat says.
func (c *pagesCheck) beat(p kvtransfer.Peer, n page.Counts) {
	if sum := n.Free + n.Reserved + n.Filling + n.Owned + n.Zeroing + n.Quarantined; sum != n.Total {
		c.w.fail("pages", "%s: the heartbeat's pages sum to %d of %d", p, sum, n.Total)
	}
}

// shadow is what the checkers know of one pool by watching promises and accesses; it asks no ledger.
type shadow struct {
	w      *World
	decode bool // pages are promised; on prefill the first write after a zeroing takes a page
	size   int  // rows of a page
	pages  []held
	wrote  [][]page.Owner // [layers][pages * size]: who wrote a row since its page was zeroed
}

// held is who has a page.
type held struct {
	owner page.Owner
	gen   page.Gen
	taken bool
}

func newShadow(w *World, role string, i model.Info) *shadow {
	s := &shadow{w: w, decode: role == "decode", size: i.PageSize, pages: make([]held, i.Pages), wrote: make([][]page.Owner, i.Layers)}
	for l := range s.wrote {
		s.wrote[l] = make([]page.Owner, i.Pages*i.PageSize)
	}
	return s
}

// reserve sees decode promise pages: they must be nobody's and clean.
func (s *shadow) reserve(p *proc, r kvtransfer.Reservation, e interface{ NonZero([]page.ID) int }) {
	slots := r.Pages
	if s.w.plant == plantTwoOwners && len(s.pages) > 1 {
		slots = append([]page.Slot{{Page: s.anyTaken(), Gen: 1}}, slots...)
	}
	for _, slot := range slots {
		h := &s.pages[slot.Page]
		if h.taken && h.owner == r.Key.Owner() && h.gen == slot.Gen {
			continue // the same promise again
		}
		if h.taken {
			s.w.fail("pages", "%s: page %d is promised to %s and still of %s", p, slot.Page, r.Key.Owner(), h.owner)
		}
		if slot.Gen <= h.gen {
			s.w.fail("pages", "%s: page %d is promised to %s in generation %d after %d", p, slot.Page, r.Key.Owner(), slot.Gen, h.gen)
		}
		if e.NonZero([]page.ID{slot.Page}) >= 0 {
			s.w.fail("pages", "%s: page %d is promised to %s and holds bytes of another", p, slot.Page, r.Key.Owner())
		}
		*h = held{owner: r.Key.Owner(), gen: slot.Gen, taken: true}
	}
}

func (s *shadow) anyTaken() page.ID {
	for i, h := range s.pages {
		if h.taken {
			return page.ID(i)
		}
	}
	return 0
}

// zero sees pages cleared: they are nobody's.
func (s *shadow) zero(ids []page.ID) {
	for _, id := range ids {
		s.pages[id] = held{gen: s.pages[id].gen}
		for l := range s.wrote {
			clear(s.wrote[l][int(id)*s.size : (int(id)+1)*s.size])
		}
	}
}
