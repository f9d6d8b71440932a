package page

import (
	"errors"
	"fmt"
)

// Reasons of a Ledger's refusals, for errors.Is. The errors themselves carry the numbers, and a refused call changes nothing.
var (
	ErrExhausted = errors.New("pool exhausted") // not enough free pages just now
	ErrExists    = errors.New("owner exists")
	ErrUnknown   = errors.New("unknown owner")
	ErrState     = errors.New("wrong state")
	ErrBounds    = errors.New("out of bounds")
	ErrHeld      = errors.New("holds are open")
	ErrStale     = errors.New("stale") // a grant, view or generation that is no longer the present one
)

// Ledger says who owns each page of one pool and what may be done with it. It decides and remembers; it touches no memory.
// It is not safe for use from several goroutines.
//
//	Free --Reserve--> Reserved --Fill--> Filling --Admit--> Owned
//	                  Reserved --Own--------------------->  Owned
//	Reserved, Filling, Owned --Quarantine--> Quarantined
//	Reserved, Filling, Owned, Quarantined --Release, no hold open--> Zeroing --Zeroed--> Free
//
// Invariants: every page is in exactly one state; a page that is not Free belongs to exactly one owner, a Free one to nobody;
// the states' counts sum to the pool; a generation never falls; pages with an open hold do not change hands.
type Ledger struct {
	pool     uint64
	pageSize int
	pages    []leaf
	free     []ID // a stack: the page freed last is taken first
	owners   map[Owner]*account
	counts   Counts // Invariant: counts.sum() == counts.Total == len(pages).
	zeroing  []ID   // pages in Zeroing that TakeZeroing has not given out yet, in order of release
	grants   uint64 // number of the last grant
}

// leaf is what the ledger knows of one page.
type leaf struct {
	owner   Owner // Invariant: the zero Owner if and only if state is Free.
	gen     Gen
	state   State
	tainted bool // it was Quarantined: the generation is bumped again when it becomes Free
	taken   bool // TakeZeroing gave it out
}

// account is what the ledger knows of one owner. All its pages are in the account's state, but for those already Free again.
type account struct {
	state    State
	slots    []Slot // in order of position; never written after Reserve
	reserved int    // rows that the owner may ever have
	rows     int    // rows that may be read: [0, rows). Invariant: 0 <= rows <= reserved.
	settled  int    // Owned: the end of the last settled grant, as far as Grow may go; 0 when there is none
	readers  int    // open Holds
	grants   map[uint64]span
	leaving  bool // Release was asked for while holds were open
	zeroes   int  // pages not zeroed yet, while Zeroing
}

// span is the rows [from, to) of an open grant.
type span struct{ from, to int }

func (a *account) holds() int { return a.readers + len(a.grants) }

// NewLedger makes a ledger of a pool whose pages are all Free, with generation 0. pool is the pool's number and not zero,
// pageSize how many rows a page takes. With a zero pool number or a size below 1 the pool is empty and every Reserve refused.
func NewLedger(pool uint64, pages, pageSize int) *Ledger {
	if pool == 0 || pageSize < 1 || pages < 0 {
		pages = 0
	}
	l := &Ledger{pool: pool, pageSize: pageSize, owners: map[Owner]*account{}}
	l.pages = make([]leaf, pages)
	l.free = make([]ID, pages)
	for i := range l.free {
		l.free[i] = ID(pages - 1 - i)
	}
	l.counts = Counts{Total: pages, Free: pages}
	return l
}

// Pool is the number of the pool.
func (l *Ledger) Pool() uint64 { return l.pool }

// PageSize is how many rows a page takes.
func (l *Ledger) PageSize() int { return l.pageSize }

// PagesFor is how many pages so many rows take.
func (l *Ledger) PagesFor(rows int) int {
	if l.pageSize < 1 || rows < 1 {
		return 0
	}
	return (rows-1)/l.pageSize + 1
}

// Reserve takes the pages for rows of a new owner, Free -> Reserved, and bumps their generations. The slots come in order of
// position and must not be written. ErrExhausted, ErrExists (also while the owner's pages are being zeroed), ErrBounds.
func (l *Ledger) Reserve(o Owner, rows int) ([]Slot, error) {
	if o == (Owner{}) || rows < 1 {
		return nil, fmt.Errorf("page: reserve: %w: owner %s, rows %d", ErrBounds, o, rows)
	}
	if a, ok := l.owners[o]; ok {
		return nil, fmt.Errorf("page: reserve: %w: owner %s is %s", ErrExists, o, a.state)
	}
	n := l.PagesFor(rows)
	if n == 0 || n > len(l.free) {
		return nil, fmt.Errorf("page: reserve: %w: rows %d take %d pages, free %d of %d", ErrExhausted, rows, n, len(l.free), len(l.pages))
	}
	slots := make([]Slot, n)
	for i := range slots {
		id := l.free[len(l.free)-1]
		l.free = l.free[:len(l.free)-1]
		p := &l.pages[id]
		*p = leaf{owner: o, gen: p.gen + 1, state: Free}
		slots[i] = Slot{Page: id, Gen: p.gen}
	}
	a := &account{state: Free, slots: slots, reserved: rows, grants: map[uint64]span{}}
	l.owners[o] = a
	l.move(a, Reserved)
	return slots, nil
}

// Fill lets a claim's frames in: Reserved -> Filling.
func (l *Ledger) Fill(o Owner) error {
	a, err := l.in("fill", o, Reserved)
	if err != nil {
		return err
	}
	l.move(a, Filling)
	return nil
}

// Admit is the gate's mint: Filling -> Owned, with rows [0, rows) readable. ErrHeld while a copy is still under way.
func (l *Ledger) Admit(o Owner, rows int) (View, error) {
	a, err := l.in("admit", o, Filling)
	if err != nil {
		return View{}, err
	}
	if h := a.holds(); h > 0 {
		return View{}, fmt.Errorf("page: admit: %w: owner %s, holds %d", ErrHeld, o, h)
	}
	if rows < 1 || rows > a.reserved {
		return View{}, fmt.Errorf("page: admit: %w: owner %s, rows %d, reserved %d", ErrBounds, o, rows, a.reserved)
	}
	if err := l.same(o, a.slots); err != nil {
		return View{}, fmt.Errorf("page: admit: %w", err)
	}
	l.move(a, Owned)
	a.rows = rows
	return l.view(o, a), nil
}

// Own is the mint for rows that this process computes itself: Reserved -> Owned, with no row readable yet.
func (l *Ledger) Own(o Owner) (View, error) {
	a, err := l.in("own", o, Reserved)
	if err != nil {
		return View{}, err
	}
	l.move(a, Owned)
	return l.view(o, a), nil
}

// Grow makes rows up to "to" readable that this process wrote: they must have been granted and that grant settled.
func (l *Ledger) Grow(o Owner, to int) (View, error) {
	a, err := l.in("grow", o, Owned)
	if err != nil {
		return View{}, err
	}
	if to <= a.rows || to > a.settled {
		return View{}, fmt.Errorf("page: grow: %w: owner %s, to %d, rows %d, settled %d", ErrBounds, o, to, a.rows, a.settled)
	}
	a.rows, a.settled = to, 0
	return l.view(o, a), nil
}

// View is the present right to read of an Owned owner.
func (l *Ledger) View(o Owner) (View, error) {
	a, err := l.in("view", o, Owned)
	if err != nil {
		return View{}, err
	}
	return l.view(o, a), nil
}

func (l *Ledger) view(o Owner, a *account) View {
	return View{pool: l.pool, owner: o, slots: a.slots, pageSize: l.pageSize, rows: a.rows}
}

// in finds an owner that is in the wanted state and not on its way out.
func (l *Ledger) in(what string, o Owner, want State) (*account, error) {
	a, ok := l.owners[o]
	if !ok {
		return nil, fmt.Errorf("page: %s: %w: %s", what, ErrUnknown, o)
	}
	if a.state != want || a.leaving {
		return nil, fmt.Errorf("page: %s: %w: owner %s is %s, not %s", what, ErrState, o, a.status(), want)
	}
	return a, nil
}

// same says whether every slot still is the owner's, in the same generation.
func (l *Ledger) same(o Owner, slots []Slot) error {
	for i, s := range slots {
		if int(s.Page) >= len(l.pages) {
			return fmt.Errorf("%w: owner %s, slot %d, page %d of %d", ErrStale, o, i, s.Page, len(l.pages))
		}
		if p := l.pages[s.Page]; p.owner != o || p.gen != s.Gen {
			return fmt.Errorf("%w: owner %s, slot %d, page %d: generation %d, now %d of %s", ErrStale, o, i, s.Page, s.Gen, p.gen, p.owner)
		}
	}
	return nil
}

// move puts an owner and all its pages into another state.
func (l *Ledger) move(a *account, to State) {
	*l.counts.of(a.state) -= len(a.slots)
	*l.counts.of(to) += len(a.slots)
	a.state = to
	for _, s := range a.slots {
		l.pages[s.Page].state = to
	}
}
