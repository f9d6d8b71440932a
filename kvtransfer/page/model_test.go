package page

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// model is a ledger as one would write it down: a list of pages with owner and generation, and per owner a few facts. It does
// nothing clever and keeps no count.
type model struct {
	size   int
	owner  []Owner
	gen    []Gen
	stack  []ID
	owners map[Owner]*modelOwner
}

type modelOwner struct {
	state            State
	pages            []ID
	reserved, rows   int
	written          int // what Grow may reach
	readers          int
	grants           []Grant
	leaving, tainted bool
	toZero           []ID
}

func (m *model) holds(o *modelOwner) int { return o.readers + len(o.grants) }

func (m *model) settle(o *modelOwner) {
	if o.leaving && m.holds(o) == 0 && o.state != Zeroing {
		o.state, o.rows, o.toZero, o.leaving = Zeroing, 0, slices.Clone(o.pages), false
	}
}

// machine drives a ledger and the model side by side.
type machine struct {
	l    *Ledger
	m    *model
	zero []ID    // given out by the ledger
	old  []Grant // settled grants
	high map[ID]Gen
}

func newMachine(t *rapid.T) *machine {
	n, size := rapid.IntRange(1, 12).Draw(t, "pages"), rapid.IntRange(1, 5).Draw(t, "size")
	m := &model{size: size, owner: make([]Owner, n), gen: make([]Gen, n), owners: map[Owner]*modelOwner{}}
	for i := n - 1; i >= 0; i-- {
		m.stack = append(m.stack, ID(i))
	}
	return &machine{l: NewLedger(3, n, size), m: m, high: map[ID]Gen{}}
}

func (x *machine) someone(t *rapid.T) (Owner, *modelOwner) {
	o := Owner{Handoff: [16]byte{rapid.ByteRange(1, 4).Draw(t, "owner")}, Attempt: 1}
	return o, x.m.owners[o]
}

// expect fails unless the ledger refused exactly what the model refuses.
func expect(t *rapid.T, what string, ok bool, err error) {
	if ok != (err == nil) {
		t.Fatalf("%s: model allows %t, ledger says %v", what, ok, err)
	}
}

func (x *machine) Reserve(t *rapid.T) {
	o, a := x.someone(t)
	rows := rapid.IntRange(0, 20).Draw(t, "rows")
	n := (rows + x.m.size - 1) / x.m.size
	slots, err := x.l.Reserve(o, rows)
	ok := a == nil && rows > 0 && n <= len(x.m.stack)
	expect(t, "reserve", ok, err)
	if !ok {
		return
	}
	a = &modelOwner{state: Reserved, reserved: rows}
	for i := range n {
		id := x.m.stack[len(x.m.stack)-1]
		x.m.stack = x.m.stack[:len(x.m.stack)-1]
		x.m.gen[id]++
		x.m.owner[id] = o
		a.pages = append(a.pages, id)
		if slots[i] != (Slot{id, x.m.gen[id]}) {
			t.Fatalf("slot %d is %v, want %d#%d", i, slots[i], id, x.m.gen[id])
		}
	}
	x.m.owners[o] = a
}

func (x *machine) Fill(t *rapid.T) {
	o, a := x.someone(t)
	ok := a != nil && a.state == Reserved && !a.leaving
	expect(t, "fill", ok, x.l.Fill(o))
	if ok {
		a.state = Filling
	}
}

func (x *machine) Own(t *rapid.T) {
	o, a := x.someone(t)
	ok := a != nil && a.state == Reserved && !a.leaving
	_, err := x.l.Own(o)
	expect(t, "own", ok, err)
	if ok {
		a.state = Owned
	}
}

func (x *machine) Admit(t *rapid.T) {
	o, a := x.someone(t)
	rows := rapid.IntRange(0, 20).Draw(t, "rows")
	ok := a != nil && a.state == Filling && !a.leaving && x.m.holds(a) == 0 && rows >= 1 && rows <= a.reserved
	v, err := x.l.Admit(o, rows)
	expect(t, "admit", ok, err)
	if ok {
		a.state, a.rows, a.written = Owned, rows, 0
		if v.Rows() != rows {
			t.Fatalf("admitted %d, view %d", rows, v.Rows())
		}
	}
}

func (x *machine) Grant(t *rapid.T) {
	o, a := x.someone(t)
	from, n := rapid.IntRange(-1, 20).Draw(t, "from"), rapid.IntRange(0, 6).Draw(t, "rows")
	if a != nil && rapid.Bool().Draw(t, "next") {
		from = a.rows
	}
	ok := a != nil && !a.leaving && from >= 0 && n > 0 && from+n <= a.reserved &&
		(a.state == Filling || a.state == Owned && from == a.rows && len(a.grants) == 0)
	g, err := x.l.Grant(o, from, from+n)
	expect(t, "grant", ok, err)
	if ok {
		a.grants = append(a.grants, g)
		a.written = 0
	}
}

func (x *machine) Settle(t *rapid.T) {
	_, a := x.someone(t)
	if a == nil || len(a.grants) == 0 {
		if len(x.old) > 0 {
			expect(t, "settle again", false, x.l.Settle(rapid.SampledFrom(x.old).Draw(t, "old")))
		}
		return
	}
	i := rapid.IntRange(0, len(a.grants)-1).Draw(t, "grant")
	g := a.grants[i]
	expect(t, "check", !a.leaving && (a.state == Filling || a.state == Owned), x.l.Check(g))
	expect(t, "settle", true, x.l.Settle(g))
	a.grants = slices.Delete(a.grants, i, i+1)
	x.old = append(x.old, g)
	if a.state == Owned && !a.leaving {
		a.written = g.To()
	}
	x.m.settle(a)
}

func (x *machine) Grow(t *rapid.T) {
	o, a := x.someone(t)
	to := rapid.IntRange(0, 20).Draw(t, "to")
	ok := a != nil && a.state == Owned && !a.leaving && to > a.rows && to <= a.written
	_, err := x.l.Grow(o, to)
	expect(t, "grow", ok, err)
	if ok {
		a.rows, a.written = to, 0
	}
}

func (x *machine) Hold(t *rapid.T) {
	o, a := x.someone(t)
	ok := a != nil && a.state == Owned && !a.leaving
	expect(t, "hold", ok, x.l.Hold(o))
	if ok {
		a.readers++
	}
}

func (x *machine) Unhold(t *rapid.T) {
	o, a := x.someone(t)
	ok := a != nil && a.readers > 0
	expect(t, "unhold", ok, x.l.Unhold(o))
	if ok {
		a.readers--
		x.m.settle(a)
	}
}

func (x *machine) Quarantine(t *rapid.T) {
	o, a := x.someone(t)
	ok := a != nil && (a.state == Reserved || a.state == Filling || a.state == Owned)
	expect(t, "quarantine", ok, x.l.Quarantine(o))
	if ok {
		a.state, a.tainted, a.rows, a.written = Quarantined, true, 0, 0
	}
}

func (x *machine) Release(t *rapid.T) {
	o, a := x.someone(t)
	ok := a != nil && a.state != Zeroing
	expect(t, "release", ok, x.l.Release(o))
	if ok {
		a.leaving = true
		x.m.settle(a)
	}
}

func (x *machine) Zero(t *rapid.T) {
	x.zero = append(x.zero, x.l.TakeZeroing()...)
	if len(x.zero) == 0 {
		return
	}
	n := rapid.IntRange(1, len(x.zero)).Draw(t, "zeroed")
	expect(t, "zeroed", true, x.l.Zeroed(x.zero[:n]))
	for _, id := range x.zero[:n] {
		a := x.m.owners[x.m.owner[id]]
		i := slices.Index(a.toZero, id)
		if i < 0 {
			t.Fatalf("page %d was given out to be zeroed, but is not due", id)
		}
		if a.toZero = slices.Delete(a.toZero, i, i+1); len(a.toZero) == 0 {
			delete(x.m.owners, x.m.owner[id])
		}
		if a.tainted {
			x.m.gen[id]++
		}
		x.m.owner[id] = Owner{}
		x.m.stack = append(x.m.stack, id)
	}
	x.zero = x.zero[n:]
}

// Clone goes on with a copy and checks that what happens to it leaves the original alone.
func (x *machine) Clone(t *rapid.T) {
	was := x.l
	before := was.Dump()
	x.l = was.Clone()
	if x.l.Dump() != before {
		t.Fatalf("clone\n%sof\n%s", x.l.Dump(), before)
	}
	x.Reserve(t)
	x.Grant(t)
	x.Release(t)
	x.Zero(t)
	if was.Dump() != before {
		t.Fatalf("original was\n%sand is\n%s", before, was.Dump())
	}
}

// Check compares everything after each step.
func (x *machine) Check(t *rapid.T) {
	if err := x.l.Verify(); err != nil {
		t.Fatalf("%v\n%s", err, x.l.Dump())
	}
	want := Counts{Total: len(x.m.owner), Free: len(x.m.stack)}
	for id, o := range x.m.owner {
		if x.m.gen[id] < x.high[ID(id)] {
			t.Fatalf("page %d: generation fell to %d", id, x.m.gen[id])
		}
		x.high[ID(id)] = x.m.gen[id]
		if p := x.l.pages[id]; p.owner != o || p.gen != x.m.gen[id] {
			t.Fatalf("page %d: %s generation %d, want %s generation %d", id, p.owner, p.gen, o, x.m.gen[id])
		}
		if o != (Owner{}) {
			*want.of(x.m.owners[o].state)++
		}
	}
	if x.l.Counts() != want {
		t.Fatalf("counts %+v, want %+v", x.l.Counts(), want)
	}
	for o, a := range x.m.owners {
		state, rows, holds, ok := x.l.State(o)
		if !ok || state != a.state || rows != a.rows || holds != x.m.holds(a) {
			t.Fatalf("%s: %s rows %d holds %d %t, want %s rows %d holds %d", o, state, rows, holds, ok, a.state, a.rows, x.m.holds(a))
		}
		v, err := x.l.View(o)
		expect(t, "view", a.state == Owned && !a.leaving, err)
		if err == nil && (v.Rows() != a.rows || x.l.CheckView(v) != nil) {
			t.Fatalf("%s: view of %d rows, want %d", o, v.Rows(), a.rows)
		}
	}
	if x.l.Owners() != len(x.m.owners) {
		t.Fatalf("owners %d, want %v", x.l.Owners(), slices.Collect(maps.Keys(x.m.owners)))
	}
}

func TestLedgerAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newMachine(t)
		t.Repeat(map[string]func(*rapid.T){
			"reserve": x.Reserve, "fill": x.Fill, "own": x.Own, "admit": x.Admit, "grant": x.Grant, "settle": x.Settle, "grow": x.Grow,
			"hold": x.Hold, "unhold": x.Unhold, "quarantine": x.Quarantine, "release": x.Release, "zero": x.Zero, "clone": x.Clone,
			"": x.Check,
		})
	})
}
