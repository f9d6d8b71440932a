package page

import "fmt"

// Quarantine sets the pages of a refused hand-off apart: nothing reads or writes them any more, and their generations are
// bumped once more before they are Free. Holds may still be open. From Reserved, Filling or Owned; ErrState otherwise.
func (l *Ledger) Quarantine(o Owner) error {
	a, ok := l.owners[o]
	if !ok {
		return fmt.Errorf("page: quarantine: %w: %s", ErrUnknown, o)
	}
	if a.state != Reserved && a.state != Filling && a.state != Owned {
		return fmt.Errorf("page: quarantine: %w: owner %s is %s", ErrState, o, a.status())
	}
	l.move(a, Quarantined)
	a.rows, a.settled = 0, 0
	for _, s := range a.slots {
		l.pages[s.Page].tainted = true
	}
	return nil
}

// Release lets an owner's pages go: Reserved, Filling, Owned or Quarantined -> Zeroing once no hold is open, at once or at
// the last Settle or Unhold. From now on the owner gets no view, grant or hold. Asking again while holds are open changes
// nothing; ErrState once the pages are being zeroed, ErrUnknown when they are Free.
func (l *Ledger) Release(o Owner) error {
	a, ok := l.owners[o]
	if !ok {
		return fmt.Errorf("page: release: %w: %s", ErrUnknown, o)
	}
	if a.state == Zeroing {
		return fmt.Errorf("page: release: %w: owner %s is %s, pages left %d", ErrState, o, a.state, a.zeroes)
	}
	a.leaving = true
	l.leave(a)
	return nil
}

// leave sends the pages of a leaving owner to Zeroing if nothing holds them.
func (l *Ledger) leave(a *account) {
	if !a.leaving || a.holds() > 0 {
		return
	}
	l.move(a, Zeroing)
	a.leaving, a.rows, a.settled, a.zeroes = false, 0, 0, len(a.slots)
	for _, s := range a.slots {
		l.zeroing = append(l.zeroing, s.Page)
	}
}

// TakeZeroing gives out the pages that now must be zeroed, each once; nil when there are none. The caller zeroes them and
// says so with Zeroed; if the device fails, it keeps the ids and tries again.
func (l *Ledger) TakeZeroing() []ID {
	ids := l.zeroing
	l.zeroing = nil
	for _, id := range ids {
		l.pages[id].taken = true
	}
	return ids
}

// Zeroed says that pages which TakeZeroing gave out hold zeros now: Zeroing -> Free. The generation of a page that was
// quarantined is bumped. An owner is forgotten with its last page. ErrState if any of them is not being zeroed.
func (l *Ledger) Zeroed(ids []ID) error {
	seen := make(map[ID]bool, len(ids))
	for _, id := range ids {
		if int(id) >= len(l.pages) {
			return fmt.Errorf("page: zeroed: %w: page %d of %d", ErrBounds, id, len(l.pages))
		}
		p := l.pages[id]
		if p.state != Zeroing || !p.taken || seen[id] {
			return fmt.Errorf("page: zeroed: %w: page %d is %s, given out %t, named before %t", ErrState, id, p.state, p.taken, seen[id])
		}
		seen[id] = true
	}
	for i := range ids {
		l.freeUp(ids[len(ids)-1-i])
	}
	return nil
}

// freeUp puts one zeroed page on the free stack.
func (l *Ledger) freeUp(id ID) {
	p := &l.pages[id]
	a := l.owners[p.owner]
	if a.zeroes--; a.zeroes == 0 {
		delete(l.owners, p.owner)
	}
	gen := p.gen
	if p.tainted {
		gen++
	}
	*p = leaf{gen: gen, state: Free}
	l.free = append(l.free, id)
	l.counts.Zeroing--
	l.counts.Free++
}
