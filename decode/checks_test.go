package decode

import (
	"errors"
	"testing"

	"quire/kvtransfer"
	"quire/model/modeltest"
)

var broken = kvtransfer.Errorf(kvtransfer.Invariant, "device: a view of nobody")

// TestBrokenInvariantsStop: what performed an effect found that a right was wrong; nothing that this loop knows can be trusted then.
func TestBrokenInvariantsStop(t *testing.T) {
	for kind, ev := range map[string]func(*world) Event{
		"copyframe": func(w *world) Event {
			c := w.held[0].(CopyFrame)
			return FrameCopied{Delivery: c.Delivery, Header: c.Header, Grant: c.Grant, Err: broken}
		},
		"witness": func(w *world) Event { return WitnessDone{Key: key(1), Row: -1, Err: broken} },
		"step":    func(*world) Event { return StepDone{Err: broken} },
		"zero":    func(w *world) Event { return Zeroed{Pages: w.held[0].(Zero).Pages, Err: broken} },
	} {
		w := newWorld(t, nil)
		w.hold[kind] = true
		w.handoff(key(1), prompt(6, 1), 2)
		if len(w.held) == 0 {
			t.Fatalf("%s: nothing is held", kind)
		}
		w.send(ev(w))
		if w.stopped.Code != kvtransfer.Invariant {
			t.Errorf("%s: %v", kind, w.stopped)
		}
	}
}

// TestWitnessFailsAndRecovers: a device that fails is asked again, a bounded number of times; the bytes are not suspect for it.
func TestWitnessFailsAndRecovers(t *testing.T) {
	for _, fails := range []int{1, maxFailures - 1, maxFailures} {
		left := fails
		w := newWorld(t, func(_ *LoopConfig, o *modeltest.Options) {
			o.Fail = func(op string) error {
				if op == "witness" && left > 0 {
					left--
					return errors.New("busy")
				}
				return nil
			}
		})
		w.handoff(key(1), prompt(6, 1), 2)
		ids, _, outcome := w.answer(key(1))
		if ok := fails < maxFailures; outcome == nil || outcome.OK != ok || ok != (len(ids) == 2) || !ok && outcome.Error.Code != kvtransfer.DeviceFailed {
			t.Errorf("%d failures: %v, %+v", fails, ids, outcome)
		}
		if w.l.Counters().WitnessFailed > 0 {
			t.Error("a device's failure counts as a foreign page")
		}
		w.clean()
	}
}

// TestCompletionsAfterForgetting: effects of an attempt that is out of the table come back, give its pages back and do no more.
func TestCompletionsAfterForgetting(t *testing.T) {
	for _, kind := range []string{"witness", "step", "copyframe", "openframe"} {
		w := newWorld(t, nil)
		w.hold[kind] = true
		w.handoff(key(1), prompt(6, 1), 2)
		w.ack(key(1)) // the router gives the attempt up, and decode forgets it
		if _, ok := w.l.State(key(1)); ok {
			t.Fatalf("%s: still in the table", kind)
		}
		w.release(kind)
		if !w.stopped.IsZero() {
			t.Errorf("%s: %v", kind, w.stopped)
		}
		w.clean()
	}
	w := newWorld(t, nil)
	w.send(Journaled{Key: key(5)})
	w.clean()
}

// TestClaimsThatBindNothing: the attempt stays free for the worker that may have it.
func TestClaimsThatBindNothing(t *testing.T) {
	w := newWorld(t, nil)
	w.reserve(key(1), prompt(6, 1), 2)
	good := kvtransfer.Claim{Key: key(1), Claim: kvtransfer.ClaimID{1}, ClaimKey: [32]byte{2, 2}, Reservation: w.jobs[key(1)].hash}
	noKey := good
	noKey.ClaimKey = [32]byte{}
	for what, ev := range map[string]ClaimCame{
		"of a router":        {From: router, M: good},
		"of a decode":        {From: self, M: good},
		"whose key is zeros": {From: worker, M: noKey},
	} {
		ev.Delivery = w.deliver()
		w.send(ev)
		if s, _ := w.l.State(key(1)); s != kvtransfer.InReserved {
			t.Fatalf("claim %s: %s", what, s)
		}
	}
	if n := w.l.Counters().ClaimsRefused; n != 3 {
		t.Errorf("%d claims refused", n)
	}
	w.claim(key(1))
	if s, _ := w.l.State(key(1)); s != kvtransfer.InFilling {
		t.Errorf("the worker's own claim: %s", s)
	}
}

// TestCancelSaysNoMore: a router's cancel ends an attempt as cancelled, gone or late, whatever code it brings.
func TestCancelSaysNoMore(t *testing.T) {
	for given, want := range map[kvtransfer.Code]kvtransfer.Code{
		kvtransfer.Cancelled: kvtransfer.Cancelled, kvtransfer.ClientGone: kvtransfer.ClientGone, kvtransfer.DeadlineExceeded: kvtransfer.DeadlineExceeded,
		kvtransfer.HandoffWitness: kvtransfer.Cancelled, kvtransfer.Invariant: kvtransfer.Cancelled, kvtransfer.OK: kvtransfer.Cancelled,
	} {
		w := newWorld(t, nil)
		w.reserve(key(1), prompt(6, 1), 2)
		w.claim(key(1))
		w.send(CancelCame{Delivery: w.deliver(), From: router, M: kvtransfer.Cancel{Key: key(1), Error: kvtransfer.Error{Code: given}}})
		if _, _, o := w.answer(key(1)); o == nil || o.OK || o.Error.Code != want {
			t.Errorf("%s: %+v, want %s", given, o, want)
		}
		if s, _ := w.l.State(key(1)); s != kvtransfer.InRefused {
			t.Errorf("%s: %s", given, s)
		}
		w.clean()
	}
}

// TestLateFramesAreCountedAsSuch: a frame that opened for an attempt that is over is refused; one that did not open is another figure.
func TestLateFramesAreCountedAsSuch(t *testing.T) {
	w := newWorld(t, nil)
	w.hold["openframe"] = true
	w.reserve(key(1), prompt(6, 1), 2)
	w.claim(key(1))
	w.frames(key(1))
	w.send(CancelCame{Delivery: w.deliver(), From: router, M: kvtransfer.Cancel{Key: key(1)}})
	held := len(w.held)
	w.release("openframe")
	if c := w.l.Counters(); held == 0 || c.FramesRefused != uint64(held) || c.FramesUnopened > 0 || c.FramesCopied > 0 {
		t.Errorf("%d frames: %+v", held, c)
	}
	w.clean()
}

// TestRefusedReserveEndsNothing: a Reserve that is wrong, or comes to a worker that takes nothing, leaves the earlier attempt of its
// hand-off as it was. One that is right replaces it, though there is no room for both.
func TestRefusedReserveEndsNothing(t *testing.T) {
	for what, spoil := range map[string]func(*world, *kvtransfer.Reserve){
		"no tokens":                      func(_ *world, m *kvtransfer.Reserve) { m.Tokens, m.Prompt = nil, 0 },
		"another model":                  func(_ *world, m *kvtransfer.Reserve) { m.Fingerprints.Model[3]++ },
		"too long":                       func(_ *world, m *kvtransfer.Reserve) { m.MaxTokens = 27 },
		"another prompt than digested":   func(_ *world, m *kvtransfer.Reserve) { m.Tokens[0]++ },
		"a router key without secret":    func(_ *world, m *kvtransfer.Reserve) { m.RouterKey = [32]byte{} },
		"signed by another than it says": func(_ *world, m *kvtransfer.Reserve) { m.Router.Epoch++ },
		"draining":                       func(w *world, _ *kvtransfer.Reserve) { w.send(Drain{}) },
		"the journal is full":            func(w *world, _ *kvtransfer.Reserve) { w.send(JournalState{Full: true}) },
	} {
		w := newWorld(t, nil)
		w.reserve(key(1), prompt(20, 1), 8)
		w.claim(key(1))
		m := w.reserveMessage(key(1), "acme", prompt(20, 1), 8)
		m.Key.Attempt = 2
		spoil(w, &m)
		if w.ask(m) {
			t.Fatalf("%s: promised", what)
		}
		if s, ok := w.l.State(key(1)); !ok || s != kvtransfer.InFilling {
			t.Errorf("%s: the first attempt is %s", what, s)
		}
	}
	w := newWorld(t, nil)
	w.reserve(key(1), prompt(20, 1), 8)
	m := w.reserveMessage(key(1), "acme", prompt(20, 1), 8)
	m.Key.Attempt = 2
	if w.ask(m) {
		t.Error("pages that are not zeroed yet were promised")
	}
	if s, _ := w.l.State(key(1)); !s.Over() {
		t.Errorf("a Reserve that is right leaves the first attempt %s", s)
	}
}
