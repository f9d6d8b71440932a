package replay

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
	"quire/model"
	"quire/tape"
)

// sent is one hand-off as prefill and decode would have had it, recorded.
type sent struct {
	t *testing.T
	m Machine
	a tape.Attempt
}

const sentPage = 8

func number32(v float32) []byte { return binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)) }

// opened gives the bytes of each frame of a prompt, and how they are cut.
func opened(t *testing.T, m Machine, prompt []int32) ([][]byte, kvtransfer.Cut, kvtransfer.CutShape, model.Info) {
	t.Helper()
	s, info, err := m.sequence(len(prompt), sentPage)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ledger.Own(s.owner); err != nil {
		t.Fatal(err)
	}
	v, _ := s.ledger.View(s.owner)
	g, err := s.ledger.Grant(s.owner, 0, len(prompt))
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.engine.Step([]model.Work{{View: v, Grant: g, Tokens: prompt, Hidden: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ledger.Settle(g); err != nil {
		t.Fatal(err)
	}
	if v, err = s.ledger.Grow(s.owner, len(prompt)); err != nil {
		t.Fatal(err)
	}
	shape := kvtransfer.CutShape{Layers: info.Layers, RowBytes: info.BytesPerRow / info.Layers, Dim: info.Dim}
	cut, err := kvtransfer.NewCut(0, len(prompt), shape, 6<<10)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for i := range cut.Frames() {
		h := cut.Header(i)
		b, err := s.engine.Read(v, model.Range{LayerFrom: h.LayerFrom, LayerTo: h.LayerTo, RowFrom: h.RowFrom, RowTo: h.RowTo}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if h.Hidden > 0 {
			for _, x := range res[0].Hidden {
				b = append(b, number32(x)...)
			}
		}
		out = append(out, b)
	}
	return out, cut, shape, info
}

// handoff records a good hand-off of a prompt whose pages hold what content gives; nil: the prompt itself.
func handoff(t *testing.T, m Machine, prompt, content []int32, change func(*kvtransfer.Manifest)) *sent {
	t.Helper()
	if content == nil {
		content = prompt
	}
	plain, cut, shape, info := opened(t, m, content)
	k := kvtransfer.Key{ID: kvtransfer.HandoffID{0xab}, Attempt: 1}
	d1, p1 := kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 2}, kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: "p1", Epoch: 3}
	r := kvtransfer.Reservation{Key: k, Decode: d1, Router: kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: "r1", Epoch: 1}, Tenant: "acme", N: len(prompt),
		MaxTokens: 8, PageSize: sentPage, Fingerprints: info.Fingerprints, Lease: 1000, DecodeKey: [32]byte{1}}
	for i := range kvtransfer.PagesFor(r.N+r.MaxTokens, sentPage) {
		r.Pages = append(r.Pages, page.Slot{Page: page.ID(i + 5), Gen: page.Gen(7)})
	}
	body, err := wire.Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	hash := seal.HashReservation(body)
	claim := kvtransfer.Claim{Key: k, Claim: kvtransfer.ClaimID{4}, ClaimKey: [32]byte{5}, Reservation: hash}
	claimBody, err := wire.Encode(claim)
	if err != nil {
		t.Fatal(err)
	}
	s := &sent{t: t, m: m}
	frameKey := [32]byte{9}
	s.a = tape.Attempt{Key: k, Tenant: "acme", Head: tape.Head{Model: m.Source.Name, Reservation: body, Claim: claimBody, Prefill: p1, FrameKey: frameKey[:],
		Shape: shape, Prompt: len(prompt), Tokens: prompt, Sampling: kvtransfer.Sampling{Temperature: 1.1, Seed: 3, Logprobs: -1, IgnoreEOS: true}, Deadline: 1e6}}
	var tags [][16]byte
	for i, b := range plain {
		h := cut.Header(i)
		h.Key, h.Claim = k, claim.Claim
		sealed := seal.SealFrame(frameKey, hash, h, b)
		tags = append(tags, seal.Tag(sealed))
		s.a.Parts = append(s.a.Parts, tape.Part{Number: uint32(i + 1), Frame: wire.EncodeFrame(kvtransfer.Frame{Header: h, Sealed: sealed})})
	}
	man := kvtransfer.Manifest{Key: k, Claim: claim.Claim, Reservation: hash, Tenant: "acme", N: r.N, Sent: r.N,
		Pages: kvtransfer.PagesFor(r.N, sentPage), Frames: len(plain), Digest: kvtransfer.DigestTags(tags)}
	if change != nil {
		change(&man)
	}
	manBody, err := wire.Encode(man)
	if err != nil {
		t.Fatal(err)
	}
	s.a.Parts = append(s.a.Parts, tape.Part{Number: uint32(len(plain) + 1), Manifest: &tape.Manifest{From: p1, Body: manBody}})
	s.a.End = &tape.End{Judged: true, OK: true, Finish: kvtransfer.FinishLength}
	return s
}

func (s *sent) run() Rerun {
	s.t.Helper()
	r, err := s.m.RunFrames(s.a)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func TestRunFrames(t *testing.T) {
	m := machine(t)
	prompt := m.Source.Tokenizer.Encode("The little bird sat on the wall and sang a song about the sea.", model.EncodeOptions{})
	take := tape.Take{Weights: m.Source.Fingerprint, Prompt: prompt, Sampling: kvtransfer.Sampling{Temperature: 1.1, Seed: 3, Logprobs: -1, IgnoreEOS: true}}
	_, choices := answered(t, m, &take, 8)

	s := handoff(t, m, prompt, nil, nil)
	if len(s.a.Parts) < 4 {
		t.Fatalf("%d parts", len(s.a.Parts))
	}
	s.a.End.Output, s.a.End.Choices = take.Output, choices
	// Decode alone gives what prefill and decode gave, the logits bit for bit.
	if r := s.run(); r.Verdict != Identical || r.From != FromFrames || r.Gate != admitted || r.Witness != "agreed" || r.Frames != len(s.a.Parts)-1 ||
		r.Output != 8 || r.LogitsKnown != 8 || r.LogitsAt != -1 {
		t.Errorf("%+v", r)
	}
	// In another order, and each twice.
	mixed := s.a
	mixed.Parts = slices.Concat(s.a.Parts, s.a.Parts)
	slices.Reverse(mixed.Parts)
	if r, err := m.RunFrames(mixed); err != nil || r.Verdict != Identical {
		t.Errorf("%+v, %v", r, err)
	}
	for i := range take.Output {
		end := *s.a.End
		end.Output = slices.Clone(take.Output)
		end.Output[i]++
		a := s.a
		a.End = &end
		r, err := m.RunFrames(a)
		if err != nil || r.Verdict != Diverges || r.At != i || r.Recorded != end.Output[i] || r.Got != take.Output[i] || r.Logits[0] == nil || r.Logits[1] == nil {
			t.Errorf("token %d: %+v, %v", i, r, err)
		}
	}
}

// What was refused then is refused now, by the same check; where it is not, that is the divergence.
func TestRunFramesRefused(t *testing.T) {
	m := machine(t)
	prompt := m.Source.Tokenizer.Encode("The little bird sat on the wall and sang.", model.EncodeOptions{})
	foreign := slices.Clone(prompt)
	foreign[2], foreign[3] = foreign[3], foreign[2]

	s := handoff(t, m, prompt, nil, func(m *kvtransfer.Manifest) { m.N, m.Sent, m.Pages = 1, 1, 1 })
	if r := s.run(); r.Verdict != Diverges || !strings.HasPrefix(r.Gate, "refused by token count: handoff_count") || r.GateRecorded != admitted {
		t.Errorf("a manifest of one token that was admitted: %+v", r)
	}
	want := s.run().Gate
	s.a.End = &tape.End{Judged: true, Check: "token count", Error: kvtransfer.Errorf(kvtransfer.HandoffCount, "%s", strings.TrimPrefix(want, "refused by token count: handoff_count: "))}
	if r := s.run(); r.Verdict != Identical || r.Gate != r.GateRecorded {
		t.Errorf("a manifest of one token: %+v", r)
	}

	s = handoff(t, m, prompt, foreign, nil)
	s.a.End = &tape.End{Judged: true, OK: true, Error: kvtransfer.Errorf(kvtransfer.HandoffWitness, "row 2")}
	if r := s.run(); r.Verdict != Identical || r.Gate != admitted || !strings.HasPrefix(r.Witness, "refused: ") {
		t.Errorf("foreign pages: %+v", r)
	}
	s.a.End = &tape.End{Judged: true, OK: true, Finish: kvtransfer.FinishLength, Output: []int32{1}}
	if r := s.run(); r.Verdict != Diverges || !strings.Contains(r.Why, "witness") {
		t.Errorf("foreign pages that were let through: %+v", r)
	}

	// A frame that was changed opens under no key: the gate never has all of them.
	s = handoff(t, m, prompt, nil, nil)
	f := slices.Clone(s.a.Parts[0].Frame)
	f[len(f)-20] ^= 1
	s.a.Parts[0].Frame = f
	if r := s.run(); r.Verdict != Diverges || r.Gate != "" {
		t.Errorf("a changed frame: %+v", r)
	}
}

// What cannot be computed here is said to be so.
func TestRunFramesNotReproducible(t *testing.T) {
	m := machine(t)
	prompt := m.Source.Tokenizer.Encode("A bird.", model.EncodeOptions{})
	base := handoff(t, m, prompt, nil, nil)
	change := func(fn func(*kvtransfer.Reservation)) tape.Attempt {
		a := base.a
		r, err := wire.Decode[kvtransfer.Reservation](a.Head.Reservation)
		if err != nil {
			t.Fatal(err)
		}
		fn(&r)
		if a.Head.Reservation, err = wire.Encode(r); err != nil {
			t.Fatal(err)
		}
		c, err := wire.Decode[kvtransfer.Claim](a.Head.Claim)
		if err != nil {
			t.Fatal(err)
		}
		c.Reservation = seal.HashReservation(a.Head.Reservation)
		if a.Head.Claim, err = wire.Encode(c); err != nil {
			t.Fatal(err)
		}
		return a
	}
	ended := func(e *tape.End) tape.Attempt { a := base.a; a.End = e; return a }
	for name, c := range map[string]struct {
		a   tape.Attempt
		why string
	}{
		"no end":        {ended(nil), "no end of this attempt"},
		"cancelled":     {ended(&tape.End{Error: kvtransfer.Errorf(kvtransfer.Cancelled, "by its tenant")}), ""},
		"late":          {ended(&tape.End{Judged: true, Check: "lease", Error: kvtransfer.Errorf(kvtransfer.LeaseExpired, "late")}), "time does not come again"},
		"other model":   {change(func(r *kvtransfer.Reservation) { r.Fingerprints.Model[0]++ }), "answered by"},
		"other layout":  {change(func(r *kvtransfer.Reservation) { r.Fingerprints.Layout[0]++ }), "--kv-type"},
		"other compute": {change(func(r *kvtransfer.Reservation) { r.Fingerprints.Compute[0]++ }), "arithmetic"},
	} {
		if name == "cancelled" {
			c.a.Parts = c.a.Parts[:0] // before anything came
			c.why = "before the gate was asked"
		}
		if r, err := m.RunFrames(c.a); err != nil || r.Verdict != NotReproducible || !strings.Contains(r.Why, c.why) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	for name, a := range map[string]tape.Attempt{
		"another's head": change(func(r *kvtransfer.Reservation) { r.Key.Attempt++ }),
		"fewer tokens":   change(func(r *kvtransfer.Reservation) { r.N++ }),
		"a huge page":    change(func(r *kvtransfer.Reservation) { r.PageSize = 1 << 20 }),
		"too long":       change(func(r *kvtransfer.Reservation) { r.MaxTokens = 1 << 30 }),
	} {
		if r, err := m.RunFrames(a); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
