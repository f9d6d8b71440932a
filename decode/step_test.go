package decode

import (
	"slices"
	"testing"

	"quire/kvtransfer"
	"quire/model/modeltest"
)

// TestStopTokenAtTheLimit: an answer whose last token that fits is the model's own end has stopped by itself.
func TestStopTokenAtTheLimit(t *testing.T) {
	tokens := prompt(6, 1)
	first := modeltest.Token(modeltest.Options{Vocab: 50}, tokens)
	w := newWorld(t, func(_ *LoopConfig, o *modeltest.Options) { o.EOS = first.ID })
	w.handoff(key(1), tokens, 1)
	if ids, end, _ := w.answer(key(1)); len(ids) != 1 || end == nil || end.Finish != kvtransfer.FinishStop {
		t.Errorf("%v, end %+v", ids, end)
	}
	w.clean()
}

// TestEndsCountTheReplies: the last reply says how many there are, itself included, whatever the answer was made of.
func TestEndsCountTheReplies(t *testing.T) {
	for _, max := range []int{1, 2, 5} {
		w := newWorld(t, nil)
		w.handoff(key(1), prompt(6, 1), max)
		replies := w.replies[key(1)]
		if _, end, _ := w.answer(key(1)); end == nil || int(end.Replies) != len(replies) || len(replies) < 2 {
			t.Errorf("max_tokens %d: %d replies, end %+v", max, len(replies), end)
		}
	}
	w := newWorld(t, nil)
	w.hold["step"] = true
	w.handoff(key(1), prompt(6, 1), 5)
	step := w.held[0].(Step)
	w.held = nil
	w.send(w.step(step)) // the witness's: the answer runs
	w.send(CancelCame{Delivery: w.deliver(), From: router, M: kvtransfer.Cancel{Key: key(1)}})
	replies := w.replies[key(1)]
	if _, end, _ := w.answer(key(1)); end == nil || end.Error.IsZero() || int(end.Replies) != len(replies) {
		t.Errorf("cancelled: %d replies, end %+v", len(replies), end)
	}
}

// TestStepsThatFail: a failed step is counted, a good one is not, and results out of order stop the process.
func TestStepsThatFail(t *testing.T) {
	w := newWorld(t, nil)
	w.hold["step"] = true
	w.handoff(key(1), prompt(6, 1), 3)
	held := w.held
	w.held = nil
	w.send(w.step(held[0].(Step)))
	if c := w.l.Counters(); c.StepsFailed != 0 {
		t.Errorf("a good step counts as failed: %+v", c)
	}
	w.held = nil
	w.send(StepDone{Err: kvtransfer.Errorf(kvtransfer.DeviceFailed, "busy")})
	if c := w.l.Counters(); c.StepsFailed != 1 {
		t.Errorf("%+v", c)
	}
	if len(w.held) != 1 {
		t.Fatalf("%d steps after one that failed", len(w.held))
	}

	w = newWorld(t, nil)
	w.hold["step"] = true
	w.handoff(key(1), prompt(6, 1), 3)
	w.handoff(key(2), prompt(5, 2), 3)
	done := w.step(w.held[0].(Step))
	w.held = nil
	w.send(done)
	done = w.step(w.held[0].(Step))
	if len(done.Results) != 2 {
		t.Fatalf("%d results, want those of both", len(done.Results))
	}
	slices.Reverse(done.Results)
	w.send(done)
	if w.stopped.Code != kvtransfer.Invariant {
		t.Errorf("another's token: %v", w.stopped)
	}
}

// TestJournaledCountsNothing: what the journal acknowledged is not counted as unjournaled, wherever it may be done without.
func TestJournaledCountsNothing(t *testing.T) {
	w := newWorld(t, func(c *LoopConfig, _ *modeltest.Options) { c.JournalOptional = true })
	w.handoff(key(1), prompt(6, 1), 2)
	if c := w.l.Counters(); c.Admitted != 1 || c.Unjournaled != 0 {
		t.Errorf("%+v", c)
	}
	if f := w.facts[len(w.facts)-1]; f.Unjournaled {
		t.Errorf("%+v", f)
	}
}
