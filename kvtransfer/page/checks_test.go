package page

import (
	"errors"
	"testing"
)

var checksOwner = Owner{Handoff: [16]byte{7}, Attempt: 1}

// reserved is a ledger of 4 pages of 4 rows in which one owner has reserved 8 rows.
func reserved(t *testing.T) *Ledger {
	t.Helper()
	l := NewLedger(3, 4, 4)
	if _, err := l.Reserve(checksOwner, 8); err != nil {
		t.Fatal(err)
	}
	return l
}

func got[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Rows that frames were written to are not readable because a grant over them was settled: Admit alone says how many are.
func TestSettledFramesDoNotGrow(t *testing.T) {
	l := reserved(t)
	if err := l.Fill(checksOwner); err != nil {
		t.Fatal(err)
	}
	g := got[Grant](t)(l.Grant(checksOwner, 0, 6))
	if err := l.Settle(g); err != nil {
		t.Fatal(err)
	}
	got[View](t)(l.Admit(checksOwner, 4))
	if v, err := l.Grow(checksOwner, 6); !errors.Is(err, ErrBounds) {
		t.Errorf("grow to 6 after admit 4: rows %d, %v", v.Rows(), err)
	}
}

// Rows never shrink, and growing by none is refused.
func TestGrowIsForward(t *testing.T) {
	l := reserved(t)
	got[View](t)(l.Own(checksOwner))
	for _, span := range [][2]int{{0, 4}, {4, 6}} {
		g := got[Grant](t)(l.Grant(checksOwner, span[0], span[1]))
		if err := l.Settle(g); err != nil {
			t.Fatal(err)
		}
		for _, bad := range []int{-1, 0, span[0]} {
			if v, err := l.Grow(checksOwner, bad); !errors.Is(err, ErrBounds) {
				t.Errorf("grow to %d: rows %d, %v", bad, v.Rows(), err)
			}
		}
		got[View](t)(l.Grow(checksOwner, span[1]))
	}
}

// A grant or a view that no ledger made gives no right, whatever it names.
func TestMadeUpRights(t *testing.T) {
	l := reserved(t)
	v := got[View](t)(l.Own(checksOwner))
	_, slots := l.Reserved(checksOwner)
	for what, g := range map[string]Grant{
		"zero":            {},
		"never granted":   {pool: 3, owner: checksOwner, slots: slots, pageSize: 4, id: 99},
		"no page size":    {pool: 3, owner: checksOwner, slots: slots},
		"of another pool": {pool: 4, owner: checksOwner, slots: slots, pageSize: 4},
	} {
		for name, use := range map[string]func(Grant) error{"check": l.Check, "settle": l.Settle} {
			if err := use(g); !errors.Is(err, ErrStale) {
				t.Errorf("%s: grant %s: %v", name, what, err)
			}
		}
	}
	spoil := func(change func(*View)) View {
		c := v
		c.slots = append([]Slot(nil), v.slots...)
		change(&c)
		return c
	}
	for what, v := range map[string]View{
		"zero":               {},
		"of another pool":    spoil(func(v *View) { v.pool = 4 }),
		"no page size":       spoil(func(v *View) { v.pageSize = 0 }),
		"more rows":          spoil(func(v *View) { v.rows = 1 }),
		"older generation":   spoil(func(v *View) { v.slots[1].Gen-- }),
		"page of nobody":     spoil(func(v *View) { v.slots[1].Page = 3 }),
		"page out of bounds": spoil(func(v *View) { v.slots[1].Page = 4 }),
	} {
		if err := l.CheckView(v); !errors.Is(err, ErrStale) {
			t.Errorf("view %s: %v", what, err)
		}
	}
	if err := l.CheckView(v); err != nil {
		t.Error(err)
	}
	none := NewLedger(0, 4, 4)
	if err := errors.Join(none.CheckView(View{})); !errors.Is(err, ErrStale) {
		t.Errorf("pool 0: view %v", err)
	}
	if err := none.Settle(Grant{}); !errors.Is(err, ErrStale) {
		t.Errorf("pool 0: grant %v", err)
	}
}

func TestEmptyLedgers(t *testing.T) {
	for _, l := range []*Ledger{NewLedger(0, 4, 4), NewLedger(1, 4, 0), NewLedger(1, 4, -1), NewLedger(1, -4, 4)} {
		if c := l.Counts(); c != (Counts{}) || l.PagesFor(1) > 1 {
			t.Errorf("counts %+v", c)
		}
		if _, err := l.Reserve(checksOwner, 1); err == nil {
			t.Error("a page of an empty pool")
		}
	}
	if l := NewLedger(1, 4, 4); l.PagesFor(0) != 0 || l.PagesFor(-9) != 0 || l.PagesFor(1) != 1 || l.PagesFor(5) != 2 {
		t.Errorf("pages for 0: %d, for -9: %d", l.PagesFor(0), l.PagesFor(-9))
	}
}
