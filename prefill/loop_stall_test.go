package prefill

import (
	"slices"
	"testing"

	"quire/kvtransfer"
)

// hang lets so much time pass in a service's ticks and gives the effects; the decode is alive.
func hang(l *Loop, now *kvtransfer.Tick, d kvtransfer.Tick) (fx []Effect) {
	for range d / (20 * kvtransfer.Millisecond) {
		*now += 20 * kvtransfer.Millisecond
		fx = append(fx, l.Handle(DecodeHeartbeat{From: testDecode})...)
		fx = append(fx, l.Handle(Tick{Now: *now})...)
	}
	return fx
}

func aborts(fx []Effect) (codes []kvtransfer.Code) {
	for _, f := range fx {
		if a, ok := f.(SendAbort); ok {
			codes = append(codes, a.Msg.Error.Code)
		}
	}
	return codes
}

func asks(fx []Effect) bool {
	return slices.ContainsFunc(fx, func(f Effect) bool { _, ok := f.(PullJob); return ok })
}

// stuck is a loop with two hand-offs, one of them in a step that does not come back.
func stuck(t *testing.T) (l *Loop, now *kvtransfer.Tick) {
	t.Helper()
	cfg := testConfig()
	cfg.Slots = 4
	l, now = New(cfg), new(kvtransfer.Tick)
	l.Handle(Tick{})
	for id := byte(1); id <= 2; id++ {
		j := testJob(id, 8, nil)
		var claim kvtransfer.ClaimID
		for _, fx := range l.Handle(j) {
			if c, ok := fx.(SendClaim); ok {
				claim = c.Msg.Claim
			}
		}
		l.Handle(Claimed{From: testDecode, Msg: kvtransfer.Claimed{Key: j.Reservation.Key, Claim: claim, LeaseLeft: testLease, DeadlineLeft: 600 * kvtransfer.Second}})
	}
	return l, now
}

// A device that hangs: what waits for it is given back before decode's lease ends, nothing new is taken, no heartbeat goes out; and all
// is well again when it answers.
func TestStalledDevice(t *testing.T) {
	l, now := stuck(t)
	if fx := hang(l, now, testLease*2/3-kvtransfer.Second/2); len(aborts(fx)) > 0 || l.Figures().Silent {
		t.Fatalf("too early: %v", aborts(fx))
	}
	*now += 5 * kvtransfer.Second // the process was stopped, and goes on
	l.Handle(DecodeHeartbeat{From: testDecode})
	if l.Stalled() {
		t.Fatal("a pause of the process counts as the device's")
	}
	fx := hang(l, now, kvtransfer.Second)
	if got := aborts(fx); !slices.Equal(got, []kvtransfer.Code{kvtransfer.DeviceFailed, kvtransfer.DeviceFailed}) || !l.Figures().Silent {
		t.Fatalf("aborts %v, silent %t", got, l.Figures().Silent)
	}
	// A job that was asked for before comes now: it is given back at once, and no other is asked for.
	if fx := l.Handle(testJob(3, 5, nil)); !slices.Equal(aborts(fx), []kvtransfer.Code{kvtransfer.DeviceFailed}) || asks(fx) {
		t.Errorf("a job came: %v, asks %t", aborts(fx), asks(fx))
	}
	if fx := hang(l, now, kvtransfer.Second); asks(fx) {
		t.Error("a worker whose device hangs asks for jobs")
	}
	fx = l.Handle(ChunkDone{Step: 1, Hidden: make([][]float32, 1)})
	if !asks(fx) || l.Figures().Silent {
		t.Errorf("the device answers: asks %t, silent %t", asks(fx), l.Figures().Silent)
	}
	if err := l.Verify(); err != nil {
		t.Error(err)
	}
}

// A device that goes on hanging ends the process.
func TestStalledDeviceHalts(t *testing.T) {
	l, now := stuck(t)
	halts := 0
	for _, f := range hang(l, now, kvtransfer.StallStop*testLease) {
		if h, ok := f.(Halt); ok && h.Error.Code == kvtransfer.DeviceFailed {
			halts++
		}
	}
	if halts != 1 || !l.Figures().Draining {
		t.Errorf("%d halts, draining %t", halts, l.Figures().Draining)
	}
}

// Whatever stops the process, its decodes hear of it first: nobody waits for a lease.
func TestHaltTellsDecodes(t *testing.T) {
	l, now := stuck(t)
	var fx []Effect
	for range zeroTries {
		fx = append(fx, l.Handle(Zeroed{Err: kvtransfer.Errorf(kvtransfer.DeviceFailed, "no such pages")})...)
	}
	told := aborts(fx)
	if !slices.Equal(told, []kvtransfer.Code{kvtransfer.WorkerLost, kvtransfer.WorkerLost}) {
		t.Fatalf("decodes were told %v", told)
	}
	last := func(is func(Effect) bool) int {
		i := len(fx) - 1
		for ; i >= 0 && !is(fx[i]); i-- {
		}
		return i
	}
	halt := last(func(f Effect) bool { _, ok := f.(Halt); return ok })
	if abort := last(func(f Effect) bool { _, ok := f.(SendAbort); return ok }); halt < abort {
		t.Errorf("halt is effect %d, the last abort %d", halt, abort)
	}
	if fx := hang(l, now, kvtransfer.Second); len(fx) > 0 {
		t.Errorf("after a halt: %v", fx)
	}
}
