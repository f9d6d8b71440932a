package kvtransfer_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

var (
	outKey   = kvtransfer.Key{ID: kvtransfer.HandoffID{0xaa}, Attempt: 1}
	outClaim = kvtransfer.ClaimID{0xcc}
	outPeer  = kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 7}
)

const outLease = 10 * kvtransfer.Second

// newOutbound has 6 rows of 2 layers in 3 frames of 2 rows.
func newOutbound(t rapid.TB) *kvtransfer.Outbound {
	t.Helper()
	cut, err := kvtransfer.NewCut(0, 6, kvtransfer.CutShape{Layers: 2, RowBytes: 100, Dim: 4}, 416+16)
	if err != nil {
		t.Fatal(err)
	}
	o, err := kvtransfer.NewOutbound(kvtransfer.OutboundConfig{
		Reservation: kvtransfer.Reservation{Key: outKey, Decode: outPeer, Tenant: "acme", N: 6, PageSize: 4,
			Pages: make([]page.Slot, 2), Lease: outLease},
		Hash: [32]byte{0x44}, Claim: outClaim, Cut: cut})
	if err != nil {
		t.Fatal(err)
	}
	if _, n := o.Progress(); n != 3 {
		t.Fatalf("%d frames, want 3", n)
	}
	return o
}

// outboundIn brings an attempt into a state by the shortest way.
func outboundIn(t rapid.TB, s kvtransfer.OutboundState) *kvtransfer.Outbound {
	o := newOutbound(t)
	why := kvtransfer.Errorf(kvtransfer.Cancelled, "why")
	step := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if s == kvtransfer.OutboundJobbed {
		return o
	}
	o.Claim()
	switch s {
	case kvtransfer.OutboundGone:
		step(o.Gone(kvtransfer.Gone{Key: outKey, Claim: outClaim, Error: why}))
	case kvtransfer.OutboundCancelled:
		step(o.Cancel(kvtransfer.Cancel{Key: outKey, Error: why}))
	case kvtransfer.OutboundAborted:
		o.Abort(why)
	case kvtransfer.OutboundLost:
		o.Tick(outLease)
	case kvtransfer.OutboundSending, kvtransfer.OutboundManifested, kvtransfer.OutboundDone:
		step(o.Claimed(kvtransfer.Claimed{Key: outKey, Claim: outClaim, DeadlineLeft: 60 * kvtransfer.Second}))
		if s == kvtransfer.OutboundSending {
			break
		}
		step(o.Computed(6))
		for h, ok := o.NextFrame(); ok; h, ok = o.NextFrame() {
			step(o.Stored(h.Index, [16]byte{byte(h.Index)}))
		}
		o.Manifest([32]byte{1})
		if s == kvtransfer.OutboundDone {
			o.ManifestStored()
		}
	}
	if o.State() != s {
		t.Fatalf("state %s, want %s", o.State(), s)
	}
	return o
}

// TestOutboundEveryStateAndMessage says what each message does in each state. "-" leaves the state as it is, "!" refuses.
func TestOutboundEveryStateAndMessage(t *testing.T) {
	why := kvtransfer.Errorf(kvtransfer.Cancelled, "why")
	refused := func(err error) string {
		if err != nil {
			return "!"
		}
		return ""
	}
	messages := []struct {
		name string
		do   func(o *kvtransfer.Outbound) string
	}{
		{"claim", func(o *kvtransfer.Outbound) string { o.Claim(); return "" }},
		{"claimed", func(o *kvtransfer.Outbound) string {
			return refused(o.Claimed(kvtransfer.Claimed{Key: outKey, Claim: outClaim}))
		}},
		{"foreign claimed", func(o *kvtransfer.Outbound) string {
			return refused(o.Claimed(kvtransfer.Claimed{Key: outKey, Claim: kvtransfer.ClaimID{1}}))
		}},
		{"gone", func(o *kvtransfer.Outbound) string {
			return refused(o.Gone(kvtransfer.Gone{Key: outKey, Claim: outClaim, Error: why}))
		}},
		{"foreign gone", func(o *kvtransfer.Outbound) string {
			return refused(o.Gone(kvtransfer.Gone{Key: outKey, Claim: kvtransfer.ClaimID{1}, Error: why}))
		}},
		{"cancel", func(o *kvtransfer.Outbound) string {
			return refused(o.Cancel(kvtransfer.Cancel{Key: outKey, Error: why}))
		}},
		{"foreign cancel", func(o *kvtransfer.Outbound) string {
			return refused(o.Cancel(kvtransfer.Cancel{Key: kvtransfer.Key{ID: outKey.ID, Attempt: 2}, Error: why}))
		}},
		{"abort", func(o *kvtransfer.Outbound) string {
			if _, ok := o.Abort(why); !ok {
				return "!"
			}
			return ""
		}},
		{"manifest stored", func(o *kvtransfer.Outbound) string { o.ManifestStored(); return "" }},
		{"manifest full", func(o *kvtransfer.Outbound) string { o.ManifestFull(); return "" }},
		{"a lease of silence", func(o *kvtransfer.Outbound) string { o.Tick(outLease); return "" }},
		{"deadline", func(o *kvtransfer.Outbound) string {
			for now := kvtransfer.Tick(0); now <= 60*kvtransfer.Second; now += kvtransfer.Second {
				o.Heard(outPeer)
				o.Tick(now)
			}
			return ""
		}},
	}
	const table = `
message             jobbed     claiming   sending    manifested done gone cancelled aborted lost
claim               claiming   -          -          -          -    -    -         -       -
claimed             !          sending    -          -          !    !    !         !       !
foreign claimed     !          !          !          !          !    !    !         !       !
gone                gone       gone       gone       gone       -    -    -         -       -
foreign gone        !          !          !          !          !    !    !         !       !
cancel              cancelled  cancelled  cancelled  cancelled  -    -    -         -       -
foreign cancel      !          !          !          !          !    !    !         !       !
abort               aborted    aborted    aborted    aborted    !    !    !         !       !
manifest stored     -          -          -          done       -    -    -         -       -
manifest full       -          -          -          -          -    -    -         -       -
a lease of silence  lost       lost       lost       lost       -    -    -         -       -
deadline            -          lost       cancelled  cancelled  -    -    -         -       -
`
	want := map[string][]string{}
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[1:] {
		want[strings.TrimSpace(line[:20])] = strings.Fields(line[20:])
	}
	for _, m := range messages {
		for s := kvtransfer.OutboundJobbed; s <= kvtransfer.OutboundLost; s++ {
			o := outboundIn(t, s)
			before := o.Dump()
			got := m.do(o)
			if got == "" && o.State() == s {
				got = "-"
			} else if got == "" {
				got = o.State().String()
			}
			if got != want[m.name][s] {
				t.Errorf("%s in %s: %s, want %s", m.name, s, got, want[m.name][s])
			}
			if got == "!" && o.Dump() != before {
				t.Errorf("%s in %s: refused, yet changed:\n%s\n%s", m.name, s, before, o.Dump())
			}
			if _, ok := o.NextFrame(); ok && s != kvtransfer.OutboundSending {
				t.Errorf("%s in %s: a frame leaves", m.name, s)
			}
		}
	}
}

// TestOutboundManifest says what a manifest states, to the token.
func TestOutboundManifest(t *testing.T) {
	o := outboundIn(t, kvtransfer.OutboundSending)
	if _, ok := o.Manifest([32]byte{}); ok {
		t.Fatal("a manifest before the frames")
	}
	if err := o.Computed(6); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		h, ok := o.NextFrame()
		if !ok || int(h.Index) != i || h.Key != outKey || h.Claim != outClaim {
			t.Fatalf("frame %d: %+v, %t", i, h, ok)
		}
	}
	for i := range uint32(3) {
		if _, ok := o.Manifest([32]byte{}); ok {
			t.Fatalf("a manifest after %d of 3 frames", i)
		}
		if err := o.Stored(i, [16]byte{byte(i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	m, ok := o.Manifest([32]byte{9})
	want := kvtransfer.Manifest{Key: outKey, Claim: outClaim, Reservation: [32]byte{0x44}, Tenant: "acme", N: 6, Sent: 6, Pages: 2, Frames: 3, Digest: [32]byte{9}}
	if !ok || m != want {
		t.Errorf("manifest %+v, want %+v", m, want)
	}
	if _, again := o.Manifest([32]byte{9}); again {
		t.Error("the manifest comes twice")
	}
	if got := fmt.Sprint(o.Tags()[1][0], o.Tags()[2][0]); got != "2 3" {
		t.Errorf("tags in order of index: %s", got)
	}
}

// TestOutboundBacksOff says how a full stream is met: the same frame again after a growing wait, and Lost after a lease.
func TestOutboundBacksOff(t *testing.T) {
	o := outboundIn(t, kvtransfer.OutboundSending)
	if err := o.Computed(6); err != nil {
		t.Fatal(err)
	}
	var waits []kvtransfer.Tick
	now, last := kvtransfer.Tick(0), kvtransfer.Tick(0)
	for ; !o.State().Ended(); now += kvtransfer.Millisecond {
		o.Heard(outPeer)
		o.Tick(now)
		h, ok := o.NextFrame()
		if !ok {
			continue
		}
		if h.Index != 0 {
			t.Fatalf("frame %d after frame 0 found the stream full", h.Index)
		}
		waits, last = append(waits, (now-last)/kvtransfer.Millisecond), now
		if err := o.Full(0); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(waits[:8]); got != "[0 20 40 80 160 320 500 500]" {
		t.Errorf("waits %s", got)
	}
	if o.State() != kvtransfer.OutboundLost || o.Err().Code != kvtransfer.BusFailed || now < outLease {
		t.Errorf("after %d ms: %s", now/kvtransfer.Millisecond, o.Dump())
	}
}

// TestOutboundOneTagPerIndex says that an index stored under two tags is a broken invariant, and the same again is none.
func TestOutboundOneTagPerIndex(t *testing.T) {
	o := outboundIn(t, kvtransfer.OutboundManifested)
	if err := o.Stored(1, [16]byte{1}); err != nil {
		t.Error(err)
	}
	for _, err := range []error{o.Stored(1, [16]byte{2}), o.Stored(3, [16]byte{}), o.Full(3), o.Computed(5), o.Computed(7)} {
		if e, ok := err.(kvtransfer.Error); !ok || e.Code != kvtransfer.Invariant {
			t.Errorf("%v, want %s", err, kvtransfer.Invariant)
		}
	}
}

// TestOutboundAnyOrder plays random events: whatever happens, no frame leaves before Claimed or beyond the computed rows, no
// frame is out twice, and a manifest states every frame.
func TestOutboundAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := newOutbound(t)
		out := map[uint32]bool{}
		stored := map[uint32]bool{}
		claimed, now := false, kvtransfer.Tick(0)
		pick := func() (uint32, bool) {
			for i := range uint32(3) {
				if out[i] && rapid.Bool().Draw(t, "this") {
					return i, true
				}
			}
			return 0, false
		}
		t.Repeat(map[string]func(*rapid.T){
			"claim": func(*rapid.T) { o.Claim() },
			"claimed": func(*rapid.T) {
				claimed = o.Claimed(kvtransfer.Claimed{Key: outKey, Claim: outClaim}) == nil || claimed
			},
			"compute": func(t *rapid.T) { _ = o.Computed(min(6, o.Rows()+rapid.IntRange(0, 3).Draw(t, "rows"))) },
			"frame": func(t *rapid.T) {
				h, ok := o.NextFrame()
				if !ok {
					return
				}
				if !claimed || h.RowTo > o.Rows() || out[h.Index] || stored[h.Index] {
					t.Fatalf("frame %+v, claimed %t, rows %d, out %v, stored %v", h, claimed, o.Rows(), out, stored)
				}
				out[h.Index] = true
			},
			"stored": func(t *rapid.T) {
				if i, ok := pick(); ok {
					if err := o.Stored(i, [16]byte{byte(i)}); err != nil {
						t.Fatal(err)
					}
					delete(out, i)
					stored[i] = true
				}
			},
			"full": func(t *rapid.T) {
				if i, ok := pick(); ok {
					if err := o.Full(i); err != nil {
						t.Fatal(err)
					}
					delete(out, i)
				}
			},
			"tick": func(t *rapid.T) {
				now += kvtransfer.Tick(rapid.IntRange(0, 200).Draw(t, "ms")) * kvtransfer.Millisecond
				o.Heard(outPeer)
				o.Tick(now)
			},
			"manifest": func(t *rapid.T) {
				if m, ok := o.Manifest([32]byte{}); ok && (len(stored) != 3 || m.Frames != 3 || m.C+m.Sent != m.N) {
					t.Fatalf("manifest %+v with %d frames stored", m, len(stored))
				}
			},
			"": func(t *rapid.T) {
				if n, _ := o.Progress(); n != len(stored) {
					t.Fatalf("%d stored, want %d", n, len(stored))
				}
				if c := o.Clone(); c.Dump() != o.Dump() {
					t.Fatalf("clone differs:\n%s\n%s", c.Dump(), o.Dump())
				}
			},
		})
	})
}

// TestOutboundFullAtTickZero keeps a fixed fault: at tick 0, a frame stored after two were refused made the refused ones be
// forgotten.
func TestOutboundFullAtTickZero(t *testing.T) {
	o := outboundIn(t, kvtransfer.OutboundSending)
	if err := o.Computed(6); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		o.NextFrame()
	}
	for _, err := range []error{o.Full(0), o.Full(1), o.Stored(2, [16]byte{2})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	o.Tick(kvtransfer.Second)
	if h, ok := o.NextFrame(); !ok || h.Index != 0 {
		t.Errorf("frame %+v, %t; want frame 0 again", h, ok)
	}
}
