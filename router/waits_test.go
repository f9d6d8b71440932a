package router

import (
	"testing"

	"quire/kvtransfer"
)

// What is full because of others is waited for: the request's deadline alone bounds that, not its number of attempts.

// full are the refusals that say "not now".
var full = []kvtransfer.Code{kvtransfer.PoolExhausted, kvtransfer.Overloaded, kvtransfer.Draining}

// TestWaitsForADecodeThatOthersFilled: a decode that another router has filled first refuses again and again, and the client hears
// nothing of it until there is room.
func TestWaitsForADecodeThatOthersFilled(t *testing.T) {
	for _, code := range full {
		w := newWorld(t, Policy{})
		w.submit("acme", 6, 2)
		for round := range 10 {
			e := find1[SendReserve](w)
			w.do(Reserved{Key: e.Key, Refused: kvtransfer.Errorf(code, "another was quicker")})
			if len(w.effects) == 0 || has[Finish](w.effects) || has[SendReserve](w.effects) {
				t.Fatalf("%s, refusal %d: %s", code, round, describe(w.effects))
			}
			w.do(Heard{beatOf(kvtransfer.RoleDecode, "d1", 1, 64, 4)}) // it has room by its own account
		}
		w.do(Replied{Key: w.place(), Body: good()})
		if find1[Begin](w); w.l.Stats().Lost != 0 {
			t.Errorf("%s: %d attempts count as lost", code, w.l.Stats().Lost)
		}
	}
}

// TestWaitsForAPrefillThatOthersFilled: a prefill whose pages others hold answers for most of a lease that it has none.
func TestWaitsForAPrefillThatOthersFilled(t *testing.T) {
	for _, code := range full {
		w := newWorld(t, Policy{})
		w.submit("acme", 6, 2)
		for round := range 10 {
			w.do(Replied{Key: w.place(), Body: bad(code, "pages taken")})
			if has[Finish](w.effects) || has[SendReserve](w.effects) {
				t.Fatalf("%s, refusal %d: %s", code, round, describe(w.effects))
			}
			w.do(Heard{beatOf(kvtransfer.RoleDecode, "d1", 1, 64, 4)})
		}
		w.do(Replied{Key: w.place(), Body: good()})
		if find1[Begin](w); w.l.Stats().Lost != 0 {
			t.Errorf("%s: %d attempts count as lost", code, w.l.Stats().Lost)
		}
	}
}

// TestWaitingEndsAtTheDeadline: a request for which there is never room is told that its time is up, not that it was refused.
func TestWaitingEndsAtTheDeadline(t *testing.T) {
	w := newWorld(t, Policy{DefaultDeadline: kvtransfer.Second})
	w.submit("acme", 6, 2)
	for range 3 {
		w.do(Replied{Key: w.place(), Body: bad(kvtransfer.PoolExhausted, "pages taken")})
		w.do(Heard{beatOf(kvtransfer.RoleDecode, "d1", 1, 64, 4)})
	}
	key := w.place()
	w.l.Now(kvtransfer.Second) // no tick has noticed it yet
	w.do(Replied{Key: key, Body: bad(kvtransfer.PoolExhausted, "pages taken")})
	if f := find1[Finish](w); f.End.Error.Code != kvtransfer.DeadlineExceeded {
		t.Errorf("%s", describe(w.effects))
	}
}

// TestEveryEndIsTold: whichever way an attempt ends on this side, decode is told until it has answered, so that it need not keep the
// replies to the deadline.
func TestEveryEndIsTold(t *testing.T) {
	finished := kvtransfer.ReplyBody{End: &kvtransfer.End{Finish: kvtransfer.FinishStop, Replies: 2}}
	for what, end := range map[string]func(w *world, key kvtransfer.Key){
		"a good end":   func(w *world, key kvtransfer.Key) { w.do(Replied{Key: key, Number: 1, Body: finished}) },
		"a cancel":     func(w *world, key kvtransfer.Key) { w.do(CancelAsked{Tenant: "acme", ID: key.ID}) },
		"client gone":  func(w *world, _ kvtransfer.Key) { w.do(ClientGone{Ref: 1}) },
		"a lost reply": func(w *world, key kvtransfer.Key) { w.do(Replied{Key: key, Number: 1, Body: good()}) },
	} {
		w, key := running(t, 2)
		end(w, key)
		told := func() (n int) {
			for _, fx := range w.effects {
				if e, ok := fx.(AskResend); ok && e.Ack && e.Key == key {
					n++
				}
			}
			return n
		}
		if told() != 1 {
			t.Errorf("%s: %s", what, describe(w.effects))
			continue
		}
		w.do(Resent{Key: key, Err: FaultTimeout})
		if w.pass(silence + 100*ms); told() != 1 {
			t.Errorf("%s, unanswered: %s", what, describe(w.effects))
		}
		w.do(Resent{Key: key, Known: true})
		if w.pass(3 * silence); told() != 0 {
			t.Errorf("%s, answered: %s", what, describe(w.effects))
		}
	}
}
