package router

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"quire/kvtransfer"
)

// watcher sees a loop as its clients and workers do, and checks what must hold whatever happens.
type watcher struct {
	l         *Loop
	now       kvtransfer.Tick
	submitted map[uint64]int // ref -> max_tokens asked for
	accepted  map[uint64]bool
	begun     map[uint64]bool
	given     map[uint64][]int32
	finished  map[uint64]kvtransfer.End
	reserves  []SendReserve
	jobs      []StoreJob
	asked     []AskResend
	live      map[kvtransfer.Key]bool // between SendReserve and Forget
	next      map[kvtransfer.Key]uint32
	refused   map[kvtransfer.HandoffID]string // prefill whose pages were said to be corrupt
}

func newWatcher(p Policy) *watcher {
	return &watcher{l: testLoop(p), submitted: map[uint64]int{}, accepted: map[uint64]bool{}, begun: map[uint64]bool{},
		given: map[uint64][]int32{}, finished: map[uint64]kvtransfer.End{}, live: map[kvtransfer.Key]bool{}, next: map[kvtransfer.Key]uint32{},
		refused: map[kvtransfer.HandoffID]string{}}
}

// do handles an event on the loop and on a clone, which must do the same, and checks every effect.
func (w *watcher) do(t *rapid.T, ev Event) {
	before := w.l.Dump()
	clone := w.l.Clone()
	if clone.Dump() != before {
		t.Fatalf("a clone differs:\n%s\n%s", before, clone.Dump())
	}
	if e, ok := ev.(Replied); ok && e.Number == 0 && e.Body.Outcome != nil && e.Body.Outcome.Error.Class() == kvtransfer.ClassCorrupt {
		if a := w.l.attempts[e.Key]; a != nil && a.next == 0 {
			w.refused[e.Key.ID] = e.Body.Outcome.Prefill.ID
		}
	}
	effects := w.l.Handle(ev)
	if clone.Dump() != before {
		t.Fatalf("%T changed a clone:\n%s\n%s", ev, before, clone.Dump())
	}
	if err := w.l.Verify(); err != nil {
		t.Fatalf("after %T %+v: %v\n%s\n%s", ev, ev, err, before, w.l.Dump())
	}
	for _, fx := range effects {
		if err := w.see(fx); err != nil {
			t.Fatalf("after %T %+v: %v\n%s", ev, ev, err, before)
		}
	}
}

func (w *watcher) see(fx Effect) error {
	switch e := fx.(type) {
	case Accept:
		if w.accepted[e.Ref] || w.submitted[e.Ref] == 0 {
			return fmt.Errorf("accept %d: accepted %t", e.Ref, w.accepted[e.Ref])
		}
		w.accepted[e.Ref] = true
	case Begin:
		if !w.accepted[e.Ref] || w.begun[e.Ref] || w.ended(e.Ref) {
			return fmt.Errorf("begin %d: begun %t, ended %t", e.Ref, w.begun[e.Ref], w.ended(e.Ref))
		}
		w.begun[e.Ref] = true
	case Give:
		for _, t := range e.Tokens {
			w.given[e.Ref] = append(w.given[e.Ref], t.ID)
		}
		if !w.begun[e.Ref] || w.ended(e.Ref) || len(e.Tokens) == 0 || len(w.given[e.Ref]) > w.submitted[e.Ref] {
			return fmt.Errorf("give %d: begun %t, ended %t, %d of %d tokens", e.Ref, w.begun[e.Ref], w.ended(e.Ref), len(w.given[e.Ref]), w.submitted[e.Ref])
		}
	case Finish:
		if w.submitted[e.Ref] == 0 || w.ended(e.Ref) || (e.End.Finish == "") == e.End.Error.IsZero() {
			return fmt.Errorf("finish %d: a second time %t, finish %q, error %q", e.Ref, w.ended(e.Ref), e.End.Finish, e.End.Error.Code)
		}
		if e.End.Finish != "" && !w.begun[e.Ref] {
			return fmt.Errorf("finish %d: well, without a verdict", e.Ref)
		}
		w.finished[e.Ref] = e.End
	case SendReserve:
		w.reserves, w.live[e.Key] = append(w.reserves, e), true
		if e.Reserve.MaxTokens < 1 || len(e.Reserve.Tokens) < e.Reserve.Prompt {
			return fmt.Errorf("reserve %s: max_tokens %d, %d tokens, prompt %d", e.Key, e.Reserve.MaxTokens, len(e.Reserve.Tokens), e.Reserve.Prompt)
		}
	case StoreJob:
		w.jobs = append(w.jobs, e)
		if refused := w.refused[e.Key.ID]; refused != "" && (e.Target == kvtransfer.AnyWorker || e.Target == refused) {
			return fmt.Errorf("job %s for %q, though the pages of %s were refused", e.Key, e.Target, refused)
		}
	case AskResend:
		w.asked = append(w.asked, e)
	case Forget:
		if !w.live[e.Key] {
			return fmt.Errorf("forget %s: not live", e.Key)
		}
		delete(w.live, e.Key)
	}
	return nil
}

func (w *watcher) ended(ref uint64) bool {
	_, ok := w.finished[ref]
	return ok
}

// TestOneTerminal throws events at a loop in any order and form, then heals the world, and expects every request to have
// exactly one end.
func TestOneTerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { oneTerminal(t, (*watcher).random) })
}

func oneTerminal(t *rapid.T, event func(*watcher, *rapid.T)) {
	w := newWatcher(Policy{MaxQueue: 6, MaxQueueTenant: 4})
	w.do(t, BusChanged{Up: true, MaxPayload: 8 << 20})
	w.beats(t)
	for range rapid.IntRange(1, 120).Draw(t, "events") {
		event(w, t)
	}
	w.heal(t)
	for ref := range w.submitted {
		if !w.ended(ref) {
			t.Fatalf("request %d has no end\n%s", ref, w.l.Dump())
		}
	}
	if n := len(w.live); n != 0 {
		t.Fatalf("%d attempts were never forgotten\n%s", n, w.l.Dump())
	}
	for _, d := range w.l.roster.decodes {
		if d.slots.ours != 0 || d.pages.ours != 0 {
			t.Fatalf("%s: %d slots, %d pages are still ours", d.hb.Peer, d.slots.ours, d.pages.ours)
		}
	}
}

func (w *watcher) beats(t *rapid.T) {
	for i := range 2 {
		w.do(t, Heard{beatOf(kvtransfer.RolePrefill, fmt.Sprintf("p%d", i), 1, 64, 2)})
		w.do(t, Heard{beatOf(kvtransfer.RoleDecode, fmt.Sprintf("d%d", i), 1, 32, 3)})
	}
}

func pick[T any](t *rapid.T, list []T, name string) (T, bool) {
	if len(list) == 0 {
		var zero T
		return zero, false
	}
	return list[rapid.IntRange(max(0, len(list)-4), len(list)-1).Draw(t, name)], true
}

func (w *watcher) random(t *rapid.T) {
	switch rapid.IntRange(0, 13).Draw(t, "event") {
	case 0, 1:
		ref := uint64(len(w.submitted) + 1)
		w.submitted[ref] = rapid.IntRange(1, 6).Draw(t, "max")
		w.do(t, Submitted{Ref: ref, Tenant: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant"),
			Tokens: make([]int32, rapid.IntRange(1, 20).Draw(t, "prompt")), MaxTokens: w.submitted[ref]})
	case 2:
		w.now += kvtransfer.Tick(rapid.IntRange(0, 2500).Draw(t, "ms")) * ms
		w.do(t, Tick{Now: w.now})
	case 3:
		w.beats(t)
	case 4, 5, 6:
		w.answerReserve(t)
	case 7:
		if j, ok := pick(t, w.jobs, "job"); ok {
			f := rapid.SampledFrom([]BusFault{FaultNone, FaultNone, FaultTimeout, FaultTooLarge}).Draw(t, "fault")
			w.do(t, JobStored{Key: j.Key, Sequence: uint64(rapid.IntRange(0, 3).Draw(t, "sequence")), Err: f})
		}
	case 8, 9, 10:
		if r, ok := pick(t, w.reserves, "attempt"); ok {
			n := w.next[r.Key] + uint32(rapid.SampledFrom([]int{0, 0, 0, 0, 1, 2}).Draw(t, "skip"))
			if n == w.next[r.Key] {
				w.next[r.Key]++
			}
			w.do(t, Replied{Key: r.Key, Number: n, Body: w.body(t, n)})
		}
	case 11:
		w.answerResend(t)
	case 12:
		ref := uint64(rapid.IntRange(1, len(w.submitted)+1).Draw(t, "ref"))
		w.do(t, ClientGone{Ref: ref})
	case 13:
		switch rapid.IntRange(0, 3).Draw(t, "rare") {
		case 0:
			w.do(t, Heard{beatOf(kvtransfer.RoleDecode, "d0", uint64(rapid.IntRange(1, 3).Draw(t, "epoch")), 32, 3)})
		case 1:
			w.do(t, BusChanged{Up: rapid.Bool().Draw(t, "up"), MaxPayload: 8 << 20})
		case 2:
			if r, ok := pick(t, w.reserves, "cancel"); ok {
				w.do(t, CancelAsked{Tenant: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant"), ID: r.Key.ID})
			}
		}
	}
}

func (w *watcher) answerReserve(t *rapid.T) {
	r, ok := pick(t, w.reserves, "reserve")
	if !ok {
		return
	}
	ev := promise(r)
	switch rapid.IntRange(0, 9).Draw(t, "answer") {
	case 0:
		code := rapid.SampledFrom([]kvtransfer.Code{kvtransfer.PoolExhausted, kvtransfer.JournalDown, kvtransfer.ContextLengthExceeded, kvtransfer.Draining}).Draw(t, "code")
		ev = Reserved{Key: r.Key, Refused: kvtransfer.Error{Code: code}}
	case 1:
		ev = Reserved{Key: r.Key, Err: rapid.SampledFrom([]BusFault{FaultNobody, FaultTimeout, FaultInvalid, FaultTooLarge}).Draw(t, "fault")}
	case 2:
		ev.Reservation.N++
	}
	w.do(t, ev)
}

func (w *watcher) answerResend(t *rapid.T) {
	a, ok := pick(t, w.asked, "ask")
	if !ok {
		return
	}
	ev := Resent{Key: a.Key, Known: rapid.IntRange(0, 5).Draw(t, "known") > 0, Next: a.From + uint32(rapid.IntRange(0, 3).Draw(t, "next"))}
	if rapid.IntRange(0, 3).Draw(t, "fault") == 0 {
		ev = Resent{Key: a.Key, Err: FaultTimeout}
	} else if ev.Next > a.From {
		ev.Replies = []Replied{{Key: a.Key, Number: a.From, Body: w.body(t, a.From)}}
	}
	w.do(t, ev)
}

func (w *watcher) body(t *rapid.T, number uint32) kvtransfer.ReplyBody {
	codes := []kvtransfer.Code{kvtransfer.LeaseExpired, kvtransfer.HandoffCount, kvtransfer.DeviceFailed, kvtransfer.Invariant, kvtransfer.Cancelled, "no_such_code", ""}
	switch n := rapid.IntRange(0, 9).Draw(t, "body"); {
	case n == 0:
		by := rapid.SampledFrom([]string{"p0", "p1", "p1", ""}).Draw(t, "by")
		return badBy(by, rapid.SampledFrom(codes).Draw(t, "code"), "x")
	case number == 0 && n > 1:
		return good()
	case n < 3:
		return ending(1, number+1)
	case n == 3:
		return kvtransfer.ReplyBody{End: &kvtransfer.End{Error: kvtransfer.Error{Code: rapid.SampledFrom(codes).Draw(t, "code")}, Replies: number + 1}}
	case n == 4:
		return good()
	}
	return tokens(rapid.SliceOfN(rapid.Int32Range(0, 1), 0, 3).Draw(t, "tokens")...)
}

// heal lets an honest world run until nothing is open: every call is answered, every attempt ends well.
func (w *watcher) heal(t *rapid.T) {
	w.do(t, BusChanged{Up: true, MaxPayload: 8 << 20})
	reserves, jobs, asked := len(w.reserves), len(w.jobs), len(w.asked)
	for round := 0; round < 400 && len(w.l.requests)+len(w.l.closing) > 0; round++ {
		w.now += 200 * ms
		for i := range 2 {
			w.do(t, Heard{beatOf(kvtransfer.RolePrefill, fmt.Sprintf("p%d", i), 9, 64, 2)})
			w.do(t, Heard{beatOf(kvtransfer.RoleDecode, fmt.Sprintf("d%d", i), 9, 32, 3)})
		}
		w.do(t, Tick{Now: w.now})
		for ; reserves < len(w.reserves); reserves++ {
			w.do(t, promise(w.reserves[reserves]))
		}
		for ; jobs < len(w.jobs); jobs++ {
			key := w.jobs[jobs].Key
			w.do(t, JobStored{Key: key, Sequence: 5})
			w.do(t, Replied{Key: key, Number: 0, Body: good()})
			w.do(t, Replied{Key: key, Number: 1, Body: ending(0, 2)})
		}
		for ; asked < len(w.asked); asked++ {
			w.do(t, Resent{Key: w.asked[asked].Key, Known: w.asked[asked].Ack, Next: w.asked[asked].From})
		}
	}
}
