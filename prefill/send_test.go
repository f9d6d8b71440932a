package prefill

import (
	"testing"

	"quire/kvtransfer"
)

// line is a loop and everything it asked for, answered by hand.
type line struct {
	t   *testing.T
	l   *Loop
	fx  []Effect // of everything so far
	now kvtransfer.Tick
}

func newLine(t *testing.T, change func(*LoopConfig)) *line {
	t.Helper()
	cfg := testConfig()
	if change != nil {
		change(&cfg)
	}
	x := &line{t: t, l: New(cfg)}
	x.send(Tick{})
	return x
}

// send handles one event and gives its effects.
func (x *line) send(ev Event) []Effect {
	x.t.Helper()
	fx := x.l.Handle(ev)
	x.fx = append(x.fx, fx...)
	if err := x.l.Verify(); err != nil {
		x.t.Fatalf("%T: %v", ev, err)
	}
	return fx
}

func of[T Effect](fx []Effect) (list []T) {
	for _, e := range fx {
		if v, ok := e.(T); ok {
			list = append(list, v)
		}
	}
	return list
}

// claim takes a job and has its claim answered.
func (x *line) claim(j Job) kvtransfer.ClaimID {
	x.t.Helper()
	claims := of[SendClaim](x.send(j))
	if len(claims) != 1 {
		x.t.Fatalf("%d claims", len(claims))
	}
	c := claims[0].Msg.Claim
	x.send(Claimed{From: testDecode, Msg: kvtransfer.Claimed{Key: j.Reservation.Key, Claim: c, LeaseLeft: testLease, DeadlineLeft: 600 * kvtransfer.Second}})
	return c
}

// compute answers steps until none is out.
func (x *line) compute() []Effect {
	x.t.Helper()
	var all []Effect
	for x.l.step != nil {
		steps := of[Compute](x.fx)
		last := steps[len(steps)-1]
		ev := ChunkDone{Step: last.Step, Hidden: make([][]float32, len(last.Work))}
		for i, w := range last.Work {
			if w.Hidden {
				ev.Hidden[i] = make([]float32, testInfo.Dim)
			}
		}
		all = append(all, x.send(ev)...)
	}
	return all
}

func wide(c *LoopConfig) { c.InFlight, c.Info.Pages = 100, 16 }

// TestFramesInFlight: one hand-off has no more frames with the stream than the window of its subject, however many all may have; frames
// of an earlier claim of the same attempt do not count.
func TestFramesInFlight(t *testing.T) {
	x := newLine(t, wide)
	j := testJob(1, 30, nil) // 15 frames of two rows
	first := x.claim(j)
	if n := len(of[SealAndSend](x.compute())); n != perAttempt {
		t.Fatalf("%d frames in flight, want %d", n, perAttempt)
	}
	for _, f := range of[SealAndSend](x.fx) {
		x.send(FrameSealed{Frame: f.Frame})
	}
	x.send(Gone{From: testDecode, Msg: kvtransfer.Gone{Key: j.Reservation.Key, Claim: first}})
	for _, z := range of[Zero](x.fx) {
		x.send(Zeroed{Pages: z.Pages})
	}
	x.fx = nil
	x.claim(j)
	x.compute()
	if n := len(of[SealAndSend](x.fx)); n != perAttempt {
		t.Errorf("%d frames of the second claim while those of the first are with the stream, want %d", n, perAttempt)
	}
	x = newLine(t, wide)
	x.claim(testJob(1, 14, nil))
	x.claim(testJob(2, 18, nil)) // both have their pages
	x.compute()
	count := map[kvtransfer.Key]int{}
	for _, f := range of[SealAndSend](x.fx) {
		count[f.Frame.Key]++
	}
	if a, b := count[testJob(1, 1, nil).Reservation.Key], count[testJob(2, 1, nil).Reservation.Key]; a != 7 || b != perAttempt {
		t.Errorf("frames in flight: %d of 7, %d of 9", a, b)
	}
}

// TestAnswersAboutNoFrame: what is said of a frame that is not out, or a second time, is counted and changes nothing.
func TestAnswersAboutNoFrame(t *testing.T) {
	x := newLine(t, nil)
	j := testJob(1, 6, nil)
	claim := x.claim(j)
	x.compute()
	frames := of[SealAndSend](x.fx)
	id := frames[0].Frame
	otherKey, otherClaim, later := id, id, id
	otherKey.Key.ID[0]++
	otherClaim.Claim[0]++
	later.Index = 7
	for what, ev := range map[string]Event{
		"sealed, of another attempt":   FrameSealed{Frame: otherKey},
		"sealed, of another claim":     FrameSealed{Frame: otherClaim},
		"stored, of another attempt":   FrameStored{Frame: otherKey},
		"stored, of another claim":     FrameStored{Frame: otherClaim},
		"stored, not out":              FrameStored{Frame: later},
		"full, not out":                FrameFull{Frame: later},
		"failed, not out":              FrameFailed{Frame: later, Error: kvtransfer.Errorf(kvtransfer.DeviceFailed, "x")},
		"full, of another claim":       FrameFull{Frame: otherClaim},
		"failed, of another attempt":   FrameFailed{Frame: otherKey, Error: kvtransfer.Errorf(kvtransfer.DeviceFailed, "x")},
		"a manifest that is not out":   ManifestStored{Key: j.Reservation.Key, Claim: claim},
		"a manifest that cannot be":    ManifestFull{Key: otherKey.Key, Claim: claim},
		"a manifest that failed early": ManifestFailed{Key: j.Reservation.Key, Claim: claim, Error: kvtransfer.Errorf(kvtransfer.BusFailed, "x")},
	} {
		ignored := x.l.Stats().Ignored
		if fx := x.send(ev); len(fx) > 0 || x.l.Stats().Ignored != ignored+1 {
			t.Errorf("%s: %d effects, %d ignored", what, len(fx), x.l.Stats().Ignored-ignored)
		}
	}
	seals := x.l.attempts[0].seals
	x.send(FrameSealed{Frame: id})
	x.send(FrameStored{Frame: id})
	if x.l.Stats().FramesStored != 1 || x.l.attempts[0].seals != seals-1 {
		t.Errorf("%+v, %d seals of %d", x.l.Stats(), x.l.attempts[0].seals, seals)
	}
	for _, f := range frames[1:] {
		x.send(FrameSealed{Frame: f.Frame})
	}
	ignored := x.l.Stats().Ignored
	if x.send(FrameSealed{Frame: id}); x.l.Stats().Ignored != ignored+1 || x.l.halted {
		t.Errorf("sealed twice: %d ignored, halted %t", x.l.Stats().Ignored-ignored, x.l.halted)
	}
	if fx := x.send(FrameStored{Frame: id}); len(of[Halt](fx)) > 0 || x.l.Stats().FramesStored != 1 {
		t.Errorf("stored twice: %+v", x.l.Stats())
	}
}

// TestFailedFramesGiveTheirPagesBack: a frame that fails before it is sealed ends its hold, one that fails after has none, and decode
// is told once, with the reason.
func TestFailedFramesGiveTheirPagesBack(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		for _, code := range []kvtransfer.Code{kvtransfer.DeviceFailed, kvtransfer.BusFailed} {
			x := newLine(t, nil)
			x.claim(testJob(1, 2, nil))
			x.compute()
			f := of[SealAndSend](x.fx)[0].Frame
			if sealed {
				x.send(FrameSealed{Frame: f})
			}
			fx := x.send(FrameFailed{Frame: f, Sealed: sealed, Error: kvtransfer.Errorf(code, "read failed")})
			aborts := of[SendAbort](fx)
			if len(aborts) != 1 || aborts[0].Msg.Error.Code != code || len(of[Zero](fx)) != 1 || len(of[Halt](fx)) > 0 {
				t.Errorf("sealed %t, %s: %d aborts, %d zeroed", sealed, code, len(aborts), len(of[Zero](fx)))
			}
		}
	}
}

// TestDrainWaitsForTheStream: a worker has drained when nothing of it is with the stream any more.
func TestDrainWaitsForTheStream(t *testing.T) {
	x := newLine(t, nil)
	j := testJob(1, 2, nil)
	claim := x.claim(j)
	x.compute()
	f := of[SealAndSend](x.fx)[0].Frame
	x.send(FrameSealed{Frame: f})
	x.send(Drain{})
	x.send(Gone{From: testDecode, Msg: kvtransfer.Gone{Key: j.Reservation.Key, Claim: claim}})
	if fx := x.send(Zeroed{Pages: of[Zero](x.fx)[0].Pages}); len(of[Drained](fx)) > 0 {
		t.Error("drained with a frame on its way")
	}
	if fx := x.send(FrameStored{Frame: f}); len(of[Drained](fx)) != 1 {
		t.Error("not drained")
	}
}

// TestWaitingForPages: a worker on which a job waits for pages says that it has no slot, and asks for no other job.
func TestWaitingForPages(t *testing.T) {
	x := newLine(t, nil)
	x.claim(testJob(1, 22, nil)) // 6 of 8 pages
	if f := x.l.Figures(); f.SlotsFree != 1 || f.Running != 1 {
		t.Errorf("with one job: %+v", f)
	}
	before := len(of[PullJob](x.fx))
	x.send(testJob(2, 12, nil))
	if f := x.l.Figures(); f.SlotsFree != 0 || f.Running != 2 || len(of[PullJob](x.fx)) != before {
		t.Errorf("while a job waits: %+v, %d pulls", f, len(of[PullJob](x.fx))-before)
	}
	x = newLine(t, func(c *LoopConfig) { c.Slots = 4 })
	x.claim(testJob(1, 22, nil))
	before = len(of[PullJob](x.fx))
	x.send(testJob(2, 12, nil))
	if f := x.l.Figures(); f.SlotsFree != 0 || len(of[PullJob](x.fx)) != before {
		t.Errorf("four slots, a job waits: %+v, %d pulls", f, len(of[PullJob](x.fx))-before)
	}
	if x.send(Drain{}); x.l.Figures().SlotsFree != 0 || !x.l.Figures().Draining {
		t.Errorf("draining: %+v", x.l.Figures())
	}
}

// TestResultsThatCannotBe: results that do not fit their step stop the worker, once.
func TestResultsThatCannotBe(t *testing.T) {
	for what, ev := range map[string]ChunkDone{
		"none":                  {Step: 1},
		"too many":              {Step: 1, Hidden: make([][]float32, 3)},
		"no hidden vector":      {Step: 1, Hidden: make([][]float32, 1)},
		"a hidden vector short": {Step: 1, Hidden: [][]float32{{1}}},
	} {
		x := newLine(t, nil)
		x.claim(testJob(1, 4, nil))
		fx := x.send(ev)
		if halts := of[Halt](fx); len(halts) != 1 || halts[0].Error.Code != kvtransfer.Invariant || len(of[SealAndSend](fx)) > 0 {
			t.Errorf("%s: %d halts, %d frames", what, len(halts), len(of[SealAndSend](fx)))
		}
		if fx := x.l.Handle(Tick{Now: 5}); fx != nil {
			t.Errorf("%s: goes on with %v", what, fx)
		}
	}
	x := newLine(t, nil)
	x.claim(testJob(1, 4, nil))
	ignored := x.l.Stats().Ignored
	if fx := x.send(ChunkDone{Step: 2, Hidden: make([][]float32, 1)}); len(fx) > 0 || x.l.step == nil || x.l.Stats().Ignored != ignored+1 {
		t.Errorf("a step that is not out: %v", fx)
	}
	x.compute()
	ignored = x.l.Stats().Ignored
	if x.send(ChunkDone{Step: 1, Hidden: make([][]float32, 1)}); x.l.Stats().Ignored != ignored+1 {
		t.Error("a step that has reported reports again")
	}
}
