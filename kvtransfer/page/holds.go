package page

import "fmt"

// Grant gives the right to write rows [from, to) once, and holds the pages until Settle. For a Filling owner any rows within
// its reservation, also several grants at once (frames of other layers); for an Owned one the rows that follow the readable
// ones, one grant at a time. ErrState, ErrBounds, ErrHeld.
func (l *Ledger) Grant(o Owner, from, to int) (Grant, error) {
	a, ok := l.owners[o]
	if !ok {
		return Grant{}, fmt.Errorf("page: grant: %w: %s", ErrUnknown, o)
	}
	if a.leaving || (a.state != Filling && a.state != Owned) {
		return Grant{}, fmt.Errorf("page: grant: %w: owner %s is %s, not %s or %s", ErrState, o, a.status(), Filling, Owned)
	}
	if from < 0 || from >= to || to > a.reserved {
		return Grant{}, fmt.Errorf("page: grant: %w: owner %s, rows [%d, %d), reserved %d", ErrBounds, o, from, to, a.reserved)
	}
	if a.state == Owned && from != a.rows {
		return Grant{}, fmt.Errorf("page: grant: %w: owner %s, from %d, readable rows %d", ErrBounds, o, from, a.rows)
	}
	if a.state == Owned && len(a.grants) > 0 {
		return Grant{}, fmt.Errorf("page: grant: %w: owner %s, rows [%d, %d), open grants %d", ErrHeld, o, from, to, len(a.grants))
	}
	l.grants++
	a.grants[l.grants] = span{from, to}
	a.settled = 0
	return Grant{pool: l.pool, owner: o, slots: a.slots, pageSize: l.pageSize, from: from, to: to, id: l.grants}, nil
}

// Check says whether a write under the grant may still take place: it is open, its owner is still Filling or Owned and not
// leaving, and every page has its owner and generation of then. Whatever it says, Settle still ends the grant.
func (l *Ledger) Check(g Grant) error {
	a, err := l.granted("check", g)
	if err != nil {
		return err
	}
	if a.leaving || (a.state != Filling && a.state != Owned) {
		return fmt.Errorf("page: check: %w: owner %s is %s, not %s or %s", ErrState, g.owner, a.status(), Filling, Owned)
	}
	if err := l.same(g.owner, g.slots); err != nil {
		return fmt.Errorf("page: check: %w", err)
	}
	return nil
}

// CheckView says whether the rows of a view are still readable: same owner, generations and no fewer rows.
func (l *Ledger) CheckView(v View) error {
	if v.pool != l.pool || !v.Valid() {
		return fmt.Errorf("page: check view: %w: pool %d, not %d", ErrStale, v.pool, l.pool)
	}
	a, err := l.in("check view", v.owner, Owned)
	if err != nil {
		return err
	}
	if v.rows > a.rows {
		return fmt.Errorf("page: check view: %w: owner %s, rows %d, readable %d", ErrStale, v.owner, v.rows, a.rows)
	}
	if err := l.same(v.owner, v.slots); err != nil {
		return fmt.Errorf("page: check view: %w", err)
	}
	return nil
}

// Settle ends the grant's hold, in whatever state its owner is. For an Owned owner Grow may then make the rows readable; a
// write that failed is settled too, and not grown. The last hold of a released owner sends its pages to Zeroing.
func (l *Ledger) Settle(g Grant) error {
	a, err := l.granted("settle", g)
	if err != nil {
		return err
	}
	delete(a.grants, g.id)
	if a.state == Owned && !a.leaving {
		a.settled = g.to
	}
	l.leave(a)
	return nil
}

// granted finds the account in which a grant is open.
func (l *Ledger) granted(what string, g Grant) (*account, error) {
	if g.pool != l.pool || !g.Valid() {
		return nil, fmt.Errorf("page: %s: %w: grant of pool %d, not %d", what, ErrStale, g.pool, l.pool)
	}
	a, ok := l.owners[g.owner]
	if !ok {
		return nil, fmt.Errorf("page: %s: %w: %s", what, ErrUnknown, g.owner)
	}
	if s, ok := a.grants[g.id]; !ok || s != (span{g.from, g.to}) {
		return nil, fmt.Errorf("page: %s: %w: owner %s, grant %d of rows [%d, %d) is not open", what, ErrStale, g.owner, g.id, g.from, g.to)
	}
	return a, nil
}

// Hold says that a reader of an Owned owner's pages (a device step, a seal) is out; each Hold needs one Unhold.
func (l *Ledger) Hold(o Owner) error {
	a, err := l.in("hold", o, Owned)
	if err != nil {
		return err
	}
	a.readers++
	return nil
}

// Unhold says that one reader has reported back, in whatever state its owner is by now. The last hold of a released owner
// sends its pages to Zeroing.
func (l *Ledger) Unhold(o Owner) error {
	a, ok := l.owners[o]
	if !ok {
		return fmt.Errorf("page: unhold: %w: %s", ErrUnknown, o)
	}
	if a.readers == 0 {
		return fmt.Errorf("page: unhold: %w: owner %s is %s, readers 0", ErrState, o, a.status())
	}
	a.readers--
	l.leave(a)
	return nil
}
