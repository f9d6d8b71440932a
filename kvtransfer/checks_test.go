package kvtransfer

import "testing"

// Each case is refused by one operand of one check: with that operand gone the check would pass it.
func TestGateOperands(t *testing.T) {
	header := func(change func(*FrameHeader)) func(*Evidence) {
		return func(e *Evidence) {
			e.Reservation.C, e.Manifest.C = 1, 1
			h := FrameHeader{LayerFrom: 1, LayerTo: 2, RowFrom: 2, RowTo: 4}
			change(&h)
			e.Frames = []ReceivedFrame{{Header: h}}
		}
	}
	cases := []struct {
		what  string
		check func(Evidence) Error
		spoil func(*Evidence)
	}{
		{"cached rows below zero", checkCached, func(e *Evidence) { e.Reservation.C, e.Manifest.C = -1, -1 }},
		{"every row cached", checkCached, func(e *Evidence) { e.Reservation.C, e.Manifest.C = 10, 10 }},
		{"page size zero", checkPages, func(e *Evidence) { e.Reservation.PageSize = 0 }},
		{"page size below zero", checkPages, func(e *Evidence) { e.Reservation.PageSize = -4 }},
		{"layer below zero", checkRange, header(func(h *FrameHeader) { h.LayerFrom = -1 })},
		{"no layer", checkRange, header(func(h *FrameHeader) { h.LayerFrom = 2 })},
		{"a layer too many", checkRange, header(func(h *FrameHeader) { h.LayerTo = 4 })},
		{"a row that was cached", checkRange, header(func(h *FrameHeader) { h.RowFrom = 0 })},
		{"no row", checkRange, header(func(h *FrameHeader) { h.RowFrom = 4 })},
		{"a row too many", checkRange, header(func(h *FrameHeader) { h.RowTo = 11 })},
		{"a short hidden vector", checkHidden, func(e *Evidence) { e.Frames[2].Header.Hidden = 3 }},
		{"a hidden vector that no frame brought", checkHidden, func(e *Evidence) { e.Frames[2].Header.Hidden = 0 }},
		{"a hidden vector with another layer", checkHidden, func(e *Evidence) { e.Frames[2].Header.LayerTo = 2 }},
		{"a hidden vector with another row", checkHidden, func(e *Evidence) { e.Frames[2].Header.RowTo = 9 }},
		{"a hidden vector received short", checkHidden, func(e *Evidence) { e.Hidden = 3 }},
	}
	for _, c := range cases {
		e := goodEvidence()
		if err := c.check(e); !err.IsZero() {
			t.Errorf("%s: good evidence: %v", c.what, err)
		}
		c.spoil(&e)
		if err := c.check(e); err.Code != HandoffCount {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// checkRange looks at the first frame alone.
func checkRange(e Evidence) Error {
	return checkHeaderRange(e.Frames[0].Header, e.Reservation, e.Shape)
}

// Time is looked at by whatever comes first, not only by the tick that notices it.
func TestInboundLateMessages(t *testing.T) {
	r := newRig()
	r.do(t, "claim")
	r.now = r.m.Lease.End
	if r.m.Progress(rigWorker, Progress{Key: rigKey, Claim: ClaimID{0xc1}}, r.now) {
		t.Error("progress after the lease ended counts")
	}
	if a := r.m.Frame(rigHeader(0), rigTag(0), r.now); a != FrameRefuse {
		t.Errorf("frame after the lease ended: %d", a)
	}
	if a, _ := r.m.Opened(rigHeader(0), rigTag(0), opening(rigHeader(0)), r.now); a != OpenCount {
		t.Errorf("opened after the lease ended: %d", a)
	}
	if a, _ := r.m.Manifest(rigWorker, rigManifest(), r.j, r.now); a != ManifestRefuse {
		t.Errorf("manifest after the lease ended: %d", a)
	}
	if r.m.Ignored != 4 || r.m.State != InFilling || r.m.Lease.End != r.now {
		t.Errorf("%s", r.m.Dump())
	}
}

// Messages that name another attempt change nothing, whoever signed them.
func TestInboundOtherAttempt(t *testing.T) {
	r := newRig()
	r.do(t, "claim")
	h := rigHeader(0)
	h.Key.Attempt++
	if a := r.m.Frame(h, rigTag(0), r.now); a != FrameRefuse {
		t.Errorf("frame: %d", a)
	}
	if a, _ := r.m.Opened(h, rigTag(0), opening(h), r.now); a != OpenCount {
		t.Errorf("opened: %d", a)
	}
	if len(r.m.Frames()) != 0 || r.m.Ignored != 2 {
		t.Errorf("%s", r.m.Dump())
	}
}

// A worker's abort never reads as success, and cannot stop decode.
func TestAbortCodes(t *testing.T) {
	for _, given := range []Error{{}, {Code: Invariant, Detail: "x"}, {Code: "no such code", Detail: "x"}} {
		r := newRig()
		r.do(t, "claim")
		if !r.m.Abort(rigWorker, Abort{Key: rigKey, Claim: ClaimID{0xc1}, Error: given}, r.now) {
			t.Errorf("%v: does not count", given)
		}
		if r.m.Err.Code != PrefillFailed || r.m.State != InRefused || r.m.Err.Detail != given.Detail {
			t.Errorf("%v: %s", given, r.m.Dump())
		}
	}
}

// What opened is looked at before it may be copied, whatever its header said before.
func TestInboundOpenedOperands(t *testing.T) {
	start := func() *rig {
		r := newRig()
		r.do(t, "claim")
		return r
	}
	r := start()
	h := rigHeader(0)
	h.Claim = ClaimID{0xc2}
	if a, _ := r.m.Opened(h, rigTag(0), opening(h), r.now); a != OpenCount || r.m.Ignored != 1 {
		t.Errorf("of another claim: %d, %s", a, r.m.Dump())
	}
	if a := r.m.Frame(rigHeader(0), [16]byte{}, r.now); a != FrameOpen {
		t.Errorf("a frame that never came, with a tag of zeros: %d", a)
	}
	for what, spoil := range map[string]func(*FrameHeader, *Opening){
		"short hidden vector": func(h *FrameHeader, o *Opening) {
			h.Hidden = 3
			*o = opening(*h)
		},
		"vector shorter than its header": func(_ *FrameHeader, o *Opening) { o.Hidden = o.Hidden[:3] },
	} {
		r, h := start(), rigHeader(1)
		o := opening(h)
		spoil(&h, &o)
		if a, err := r.m.Opened(h, rigTag(1), o, r.now); a != OpenCorrupt || err.Class() != ClassCorrupt || r.m.State != InQuarantined {
			t.Errorf("%s: %d %v, %s", what, a, err, r.m.Dump())
		}
	}
}

// Copies report once each, whatever happened meanwhile.
func TestInboundCopied(t *testing.T) {
	copying := func() *rig {
		r := newRig()
		r.do(t, "claim", "manifest", "opened 0")
		if a, err := r.m.Opened(rigHeader(1), rigTag(1), opening(rigHeader(1)), r.now); a != OpenCopy {
			t.Fatal(a, err)
		}
		return r
	}
	r := copying()
	if r.m.Ready() {
		t.Error("ready while a frame is being copied")
	}
	r.m.Copied(1, Errorf(DeviceFailed, "no copy"), r.now)
	if r.m.State != InRefused || r.m.Err.Code != DeviceFailed || r.m.Copying() != 0 {
		t.Errorf("copy refused: %s", r.m.Dump())
	}
	r = copying()
	r.do(t, "cancel")
	r.m.Copied(1, Error{}, r.now)
	if f := r.m.Frames(); len(f) != 2 || f[1].Copied || r.m.Copying() != 0 {
		t.Errorf("copied after the end: %s", r.m.Dump())
	}
	r = copying()
	r.m.Copied(7, Error{}, r.now)
	if len(r.m.Frames()) != 2 || r.m.Copying() != 0 {
		t.Errorf("copied a frame that never opened: %s", r.m.Dump())
	}
}

// Nothing is compared before the pages were admitted, and once.
func TestWitnessOnce(t *testing.T) {
	for _, s := range rigStates {
		r := newRig()
		r.do(t, s.way...)
		before := r.m.Dump()
		if ok := r.m.Witness(); ok != (s.state == InAdmitted) || !ok && r.m.Dump() != before {
			t.Errorf("%s: %t, %s", s.name, ok, r.m.Dump())
		}
	}
}
