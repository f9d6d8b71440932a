package decode

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
	"quire/model/modeltest"
)

// taping is a world whose tapes are held: w.held has them in order.
func taping(t *testing.T) *world {
	w := newWorld(t, func(c *LoopConfig, _ *modeltest.Options) { c.Taped = map[string]bool{"acme": true} })
	w.hold["tape"] = true
	return w
}

// tapes are the parts handed on so far.
func (w *world) tapes() (out []Tape) {
	for _, e := range w.held {
		if t, ok := e.(Tape); ok {
			out = append(out, t)
		}
	}
	return out
}

// names are the parts' kinds, in order; parts that are not numbered in order fail the test.
func (w *world) names(k kvtransfer.Key) string {
	w.t.Helper()
	var s []string
	for _, t := range w.tapes() {
		if t.Key != k {
			continue
		}
		if int(t.Number) != len(s) || t.Tenant != "acme" {
			w.t.Errorf("part %d of %s has number %d", len(s), t.Tenant, t.Number)
		}
		switch {
		case t.Head != nil:
			s = append(s, "head")
		case t.Frame != nil:
			s = append(s, fmt.Sprintf("frame%d", t.Frame.Header.Index))
		case t.Manifest != nil:
			s = append(s, "manifest")
		case t.End != nil:
			s = append(s, "end")
		}
	}
	return strings.Join(s, " ")
}

// Everything that came of a taped tenant's hand-off is handed on, in order and as it came.
func TestTapeHandsOnWhatCame(t *testing.T) {
	w := taping(t)
	k, tokens := key(1), prompt(6, 1)
	w.handoff(k, tokens, 3)
	if got := w.names(k); got != "head frame0 frame1 frame2 frame3 frame4 frame5 manifest end" {
		t.Fatal(got)
	}
	ids, _, _ := w.answer(k)
	all, j := w.tapes(), w.jobs[k]
	head, end := all[0].Head, all[len(all)-1].End
	if seal.HashReservation(head.Reservation) != j.hash || head.FrameKey != j.key || head.Prefill != worker || head.Prompt != 6 || !slices.Equal(head.Tokens, tokens) {
		t.Errorf("head %+v", head)
	}
	if c, err := wire.Decode[kvtransfer.Claim](head.Claim); err != nil || c != j.claim {
		t.Errorf("claim %+v, %v", c, err)
	}
	for i, f := range j.frames {
		if got := all[1+i].Frame; got.Header != f.Header || !slices.Equal(got.Sealed, f.Sealed) {
			t.Errorf("frame %d is not as sent", i)
		}
	}
	if !end.Judged || !end.Verdict.OK || end.Finish != kvtransfer.FinishLength || !slices.Equal(end.Output, ids) || len(ids) != 3 {
		t.Errorf("end %+v, answer %v", end, ids)
	}
	// Not a word of another tenant, nor of one whose hand-off nobody claimed.
	before := len(w.tapes())
	m := w.reserveMessage(key(2), "umbra", tokens, 3)
	if !w.ask(m) {
		t.Fatal(w.refusals)
	}
	w.claim(m.Key)
	w.frames(m.Key)
	w.manifest(m.Key)
	w.reserve(key(3), tokens, 3)
	w.send(CancelCame{Delivery: w.deliver(), From: router, M: kvtransfer.Cancel{Key: key(3), Error: kvtransfer.Errorf(kvtransfer.Cancelled, "x")}})
	if n := len(w.tapes()); n != before {
		t.Errorf("%d parts more", n-before)
	}
}

// What the gate refuses is handed on with its verdict; what comes once more is not.
func TestTapeOfARefusal(t *testing.T) {
	w := taping(t)
	k := key(1)
	w.reserve(k, prompt(6, 1), 3)
	w.claim(k)
	j := w.jobs[k]
	for range 2 {
		f := j.frames[0]
		w.send(FrameCame{Delivery: w.deliver(), Header: f.Header, Tag: seal.Tag(f.Sealed), Sealed: f.Sealed})
	}
	w.send(ManifestCame{Delivery: w.deliver(), From: worker, M: kvtransfer.Manifest{Key: k, Claim: j.claim.Claim, Reservation: j.hash, Tenant: "acme", N: 1, Sent: 1, Pages: 1, Frames: 1}})
	if got := w.names(k); got != "head frame0 manifest end" {
		t.Fatal(got)
	}
	all := w.tapes()
	if end := all[len(all)-1].End; !end.Judged || end.Verdict.OK || end.Verdict.Check != "token count" || end.Error.Code != kvtransfer.HandoffCount || len(end.Output) != 0 {
		t.Errorf("%+v", end)
	}
}
