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
	if x.l.Stats().FramesFull != 0 {
		t.Errorf("%+v", x.l.Stats())
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

// TestFailedFrameAlone: what fails gives back what it holds itself, not what other frames of its hand-off hold.
func TestFailedFrameAlone(t *testing.T) {
	x := newLine(t, nil)
	x.claim(testJob(1, 4, nil))
	x.compute()
	frames := of[SealAndSend](x.fx)
	failed := kvtransfer.Errorf(kvtransfer.DeviceFailed, "read failed")
	x.send(FrameSealed{Frame: frames[0].Frame})
	if fx := x.send(FrameFailed{Frame: frames[0].Frame, Sealed: true, Error: failed}); len(of[Zero](fx)) > 0 || x.l.attempts[0].seals != 1 {
		t.Errorf("pages leave while a frame is read from them: %d seals", x.l.attempts[0].seals)
	}
	if fx := x.send(FrameSealed{Frame: frames[1].Frame}); len(of[Zero](fx)) != 1 {
		t.Error("pages stay though nobody reads them")
	}
	if fx := x.send(FrameFailed{Frame: frames[1].Frame, Sealed: true, Error: failed}); len(fx) > 0 {
		t.Errorf("a frame of a hand-off that is gone: %v", fx)
	}
	x = newLine(t, nil)
	x.claim(testJob(1, 2, nil))
	x.compute()
	f := of[SealAndSend](x.fx)[0].Frame
	x.send(FrameSealed{Frame: f})
	if fx := x.send(FrameFailed{Frame: f, Error: failed}); len(of[Halt](fx)) > 0 { // sealed, and says that it was not
		t.Error("halted")
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
	x = newLine(t, nil)
	if x.send(Drain{}); x.l.Figures().SlotsFree != 0 || !x.l.Figures().Draining {
		t.Errorf("draining with nothing to do: %+v", x.l.Figures())
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
		x.claim(testJob(2, 4, nil)) // has rows to compute next
		fx := x.send(ev)
		if halts := of[Halt](fx); len(halts) != 1 || halts[0].Error.Code != kvtransfer.Invariant || len(of[SealAndSend](fx))+len(of[Compute](fx)) > 0 {
			t.Errorf("%s: %d halts, %d frames, %d steps", what, len(halts), len(of[SealAndSend](fx)), len(of[Compute](fx)))
		}
		if fx := x.l.Handle(Tick{Now: 5}); fx != nil {
			t.Errorf("%s: goes on with %v", what, fx)
		}
	}
	x := newLine(t, func(c *LoopConfig) { c.Slots, c.Chunk = 3, 8 })
	x.claim(testJob(1, 4, nil))
	x.claim(testJob(2, 4, nil))
	x.claim(testJob(3, 4, nil))
	x.send(ChunkDone{Step: 1, Hidden: [][]float32{make([]float32, 4)}})
	if fx := x.send(ChunkDone{Step: 2, Hidden: make([][]float32, 2)}); len(of[Halt](fx)) != 1 {
		t.Errorf("two results that cannot be: %d halts", len(of[Halt](fx)))
	}
	x = newLine(t, nil)
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

// TestStepsKeepTheShortestLease: a step is no longer than a third of the shortest lease of those that have rows to compute.
func TestStepsKeepTheShortestLease(t *testing.T) {
	lease := func(d kvtransfer.Tick) func(*Job) { return func(j *Job) { j.Reservation.Lease = d } }
	for _, c := range []struct {
		leases []kvtransfer.Tick
		tokens int
	}{
		{[]kvtransfer.Tick{10 * kvtransfer.Second}, 24},
		{[]kvtransfer.Tick{10 * kvtransfer.Second, kvtransfer.Second}, 16},
		{[]kvtransfer.Tick{kvtransfer.Second, 10 * kvtransfer.Second}, 16},
	} {
		x := newLine(t, func(c *LoopConfig) { c.Slots, c.Chunk, c.Info.Pages = 3, 64, 32 })
		x.send(testJob(1, 1, nil)) // its step is out meanwhile
		for i, d := range c.leases {
			x.send(testJob(byte(i+2), 24, lease(d)))
		}
		x.l.perToken = 20 * kvtransfer.Millisecond
		steps := of[Compute](x.send(ChunkDone{Step: 1, Hidden: [][]float32{make([]float32, testInfo.Dim)}}))
		n := 0
		for _, w := range steps[0].Work {
			n += len(w.Tokens)
		}
		if len(steps) != 1 || n != c.tokens {
			t.Errorf("leases %v: %d tokens, want %d", c.leases, n, c.tokens)
		}
	}
}

// TestFreedSaysWhen: the journal's record of pages that are free says since when they were not in use.
func TestFreedSaysWhen(t *testing.T) {
	x := newLine(t, nil)
	ids := []byte{1, 2}
	for _, id := range ids {
		x.claim(testJob(id, 4, nil))
	}
	for x.l.step != nil {
		x.compute()
	}
	var at []kvtransfer.Tick
	for i, id := range ids {
		x.now += kvtransfer.Second
		x.send(Tick{Now: x.now})
		j := testJob(id, 4, nil)
		for _, f := range of[SealAndSend](x.fx) {
			if f.Frame.Key == j.Reservation.Key {
				x.send(FrameSealed{Frame: f.Frame})
			}
		}
		x.send(Cancel{From: testDecode, Msg: kvtransfer.Cancel{Key: j.Reservation.Key}})
		if at = append(at, x.now); len(of[Zero](x.fx)) != i+1 {
			t.Fatalf("%d releases after %d cancels", len(of[Zero](x.fx)), i+1)
		}
	}
	x.send(Tick{Now: x.now + kvtransfer.Second})
	zeros := of[Zero](x.fx)
	for i := range zeros {
		z := zeros[len(zeros)-1-i] // the younger first
		freed := of[Freed](x.send(Zeroed{Pages: z.Pages}))
		if len(freed) != 1 || freed[0].Released != at[len(zeros)-1-i] {
			t.Errorf("%+v, want released at %d", freed, at[len(zeros)-1-i])
		}
	}
}

// TestJobsOfDecodesThatAreGone: a reservation of an earlier life of a decode is not worked on; what is no decode's says nothing.
func TestJobsOfDecodesThatAreGone(t *testing.T) {
	peer := func(role kvtransfer.Role, epoch uint64) DecodeHeartbeat {
		return DecodeHeartbeat{From: kvtransfer.Peer{Role: role, ID: "d1", Epoch: epoch}}
	}
	for _, c := range []struct {
		what  string
		beats []DecodeHeartbeat
		spoil func(*Job)
		taken bool
	}{
		{"nothing heard", nil, nil, true},
		{"its own life", []DecodeHeartbeat{peer(kvtransfer.RoleDecode, 7)}, nil, true},
		{"an earlier life", []DecodeHeartbeat{peer(kvtransfer.RoleDecode, 6)}, nil, true},
		{"a later life", []DecodeHeartbeat{peer(kvtransfer.RoleDecode, 7), peer(kvtransfer.RoleDecode, 8)}, nil, false},
		{"a later life, then an echo of this one", []DecodeHeartbeat{peer(kvtransfer.RoleDecode, 8), peer(kvtransfer.RoleDecode, 7)}, nil, false},
		{"a router of that name", []DecodeHeartbeat{peer(kvtransfer.RoleRouter, 8)}, nil, true},
		{"no life at all", nil, func(j *Job) { j.Reservation.Decode.Epoch = 0 }, false},
	} {
		x := newLine(t, nil)
		for _, b := range c.beats {
			x.send(b)
		}
		if claims := of[SendClaim](x.send(testJob(1, 4, c.spoil))); (len(claims) == 1) != c.taken {
			t.Errorf("%s: %d claims", c.what, len(claims))
		}
	}
	x := newLine(t, nil)
	ignored := x.l.Stats().Ignored
	if x.send(peer(kvtransfer.RoleRouter, 8)); x.l.Stats().Ignored != ignored+1 {
		t.Error("a router's heartbeat counts")
	}
}

// TestWordsAfterTheEnd: what decode says of an attempt that has ended here, and whose rows are still with the engine, is counted.
func TestWordsAfterTheEnd(t *testing.T) {
	x := newLine(t, nil)
	j := testJob(1, 8, nil)
	claim := x.claim(j)
	end := Cancel{From: testDecode, Msg: kvtransfer.Cancel{Key: j.Reservation.Key}}
	x.send(end)
	for what, ev := range map[string]Event{
		"cancel": end, "gone": Gone{From: testDecode, Msg: kvtransfer.Gone{Key: j.Reservation.Key, Claim: claim}},
		"claimed": Claimed{From: testDecode, Msg: kvtransfer.Claimed{Key: j.Reservation.Key, Claim: claim}},
	} {
		ignored := x.l.Stats().Ignored
		if fx := x.send(ev); len(fx) > 0 || x.l.Stats().Ignored != ignored+1 {
			t.Errorf("%s: %v, %d ignored", what, fx, x.l.Stats().Ignored-ignored)
		}
	}
}

// TestAskedCounts: both kinds of open requests count.
func TestAskedCounts(t *testing.T) {
	for a, want := range map[asked]int{{}: 0, {shared: true}: 1, {direct: true}: 1, {shared: true, direct: true}: 2} {
		if a.n() != want {
			t.Errorf("%+v: %d", a, a.n())
		}
	}
}
