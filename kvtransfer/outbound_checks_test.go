package kvtransfer_test

import (
	"testing"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// Each condition of the sender's machine by itself.

// TestNewOutboundRefuses: rows that are not the cut's, and a reservation without a lease, start nothing.
func TestNewOutboundRefuses(t *testing.T) {
	cut := func(from, to int) kvtransfer.Cut {
		c, err := kvtransfer.NewCut(from, to, kvtransfer.CutShape{Layers: 2, RowBytes: 100, Dim: 4}, 416+16)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, c := range []struct {
		what  string
		n, c  int
		lease kvtransfer.Tick
		cut   kvtransfer.Cut
		code  kvtransfer.Code
	}{
		{"as reserved", 6, 0, outLease, cut(0, 6), kvtransfer.OK},
		{"some rows cached", 6, 2, outLease, cut(2, 6), kvtransfer.OK},
		{"cached below zero", 6, -1, outLease, kvtransfer.Cut{}, kvtransfer.HandoffCount},
		{"all cached", 6, 6, outLease, kvtransfer.Cut{}, kvtransfer.HandoffCount},
		{"nothing to send", 0, 0, outLease, kvtransfer.Cut{}, kvtransfer.HandoffCount},
		{"cut from another row", 6, 0, outLease, cut(1, 6), kvtransfer.HandoffCount},
		{"cut to another row", 6, 0, outLease, cut(0, 5), kvtransfer.HandoffCount},
		{"no lease", 6, 0, 0, cut(0, 6), kvtransfer.HandoffTime},
	} {
		_, err := kvtransfer.NewOutbound(kvtransfer.OutboundConfig{Cut: c.cut, Claim: outClaim, Reservation: kvtransfer.Reservation{
			Key: outKey, Decode: outPeer, N: c.n, C: c.c, PageSize: 4, Pages: make([]page.Slot, 2), Lease: c.lease}})
		if e, ok := err.(kvtransfer.Error); ok != (c.code != kvtransfer.OK) || e.Code != c.code {
			t.Errorf("%s: %v, want %q", c.what, err, c.code)
		}
	}
	for _, c := range []int{-1, 7} { // a cut that agrees with a count that cannot be
		r := kvtransfer.Reservation{Key: outKey, Decode: outPeer, N: c, C: c, PageSize: 4, Lease: outLease}
		if o, err := kvtransfer.NewOutbound(kvtransfer.OutboundConfig{Reservation: r}); err == nil {
			t.Errorf("rows [%d,%d): %s", c, c, o.Dump())
		}
	}
}

// TestOutboundTakesItsOwnAlone: the right claim of another attempt is not this one's, nor the right attempt under another claim.
func TestOutboundTakesItsOwnAlone(t *testing.T) {
	other := kvtransfer.Key{ID: outKey.ID, Attempt: 2}
	o := outboundIn(t, kvtransfer.OutboundClaiming)
	for _, err := range []error{
		o.Claimed(kvtransfer.Claimed{Key: other, Claim: outClaim}), o.Gone(kvtransfer.Gone{Key: other, Claim: outClaim}),
		o.Claimed(kvtransfer.Claimed{Key: outKey}), o.Gone(kvtransfer.Gone{Key: outKey}),
	} {
		if err == nil || o.State() != kvtransfer.OutboundClaiming {
			t.Errorf("%v in %s", err, o.State())
		}
	}
}

// TestOutboundClaimsAgain: every tenth of the lease, until the answer or for one lease.
func TestOutboundClaimsAgain(t *testing.T) {
	o := newOutbound(t)
	if o.Tick(outLease / 2) {
		t.Error("a claim is due again before the first")
	}
	o = outboundIn(t, kvtransfer.OutboundClaiming)
	if o.Tick(outLease/10-1) || o.State() != kvtransfer.OutboundClaiming {
		t.Errorf("too early: %s", o.Dump())
	}
	if !o.Tick(outLease / 10) {
		t.Error("not due after a tenth of the lease")
	}
	if o.Claim(); o.Tick(outLease/10 + 1) {
		t.Error("due at once after the second")
	}
	o.Heard(outPeer) // decode lives, and does not answer
	if o.Tick(outLease - 1); o.State() != kvtransfer.OutboundClaiming {
		t.Errorf("before the lease: %s", o.Dump())
	}
	if o.Tick(outLease); o.State() != kvtransfer.OutboundLost || o.Err().Code != kvtransfer.LeaseExpired {
		t.Errorf("after the lease: %s", o.Dump())
	}
	o = outboundIn(t, kvtransfer.OutboundSending)
	if o.Tick(outLease / 2) {
		t.Error("claimed again after the answer")
	}
}

// TestOutboundPings: while decode's lease runs, rows are left to send, and a sixth of the lease has passed since the last sign.
func TestOutboundPings(t *testing.T) {
	for s := kvtransfer.OutboundJobbed; s <= kvtransfer.OutboundLost; s++ {
		o := outboundIn(t, s)
		o.Heard(outPeer)
		o.Tick(outLease / 6)
		if got, want := o.WantsPing(), s == kvtransfer.OutboundSending; got != want {
			t.Errorf("in %s: %t", s, got)
		}
	}
	o := outboundIn(t, kvtransfer.OutboundSending)
	if o.Tick(outLease/6 - 1); o.WantsPing() {
		t.Error("before a sixth of the lease")
	}
	o.Tick(outLease / 6)
	if o.Pinged(); o.WantsPing() {
		t.Error("twice")
	}
	o = outboundIn(t, kvtransfer.OutboundSending)
	send(t, o, 3)
	if o.Tick(outLease / 2); o.WantsPing() {
		t.Error("with nothing left to send")
	}
}

// send computes all rows, and has so many of the frames stored.
func send(t *testing.T, o *kvtransfer.Outbound, frames int) {
	t.Helper()
	if err := o.Computed(6); err != nil {
		t.Fatal(err)
	}
	for range frames {
		h, ok := o.NextFrame()
		if !ok {
			t.Fatal("no frame")
		}
		if err := o.Stored(h.Index, [16]byte{byte(h.Index)}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOutboundStoredBeforeItLeft: an acknowledgement of a frame that was not handed out is a broken invariant.
func TestOutboundStoredBeforeItLeft(t *testing.T) {
	o := outboundIn(t, kvtransfer.OutboundSending)
	send(t, o, 1)
	if err := o.Stored(1, [16]byte{1}); err == nil {
		t.Error("frame 1 is stored, and was never handed out")
	}
}

// TestOutboundMovesAgain: once everything that was refused is stored the wait is over; while something is left, each frame that is
// stored gives the rest another lease.
func TestOutboundMovesAgain(t *testing.T) {
	o := outboundIn(t, kvtransfer.OutboundSending)
	if err := o.Computed(4); err != nil {
		t.Fatal(err)
	}
	o.NextFrame()
	o.NextFrame()
	if o.Full(0) != nil || o.Stored(1, [16]byte{1}) != nil {
		t.Fatal(o.Dump())
	}
	o.Tick(20 * kvtransfer.Millisecond)
	if h, ok := o.NextFrame(); !ok || h.Index != 0 {
		t.Fatalf("%+v %t", h, ok)
	}
	if o.Full(0) != nil { // the next wait is longer
		t.Fatal(o.Dump())
	}
	o.Tick(60 * kvtransfer.Millisecond)
	o.NextFrame()
	if o.Stored(0, [16]byte{}) != nil || o.Computed(6) != nil {
		t.Fatal(o.Dump())
	}
	if h, ok := o.NextFrame(); !ok || h.Index != 2 {
		t.Errorf("the wait goes on after everything was stored: %s", o.Dump())
	}
	for now := outLease / 2; now <= 2*outLease; now += outLease / 2 {
		o.Heard(outPeer)
		o.Tick(now)
	}
	if o.State() != kvtransfer.OutboundSending {
		t.Errorf("lost though nothing waits to be stored: %s", o.Dump())
	}

	o = outboundIn(t, kvtransfer.OutboundSending)
	if err := o.Computed(6); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		o.NextFrame()
	}
	if o.Full(0) != nil {
		t.Fatal(o.Dump())
	}
	at := func(now kvtransfer.Tick) kvtransfer.OutboundState {
		o.Heard(outPeer)
		o.Tick(now)
		return o.State()
	}
	at(outLease / 2)
	if o.Stored(1, [16]byte{1}) != nil {
		t.Fatal(o.Dump())
	}
	o.Heard(outPeer)
	if s := at(outLease + outLease/4); s != kvtransfer.OutboundSending {
		t.Errorf("a lease after the first refusal, half a one after a frame was stored: %s", o.Dump())
	}
	if s := at(outLease + outLease/2); s != kvtransfer.OutboundLost {
		t.Errorf("a lease after the last frame that was stored: %s", o.Dump())
	}
}

// TestOutboundManifestAgain: a manifest that found the stream full leaves again after its wait, and nothing else moves it.
func TestOutboundManifestAgain(t *testing.T) {
	o := outboundIn(t, kvtransfer.OutboundManifested)
	o.ManifestFull()
	before := o.Dump()
	if o.ManifestDue() {
		t.Error("due before the wait is over")
	}
	o.Tick(1)
	o.ManifestFull() // it was not out
	o.ManifestStored()
	if o.Dump() != before {
		t.Errorf("not out, and changed:\n%s\n%s", before, o.Dump())
	}
	o.Tick(20 * kvtransfer.Millisecond)
	o.ManifestFull() // it still is not
	if m, ok := o.Manifest([32]byte{1}); !ok || m.Frames != 3 {
		t.Errorf("not due after the wait: %s", o.Dump())
	}
	o.Tick(21 * kvtransfer.Millisecond)
	o.ManifestFull()
	if o.Tick(60 * kvtransfer.Millisecond); o.ManifestDue() {
		t.Error("the second wait is no longer than the first")
	}
	o.Tick(61 * kvtransfer.Millisecond)
	if !o.ManifestDue() {
		t.Error("not due after the second wait")
	}
	o = outboundIn(t, kvtransfer.OutboundSending)
	send(t, o, 3)
	if !o.ManifestDue() {
		t.Error("not due with every frame stored")
	}
	if o.Cancel(kvtransfer.Cancel{Key: outKey}) != nil || o.ManifestDue() {
		t.Error("due after the end")
	}
}
