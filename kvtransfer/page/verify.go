package page

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// String gives the state's name in lower case.
func (s State) String() string {
	if int(s) >= len(stateNames) {
		return fmt.Sprintf("state(%d)", uint8(s))
	}
	return stateNames[s]
}

var stateNames = [...]string{"free", "reserved", "filling", "owned", "zeroing", "quarantined"}

// String gives <hand-off>-<attempt>, or nobody.
func (o Owner) String() string {
	if o == (Owner{}) {
		return "nobody"
	}
	return fmt.Sprintf("%s-%d", hex.EncodeToString(o.Handoff[:]), o.Attempt)
}

// Pages is how many pages the owner has.
func (g Grant) Pages() int { return len(g.slots) }

// status is the account's state as errors and dumps name it.
func (a *account) status() string {
	if a.leaving {
		return a.state.String() + " and leaving"
	}
	return a.state.String()
}

// of is the counter of one state.
func (c *Counts) of(s State) *int {
	return [...]*int{&c.Free, &c.Reserved, &c.Filling, &c.Owned, &c.Zeroing, &c.Quarantined}[s]
}

func (c Counts) sum() int {
	return c.Free + c.Reserved + c.Filling + c.Owned + c.Zeroing + c.Quarantined
}

// Counts is how many pages are in each state.
func (l *Ledger) Counts() Counts { return l.counts }

// State is what the ledger knows of an owner: its state, its readable rows and its open holds (grants and readers together).
// ok is false for an owner without pages.
func (l *Ledger) State(o Owner) (s State, rows, holds int, ok bool) {
	a, ok := l.owners[o]
	if !ok {
		return Free, 0, 0, false
	}
	return a.state, a.rows, a.holds(), true
}

// Reserved is how many rows an owner reserved and the slots it has for them (not to be written); 0 and nil for one without.
func (l *Ledger) Reserved(o Owner) (rows int, slots []Slot) {
	a, ok := l.owners[o]
	if !ok {
		return 0, nil
	}
	return a.reserved, a.slots
}

// Owners is how many owners have pages.
func (l *Ledger) Owners() int { return len(l.owners) }

// Verify walks the whole pool and says which invariant does not hold: the sum, the single owner, states, generations, the
// free stack and the list of pages to zero. An error is a Bug.
func (l *Ledger) Verify() error {
	if l.counts.sum() != len(l.pages) || l.counts.Total != len(l.pages) {
		return fmt.Errorf("page: verify: sum %d, total %d, pages %d", l.counts.sum(), l.counts.Total, len(l.pages))
	}
	var states [Quarantined + 1]int
	for id := range l.pages {
		p := &l.pages[id]
		states[p.state]++
		if (p.state == Free) != (p.owner == Owner{}) {
			return fmt.Errorf("page: verify: page %d is %s and belongs to %s", id, p.state, p.owner)
		}
	}
	walked := Counts{Total: len(l.pages)}
	for state, n := range states {
		*walked.of(State(state)) = n
	}
	if walked != l.counts {
		return fmt.Errorf("page: verify: counted %+v, kept %+v", walked, l.counts)
	}
	if err := l.verifyLists(); err != nil {
		return err
	}
	return l.verifyOwners()
}

// verifyLists checks that the free stack and the zeroing list hold the right pages, each once.
func (l *Ledger) verifyLists() error {
	seen := make([]bool, len(l.pages))
	for _, id := range l.free {
		if seen[id] || l.pages[id].state != Free {
			return fmt.Errorf("page: verify: free list: page %d is %s, listed before %t", id, l.pages[id].state, seen[id])
		}
		seen[id] = true
	}
	if len(l.free) != l.counts.Free {
		return fmt.Errorf("page: verify: free list %d, free %d", len(l.free), l.counts.Free)
	}
	for _, id := range l.zeroing {
		if seen[id] || l.pages[id].state != Zeroing || l.pages[id].taken {
			return fmt.Errorf("page: verify: zeroing list: page %d is %s, listed before %t, given out %t",
				id, l.pages[id].state, seen[id], l.pages[id].taken)
		}
		seen[id] = true
	}
	return nil
}

// verifyOwners checks that each page that is not Free is in the slots of its owner, once, in that owner's state.
func (l *Ledger) verifyOwners() error {
	held := make([]bool, len(l.pages))
	n := 0
	for o, a := range l.owners {
		took, err := l.verifyOwner(o, a, held)
		if err != nil {
			return cmp.Or(l.firstWrong(), err)
		}
		n += took
	}
	if n != len(l.pages)-l.counts.Free {
		return fmt.Errorf("page: verify: pages with an owner %d, not free %d", n, len(l.pages)-l.counts.Free)
	}
	return nil
}

// firstWrong names the first owner in order with which something is wrong: the same one each time.
func (l *Ledger) firstWrong() error {
	held := make([]bool, len(l.pages))
	for _, o := range l.sorted() {
		if _, err := l.verifyOwner(o, l.owners[o], held); err != nil {
			return err
		}
	}
	return nil
}

// verifyOwner marks the pages that an owner holds, and counts them.
func (l *Ledger) verifyOwner(o Owner, a *account, held []bool) (n int, err error) {
	if a.rows < 0 || a.rows > a.reserved || a.readers < 0 || len(a.slots) != l.PagesFor(a.reserved) {
		return 0, fmt.Errorf("page: verify: owner %s: rows %d, reserved %d, readers %d, pages %d",
			o, a.rows, a.reserved, a.readers, len(a.slots))
	}
	if a.state == Zeroing && a.holds() > 0 {
		return 0, fmt.Errorf("page: verify: owner %s is %s, holds %d", o, a.state, a.holds())
	}
	for _, s := range a.slots {
		p := &l.pages[s.Page]
		if a.state == Zeroing && (p.owner != o || p.gen != s.Gen) {
			continue // zeroed already, and perhaps taken again
		}
		if p.owner != o || p.gen != s.Gen || p.state != a.state {
			return 0, fmt.Errorf("page: verify: owner %s is %s: page %d generation %d is %s, generation %d, of %s",
				o, a.state, s.Page, s.Gen, p.state, p.gen, p.owner)
		}
		if held[s.Page] {
			return 0, fmt.Errorf("page: verify: owner %s has page %d twice", o, s.Page)
		}
		held[s.Page] = true
		n++
	}
	return n, nil
}

// sorted lists the owners in order.
func (l *Ledger) sorted() []Owner {
	return slices.SortedFunc(maps.Keys(l.owners), func(a, b Owner) int {
		return cmp.Or(bytes.Compare(a.Handoff[:], b.Handoff[:]), cmp.Compare(a.Attempt, b.Attempt))
	})
}

// Clone is a ledger that behaves the same from here on and shares nothing that changes.
func (l *Ledger) Clone() *Ledger {
	c := *l
	c.pages, c.free, c.zeroing = slices.Clone(l.pages), slices.Clone(l.free), slices.Clone(l.zeroing)
	c.owners = make(map[Owner]*account, len(l.owners))
	for o, a := range l.owners {
		b := *a
		b.grants = maps.Clone(a.grants)
		c.owners[o] = &b
	}
	return &c
}

// Dump prints the whole state, the same text for the same state.
func (l *Ledger) Dump() string {
	var b strings.Builder
	c := l.counts
	fmt.Fprintf(&b, "pool %d: %d pages of %d rows: free %d reserved %d filling %d owned %d zeroing %d quarantined %d\n",
		l.pool, c.Total, l.pageSize, c.Free, c.Reserved, c.Filling, c.Owned, c.Zeroing, c.Quarantined)
	fmt.Fprintf(&b, "free, next first:%s\n", l.list(l.free, true))
	if len(l.zeroing) > 0 {
		fmt.Fprintf(&b, "to zero:%s\n", l.list(l.zeroing, false))
	}
	for _, o := range l.sorted() {
		a := l.owners[o]
		fmt.Fprintf(&b, "owner %s %s: rows %d of %d, readers %d, grants", o, a.status(), a.rows, a.reserved, a.readers)
		for _, id := range slices.Sorted(maps.Keys(a.grants)) {
			fmt.Fprintf(&b, " %d[%d,%d)", id, a.grants[id].from, a.grants[id].to)
		}
		if a.settled > 0 {
			fmt.Fprintf(&b, ", settled %d", a.settled)
		}
		b.WriteString(", pages")
		for _, s := range a.slots {
			fmt.Fprintf(&b, " %d#%d", s.Page, s.Gen)
			if l.pages[s.Page].owner != o {
				b.WriteString("(free)")
			} else if l.pages[s.Page].tainted {
				b.WriteString("(tainted)")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// list prints pages with their generations.
func (l *Ledger) list(ids []ID, backwards bool) string {
	var b strings.Builder
	for i := range ids {
		id := ids[i]
		if backwards {
			id = ids[len(ids)-1-i]
		}
		fmt.Fprintf(&b, " %d#%d", id, l.pages[id].gen)
	}
	return b.String()
}
