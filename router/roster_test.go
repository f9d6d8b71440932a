package router

import (
	"fmt"
	"testing"

	"quire/kvtransfer"
)

// TestHeartbeatsThatCannotBe: figures that contradict themselves, or that would make a router count nonsense, are not taken.
func TestHeartbeatsThatCannotBe(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*kvtransfer.Heartbeat)
		taken  bool
	}{
		"as it is":                {func(*kvtransfer.Heartbeat) {}, true},
		"empty":                   {func(h *kvtransfer.Heartbeat) { h.Slots, h.SlotsFree, h.Pages.Free = 0, 0, 0 }, true},
		"no id":                   {func(h *kvtransfer.Heartbeat) { h.Peer.ID = "" }, false},
		"any worker's id":         {func(h *kvtransfer.Heartbeat) { h.Peer.ID = kvtransfer.AnyWorker }, false},
		"running below zero":      {func(h *kvtransfer.Heartbeat) { h.Running = -1 }, false},
		"slots below zero":        {func(h *kvtransfer.Heartbeat) { h.Slots, h.SlotsFree = -1, -1 }, false},
		"slots below zero, alone": {func(h *kvtransfer.Heartbeat) { h.Slots, h.SlotsFree = -1, 0 }, false},
		"free slots below zero":   {func(h *kvtransfer.Heartbeat) { h.SlotsFree = -1 }, false},
		"more free than slots":    {func(h *kvtransfer.Heartbeat) { h.SlotsFree = h.Slots + 1 }, false},
		"page size zero":          {func(h *kvtransfer.Heartbeat) { h.PageSize = 0 }, false},
		"free pages below zero":   {func(h *kvtransfer.Heartbeat) { h.Pages.Free = -1 }, false},
		"more free than pages":    {func(h *kvtransfer.Heartbeat) { h.Pages.Free = h.Pages.Total + 1 }, false},
		"slots too many":          {func(h *kvtransfer.Heartbeat) { h.Slots = 1<<20 + 1 }, false},
		"pages too many":          {func(h *kvtransfer.Heartbeat) { h.Pages.Total = 1<<40 + 1 }, false},
		"pages too large":         {func(h *kvtransfer.Heartbeat) { h.PageSize = 1<<20 + 1 }, false},
		"of a router":             {func(h *kvtransfer.Heartbeat) { h.Peer.Role = kvtransfer.RoleRouter }, false},
	} {
		for _, role := range []kvtransfer.Role{kvtransfer.RolePrefill, kvtransfer.RoleDecode} {
			r := &testLoop(Policy{}).roster
			hb := beatOf(role, "w", 1, 8, 2)
			c.change(&hb)
			r.hear(0, hb)
			if n := len(r.prefills) + len(r.decodes); (n == 1) != c.taken {
				t.Errorf("%s of a %s: %d known", what, role, n)
			}
		}
	}
}

// TestRosterIsBounded: beyond the bound new workers are not known, and those that are stay so.
func TestRosterIsBounded(t *testing.T) {
	r := &testLoop(Policy{}).roster
	for i := range maxWorkers + 3 {
		r.hear(0, beatOf(kvtransfer.RoleDecode, fmt.Sprint("d", i), 1, 8, 2))
	}
	r.hear(5, beatOf(kvtransfer.RoleDecode, "d0", 1, 8, 2))
	if d := r.decodes["d0"]; len(r.decodes) != maxWorkers || d == nil || d.heard != 5 {
		t.Errorf("%d known, d0 %+v", len(r.decodes), d)
	}
	if !r.hear(6, beatOf(kvtransfer.RoleDecode, "d0", 2, 8, 2)) || r.hear(7, beatOf(kvtransfer.RoleDecode, "d0", 1, 8, 2)) {
		t.Error("a new life is one, an old one is none")
	}
	if d := r.decodes["d0"]; d.hb.Peer.Epoch != 2 || d.heard != 6 {
		t.Errorf("%+v", d)
	}
}

// TestForgotten: who is silent for long is forgotten, but for those who hold something of ours; so are the groups that nobody is in.
func TestForgotten(t *testing.T) {
	const after = 20 * kvtransfer.Second
	r := &testLoop(Policy{}).roster
	for _, id := range []string{"silent", "ours", "there"} {
		r.hear(0, beatOf(kvtransfer.RoleDecode, id, 1, 8, 2))
	}
	r.decodes["ours"].slots.take(1)
	p := beatOf(kvtransfer.RolePrefill, "p", 1, 8, 2)
	r.hear(0, p)
	r.hear(after, beatOf(kvtransfer.RoleDecode, "there", 1, 8, 2))
	for _, g := range []string{"gone", "taken", "given back"} {
		r.group(g)
	}
	r.group("taken").take(1)
	r.group("given back").take(1)
	r.group("given back").give(after, 1)
	if r.forget(after, after); len(r.decodes) != 3 || len(r.prefills) != 1 {
		t.Errorf("too early: %d, %d", len(r.decodes), len(r.prefills))
	}
	for _, g := range []string{"taken", "given back", p.Pool} {
		if r.groups[g] == nil {
			t.Errorf("group %q is forgotten", g)
		}
	}
	if r.groups["gone"] != nil {
		t.Error("a group of nobody stays")
	}
	r.forget(after+1, after)
	if r.decodes["silent"] != nil || r.decodes["ours"] == nil || r.decodes["there"] == nil || len(r.prefills) != 0 {
		t.Errorf("%v %v", ids(r.decodes), ids(r.prefills))
	}
	if r.forget(after+lag+1, after); len(r.groups) != 1 || r.groups["taken"] == nil {
		t.Errorf("%d groups", len(r.groups))
	}
}

// TestNewLives: a new life of a decode ends what its own earlier life had, and nothing else.
func TestNewLives(t *testing.T) {
	for _, c := range []struct {
		what string
		beat kvtransfer.Heartbeat
		ends bool
	}{
		{"its own", beatOf(kvtransfer.RoleDecode, "d1", 2, 64, 4), true},
		{"the same", beatOf(kvtransfer.RoleDecode, "d1", 1, 64, 4), false},
		{"another decode's", beatOf(kvtransfer.RoleDecode, "d2", 9, 64, 4), false},
		{"a prefill's of that name", beatOf(kvtransfer.RolePrefill, "d1", 9, 64, 4), false},
	} {
		w, key := running(t, 4)
		w.do(Heard{beatOf(kvtransfer.RoleDecode, "d2", 1, 1, 0)})
		w.do(Heard{beatOf(kvtransfer.RolePrefill, "d1", 1, 64, 2)})
		w.submit("acme", 6, 2)
		over := w.place()
		w.do(CancelAsked{Tenant: "acme", ID: over.ID}) // decode is being told of this one
		w.do(Heard{c.beat})
		if got := has[SendCancel](w.effects); got != c.ends {
			t.Errorf("%s: %s", c.what, describe(w.effects))
		}
		w.do(Resent{Key: over, Err: FaultTimeout})
		told := false
		for _, fx := range w.pass(silence + 100*ms) {
			e, ok := fx.(AskResend)
			told = told || ok && e.Key == over && e.Ack
		}
		if told == c.ends {
			t.Errorf("%s: told of the other's end again: %t", c.what, told)
		}
		_ = key
	}
}

// TestPoolsAreCountedApart: what prefills of one pool are busy with takes no slot of another pool.
func TestPoolsAreCountedApart(t *testing.T) {
	r := &testLoop(Policy{}).roster
	busy, idle := beatOf(kvtransfer.RolePrefill, "p1", 1, 8, 2), beatOf(kvtransfer.RolePrefill, "p2", 1, 8, 2)
	busy.SlotsFree, idle.Pool = 0, "another"
	r.hear(0, busy)
	r.hear(0, idle)
	if a, b := r.group(busy.Pool).others, r.group("another").others; a != 2 || b != 0 {
		t.Errorf("%d and %d slots taken", a, b)
	}
}
