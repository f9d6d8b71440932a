package router

import (
	"strings"
	"testing"

	"quire/kvtransfer"
)

// site is a loop whose workers' heartbeats are given.
func site(p Policy, beats ...kvtransfer.Heartbeat) *Loop {
	l := testLoop(p)
	l.Handle(BusChanged{Up: true, MaxPayload: 8 << 20})
	for _, hb := range beats {
		l.Handle(Heard{hb})
	}
	return l
}

func with(hb kvtransfer.Heartbeat, change func(*kvtransfer.Heartbeat)) kvtransfer.Heartbeat {
	change(&hb)
	hb.Pool = hb.Fingerprints.Pool()
	return hb
}

func prefillBeat(id string, pages, slots int) kvtransfer.Heartbeat {
	return beatOf(kvtransfer.RolePrefill, id, 1, pages, slots)
}

func decodeBeat(id string, pages, slots int) kvtransfer.Heartbeat {
	return beatOf(kvtransfer.RoleDecode, id, 1, pages, slots)
}

// TestLimit: each part of the formula sets the limit alone, and says so.
func TestLimit(t *testing.T) {
	p64, d64 := prefillBeat("p1", 64, 2), decodeBeat("d1", 64, 4)
	for _, c := range []struct {
		what   string
		l      *Loop
		tokens int
		by     string
	}{
		{"the pools", site(Policy{}, p64, d64), 256, "prefill pool of p1"},
		{"context", site(Policy{Context: 100}, p64, d64), 100, "model context"},
		{"flag", site(Policy{Context: 100, MaxModelLen: 90}, p64, d64), 90, "--max-model-len"},
		{"flag above the pools", site(Policy{MaxModelLen: 900}, p64, d64), 256, "prefill pool of p1"},
		{"no context known", site(Policy{Context: -1}, p64, d64), 256, "prefill pool of p1"},
		{"smallest prefill", site(Policy{}, p64, prefillBeat("p2", 8, 2), d64), 32, "prefill pool of p2"},
		{"largest decode", site(Policy{}, p64, decodeBeat("d0", 8, 4), decodeBeat("d1", 16, 4), decodeBeat("d2", 12, 4)), 64, "decode pool of d1"},
		{"worker's own limit", site(Policy{}, with(p64, func(h *kvtransfer.Heartbeat) { h.MaxModelLen = 17 }), d64), 17, "prefill pool of p1"},
	} {
		if lim, err := c.l.limit(); !err.IsZero() || lim.Tokens != c.tokens || lim.By != c.by {
			t.Errorf("%s: %+v %v, want %d by %s", c.what, lim, err, c.tokens, c.by)
		}
	}
	l := site(Policy{}, p64, d64)
	l.Handle(BusChanged{Up: true, MaxPayload: 17 << 10})
	if lim, err := l.limit(); !err.IsZero() || lim.By != "bus max_payload" || lim.Tokens != 1024*4/(4*4+15) {
		t.Errorf("bus: %+v %v", lim, err)
	}
	l.Handle(BusChanged{Up: true}) // a server that announced nothing
	if lim, err := l.limit(); !err.IsZero() || lim.By == "bus max_payload" {
		t.Errorf("bus unknown: %+v %v", lim, err)
	}
	l.Handle(BusChanged{})
	if _, err := l.limit(); err.Code != kvtransfer.BusDown {
		t.Errorf("bus down: %v", err)
	}
	if n := busTokens(16<<10, 4); n != 0 {
		t.Errorf("max_payload of the fixed part alone: %d tokens", n)
	}
	if n := busTokens(4<<10, 4); n != 0 {
		t.Errorf("max_payload below the fixed part: %d tokens", n)
	}
	if n := busTokens(1<<20, 0) + busTokens(1<<20, -5); n != 0 {
		t.Errorf("page size 0 or less: %d tokens", n)
	}
}

// TestMissing: who is not there, or why those who are cannot be used.
func TestMissing(t *testing.T) {
	p, d := prefillBeat("p1", 64, 2), decodeBeat("d1", 64, 4)
	another := func(i int) func(*kvtransfer.Heartbeat) {
		return func(h *kvtransfer.Heartbeat) {
			[]*[32]byte{&h.Fingerprints.Model, &h.Fingerprints.Layout, &h.Fingerprints.Compute}[i][0] = 9
		}
	}
	mine := Policy{Fingerprint: p.Fingerprints.Model}
	silent := site(Policy{}, p, d)
	silent.Handle(Tick{4 * kvtransfer.Second})
	for _, c := range []struct {
		what string
		l    *Loop
		code kvtransfer.Code
		text string
	}{
		{"nobody", site(Policy{}), kvtransfer.NoPrefill, "no prefill worker is there"},
		{"no decode", site(Policy{}, p), kvtransfer.NoDecode, "no decode worker is there"},
		{"silent", silent, kvtransfer.NoPrefill, "can be used: p1 is silent"},
		{"draining", site(Policy{}, with(p, func(h *kvtransfer.Heartbeat) { h.Draining = true }), d), kvtransfer.NoPrefill, "p1 is draining"},
		{"another model served", site(mine, with(p, another(0)), d), kvtransfer.NoPrefill, `p1 serves another model, "m"`},
		{"another model decoded", site(mine, p, with(d, another(0))), kvtransfer.NoDecode, `d1 serves another model, "m"`},
		{"models differ", site(Policy{}, with(p, another(0)), d), kvtransfer.Mismatch, "p1 and d1 differ in model"},
		{"layouts differ", site(Policy{}, with(p, another(1)), d), kvtransfer.Mismatch, "p1 and d1 differ in layout"},
		{"computes differ", site(Policy{}, with(p, another(2)), d), kvtransfer.Mismatch, "p1 and d1 differ in compute"},
		{"layouts differ, mixed compute", site(Policy{MixedCompute: true}, with(p, another(1)), d), kvtransfer.Mismatch, "differ in layout"},
		{"computes may differ", site(Policy{MixedCompute: true}, with(p, another(2)), d), kvtransfer.OK, ""},
		{"one pair fits", site(Policy{}, with(p, another(1)), prefillBeat("p2", 64, 2), d), kvtransfer.OK, ""},
	} {
		if _, err := c.l.limit(); err.Code != c.code || !strings.Contains(err.Detail, c.text) {
			t.Errorf("%s: %q %s, want %q %q", c.what, err.Code, err.Detail, c.code, c.text)
		}
	}
	if _, err := site(Policy{}, p, with(d, another(1)), decodeBeat("d2", 64, 4)).limit(); !err.IsZero() {
		t.Error(err)
	}
	two := site(Policy{}, p, with(d, another(1)), with(decodeBeat("d2", 64, 4), another(2)))
	if _, err := two.limit(); !strings.Contains(err.Detail, "p1 and d1 differ in layout") {
		t.Errorf("the first pair that differs: %s", err.Detail)
	}
}

// TestChoose: where a request goes, and what keeps it from a worker.
func TestChoose(t *testing.T) {
	p := prefillBeat("p1", 64, 2)
	owned := func(n int) func(*kvtransfer.Heartbeat) {
		return func(h *kvtransfer.Heartbeat) { h.Pages.Owned, h.Pages.Free = n, h.Pages.Total-n }
	}
	mine := Policy{Fingerprint: p.Fingerprints.Model}
	for _, c := range []struct {
		what  string
		l     *Loop
		rows  int
		avoid string
		want  string // decode; "" = none
	}{
		{"most free pages", site(Policy{}, p, with(decodeBeat("d1", 64, 4), owned(9)), with(decodeBeat("d2", 64, 4), owned(3)), with(decodeBeat("d3", 64, 4), owned(5))), 10, "", "d2"},
		{"another than avoided", site(Policy{}, p, decodeBeat("d1", 64, 4), with(decodeBeat("d2", 64, 4), owned(30))), 10, "d1", "d2"},
		{"another than avoided, seen first", site(Policy{}, p, with(decodeBeat("d1", 64, 4), owned(30)), decodeBeat("d2", 64, 4)), 10, "d2", "d1"},
		{"the best of two not avoided", site(Policy{}, p, decodeBeat("d1", 64, 4), with(decodeBeat("d2", 64, 4), owned(8)), with(decodeBeat("d3", 64, 4), owned(9))), 10, "d1", "d2"},
		{"the avoided, where there is no other", site(Policy{}, p, decodeBeat("d1", 64, 4)), 10, "d1", "d1"},
		{"no room", site(Policy{}, p, with(decodeBeat("d1", 64, 4), owned(62))), 10, "", ""},
		{"room to the page", site(Policy{}, p, with(decodeBeat("d1", 64, 4), owned(61))), 10, "", "d1"},
		{"longer than it takes", site(Policy{}, p, with(decodeBeat("d1", 64, 4), func(h *kvtransfer.Heartbeat) { h.MaxModelLen = 9 })), 10, "", ""},
		{"no slot", site(Policy{}, p, with(decodeBeat("d1", 64, 4), func(h *kvtransfer.Heartbeat) { h.SlotsFree = 0 })), 10, "", ""},
		{"draining", site(Policy{}, p, with(decodeBeat("d1", 64, 4), func(h *kvtransfer.Heartbeat) { h.Draining = true })), 10, "", ""},
		{"another model", site(mine, p, with(decodeBeat("d1", 64, 4), func(h *kvtransfer.Heartbeat) { h.Fingerprints.Model[0] = 9 })), 10, "", ""},
		{"another layout", site(Policy{}, p, with(decodeBeat("d1", 64, 4), func(h *kvtransfer.Heartbeat) { h.Fingerprints.Layout[0] = 9 })), 10, "", ""},
		{"no prefill", site(Policy{}, decodeBeat("d1", 64, 4)), 10, "", ""},
		{"prefill draining", site(Policy{}, with(p, func(h *kvtransfer.Heartbeat) { h.Draining = true }), decodeBeat("d1", 64, 4)), 10, "", ""},
		{"prefill too small", site(Policy{}, prefillBeat("p1", 2, 2), decodeBeat("d1", 64, 4)), 10, "", ""},
		{"no prefill slot", site(Policy{}, with(p, func(h *kvtransfer.Heartbeat) { h.SlotsFree = 0 }), decodeBeat("d1", 64, 4)), 10, "", ""},
	} {
		got, ok := c.l.choose(c.rows, c.avoid)
		if ok != (c.want != "") || ok && got.decode.hb.Peer.ID != c.want {
			t.Errorf("%s: %t %+v, want %q", c.what, ok, got, c.want)
		}
	}
	shut := site(Policy{}, p, decodeBeat("d1", 64, 4))
	shut.shut(kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 1})
	if _, ok := shut.choose(10, ""); ok {
		t.Error("a decode that refused is chosen before its next heartbeat")
	}
	shut = site(Policy{}, p, decodeBeat("d1", 64, 4))
	shut.shut(kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 2})
	if _, ok := shut.choose(10, ""); !ok {
		t.Error("what another life refused shuts this one")
	}
}

// TestFreePrefill: the pool with most free slots, of those that match.
func TestFreePrefill(t *testing.T) {
	mixed := func(id string, compute byte, slots, free int) kvtransfer.Heartbeat {
		return with(prefillBeat(id, 64, slots), func(h *kvtransfer.Heartbeat) {
			h.Fingerprints.Compute[0], h.SlotsFree, h.ModelSlug = compute, free, "m-"+id
		})
	}
	d := decodeBeat("d1", 64, 4)
	l := site(Policy{MixedCompute: true}, mixed("p1", 3, 2, 2), mixed("p2", 4, 4, 3), mixed("p3", 5, 2, 1), d)
	pool, slug, ok := l.freePrefill(l.roster.decodes["d1"], 10)
	if want := mixed("p2", 4, 1, 1).Pool; !ok || pool != want || slug != "m-p2" {
		t.Errorf("pool %s slug %s ok %t, want %s", pool, slug, ok, want)
	}
}

// TestOtherPrefill: after corrupt pages, only another usable prefill of equal fingerprints with a free slot may have the job.
func TestOtherPrefill(t *testing.T) {
	change := func(id string, f func(*kvtransfer.Heartbeat)) kvtransfer.Heartbeat {
		return with(prefillBeat(id, 64, 2), f)
	}
	busy := func(running, free int) func(*kvtransfer.Heartbeat) {
		return func(h *kvtransfer.Heartbeat) { h.Running, h.SlotsFree = running, free }
	}
	for _, c := range []struct {
		what string
		p2   kvtransfer.Heartbeat
		want bool
	}{
		{"idle", prefillBeat("p2", 64, 2), true},
		{"the slots for all are taken", change("p2", busy(2, 0)), true},
		{"the additional one too", change("p2", busy(3, 0)), false},
		{"a job there waits for pages", change("p2", busy(1, 0)), false},
		{"draining", change("p2", func(h *kvtransfer.Heartbeat) { h.Draining = true }), false},
		{"too small", prefillBeat("p2", 3, 2), false},
		{"another layout", change("p2", func(h *kvtransfer.Heartbeat) { h.Fingerprints.Layout[0] = 9 }), false},
		{"another compute", change("p2", func(h *kvtransfer.Heartbeat) { h.Fingerprints.Compute[0] = 9 }), false},
		{"another model", change("p2", func(h *kvtransfer.Heartbeat) { h.Fingerprints.Model[0] = 9 }), false},
		{"an id that names nobody", prefillBeat(kvtransfer.AnyWorker, 64, 2), false},
		{"the same one, started again", beatOf(kvtransfer.RolePrefill, "p1", 2, 64, 2), false},
	} {
		l := site(Policy{}, prefillBeat("p1", 64, 2), c.p2, decodeBeat("d1", 64, 4))
		r := &request{prompt: make([]int32, 10), maxTokens: 4, refused: "p1"}
		got, ok := l.chooseFor(r)
		if ok != c.want || l.stranded(r) == c.want || ok && got.target != "p2" {
			t.Errorf("%s: chosen %q %t, stranded %t", c.what, got.target, ok, l.stranded(r))
		}
		r.refused = ""
		if got, ok := l.chooseFor(r); l.stranded(r) || ok && got.target != kvtransfer.AnyWorker {
			t.Errorf("%s: without a refusal: %q", c.what, got.target)
		}
	}
	l := site(Policy{}, prefillBeat("p1", 64, 2), prefillBeat("p2", 64, 2), change("p3", busy(2, 0)), decodeBeat("d1", 64, 4))
	r := &request{prompt: make([]int32, 10), maxTokens: 4, refused: "p1"}
	for _, want := range []string{"p2", "p2", "p2", "p3", ""} { // this router's own jobs count before a heartbeat does
		got, _ := l.chooseFor(r)
		if got.target != want {
			t.Fatalf("with %d jobs for p2: %q, want %q", l.directed("p2"), got.target, want)
		}
		a := &attempt{key: kvtransfer.Key{Attempt: uint32(len(l.attempts))}, target: got.target, prefill: true}
		l.attempts[a.key] = a
	}
	l = site(Policy{}, prefillBeat("p1", 64, 2), decodeBeat("d1", 64, 4))
	l.Handle(Tick{Now: 4 * kvtransfer.Second}) // nobody is heard any more
	if l.stranded(r) {
		t.Error("stranded though it is a decode that is missing")
	}
}

// TestAdmitDefaults: what a request without max_tokens gets, and the boundary to the token.
func TestAdmitDefaults(t *testing.T) {
	l := site(Policy{Context: 100, DefaultMaxTokens: 30}, prefillBeat("p1", 64, 2), decodeBeat("d1", 64, 4))
	for _, c := range []struct {
		prompt, max, want int
		code              kvtransfer.Code
	}{
		{10, 0, 30, kvtransfer.OK}, {90, 0, 10, kvtransfer.OK}, {99, 0, 1, kvtransfer.OK}, {100, 0, 1, kvtransfer.ContextLengthExceeded},
		{1000, 0, 1, kvtransfer.ContextLengthExceeded}, {50, 50, 50, kvtransfer.OK}, {50, 51, 51, kvtransfer.ContextLengthExceeded},
		{1, 1 << 62, 1 << 62, kvtransfer.ContextLengthExceeded},
	} {
		if got, err := l.admit(c.prompt, c.max); got != c.want || err.Code != c.code {
			t.Errorf("prompt %d max_tokens %d: %d %v", c.prompt, c.max, got, err)
		}
	}
}

// TestReproduceLostReservation: decode promised, its answer was lost, and the promise ended before the Reserve was sent again.
// Decode then knows the attempt as ended. That is a loss to be retried, and was once a 404 to the client.
func TestReproduceLostReservation(t *testing.T) {
	w := newWorld(t, Policy{})
	w.submit("acme", 4, 2)
	first := find1[SendReserve](w)
	w.do(Reserved{Key: first.Key, Refused: kvtransfer.Errorf(kvtransfer.NotFound, "decode: reserve: attempt %s has ended", first.Key)})
	if has[Finish](w.effects) {
		t.Fatalf("the request ended: %s", describe(w.effects))
	}
	if again := find1[SendReserve](w); again.Key.ID != first.Key.ID || again.Key.Attempt != 2 {
		t.Errorf("next attempt: %s", again.Key)
	}
}
