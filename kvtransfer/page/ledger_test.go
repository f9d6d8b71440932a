package page

import (
	"errors"
	"strings"
	"testing"
)

func TestReserveIsLastFreedFirst(t *testing.T) {
	l := NewLedger(1, 4, 16)
	s := must(l.Reserve(alice, 33))
	if len(s) != 3 || s[0] != (Slot{0, 1}) || s[2] != (Slot{2, 1}) {
		t.Fatalf("33 rows of 16: %v", s)
	}
	do(l.Release(alice))
	do(l.Zeroed(l.TakeZeroing()))
	if s = must(l.Reserve(bob, 16)); s[0] != (Slot{2, 2}) {
		t.Errorf("page freed last: got %v", s)
	}
	if _, err := l.Reserve(alice, 49); !errors.Is(err, ErrExhausted) || !strings.Contains(err.Error(), "rows 49 take 4 pages, free 3 of 4") {
		t.Errorf("exhausted: %v", err)
	}
}

func TestReserveRefusesNobodyAndNothing(t *testing.T) {
	l := NewLedger(1, 4, 16)
	for _, c := range []struct {
		o    Owner
		rows int
	}{{Owner{}, 1}, {alice, 0}, {alice, -5}} {
		if _, err := l.Reserve(c.o, c.rows); !errors.Is(err, ErrBounds) {
			t.Errorf("%v, %d rows: %v", c.o, c.rows, err)
		}
	}
	for _, l := range []*Ledger{NewLedger(0, 4, 16), NewLedger(1, 4, 0), NewLedger(1, -1, 16), NewLedger(1, 0, 16)} {
		if _, err := l.Reserve(alice, 1); !errors.Is(err, ErrExhausted) {
			t.Errorf("impossible pool: %v", err)
		}
		if err := l.Verify(); err != nil {
			t.Error(err)
		}
	}
}

// An admitted row is never more than what was reserved, and grants stay inside it.
func TestBounds(t *testing.T) {
	s := &setup{l: NewLedger(1, 4, 4)}
	s.fill()
	for _, c := range [][2]int{{-1, 3}, {3, 3}, {4, 3}, {0, 11}, {10, 11}} {
		if _, err := s.l.Grant(alice, c[0], c[1]); !errors.Is(err, ErrBounds) {
			t.Errorf("grant %v: %v", c, err)
		}
	}
	for _, rows := range []int{-1, 0, 11, 12} {
		if _, err := s.l.Admit(alice, rows); !errors.Is(err, ErrBounds) {
			t.Errorf("admit %d of 10: %v", rows, err)
		}
	}
	v := must(s.l.Admit(alice, 10))
	if v.Rows() != 10 || v.Pages() != 3 || v.PageSize() != 4 || v.Pool() != 1 || v.Owner() != alice || !v.Valid() {
		t.Errorf("view %+v", v)
	}
	if _, err := s.l.Grant(alice, 10, 11); !errors.Is(err, ErrBounds) {
		t.Errorf("a row after the last: %v", err)
	}
}

// Grow takes rows that were written under the last grant, once, and no others.
func TestGrowOnlyByOwnWrites(t *testing.T) {
	s := &setup{l: NewLedger(1, 4, 4)}
	s.reserve()
	must(s.l.Own(alice))
	g := must(s.l.Grant(alice, 0, 5))
	if _, err := s.l.Grow(alice, 5); !errors.Is(err, ErrBounds) {
		t.Errorf("before settling: %v", err)
	}
	do(s.l.Settle(g))
	if _, err := s.l.Grow(alice, 6); !errors.Is(err, ErrBounds) {
		t.Errorf("beyond the grant: %v", err)
	}
	if v := must(s.l.Grow(alice, 5)); v.Rows() != 5 {
		t.Errorf("rows %d", v.Rows())
	}
	if _, err := s.l.Grow(alice, 5); !errors.Is(err, ErrBounds) {
		t.Errorf("twice: %v", err)
	}
	g = must(s.l.Grant(alice, 5, 7))
	do(s.l.Settle(g))
	must(s.l.Grow(alice, 6))
	if _, err := s.l.Grow(alice, 7); !errors.Is(err, ErrBounds) {
		t.Errorf("in two goes: %v", err)
	}
	g = must(s.l.Grant(alice, 6, 9))
	do(s.l.Settle(g)) // a step that failed: settled, not grown
	g = must(s.l.Grant(alice, 6, 7))
	if _, err := s.l.Grow(alice, 7); !errors.Is(err, ErrBounds) {
		t.Errorf("a new grant is open: %v", err)
	}
	do(s.l.Settle(g))
	if _, err := s.l.Grow(alice, 9); !errors.Is(err, ErrBounds) {
		t.Errorf("the failed step's rows: %v", err)
	}
}

// A write that was granted before its page changed hands is refused at the copy, whatever else is right.
func TestCheckSeesOwnerAndGeneration(t *testing.T) {
	for name, spoil := range map[string]func(*leaf){
		"generation": func(p *leaf) { p.gen++ },
		"owner":      func(p *leaf) { p.owner = bob },
	} {
		s := &setup{l: NewLedger(1, 4, 4)}
		s.write()
		do(s.l.Check(s.grant))
		spoil(&s.l.pages[s.grant.Slot(2).Page])
		if err := s.l.Check(s.grant); !errors.Is(err, ErrStale) {
			t.Errorf("%s: check: %v", name, err)
		}
		do(s.l.Settle(s.grant))
		if _, err := s.l.Admit(alice, 6); !errors.Is(err, ErrStale) {
			t.Errorf("%s: admit: %v", name, err)
		}
		if err := s.l.Verify(); err == nil {
			t.Errorf("%s: verify sees nothing", name)
		}
	}
}

// Grants and views of another pool, the zero ones, and ones whose fields were changed are refused.
func TestForgedRights(t *testing.T) {
	s := &setup{l: NewLedger(1, 4, 4)}
	s.write()
	other := &setup{l: NewLedger(2, 4, 4)}
	other.admit()
	wide, twin := s.grant, s.grant
	wide.to = 10
	twin.id++
	for name, g := range map[string]Grant{"other pool": other.grant, "zero": {}, "wider": wide, "other number": twin} {
		if err := s.l.Check(g); !errors.Is(err, ErrStale) {
			t.Errorf("check of %s: %v", name, err)
		}
		if err := s.l.Settle(g); !errors.Is(err, ErrStale) {
			t.Errorf("settle of %s: %v", name, err)
		}
	}
	do(s.l.Settle(s.grant))
	v := must(s.l.Admit(alice, 6))
	v.rows = 7
	for name, v := range map[string]View{"other pool": other.view, "zero": {}, "longer": v} {
		if err := s.l.CheckView(v); !errors.Is(err, ErrStale) {
			t.Errorf("check of view %s: %v", name, err)
		}
	}
}

// A page that was quarantined comes back with one generation more than one that was not.
func TestQuarantineBumpsTheGeneration(t *testing.T) {
	for _, quarantined := range []bool{false, true} {
		s := &setup{l: NewLedger(1, 1, 16)}
		s.fill()
		want := Slot{0, 2}
		if quarantined {
			do(s.l.Quarantine(alice))
			want.Gen++
		}
		do(s.l.Release(alice))
		do(s.l.Zeroed(s.l.TakeZeroing()))
		if got := must(s.l.Reserve(bob, 1)); got[0] != want {
			t.Errorf("quarantined %t: got %v, want %v", quarantined, got[0], want)
		}
	}
}

// Pages are given out to be zeroed once, stay their owner's until they are, and come back one by one.
func TestZeroing(t *testing.T) {
	l := NewLedger(1, 3, 4)
	must(l.Reserve(alice, 12))
	do(l.Release(alice))
	if err := l.Zeroed([]ID{0, 1, 2}); !errors.Is(err, ErrState) {
		t.Errorf("zeroed before they were given out: %v", err)
	}
	ids := l.TakeZeroing()
	if len(ids) != 3 || l.TakeZeroing() != nil {
		t.Fatalf("given out %v", ids)
	}
	for _, bad := range [][]ID{{0, 0}, {3}, {1, 99}} {
		if err := l.Zeroed(bad); err == nil || l.Counts().Zeroing != 3 {
			t.Errorf("zeroed %v: %v, counts %+v", bad, err, l.Counts())
		}
	}
	do(l.Zeroed(ids[1:2]))
	if _, err := l.Reserve(alice, 1); !errors.Is(err, ErrExists) {
		t.Errorf("alice again while two pages are left: %v", err)
	}
	must(l.Reserve(bob, 1))
	do(l.Verify())
	if err := l.Zeroed(ids); !errors.Is(err, ErrState) {
		t.Errorf("bob's page zeroed: %v", err)
	}
	do(l.Zeroed([]ID{ids[2], ids[0]}))
	if n := l.Owners(); n != 1 {
		t.Errorf("owners %d", n)
	}
	do(l.Verify())
}

func TestVerifyNamesWhatIsBroken(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(l *Ledger)
		says  string
	}{
		"sum":         {func(l *Ledger) { l.counts.Owned++ }, "sum 5, total 4"},
		"counts":      {func(l *Ledger) { l.counts.Owned--; l.counts.Zeroing++ }, "counted"},
		"two owners":  {func(l *Ledger) { l.owners[bob] = &account{state: Owned, slots: l.owners[alice].slots, reserved: 10} }, "generation 1, of 0a"},
		"no owner":    {func(l *Ledger) { delete(l.owners, alice) }, "not free 3"},
		"free twice":  {func(l *Ledger) { l.free = append(l.free, l.free[0]) }, "free list"},
		"free owned":  {func(l *Ledger) { l.free[0] = l.owners[alice].slots[0].Page }, "free list"},
		"owned free":  {func(l *Ledger) { l.pages[3].owner = alice }, "is free and belongs to"},
		"rows":        {func(l *Ledger) { l.owners[alice].rows = 11 }, "rows 11, reserved 10"},
		"zeroing":     {func(l *Ledger) { l.zeroing = []ID{0} }, "zeroing list"},
		"other state": {func(l *Ledger) { l.owners[alice].state = Filling }, "is filling"},
	} {
		s := &setup{l: NewLedger(1, 4, 4)}
		s.admit()
		do(s.l.Verify())
		c.spoil(s.l)
		if err := s.l.Verify(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

func TestDump(t *testing.T) {
	s := &setup{l: NewLedger(7, 6, 4)}
	s.step()
	do(s.l.Hold(alice))
	do(s.l.Release(alice))
	must(s.l.Reserve(bob, 4))
	do(s.l.Quarantine(bob))
	do(s.l.Release(bob))
	want := `pool 7: 6 pages of 4 rows: free 2 reserved 0 filling 0 owned 3 zeroing 1 quarantined 0
free, next first: 4#0 5#0
to zero: 3#1
owner 0a000000000000000000000000000000-1 owned and leaving: rows 6 of 10, readers 1, grants 2[6,7), pages 0#1 1#1 2#1
owner 0b000000000000000000000000000000-2 zeroing: rows 0 of 4, readers 0, grants, pages 3#1(tainted)
`
	if got := s.l.Dump(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
