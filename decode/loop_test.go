package decode

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/kvtransfer/seal"
	"quire/model/modeltest"
)

// An answer is that of a fresh process, whatever the prompt's length, the pages' borders and the neighbours.
func TestAnswersEqualFreshProcess(t *testing.T) {
	for _, c := range []struct{ n, max int }{{1, 1}, {1, 5}, {3, 1}, {4, 4}, {5, 3}, {8, 1}, {8, 9}, {13, 11}} {
		t.Run(fmt.Sprintf("n=%d max=%d", c.n, c.max), func(t *testing.T) {
			w := newWorld(t, func(_ *LoopConfig, o *modeltest.Options) { o.Pages = 24 })
			w.hold["step"] = true
			for k := 1; k <= 3; k++ {
				w.handoff(key(k), prompt(c.n, k), c.max)
			}
			w.release("step")
			for k := 1; k <= 3; k++ {
				ids, end, _ := w.answer(key(k))
				if want := w.expected(prompt(c.n, k), c.max); !slices.Equal(ids, want) {
					t.Errorf("request %d: %v, want %v", k, ids, want)
				}
				if end.Finish != kvtransfer.FinishLength || end.Prompt != c.n || end.Output != c.max || int(end.Replies) != len(w.replies[key(k)]) {
					t.Errorf("request %d: end %+v of %d replies", k, end, len(w.replies[key(k)]))
				}
				w.ack(key(k))
			}
			w.clean()
		})
	}
}

// Pages of one tenant's request that go to another's change nothing in its answer.
func TestReusedPagesChangeNothing(t *testing.T) {
	w := newWorld(t, nil)
	for k := 1; k <= 12; k++ {
		n := 5 + k%7
		w.handoff(key(k), prompt(n, k), 4)
		if ids, _, _ := w.answer(key(k)); !slices.Equal(ids, w.expected(prompt(n, k), 4)) {
			t.Fatalf("request %d: %v", k, ids)
		}
		w.ack(key(k))
		w.clean()
	}
}

// An end token ends the answer before max_tokens.
func TestStopToken(t *testing.T) {
	tokens := prompt(6, 1)
	first := modeltest.Token(modeltest.Options{Vocab: 50}, tokens)
	w := newWorld(t, func(_ *LoopConfig, o *modeltest.Options) { o.EOS = first.ID })
	w.handoff(key(1), tokens, 9)
	ids, end, _ := w.answer(key(1))
	if !slices.Equal(ids, []int32{first.ID}) || end.Finish != kvtransfer.FinishStop || end.Output != 1 || end.Stop != fmt.Sprint(first.ID) {
		t.Errorf("%v, end %+v", ids, end)
	}
	w.clean()
}

// A resumed request counts the tokens of its earlier attempt as output, and goes on where that stopped.
func TestResumedRequest(t *testing.T) {
	w := newWorld(t, nil)
	all := w.expected(prompt(5, 1), 6)
	m := w.reserveMessage(key(1), "acme", append(prompt(5, 1), all[:2]...), 4)
	m.Key.Attempt, m.Prompt = 2, 5
	w.hold["step"] = true
	if !w.ask(m) {
		t.Fatal(w.refusals)
	}
	w.claim(m.Key)
	w.frames(m.Key)
	w.manifest(m.Key)
	s := w.held[0].(Step).Work[0]
	if len(s.Start.Prompt) != 5 || !slices.Equal(s.Start.Output, all[:2]) {
		t.Errorf("picker starts with prompt %d, output %v", len(s.Start.Prompt), s.Start.Output)
	}
	w.release("step")
	ids, end, _ := w.answer(m.Key)
	if !slices.Equal(ids, all[2:]) || end.Prompt != 5 || end.Output != 6 {
		t.Errorf("%v, want %v; end %+v", ids, all[2:], end)
	}
}

// All labels are right and the bytes are wrong: the witness refuses, no token leaves, the pages go through quarantine.
func TestWitnessRefuses(t *testing.T) {
	tokens := prompt(9, 1)
	foreign := prompt(9, 5)
	copy(foreign[5:], tokens[5:]) // equal length, equal last tokens
	for _, c := range []struct {
		name  string
		spoil func(w *world, j *job)
		check string
	}{
		{"all rows of a foreign prompt", func(w *world, j *job) { j.cut(w, w.compute(foreign), 2) }, "layer 0 differs from the prompt at row 0"},
		{"layer 0 of the prompt over a foreign prompt", func(w *world, j *job) {
			f := &job{res: j.res, hash: j.hash, claim: j.claim, key: j.key, tokens: tokens}
			f.cut(w, w.compute(foreign), 2)
			j.mix(f, func(h kvtransfer.FrameHeader) bool { return h.LayerFrom > 0 })
		}, "row 8 differs in layer 1"},
		{"one row of an upper layer", func(w *world, j *job) {
			j.reseal(func(h kvtransfer.FrameHeader, plain []byte) {
				if h.LayerFrom == 1 && h.RowFrom == 2 {
					plain[0] ^= 1
				}
			})
		}, "row 8 differs in hidden"},
		{"two runs of rows swapped", func(w *world, j *job) {
			var rows [2][]byte
			j.reseal(func(h kvtransfer.FrameHeader, plain []byte) {
				rows[h.LayerFrom] = pick(rows[h.LayerFrom], plain, h.RowFrom == 0)
			})
			j.reseal(func(h kvtransfer.FrameHeader, plain []byte) {
				if h.RowFrom == 4 {
					copy(plain, rows[h.LayerFrom])
				}
			})
		}, "layer 0 differs from the prompt at row 4"},
		{"the last layer's output", func(w *world, j *job) {
			j.reseal(func(h kvtransfer.FrameHeader, plain []byte) {
				if h.Hidden > 0 {
					plain[len(plain)-1] ^= 1
				}
			})
		}, "row 8 differs in hidden"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.reserve(key(1), tokens, 3)
			w.claim(key(1))
			c.spoil(w, w.jobs[key(1)])
			w.frames(key(1))
			w.manifest(key(1))
			ids, end, outcome := w.answer(key(1))
			if outcome == nil || outcome.OK || outcome.Error.Code != kvtransfer.HandoffWitness || len(ids) > 0 || end != nil {
				t.Fatalf("outcome %+v, tokens %d, end %+v\n%s", outcome, len(ids), end, w.l.Dump())
			}
			if !strings.Contains(outcome.Error.Detail, c.check) {
				t.Errorf("%q, want %q", outcome.Error.Detail, c.check)
			}
			last := w.facts[len(w.facts)-1]
			if last.Kind != FactFinished || last.Witness != "refused" || w.l.Counters().WitnessFailed != 1 {
				t.Errorf("fact %+v", last)
			}
			w.clean()
			w.reserve(key(2), prompt(4, 2), 8)
			for _, s := range w.jobs[key(2)].res.Pages {
				if s.Gen < 3 { // bumped on leaving quarantine, and again for its new owner
					t.Errorf("page %d comes back in generation %d", s.Page, s.Gen)
				}
			}
		})
	}
}

func pick(old, now []byte, take bool) []byte {
	if take {
		return slices.Clone(now)
	}
	return old
}

// reseal changes the frames' bytes and seals them again, as the holder of the claim could.
func (j *job) reseal(change func(kvtransfer.FrameHeader, []byte)) {
	frames := j.frames
	j.frames, j.tags = nil, nil
	for _, f := range frames {
		plain, err := seal.OpenFrame(j.key, j.hash, f.Header, f.Sealed, nil)
		if err != nil {
			panic(err)
		}
		change(f.Header, plain)
		j.add(f.Header, plain)
	}
}

// mix replaces those frames by another job's.
func (j *job) mix(from *job, which func(kvtransfer.FrameHeader) bool) {
	for i, f := range from.frames {
		if which(f.Header) {
			j.frames[i], j.tags[i] = f, from.tags[i]
		}
	}
}

// Two frames of one index that both open: only the claim's holder can have made them.
func TestSecondFrameOfOneIndex(t *testing.T) {
	w := newWorld(t, nil)
	w.reserve(key(1), prompt(6, 1), 2)
	w.claim(key(1))
	j := w.jobs[key(1)]
	w.frame(j.frames[0])
	j.reseal(func(_ kvtransfer.FrameHeader, plain []byte) { plain[0] ^= 1 })
	w.frame(j.frames[0])
	_, _, outcome := w.answer(key(1))
	if outcome == nil || outcome.Error.Code != kvtransfer.HandoffContent {
		t.Errorf("outcome %+v", outcome)
	}
	w.clean()
}

// A frame sealed for one hand-off does not open in another, whatever its header says.
func TestFrameOfAnotherHandoff(t *testing.T) {
	w := newWorld(t, nil)
	w.reserve(key(1), prompt(6, 1), 2)
	w.reserve(key(2), prompt(6, 2), 2)
	w.claim(key(1))
	w.claim(key(2))
	f := w.jobs[key(1)].frames[0]
	f.Header.Key, f.Header.Claim = key(2), w.jobs[key(2)].claim.Claim
	w.frame(f)
	if c := w.l.Counters(); c.FramesUnopened != 1 || c.FramesCopied != 0 {
		t.Errorf("%+v", c)
	}
	for k := 1; k <= 2; k++ {
		w.frames(key(k))
		w.manifest(key(k))
		if ids, _, _ := w.answer(key(k)); !slices.Equal(ids, w.expected(prompt(6, k), 2)) {
			t.Errorf("request %d: %v", k, ids)
		}
	}
	w.clean()
}

// What ended while a step held its pages gives them back when the step reports, and not before.
func TestPagesWaitForTheStep(t *testing.T) {
	w := newWorld(t, nil)
	w.hold["step"] = true
	w.handoff(key(1), prompt(6, 1), 4)
	w.one("cancel")
	if c := w.l.ledger.Counts(); c.Free == c.Total || c.Zeroing > 0 {
		t.Fatalf("pages left a running step: %+v", c)
	}
	w.release("step")
	if ids, _, outcome := w.answer(key(1)); len(ids) > 0 || outcome.Error.Code != kvtransfer.ClientGone {
		t.Errorf("tokens %d, outcome %+v", len(ids), outcome)
	}
	w.clean()
}

// A cancel while running ends with a typed error after the tokens, never with a normal finish.
func TestCancelWhileRunning(t *testing.T) {
	w := newWorld(t, nil)
	w.hold["step"] = true
	w.handoff(key(1), prompt(6, 1), 4)
	w.run(w.held[0])
	w.held = nil
	w.send(w.take()) // the witness's step, after which the next one waits
	w.one("cancel")
	_, end, outcome := w.answer(key(1))
	if !outcome.OK || end == nil || end.Error.Code != kvtransfer.ClientGone || end.Finish != "" {
		t.Errorf("outcome %+v, end %+v", outcome, end)
	}
	w.release("step")
	w.clean()
	if s := w.facts[len(w.facts)-1]; s.Error.Code != kvtransfer.ClientGone || s.Finish != "" {
		t.Errorf("fact %+v", s)
	}
}

func (w *world) take() Event {
	ev := w.events[0]
	w.events = w.events[1:]
	return ev
}

func TestReserveAgain(t *testing.T) {
	w := newWorld(t, nil)
	w.reserve(key(1), prompt(6, 1), 2)
	first := w.jobs[key(1)].hash
	if !w.reserve(key(1), prompt(6, 1), 2) || w.jobs[key(1)].hash != first {
		t.Errorf("the same request got another promise, or none: %v", w.refusals)
	}
	if w.reserve(key(1), prompt(6, 2), 2) || w.refusals[key(1)].Code != kvtransfer.InvalidRequest {
		t.Errorf("another request under the same key: %v", w.refusals)
	}
	if c := w.l.ledger.Counts(); c.Reserved != 2 {
		t.Errorf("pages %+v", c)
	}
	w.one("cancel")
	if w.reserve(key(1), prompt(6, 1), 2) || w.refusals[key(1)].Code != kvtransfer.NotFound {
		t.Errorf("an attempt that has ended: %v", w.refusals)
	}
	w.clean()
}

// A later attempt's Reserve ends the earlier attempt of the same hand-off.
func TestLaterAttemptReplaces(t *testing.T) {
	w := newWorld(t, nil)
	w.reserve(key(1), prompt(20, 1), 8)
	k := key(1)
	k.Attempt = 2
	w.reserve(k, prompt(20, 1), 8) // no pages before those of the first attempt are zeroed
	if !w.reserve(k, prompt(20, 1), 8) {
		t.Fatal(w.refusals)
	}
	if s := w.l.handoffs[key(1)].in.State; !s.Over() {
		t.Errorf("attempt 1 is %s", s)
	}
}

func TestReserveRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*kvtransfer.Reserve)
		code  kvtransfer.Code
		want  string
	}{
		{"no hand-off id", func(r *kvtransfer.Reserve) { r.Key.ID = kvtransfer.HandoffID{} }, kvtransfer.InvalidRequest, "zero"},
		{"attempt 0", func(r *kvtransfer.Reserve) { r.Key.Attempt = 0 }, kvtransfer.InvalidRequest, "zero"},
		{"no tokens", func(r *kvtransfer.Reserve) { r.Tokens, r.Prompt = nil, 0 }, kvtransfer.InvalidRequest, "prompt 0 of 0"},
		{"prompt beyond the tokens", func(r *kvtransfer.Reserve) { r.Prompt = 7 }, kvtransfer.InvalidRequest, "prompt 7 of 6"},
		{"max_tokens 0", func(r *kvtransfer.Reserve) { r.MaxTokens = 0 }, kvtransfer.InvalidRequest, "max_tokens 0"},
		{"max_tokens overflows", func(r *kvtransfer.Reserve) { r.MaxTokens = int(^uint(0) >> 1) }, kvtransfer.ContextLengthExceeded, "limit 32"},
		{"one too many", func(r *kvtransfer.Reserve) { r.MaxTokens = 27 }, kvtransfer.ContextLengthExceeded, "prompt 6 and max_tokens 27, limit 32"},
		{"past its deadline", func(r *kvtransfer.Reserve) { r.DeadlineLeft = 0 }, kvtransfer.DeadlineExceeded, "deadline"},
		{"no tenant", func(r *kvtransfer.Reserve) { r.Tenant = "" }, kvtransfer.InvalidRequest, "tenant"},
		{"a token outside of the vocabulary", func(r *kvtransfer.Reserve) { r.Tokens[2] = 50 }, kvtransfer.InvalidRequest, "token at 2 is outside of the vocabulary of 50"},
		{"a negative token", func(r *kvtransfer.Reserve) { r.Tokens[2] = -1 }, kvtransfer.InvalidRequest, "token at 2"},
		{"another model", func(r *kvtransfer.Reserve) { r.Fingerprints.Model[3]++ }, kvtransfer.Mismatch, "fingerprint"},
		{"another prompt than digested", func(r *kvtransfer.Reserve) { r.Tokens[0]++ }, kvtransfer.HandoffIdentity, "digest"},
		{"another tenant than digested", func(r *kvtransfer.Reserve) { r.Tenant = "bank" }, kvtransfer.HandoffIdentity, "digest"},
		{"for another router", func(r *kvtransfer.Reserve) { r.Router.Epoch++ }, kvtransfer.NotAllowed, "signed by"},
		{"a router key without secret", func(r *kvtransfer.Reserve) { r.RouterKey = [32]byte{} }, kvtransfer.InvalidRequest, "reply key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil)
			m := w.reserveMessage(key(1), "acme", prompt(6, 1), 2)
			c.spoil(&m)
			if w.ask(m) {
				t.Fatal("promised")
			}
			if e := w.refusals[m.Key]; e.Code != c.code || !strings.Contains(e.Detail, c.want) {
				t.Errorf("%s: %s, want %s: %s", e.Code, e.Detail, c.code, c.want)
			}
			w.clean()
		})
	}
	w := newWorld(t, nil)
	if !w.reserve(key(1), prompt(6, 1), 26) {
		t.Errorf("a request that just fits: %v", w.refusals)
	}
}

// The table is bounded: what is open, and what is kept for resends.
func TestBounds(t *testing.T) {
	w := newWorld(t, func(c *LoopConfig, o *modeltest.Options) { c.MaxOpen, c.MaxKept, o.Pages = 2, 1, 100 })
	w.reserve(key(1), prompt(3, 1), 2)
	w.reserve(key(2), prompt(3, 2), 2)
	if w.reserve(key(3), prompt(3, 3), 2) || w.refusals[key(3)].Code != kvtransfer.Overloaded {
		t.Errorf("third of two: %v", w.refusals)
	}
	w.one("cancel k=1")
	w.one("cancel k=2")
	w.reserve(key(3), prompt(3, 3), 2)
	if w.reserve(key(4), prompt(3, 4), 2) || w.refusals[key(4)].Code != kvtransfer.Overloaded {
		t.Errorf("fourth of three: %v", w.refusals)
	}
	w.ack(key(1))
	if !w.reserve(key(4), prompt(3, 4), 2) {
		t.Errorf("after an acknowledged end: %v", w.refusals)
	}
}

// Ended attempts are kept until their deadline when nobody acknowledges, and no longer.
func TestKeptUntilDeadline(t *testing.T) {
	w := newWorld(t, nil)
	w.handoff(key(1), prompt(6, 1), 1)
	for range 7 {
		w.tick(8 * kvtransfer.Second)
		w.one("router")
	}
	if len(w.l.handoffs) != 1 {
		t.Fatalf("forgotten at %d", w.now)
	}
	w.tick(8 * kvtransfer.Second)
	if len(w.l.handoffs) != 0 || !w.l.Idle() {
		t.Errorf("kept beyond its deadline: %s", w.l.Dump())
	}
}

// Without a journal a request runs only where the operator said so, and a counter tells.
func TestJournalOptional(t *testing.T) {
	w := newWorld(t, func(c *LoopConfig, _ *modeltest.Options) { c.JournalOptional = true })
	w.one("journal down")
	w.handoff(key(1), prompt(6, 1), 2)
	if ids, _, _ := w.answer(key(1)); len(ids) != 2 || w.l.Counters().Unjournaled != 1 {
		t.Errorf("tokens %d, %+v", len(ids), w.l.Counters())
	}
}

// A device that cannot clear pages, and results that do not fit the step, stop the process.
func TestStops(t *testing.T) {
	t.Run("zeroing fails", func(t *testing.T) {
		fails := 0
		w := newWorld(t, func(_ *LoopConfig, o *modeltest.Options) {
			o.Fail = func(op string) error {
				if op != "zero" {
					return nil
				}
				fails++
				return fmt.Errorf("broken")
			}
		})
		w.one("reserve")
		w.one("cancel")
		if w.stopped.Code != kvtransfer.DeviceFailed || fails != maxFailures {
			t.Errorf("stopped %v after %d", w.stopped, fails)
		}
		if out := w.l.Handle(Tick{Now: 9}); out != nil {
			t.Errorf("effects after Stop: %v", out)
		}
	})
	for _, c := range []struct {
		name string
		ev   Event
	}{
		{"results of no step", StepDone{Results: []SeqResult{{Key: key(1)}}}},
		{"a step that found an invariant broken", StepDone{Err: kvtransfer.Errorf(kvtransfer.Invariant, "device: view")}},
		{"a copy that nobody asked for", FrameCopied{Header: kvtransfer.FrameHeader{Key: key(1)}}},
		{"a witness that nobody asked for", WitnessDone{Key: key(1), Row: -1}},
		{"pages zeroed that were not given out", Zeroed{Pages: []page.ID{0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.send(c.ev)
			if w.stopped.Code != kvtransfer.Invariant {
				t.Errorf("stopped: %v", w.stopped)
			}
		})
	}
}

// A copy that the device refused ends the attempt as Failed; nothing is admitted.
func TestCopyFails(t *testing.T) {
	w := newWorld(t, func(_ *LoopConfig, o *modeltest.Options) {
		o.Fail = func(op string) error {
			if op == "write" {
				return fmt.Errorf("broken")
			}
			return nil
		}
	})
	w.handoff(key(1), prompt(6, 1), 2)
	if _, _, o := w.answer(key(1)); o.Error.Code != kvtransfer.DeviceFailed || w.l.Counters().Admitted > 0 {
		t.Errorf("outcome %+v", o)
	}
	w.clean()
}

// A clone goes its own way and leaves the original as it was.
func TestClone(t *testing.T) {
	w := newWorld(t, nil)
	w.hold["step"] = true
	w.handoff(key(1), prompt(6, 1), 4)
	w.reserve(key(2), prompt(3, 2), 2)
	before := w.l.Dump()
	c := w.l.Clone()
	if c.Dump() != before {
		t.Fatalf("clone:\n%s\noriginal:\n%s", c.Dump(), before)
	}
	for _, ev := range []Event{
		CancelCame{From: router, M: kvtransfer.Cancel{Key: key(1)}}, RouterAlive{Peer: router}, Tick{Now: kvtransfer.Second},
		ClaimCame{From: worker, M: kvtransfer.Claim{Key: key(2), ClaimKey: seal.PublicKey(privP), Reservation: w.jobs[key(2)].hash}},
		StepDone{Err: kvtransfer.Errorf(kvtransfer.DeviceFailed, "x")}, Drain{},
	} {
		c.Handle(ev)
	}
	if err := c.Verify(); err != nil {
		t.Error(err)
	}
	if got := w.l.Dump(); got != before {
		t.Errorf("was\n%s\nis\n%s", before, got)
	}
}

func TestPlanStep(t *testing.T) {
	k := []kvtransfer.Key{key(1), key(2), key(3), key(4)}
	for _, c := range []struct {
		name string
		cs   []candidate
		max  int
		want []kvtransfer.Key
	}{
		{"nobody", nil, 4, nil},
		{"all fit", []candidate{{Key: k[0]}, {Key: k[1]}}, 4, k[:2]},
		{"who waited longest", []candidate{{Key: k[0], Stepped: 5}, {Key: k[1], Stepped: 3}, {Key: k[2], Stepped: 4}, {Key: k[3]}}, 2, []kvtransfer.Key{k[3], k[1]}},
		{"after a failure one by one", []candidate{{Key: k[0]}, {Key: k[1], Failures: 1}, {Key: k[2], Failures: 1}}, 4, k[1:2]},
	} {
		if got := planStep(c.cs, c.max); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// With more sequences than a step takes, all go on at the same pace.
func TestStepsAreShared(t *testing.T) {
	w := newWorld(t, func(c *LoopConfig, o *modeltest.Options) { c.MaxBatch, o.Pages = 2, 40 })
	w.hold["step"] = true
	for k := 1; k <= 4; k++ {
		w.handoff(key(k), prompt(3, k), 6)
	}
	w.hold["step"] = false
	steps := map[kvtransfer.Key]int{}
	for _, e := range w.held {
		w.events = append(w.events, w.step(e.(Step)))
	}
	w.held = nil
	w.log = nil
	w.send(w.take())
	for _, s := range w.log {
		if strings.HasPrefix(s, "step") && strings.Count(s, "row") > 2 {
			t.Errorf("%s: more than two", s)
		}
	}
	for k := 1; k <= 4; k++ {
		ids, _, _ := w.answer(key(k))
		steps[key(k)] = len(ids)
		if !slices.Equal(ids, w.expected(prompt(3, k), 6)) {
			t.Errorf("request %d: %v", k, ids)
		}
	}
	w.clean()
}

// Verify finds a table that contradicts the ledger.
func TestVerify(t *testing.T) {
	w := newWorld(t, nil)
	w.reserve(key(1), prompt(6, 1), 2)
	if err := w.l.Verify(); err != nil {
		t.Fatal(err)
	}
	w.l.handoffs[key(1)].in.State = kvtransfer.InRunning
	if err := w.l.Verify(); err == nil {
		t.Error("pages Reserved under a running attempt")
	}
}

// What was started for a promise that is forgotten does not count for the next one under the same key.
func TestLateCompletionsOfAnEarlierPromise(t *testing.T) {
	w := newWorld(t, nil)
	again := func() {
		w.ack(key(1))
		w.reserve(key(1), prompt(6, 1), 2)
		w.claim(key(1))
	}
	w.hold["journal"] = true
	w.handoff(key(1), prompt(6, 1), 2) // the verdict waits
	held := w.held
	w.held = nil
	again()
	w.frames(key(1))
	w.manifest(key(1))
	var old Journal
	for _, e := range held {
		if j, ok := e.(Journal); ok && j.Must {
			old = j
		}
	}
	w.send(Journaled{Key: key(1), Reservation: old.Fact.Reservation})
	if s := w.l.handoffs[key(1)].in.State; s != kvtransfer.InJudging {
		t.Fatalf("the earlier promise's acknowledgement led to %s", s)
	}
	w.release("journal")
	if ids, _, _ := w.answer(key(1)); len(ids) != 2 {
		t.Errorf("%d tokens", len(ids))
	}

	w.hold["openframe"] = true
	again()
	w.frame(w.jobs[key(1)].frames[0])
	late := w.held[0].(OpenFrame)
	w.held = nil
	delete(w.open, late.Delivery)
	again()
	w.send(FrameOpened{
		Delivery: w.deliver(), Header: late.Header, Tag: late.Tag, Hash: late.Hash, Opening: kvtransfer.Opening{OK: true, Bytes: 32},
	})
	if got := w.l.handoffs[key(1)].in.Frames(); len(got) > 0 {
		t.Errorf("the earlier promise's frame counts: %v", got)
	}
	w.one("cancel")
	w.clean()
}

// Only the router that asked may cancel or ask for replies.
func TestAnotherRouter(t *testing.T) {
	w := newWorld(t, nil)
	w.hold["step"] = true
	w.handoff(key(1), prompt(6, 1), 2)
	other := kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: "r2", Epoch: 3}
	before := w.l.Dump()
	w.send(CancelCame{Delivery: w.deliver(), From: other, M: kvtransfer.Cancel{Key: key(1)}})
	w.send(ResendAsked{From: other, M: kvtransfer.Resend{Key: key(1), Ack: true}})
	if got := w.l.Dump(); got != before {
		t.Errorf("was\n%s\nis\n%s", before, got)
	}
	if r := w.resent[len(w.resent)-1]; r.Known {
		t.Error("another router's request is answered as known")
	}
	w.release("step")
	w.clean()
}
