package router

import (
	"testing"

	"quire/kvtransfer"
)

// TestDeadline: waiting or running, a request ends at its deadline, within the operator's bound.
func TestDeadline(t *testing.T) {
	for _, c := range []struct {
		asked, bound, ends kvtransfer.Tick
		running            bool
	}{
		{0, 0, 3 * kvtransfer.Second, false},
		{kvtransfer.Second, 0, kvtransfer.Second, false},
		{kvtransfer.Second, 0, kvtransfer.Second, true},
		{9 * kvtransfer.Second, 2 * kvtransfer.Second, 2 * kvtransfer.Second, true},
	} {
		w := newWorld(t, Policy{DefaultDeadline: 3 * kvtransfer.Second, MaxDeadline: c.bound})
		if !c.running {
			hb := beatOf(kvtransfer.RolePrefill, "p1", 1, 64, 2)
			hb.SlotsFree = 0 // nobody takes it
			w.do(Heard{hb})
		}
		w.do(Submitted{Ref: 1, Tenant: "a", Tokens: make([]int32, 4), MaxTokens: 4, Deadline: c.asked})
		if c.running {
			key := w.place()
			w.do(Replied{Key: key, Number: 0, Body: good()})
		}
		if w.pass(c.ends - 50*ms); has[Finish](w.effects) {
			t.Errorf("%+v: ended early:\n%s", c, describe(w.effects))
		}
		w.pass(50 * ms)
		if fx := find1[Finish](w); fx.End.Error.Code != kvtransfer.DeadlineExceeded || has[SendCancel](w.effects) != c.running {
			t.Errorf("%+v: %s", c, describe(w.effects))
		}
	}
}

// TestPatience: a large request that waits is not overtaken for ever by small ones.
func TestPatience(t *testing.T) {
	w := newWorld(t, Policy{Patience: 2 * kvtransfer.Second})
	w.submit("a", 100, 28) // 32 of decode's 64 pages
	first := w.place()
	w.do(Replied{Key: first, Number: 0, Body: good()})
	large := w.submit("big", 150, 50) // 50 pages: has to wait
	w.submit("b", 4, 4)
	w.do(Replied{Key: w.place(), Number: 0, Body: good()}) // a small one overtakes at first
	w.pass(2100 * ms)
	w.submit("b", 4, 4)
	if has[SendReserve](w.effects) {
		t.Fatalf("overtaken after its patience:\n%s", describe(w.effects))
	}
	w.do(Replied{Key: first, Number: 1, Body: ending(0, 2)})
	for _, fx := range w.effects {
		if e, ok := fx.(SendReserve); ok {
			if e.Reserve.Tenant != "big" {
				t.Errorf("request %d did not get its turn:\n%s", large, describe(w.effects))
			}
			return
		}
	}
	t.Errorf("nobody got a turn:\n%s", describe(w.effects))
}

// TestOthers: what other routers hold, by the workers' own account, is left to them; what this router gave back is not
// mistaken for theirs.
func TestOthers(t *testing.T) {
	w := newWorld(t, Policy{})
	hb := beatOf(kvtransfer.RoleDecode, "d1", 1, 64, 4)
	hb.Pages.Free, hb.SlotsFree = 10, 3 // another router's request holds 54 pages
	w.do(Heard{hb})
	w.submit("a", 40, 4)
	if has[SendReserve](w.effects) {
		t.Fatalf("placed into another router's pages:\n%s", describe(w.effects))
	}
	hb.Pages.Free, hb.SlotsFree = 64, 4
	w.do(Heard{hb})
	key := w.place()
	w.do(Replied{Key: key, Number: 0, Body: good()})
	w.do(Replied{Key: key, Number: 1, Body: ending(0, 2)})
	hb.Pages.Free, hb.SlotsFree = 53, 3 // on its way before decode heard of the end
	w.do(Heard{hb})
	if d := w.l.roster.decodes["d1"]; d.pages.others != 0 || d.slots.others != 0 {
		t.Errorf("others hold %d pages, %d slots", d.pages.others, d.slots.others)
	}
}

// TestMixedCompute: workers of different arithmetic are paired only on the operator's word, and the job goes to the prefill's
// own queue.
func TestMixedCompute(t *testing.T) {
	w := newWorld(t, Policy{MixedCompute: true})
	p := beatOf(kvtransfer.RolePrefill, "p1", 2, 64, 2)
	p.Fingerprints.Compute[0] = 9
	p.Pool = p.Fingerprints.Pool()
	w.do(Heard{p})
	w.submit("a", 4, 4)
	w.do(promise(find1[SendReserve](w)))
	if fx := find1[StoreJob](w); fx.Pool != p.Pool {
		t.Errorf("job to pool %s, prefill's is %s", fx.Pool, p.Pool)
	}
}

// TestResumeDiffers: a resumed answer whose first token is another than the one that has left is an error, not a new text.
func TestResumeDiffers(t *testing.T) {
	w := newWorld(t, Policy{})
	w.submit("a", 4, 4)
	key := w.place()
	w.do(Replied{Key: key, Number: 0, Body: good()})
	w.do(Replied{Key: key, Number: 1, Body: tokens(5, 6)})
	w.do(Replied{Key: key, Number: 2, Body: kvtransfer.ReplyBody{End: &kvtransfer.End{Error: kvtransfer.Error{Code: kvtransfer.WorkerLost}, Replies: 3}}})
	if fx := find1[SendReserve](w); len(fx.Reserve.Tokens) != 5 || fx.Reserve.Prompt != 4 || fx.Reserve.MaxTokens != 3 {
		t.Fatalf("%s", describe(w.effects))
	}
	key = w.place()
	w.do(Replied{Key: key, Number: 0, Body: good()})
	if has[Begin](w.effects) {
		t.Error("a second Begin")
	}
	w.do(Replied{Key: key, Number: 1, Body: tokens(7)})
	if fx := find1[Finish](w); fx.End.Error.IsZero() || has[Give](w.effects) {
		t.Errorf("%s", describe(w.effects))
	}
}
