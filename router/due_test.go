package router

import (
	"testing"

	"quire/kvtransfer"
)

// What time brings, each by itself.

// TestOneCallAtATime: a call over the bus that is out is not made again; one that failed is made again after its pause, not before.
func TestOneCallAtATime(t *testing.T) {
	w := newWorld(t, Policy{})
	w.submit("acme", 6, 2)
	e := find1[SendReserve](w)
	if got := w.pass(2 * silence); has[SendReserve](got) || has[AskResend](got) {
		t.Errorf("while Reserve is out: %s", describe(got))
	}
	w.do(Reserved{Key: e.Key, Err: FaultTimeout})
	if got := w.pass(retryPause - 50*ms); has[SendReserve](got) {
		t.Errorf("before the pause is over: %s", describe(got))
	}
	w.pass(50 * ms)
	find1[SendReserve](w)
	w.do(promise(e))
	find1[StoreJob](w)
	if got := w.pass(2 * silence); has[StoreJob](got) || has[AskResend](got) {
		t.Errorf("while the job is being stored: %s", describe(got))
	}
	w.do(JobStored{Key: e.Key, Err: FaultTimeout})
	if got := w.pass(retryPause - 50*ms); has[StoreJob](got) {
		t.Errorf("before the pause is over: %s", describe(got))
	}
	w.pass(50 * ms)
	find1[StoreJob](w)
	w.do(JobStored{Key: e.Key, Err: FaultTimeout})
	w.do(Replied{Key: e.Key, Body: good()}) // it was stored after all
	if got := w.pass(retryPause + 50*ms); has[StoreJob](got) {
		t.Errorf("a job that is being answered is stored again: %s", describe(got))
	}
}

// TestResendsAreAskedFor: after a second of silence, one at a time, and at once where a gap is known.
func TestResendsAreAskedFor(t *testing.T) {
	w := newWorld(t, Policy{})
	w.submit("acme", 6, 2)
	key := w.place()
	if got := w.pass(silence / 2); has[AskResend](got) {
		t.Errorf("half a second after the job was stored: %s", describe(got))
	}
	w.do(Replied{Key: key, Body: good()})
	if got := w.pass(silence - 50*ms); has[AskResend](got) {
		t.Errorf("before the silence: %s", describe(got))
	}
	w.pass(50 * ms)
	find1[AskResend](w)
	if got := w.pass(3 * silence); has[AskResend](got) {
		t.Errorf("while one is out: %s", describe(got))
	}
	if got := w.do(Resent{Key: key, Known: true, Next: 9}); has[AskResend](got) {
		t.Errorf("an answer without replies leads to another question at once: %s", describe(got))
	}
	w.do(Replied{Key: key, Number: 5, Body: tokens(1)})
	find1[AskResend](w)
	w.do(Replied{Key: key, Number: 6, Body: tokens(1)}) // one more gap while that is out
	w.do(Resent{Key: key, Known: true, Next: 1})
	if got := w.pass(50 * ms); !has[AskResend](got) {
		t.Errorf("a known gap waits: %s", describe(got))
	}
}

// TestEndsAreToldAgainAfterAPause: and not at every tick.
func TestEndsAreToldAgainAfterAPause(t *testing.T) {
	w, key := running(t, 2)
	w.do(CancelAsked{Tenant: "acme", ID: key.ID})
	w.do(Resent{Key: key, Err: FaultTimeout})
	if got := w.pass(silence - 50*ms); has[AskResend](got) {
		t.Errorf("before the pause: %s", describe(got))
	}
	if got := w.pass(50 * ms); !has[AskResend](got) {
		t.Errorf("not after it: %s", describe(got))
	}
}

// TestTellsWhoKeepsReplies: decode keeps what it promised or replied until it is told; one that refused has nothing to keep.
func TestTellsWhoKeepsReplies(t *testing.T) {
	told := func(w *world) (n int) {
		for _, fx := range w.effects {
			if e, ok := fx.(AskResend); ok && e.Ack {
				n++
			}
		}
		return n
	}
	w := newWorld(t, Policy{})
	w.submit("acme", 6, 2)
	w.do(Reserved{Key: find1[SendReserve](w).Key, Refused: kvtransfer.Errorf(kvtransfer.InvalidRequest, "no")})
	if told(w) != 0 {
		t.Errorf("refused: %s", describe(w.effects))
	}
	w.submit("acme", 6, 2)
	e := find1[SendReserve](w)
	w.do(promise(e))
	w.do(JobStored{Key: e.Key, Err: FaultTooLarge})
	if told(w) != 1 {
		t.Errorf("promised, and the job did not fit: %s", describe(w.effects))
	}
	w.submit("acme", 6, 2)
	e = find1[SendReserve](w)
	w.do(Replied{Key: e.Key, Body: bad(kvtransfer.InvalidRequest, "no")}) // quicker than its promise
	if told(w) != 1 {
		t.Errorf("replied before its promise came: %s", describe(w.effects))
	}
	if len(w.l.running) != 0 {
		t.Errorf("running by tenant: %v", w.l.running)
	}
}

// TestNothingIsPlacedWithoutTheBus: what waits goes on waiting.
func TestNothingIsPlacedWithoutTheBus(t *testing.T) {
	w := newWorld(t, Policy{})
	full := beatOf(kvtransfer.RolePrefill, "p1", 1, 64, 2)
	full.SlotsFree, full.Running = 0, 2
	w.do(Heard{full})
	w.submit("acme", 6, 2)
	w.do(BusChanged{Up: false})
	if got := w.do(Heard{beatOf(kvtransfer.RolePrefill, "p1", 1, 64, 2)}); has[SendReserve](got) {
		t.Errorf("%s", describe(got))
	}
	if got := w.do(BusChanged{Up: true, MaxPayload: 8 << 20}); !has[SendReserve](got) {
		t.Errorf("the bus is back: %s", describe(got))
	}
}

// TestPatienceHasItsBounds: neither a request that no worker can hold any more nor one of a tenant that has all it may keeps the room
// for itself.
func TestPatienceHasItsBounds(t *testing.T) {
	w := newWorld(t, Policy{Patience: kvtransfer.Second})
	w.submit("a", 100, 28)
	key := w.place()
	w.do(Replied{Key: key, Body: good()})
	w.submit("big", 150, 50)
	w.do(Replied{Key: key, Number: 1, Body: kvtransfer.ReplyBody{End: &kvtransfer.End{Finish: kvtransfer.FinishStop, Replies: 2}}})
	first := w.place()
	w.do(Heard{beatOf(kvtransfer.RoleDecode, "d1", 2, 20, 4)}) // decode came back smaller: the attempt is lost, and fits nowhere
	w.pass(1200 * ms)
	w.submit("b", 4, 4)
	if e := find1[SendReserve](w); e.Reserve.Tenant != "b" {
		t.Errorf("%s, first %s", describe(w.effects), first)
	}

	w = newWorld(t, Policy{Patience: kvtransfer.Second, MaxRunningTenant: 1})
	w.submit("a", 4, 4)
	w.do(Replied{Key: w.place(), Body: good()})
	w.submit("a", 4, 4)
	if got := w.pass(1200 * ms); has[SendReserve](got) {
		t.Errorf("more than the tenant may have: %s", describe(got))
	}
	if w.submit("b", 4, 4); find1[SendReserve](w).Reserve.Tenant != "b" {
		t.Errorf("%s", describe(w.effects))
	}
}

// TestOldestWaits: the oldest of all tenants' first requests, wherever its tenant stands in the turns.
func TestOldestWaits(t *testing.T) {
	q := newQueue()
	for i, at := range []kvtransfer.Tick{5, 3, 4} {
		q.push(&request{ref: uint64(i), tenant: string(rune('a' + i)), submitted: at})
	}
	if old := q.oldest(); old == nil || old.submitted != 3 {
		t.Errorf("%+v", old)
	}
}

// TestOutgrown: a request that waits and fits no worker any more is told so, after the grace, with the numbers.
func TestOutgrown(t *testing.T) {
	w := newWorld(t, Policy{Grace: 2 * kvtransfer.Second})
	full := beatOf(kvtransfer.RolePrefill, "p1", 1, 64, 2)
	full.SlotsFree, full.Running = 0, 2
	w.do(Heard{full})
	w.submit("acme", 100, 28)
	w.pass(3 * kvtransfer.Second)
	w.do(Heard{beatOf(kvtransfer.RoleDecode, "d1", 2, 20, 4)})
	if w.pass(1900 * ms); has[Finish](w.effects) {
		t.Fatalf("before the grace: %s", describe(w.effects))
	}
	w.pass(200 * ms)
	if f := find1[Finish](w); f.End.Error.Code != kvtransfer.ContextLengthExceeded {
		t.Errorf("%s", describe(w.effects))
	}
}

// refusedByOne is a request whose pages p1 sent and decode refused, and that waits: p2 could take it, decode has no room.
func refusedByOne(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, Policy{})
	w.do(Heard{beatOf(kvtransfer.RolePrefill, "p2", 1, 64, 2)})
	w.submit("acme", 6, 2)
	key := w.place()
	w.submit("bank", 6, 2)
	w.do(Reserved{Key: find1[SendReserve](w).Key, Refused: kvtransfer.Errorf(kvtransfer.PoolExhausted, "another was quicker")})
	w.do(Replied{Key: key, Body: bad(kvtransfer.HandoffWitness, "row 3")})
	if has[Finish](w.effects) || has[SendReserve](w.effects) {
		t.Fatalf("%s", describe(w.effects))
	}
	return w
}

// TestStrandedIsToldAtOnce: when the last prefill that could have taken it goes, a refused request ends with what was refused, not at
// the next tick, and though the bus is down.
func TestStrandedIsToldAtOnce(t *testing.T) {
	leaves := beatOf(kvtransfer.RolePrefill, "p2", 1, 64, 2)
	leaves.Draining = true
	w := refusedByOne(t)
	w.do(Heard{leaves})
	if f := find1[Finish](w); f.End.Error.Code != kvtransfer.HandoffRefused {
		t.Errorf("%s", describe(w.effects))
	}
	w = refusedByOne(t)
	w.do(BusChanged{Up: false})
	w.do(Heard{leaves})
	w.do(Tick{Now: w.now + 50*ms})
	if f := find1[Finish](w); f.End.Error.Code != kvtransfer.HandoffRefused {
		t.Errorf("without the bus: %s", describe(w.effects))
	}
	w = newWorld(t, Policy{})
	w.submit("acme", 6, 2)
	w.do(Replied{Key: w.place(), Body: bad(kvtransfer.HandoffWitness, "row 3")})
	if f, s := find1[Finish](w), w.l.Stats(); f.End.Error.Code != kvtransfer.HandoffRefused || s.Retries != 0 {
		t.Errorf("no other prefill: %d retries, %s", s.Retries, describe(w.effects))
	}
}

// TestDirectedJobsLeaveTheCount: a job addressed to a prefill counts against its room until its outcome is there.
func TestDirectedJobsLeaveTheCount(t *testing.T) {
	w := newWorld(t, Policy{})
	w.do(Heard{beatOf(kvtransfer.RolePrefill, "p2", 1, 64, 2)})
	w.submit("acme", 6, 2)
	w.do(Replied{Key: w.place(), Body: bad(kvtransfer.HandoffWitness, "row 3")})
	key := w.place()
	if n := w.l.directed("p2"); n != 1 {
		t.Errorf("%d jobs directed", n)
	}
	if w.do(Replied{Key: key, Body: good()}); w.l.directed("p2") != 0 {
		t.Errorf("%d jobs directed after the outcome", w.l.directed("p2"))
	}
}

// TestDrainedAtOnce: with nothing open a drain has nothing to wait for; with an end that decode has not heard of, a moment.
func TestDrainedAtOnce(t *testing.T) {
	w := newWorld(t, Policy{})
	if w.do(Drain{Left: kvtransfer.Second}); !has[Drained](w.effects) {
		t.Errorf("%s", describe(w.effects))
	}
	w, key := running(t, 2)
	w.do(CancelAsked{Tenant: "acme", ID: key.ID})
	if w.do(Drain{Left: kvtransfer.Second}); has[Drained](w.effects) {
		t.Errorf("decode has not heard: %s", describe(w.effects))
	}
	if w.do(Resent{Key: key, Known: true}); !has[Drained](w.effects) {
		t.Errorf("decode has heard: %s", describe(w.effects))
	}
}

// TestNoOpenDecode: a refusal that only other workers could mend is told at once where the others are not usable.
func TestNoOpenDecode(t *testing.T) {
	w := newWorld(t, Policy{})
	other := beatOf(kvtransfer.RoleDecode, "d2", 1, 64, 4)
	other.Draining = true
	w.do(Heard{other})
	w.submit("acme", 6, 2)
	w.do(Reserved{Key: find1[SendReserve](w).Key, Refused: kvtransfer.Errorf(kvtransfer.JournalDown, "full")})
	if f := find1[Finish](w); f.End.Error.Code != kvtransfer.JournalDown {
		t.Errorf("%s", describe(w.effects))
	}
}

// TestLookedAtTooEarly: an attempt for which nothing is due yet may be looked at, which does nothing.
func TestLookedAtTooEarly(t *testing.T) {
	look := func(what string, w *world, key kvtransfer.Key) {
		t.Helper()
		w.l.out = nil
		if w.l.due(w.l.attempts[key]); len(w.l.out) > 0 {
			t.Errorf("%s: %s", what, describe(w.l.out))
		}
	}
	w := newWorld(t, Policy{})
	w.submit("acme", 6, 2)
	e := find1[SendReserve](w)
	w.pass(2 * silence)
	look("Reserve is out", w, e.Key)
	w.do(Reserved{Key: e.Key, Err: FaultTimeout})
	look("Reserve waits for its pause", w, e.Key)
	w.pass(retryPause + 50*ms)
	w.do(promise(e))
	w.pass(2 * silence)
	look("the job is out", w, e.Key)
	w.do(JobStored{Key: e.Key, Err: FaultTimeout})
	look("the job waits for its pause", w, e.Key)
	w.pass(retryPause + 50*ms)
	w.do(JobStored{Key: e.Key, Sequence: 11})
	if !has[AskResend](w.pass(50 * ms)) {
		t.Fatalf("silent for long: %s", describe(w.effects))
	}
	w.l.now += 2 * silence
	look("a resend is out", w, e.Key)
	if a := w.l.attempts[e.Key]; a.behind {
		t.Error("looked at, and asks again when the answer comes")
	}
}

// TestOneSilentDecode: its attempts are lost; those of others are looked at too, and go on.
func TestOneSilentDecode(t *testing.T) {
	w := newWorld(t, Policy{LostAfter: 3 * kvtransfer.Second})
	w.submit("acme", 6, 2)
	first := w.place()
	other := beatOf(kvtransfer.RoleDecode, "d2", 1, 640, 4)
	w.do(Heard{other})
	w.submit("acme", 6, 2)
	if e := find1[SendReserve](w); e.To.ID != "d2" {
		t.Fatalf("%s", describe(w.effects))
	}
	second := w.place()
	for w.now < 3*kvtransfer.Second+100*ms {
		w.now += 50 * ms
		w.do(Heard{other})
		w.do(Heard{beatOf(kvtransfer.RolePrefill, "p1", 1, 64, 2)})
		for _, fx := range w.do(Tick{Now: w.now}) {
			if e, ok := fx.(AskResend); ok && !e.Ack {
				w.do(Resent{Key: e.Key, Known: true})
			}
		}
	}
	if w.l.attempts[first] != nil || w.l.attempts[second] == nil {
		t.Errorf("first open %t, second open %t", w.l.attempts[first] != nil, w.l.attempts[second] != nil)
	}
}

// TestResentOutOfTurn: replies that come with a resend count in their turn alone.
func TestResentOutOfTurn(t *testing.T) {
	w, key := running(t, 4)
	if !has[AskResend](w.pass(silence)) {
		t.Fatal("not asked")
	}
	w.do(Resent{Key: key, Known: true, Next: 4, Replies: []Replied{{Key: key, Number: 0, Body: good()}, {Key: key, Number: 2, Body: tokens(9)}, {Key: key, Number: 3, Body: tokens(8)}}})
	if has[Give](w.effects) || has[Finish](w.effects) || has[SendCancel](w.effects) {
		t.Errorf("%s", describe(w.effects))
	}
}

// TestPromisesForNobody: a promise that comes after its request is over is given back at once: decode may have heard of the end before
// it heard of the Reserve.
func TestPromisesForNobody(t *testing.T) {
	w := newWorld(t, Policy{})
	w.submit("acme", 6, 2)
	e := find1[SendReserve](w)
	w.do(ClientGone{Ref: 1})
	w.do(Resent{Key: e.Key, Known: false}) // it had not heard of it
	w.do(Reserved{Key: e.Key, Refused: kvtransfer.Errorf(kvtransfer.PoolExhausted, "full")})
	if has[AskResend](w.effects) {
		t.Errorf("a refusal: %s", describe(w.effects))
	}
	w.do(promise(e))
	if ask := find1[AskResend](w); !ask.Ack || ask.Key != e.Key || ask.To != e.To {
		t.Errorf("%s", describe(w.effects))
	}
	w.do(Resent{Key: e.Key, Err: FaultTimeout})
	if got := w.pass(silence + 100*ms); !has[AskResend](got) {
		t.Errorf("unanswered, and not said again: %s", describe(got))
	}
	w.do(Resent{Key: e.Key, Known: true})
	if len(w.l.closing) != 0 {
		t.Errorf("%d closing", len(w.l.closing))
	}
}
