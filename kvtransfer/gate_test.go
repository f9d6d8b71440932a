package kvtransfer

import (
	"strings"
	"testing"

	"quire/kvtransfer/page"
)

// goodEvidence is a hand-off of 10 tokens in 3 layers and 3 frames that passes every check.
func goodEvidence() Evidence {
	key := Key{ID: HandoffID{1}, Attempt: 2}
	claim := Claim{Key: key, Claim: ClaimID{7}, ClaimKey: [32]byte{8}, Reservation: [32]byte{9}}
	prints := Fingerprints{Model: [32]byte{1}, Layout: [32]byte{2}, Compute: [32]byte{3}}
	e := Evidence{
		Now: 100, Decode: Peer{RoleDecode, "d1", 5}, Engine: prints, Shape: CutShape{Layers: 3, RowBytes: 16, Dim: 4},
		Pages: []page.Slot{{Page: 3, Gen: 1}, {Page: 4, Gen: 2}, {Page: 5, Gen: 3}, {Page: 6, Gen: 4}}, Tokens: 10,
		Lease: Lease{Duration: 1000, End: 200, Deadline: 9000},
		Reservation: Reservation{
			Key: key, Decode: Peer{RoleDecode, "d1", 5}, Router: Peer{RoleRouter, "r1", 1}, Tenant: "acme", N: 10, MaxTokens: 5, PageSize: 4,
			Pages:        []page.Slot{{Page: 3, Gen: 1}, {Page: 4, Gen: 2}, {Page: 5, Gen: 3}, {Page: 6, Gen: 4}},
			Fingerprints: prints, Lease: 1000,
		},
		Hash: [32]byte{9}, Claim: claim, Prefill: Peer{RolePrefill, "p1", 3}, Sender: Peer{RolePrefill, "p1", 3}, Hidden: 4,
	}
	e.Frames = []ReceivedFrame{
		frameOf(e, 0, [4]int{0, 2, 0, 10}, 0), frameOf(e, 1, [4]int{2, 3, 0, 6}, 0), frameOf(e, 2, [4]int{2, 3, 6, 10}, 4),
	}
	e.Manifest = Manifest{Key: key, Claim: ClaimID{7}, Reservation: [32]byte{9}, Tenant: "acme", N: 10, Sent: 10, Pages: 3, Frames: 3}
	e.redigest()
	return e
}

// frameOf is a received frame of layers [at[0], at[1]) and rows [at[2], at[3]).
func frameOf(e Evidence, index int, at [4]int, hidden int) ReceivedFrame {
	h := FrameHeader{
		Key: e.Reservation.Key, Claim: e.Claim.Claim, Index: uint32(index),
		LayerFrom: at[0], LayerTo: at[1], RowFrom: at[2], RowTo: at[3], Hidden: hidden,
	}
	return ReceivedFrame{Header: h, Tag: [16]byte{byte(index + 1)}, Bytes: e.Shape.FrameBytes(h), Opened: true, Copied: true}
}

func (e *Evidence) redigest() {
	var tags [][16]byte
	for _, f := range e.Frames {
		tags = append(tags, f.Tag)
	}
	e.Manifest.Digest = DigestTags(tags)
}

// gateCases holds, for each check, evidence that fails it and passes every other.
var gateCases = []struct {
	check  string
	what   string
	spoil  func(*Evidence)
	code   Code
	detail string // part of the error: both numbers
}{
	{"token count", "one-token manifest for a longer reservation", func(e *Evidence) { e.Manifest.N, e.Manifest.Sent = 1, 1 }, HandoffCount, "reserved 10, manifest 1"},
	{"token count", "one token too many", func(e *Evidence) { e.Manifest.N, e.Manifest.Sent = 11, 11 }, HandoffCount, "reserved 10, manifest 11"},
	{"token count", "another prompt length than at the edge", func(e *Evidence) { e.Tokens = 9 }, HandoffCount, "prompt 9, reserved 10"},
	{"cached count", "prefill left a row to a cache", func(e *Evidence) { e.Manifest.C, e.Manifest.Sent = 1, 9 }, HandoffCount, "reserved 0, manifest 1"},
	{"sent count", "a row less", func(e *Evidence) { e.Manifest.Sent = 9 }, HandoffCount, "expected 10 (10 - 0), manifest 9"},
	{"page count", "manifest names a page less", func(e *Evidence) { e.Manifest.Pages = 2 }, HandoffCount, "take 3, manifest 2"},
	{"page count", "a page less was reserved", func(e *Evidence) { e.Reservation.Pages, e.Pages = e.Reservation.Pages[:3], e.Pages[:3] }, HandoffCount, "15 tokens take 4, reserved 3"},
	{"hand-off", "another hand-off's manifest", func(e *Evidence) { e.Manifest.Key.ID = HandoffID{2} }, HandoffIdentity, "reserved 01"},
	{"attempt", "an earlier attempt's manifest", func(e *Evidence) { e.Manifest.Key.Attempt = 1 }, HandoffIdentity, "reserved 2, manifest 1"},
	{"claim", "another claim's manifest", func(e *Evidence) { e.Manifest.Claim = ClaimID{8} }, HandoffIdentity, "claim: bound 07"},
	{"claim's reservation", "claimed under another reservation", func(e *Evidence) { e.Claim.Reservation = [32]byte{1} }, HandoffIdentity, "claim 01"},
	{"manifest's reservation", "stated under another reservation", func(e *Evidence) { e.Manifest.Reservation = [32]byte{1} }, HandoffIdentity, "manifest 01"},
	{"tenant", "another tenant's manifest", func(e *Evidence) { e.Manifest.Tenant = "bank" }, HandoffIdentity, `reserved "acme", manifest "bank"`},
	{"sender", "signed by another life of the worker", func(e *Evidence) { e.Sender.Epoch = 4 }, HandoffIdentity, "p1@3, manifest by prefill/p1@4"},
	{"model fingerprint", "another model", func(e *Evidence) { e.Engine.Model[0]++ }, HandoffIdentity, "model fingerprint"},
	{"layout fingerprint", "another layout", func(e *Evidence) { e.Engine.Layout[0]++ }, HandoffIdentity, "layout fingerprint"},
	{"compute fingerprint", "another compute variant", func(e *Evidence) { e.Engine.Compute[0]++ }, HandoffIdentity, "compute fingerprint"},
	{"frame count", "a frame more than stated", func(e *Evidence) { e.Manifest.Frames = 2 }, HandoffCount, "manifest 2, received 3"},
	{"frame count", "a gap in the indices", func(e *Evidence) { e.Frames[2].Header.Index = 3 }, HandoffCount, "frame 2 is missing"},
	{"frame identity", "a frame of another claim", func(e *Evidence) { e.Frames[1].Header.Claim = ClaimID{8} }, HandoffIdentity, "frame 1"},
	{"frame identity", "a frame of another hand-off", func(e *Evidence) { e.Frames[1].Header.Key.ID = HandoffID{2} }, HandoffIdentity, "frame 1"},
	{"rows exactly once", "a row never came", func(e *Evidence) { e.Frames[1] = frameOf(*e, 1, [4]int{2, 3, 0, 5}, 0) }, HandoffCount, "layer 2 row 5 of 10 never came"},
	{"rows exactly once", "a row came twice", func(e *Evidence) { e.Frames[1] = frameOf(*e, 1, [4]int{2, 3, 0, 7}, 0) }, HandoffCount, "layer 2 row 6 came twice"},
	{"rows exactly once", "a layer too many", func(e *Evidence) { e.Frames[0] = frameOf(*e, 0, [4]int{0, 4, 0, 10}, 0) }, HandoffCount, "layers [0, 4) of 3"},
	{"rows exactly once", "a row beyond the prompt", func(e *Evidence) { e.Frames[0] = frameOf(*e, 0, [4]int{0, 2, 0, 11}, 0) }, HandoffCount, "rows [0, 11) of [0, 10)"},
	{"hidden vector", "it never came", func(e *Evidence) { e.Hidden = 0 }, HandoffCount, "came 1 times, length 0 of 4"},
	{"hidden vector", "it came twice", func(e *Evidence) { e.Frames[0] = frameOf(*e, 0, [4]int{0, 2, 0, 10}, 4) }, HandoffCount, "4 of 4 with layer 2"},
	{"hidden vector", "it came with another row", func(e *Evidence) {
		e.Frames[1], e.Frames[2] = frameOf(*e, 1, [4]int{2, 3, 0, 6}, 4), frameOf(*e, 2, [4]int{2, 3, 6, 10}, 0)
	}, HandoffCount, "with layer 3 row 6"},
	{"frames opened", "a frame did not open", func(e *Evidence) { e.Frames[1].Opened = false }, HandoffContent, "frame 1: did not open"},
	{"frames copied", "a frame is not in the pages", func(e *Evidence) { e.Frames[1].Copied = false }, HandoffContent, "frame 1: is not"},
	{"frame bytes", "a short frame", func(e *Evidence) { e.Frames[1].Bytes-- }, HandoffContent, "expected 96 bytes, opened 95"},
	{"digest", "another set of frames", func(e *Evidence) { e.Manifest.Digest[0]++ }, HandoffContent, "digest"},
	{"digest", "two frames swapped", func(e *Evidence) {
		e.Frames[0].Tag, e.Frames[1].Tag = e.Frames[1].Tag, e.Frames[0].Tag
	}, HandoffContent, "digest"},
	{"lease", "the lease has ended", func(e *Evidence) { e.Now = 200 }, HandoffTime, "lease: ended 0 us ago"},
	{"lease", "the deadline has passed", func(e *Evidence) { e.Now, e.Lease.End, e.Lease.Deadline = 100, 100, 100 }, HandoffTime, "deadline"},
	{"epoch", "another life of decode", func(e *Evidence) { e.Decode.Epoch = 6 }, HandoffTime, "d1@5, judged by decode/d1@6"},
	{"page generations", "a page was reused", func(e *Evidence) { e.Pages[1].Gen++ }, HandoffTime, "generation 2, the ledger has page 4 generation 3"},
	{"page generations", "two pages swapped", func(e *Evidence) { e.Pages[0], e.Pages[1] = e.Pages[1], e.Pages[0] }, HandoffTime, "position 0"},
	{"page generations", "the pages are gone", func(e *Evidence) { e.Pages = nil }, HandoffTime, "reserved 4 pages, the ledger has 0"},
}

func TestGateAdmitsAWholeHandoff(t *testing.T) {
	for _, c := range Checks() {
		if err := c.Run(goodEvidence()); !err.IsZero() {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
	if v := Gate(goodEvidence()); !v.OK || v.Check != "" || !v.Error.IsZero() {
		t.Errorf("verdict %+v", v)
	}
}

// Each check must be needed: something fails it alone, and with the check gone the gate would say yes.
func TestGateEachCheckAlone(t *testing.T) {
	covered := map[string]bool{"frame bound": true} // TestGateEarly
	for _, c := range gateCases {
		t.Run(c.check+"/"+c.what, func(t *testing.T) {
			covered[c.check] = true
			e := goodEvidence()
			e.Pages = append([]page.Slot(nil), e.Pages...)
			c.spoil(&e)
			if c.check != "digest" {
				digest := e.Manifest.Digest
				e.redigest()
				if digest != e.Manifest.Digest {
					t.Fatal("the case changes the digest too")
				}
			}
			for _, k := range Checks() {
				err := k.Run(e)
				if (k.Name == c.check) == err.IsZero() {
					t.Errorf("check %q: %v", k.Name, err)
				}
			}
			v := Gate(e)
			if v.OK || v.Check != c.check || v.Error.Code != c.code || !strings.Contains(v.Error.Detail, c.detail) {
				t.Errorf("verdict %+v, want %q %s with %q", v, c.check, c.code, c.detail)
			}
			if v.Error.Class() != ClassCorrupt {
				t.Errorf("class %s", v.Error.Class())
			}
		})
	}
	for _, c := range Checks() {
		if !covered[c.Name] {
			t.Errorf("no case for %q", c.Name)
		}
	}
}

func TestGateEarly(t *testing.T) {
	e := goodEvidence()
	e.Frames, e.Hidden = nil, 0
	if v := GateEarly(e); !v.OK {
		t.Errorf("a manifest ahead of its frames: %+v", v)
	}
	for _, frames := range []int{0, -1, 31} {
		e.Manifest.Frames = frames
		if v := GateEarly(e); v.OK || v.Check != "frame bound" || v.Error.Code != HandoffCount {
			t.Errorf("frames %d: %+v", frames, v)
		}
	}
	e.Manifest.Frames, e.Manifest.N, e.Manifest.Sent = 1, 1, 1
	if v := GateEarly(e); v.OK || v.Error.Detail != "token count: reserved 10, manifest 1" {
		t.Errorf("one token: %+v", v)
	}
}

func TestGateTakesOneToken(t *testing.T) {
	e := goodEvidence()
	e.Tokens, e.Reservation.N, e.Reservation.MaxTokens = 1, 1, 12
	e.Manifest.N, e.Manifest.Sent, e.Manifest.Pages, e.Manifest.Frames = 1, 1, 1, 1
	e.Frames = []ReceivedFrame{frameOf(e, 0, [4]int{0, 3, 0, 1}, 4)}
	e.redigest()
	if v := Gate(e); !v.OK {
		t.Errorf("%+v", v)
	}
}
