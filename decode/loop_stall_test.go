package decode

import (
	"strings"
	"testing"

	"quire/kvtransfer"
)

// wait lets so much time pass in steps of a service's ticks, with the router alive.
func (w *world) wait(d kvtransfer.Tick) {
	w.t.Helper()
	for range d / (50 * kvtransfer.Millisecond) {
		w.send(RouterAlive{Peer: router})
		w.tick(50 * kvtransfer.Millisecond)
	}
}

// A device that hangs makes no error: the worker falls silent after a lease, promises nothing, and comes back with the device.
func TestStalledDevice(t *testing.T) {
	for _, kind := range []string{"step", "witness", "copyframe", "zero"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t, nil)
			w.hold[kind] = true
			if w.handoff(key(1), prompt(6, 1), 4); kind == "zero" {
				w.ack(key(1))
			}
			w.wait(defaultLease - kvtransfer.Second)
			if w.l.Stalled() {
				t.Fatalf("stalled before a lease has passed:\n%s", w.l.Dump())
			}
			w.tick(50 * kvtransfer.Second) // the process was stopped, and goes on
			w.send(RouterAlive{Peer: router})
			if w.l.Stalled() {
				t.Fatal("a pause of the process counts as the device's")
			}
			w.wait(kvtransfer.Second)
			if !w.l.Stalled() {
				t.Fatalf("not stalled after a lease:\n%s", w.l.Dump())
			}
			before := len(w.beats)
			w.wait(5 * kvtransfer.Second)
			if n := len(w.beats); n != before {
				t.Errorf("%d heartbeats of a worker whose device hangs", n-before)
			}
			if w.reserve(key(2), prompt(3, 2), 2) || w.refusals[key(2)].Code != kvtransfer.DeviceFailed {
				t.Errorf("a promise, or %v", w.refusals[key(2)])
			}
			w.release(kind)
			w.wait(kvtransfer.Second)
			if w.l.Stalled() || len(w.beats) == before {
				t.Errorf("the device answers, stalled %t, %d heartbeats", w.l.Stalled(), len(w.beats)-before)
			}
			if !w.reserve(key(3), prompt(3, 2), 2) {
				t.Errorf("afterwards: %v", w.refusals[key(3)])
			}
		})
	}
}

// A device that goes on hanging ends the process, so that whoever starts it starts it again.
func TestStalledDeviceStops(t *testing.T) {
	w := newWorld(t, nil)
	w.hold["step"] = true
	w.handoff(key(1), prompt(6, 1), 4)
	w.wait(kvtransfer.StallStop*defaultLease - kvtransfer.Second)
	if !w.stopped.IsZero() {
		t.Fatalf("stopped early: %v", w.stopped)
	}
	w.wait(kvtransfer.Second)
	if w.stopped.Code != kvtransfer.DeviceFailed || !strings.Contains(w.stopped.Detail, "30000 ms") {
		t.Errorf("stopped with %v", w.stopped)
	}
}
