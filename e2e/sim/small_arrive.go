package sim

import (
	"fmt"
	"slices"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// arrive lets a message arrive, or something that was begun end.
func (s *small) arrive(m smallMsg) error {
	if m.to == "prefill" {
		if m.life != s.lives[1] {
			return nil
		}
		return s.atPrefill(m)
	}
	if m.to == "decode" && m.life != s.lives[0] {
		return nil // another epoch's subject
	}
	var err error
	switch m.kind {
	case "claim":
		err = s.claim(m.x, smallWorker, kvtransfer.ClaimID{byte(m.x + 1)})
	case "frame", "foreign frame", "second frame":
		err = s.opened(m)
	case "manifest", "false manifest":
		err = s.manifestCame(m)
	case "abort":
		if in := s.in[m.x]; in != nil && in.Abort(smallWorker, kvtransfer.Abort{Key: smallKey(m.x), Claim: kvtransfer.ClaimID{byte(m.x + 1)}}, s.now) {
			err = s.ended(m.x)
		}
	case "copy", "copy of another":
		err = s.copied(m, kvtransfer.Error{})
	case "journal":
		err = s.journaled(m.x, kvtransfer.Error{})
	case "witness":
		err = s.witnessed(m.x)
	case "made":
		err = s.made(m)
	case "zero":
		for _, id := range m.pages {
			s.bytes[id] = [smallSize]int{}
		}
		err = s.ledger.Zeroed(m.pages)
	}
	if err == nil {
		err = s.verify()
	}
	return err
}

// fails ends something that was begun with a failure.
func (s *small) fails(m smallMsg) error {
	bad := kvtransfer.Errorf(kvtransfer.DeviceFailed, "broken")
	switch m.kind {
	case "journal":
		return s.journaled(m.x, kvtransfer.Errorf(kvtransfer.JournalDown, "no"))
	case "copy":
		return s.copied(m, bad)
	case "witness":
		s.steps[m.x] = false
		if err := s.ledger.Unhold(smallKey(m.x).Owner()); err != nil {
			return err
		}
	case "made":
		s.steps[m.x] = false
		if err := s.ledger.Settle(m.grant); err != nil {
			return err
		}
	}
	if s.in[m.x].State.Over() {
		return s.release()
	}
	s.in[m.x].End(bad)
	return s.ended(m.x)
}

func (s *small) atPrefill(m smallMsg) error {
	x, o := m.x, s.out[m.x]
	if m.kind == "job" {
		if o != nil || m.index != s.lives[0] {
			return nil // known, or of a decode that has started again
		}
		return s.job(x)
	}
	if o == nil {
		return nil
	}
	switch m.kind {
	case "claimed":
		_ = o.Claimed(kvtransfer.Claimed{Key: smallKey(x), Claim: kvtransfer.ClaimID{byte(x + 1)}, LeaseLeft: smallLease, DeadlineLeft: 10 * smallLease})
	case "gone":
		_ = o.Gone(kvtransfer.Gone{Key: smallKey(x), Claim: kvtransfer.ClaimID{byte(x + 1)}, Error: kvtransfer.Errorf(kvtransfer.NotFound, "gone")})
	case "cancel":
		_ = o.Cancel(kvtransfer.Cancel{Key: smallKey(x), Error: kvtransfer.Errorf(kvtransfer.Cancelled, "cancelled")})
	case "stored":
		return o.Stored(uint32(m.index), smallTag(x, m.index))
	}
	return nil
}

func (s *small) job(x int) error {
	cut, err := kvtransfer.NewCut(0, smallRows, smallShape, kvtransfer.CutMin+4)
	if err != nil || cut.Frames() != smallFrames {
		return fmt.Errorf("cut of %d frames: %w", cut.Frames(), err)
	}
	r := kvtransfer.Reservation{Key: smallKey(x), Decode: smallDecode, Tenant: "acme", N: smallRows, MaxTokens: 1, PageSize: smallSize, Lease: smallLease}
	if s.out[x], err = kvtransfer.NewOutbound(kvtransfer.OutboundConfig{Reservation: r, Hash: [32]byte{byte(x + 1)}, Claim: kvtransfer.ClaimID{byte(x + 1)},
		Cut: cut, Now: s.now}); err != nil {
		return err
	}
	s.out[x].Claim()
	s.send(smallMsg{to: "decode", kind: "claim", x: x, life: s.lives[0]})
	return nil
}

func (s *small) claim(x int, from kvtransfer.Peer, id kvtransfer.ClaimID) error {
	answer := kvtransfer.ClaimGone
	if in := s.in[x]; in != nil {
		answer, _ = in.Claim(from, kvtransfer.Claim{Key: smallKey(x), Claim: id, Reservation: [32]byte{byte(x + 1)}}, s.now)
	}
	reply := "claimed"
	switch answer {
	case kvtransfer.ClaimBound:
		if err := s.ledger.Fill(smallKey(x).Owner()); err != nil {
			return err
		}
	case kvtransfer.ClaimGone:
		reply = "gone"
	}
	if from == smallWorker {
		s.send(smallMsg{to: "prefill", kind: reply, x: x, life: s.lives[1]})
	}
	return s.verify()
}

// opened takes a frame and its opening together.
func (s *small) opened(m smallMsg) error {
	in := s.in[m.x]
	if in == nil {
		return nil
	}
	cut, err := kvtransfer.NewCut(0, smallRows, smallShape, kvtransfer.CutMin+4)
	if err != nil {
		return err
	}
	h := cut.Header(m.index)
	h.Key, h.Claim = smallKey(m.x), kvtransfer.ClaimID{byte(m.x + 1)}
	tag := smallTag(m.x, m.index)
	if m.kind == "second frame" {
		tag[3]++
	}
	if in.Frame(h, tag, s.now) != kvtransfer.FrameOpen {
		return nil
	}
	answer, _ := in.Opened(h, tag, kvtransfer.Opening{OK: !m.bad, Bytes: smallShape.FrameBytes(h), Hidden: make([]float32, h.Hidden)}, s.now)
	switch answer {
	case kvtransfer.OpenCopy:
		g, err := s.ledger.Grant(smallKey(m.x).Owner(), h.RowFrom, h.RowTo)
		if err != nil {
			return err
		}
		kind := "copy"
		if m.kind == "foreign frame" {
			kind = "copy of another"
		}
		s.send(smallMsg{kind: kind, x: m.x, index: m.index, grant: g})
	case kvtransfer.OpenCorrupt:
		return s.ended(m.x)
	}
	return nil
}

// copied writes the rows, gives the grant back and asks the gate.
func (s *small) copied(m smallMsg, bad kvtransfer.Error) error {
	in, g := s.in[m.x], m.grant
	if bad.IsZero() {
		for row := g.From(); row < g.To(); row++ {
			slot := &s.bytes[g.Slot(row/smallSize).Page][row%smallSize]
			if *slot != 0 {
				return fmt.Errorf("row %d of request %d goes where %d is", row, m.x, *slot)
			}
			*slot = m.x + 1
			if m.kind == "copy of another" {
				*slot = -1
			}
		}
	}
	over := in.State.Over()
	if err := s.ledger.Check(g); err != nil && !over {
		return err // its hold kept the pages
	}
	if err := s.ledger.Settle(g); err != nil {
		return err
	}
	in.Copied(uint32(m.index), bad, s.now)
	switch {
	case over:
		return s.release()
	case in.State.Over():
		return s.ended(m.x)
	}
	return s.judge(m.x)
}

func (s *small) manifestCame(m smallMsg) error {
	in := s.in[m.x]
	if in == nil {
		return nil
	}
	man := kvtransfer.Manifest{Key: smallKey(m.x), Claim: kvtransfer.ClaimID{byte(m.x + 1)}, Reservation: [32]byte{byte(m.x + 1)}, Tenant: "acme",
		N: smallRows, Sent: smallRows, Pages: 2, Frames: smallFrames, Digest: kvtransfer.DigestTags([][16]byte{smallTag(m.x, 0), smallTag(m.x, 1)})}
	if m.kind == "false manifest" {
		man.Frames, man.Digest = 1, kvtransfer.DigestTags([][16]byte{smallTag(m.x, 0)})
	}
	answer, _ := in.Manifest(smallWorker, man, s.judgement(m.x), s.now)
	switch answer {
	case kvtransfer.ManifestCorrupt:
		return s.ended(m.x)
	case kvtransfer.ManifestTaken:
		return s.judge(m.x)
	}
	return nil
}

func (s *small) judgement(x int) kvtransfer.Judge {
	_, slots := s.ledger.Reserved(smallKey(x).Owner())
	return kvtransfer.Judge{Decode: smallDecode, Pages: slots}
}

func (s *small) judge(x int) error {
	in := s.in[x]
	if !in.Ready() {
		return nil
	}
	if v := in.Gate(s.judgement(x), s.now); !v.OK {
		return s.ended(x)
	}
	s.send(smallMsg{kind: "journal", x: x})
	return nil
}

// journaled admits the pages; the witness reads first.
func (s *small) journaled(x int, bad kvtransfer.Error) error {
	in, o := s.in[x], smallKey(x).Owner()
	if in.State != kvtransfer.InJudging {
		return nil
	}
	if !in.Journaled(bad) {
		return s.ended(x)
	}
	if _, err := s.ledger.Admit(o, smallRows); err != nil {
		return err
	}
	in.Witness()
	if err := s.ledger.Hold(o); err != nil {
		return err
	}
	s.steps[x] = true
	s.send(smallMsg{kind: "witness", x: x})
	return nil
}

// witnessed compares both parts: foreign rows must be seen, own ones agree.
func (s *small) witnessed(x int) error {
	in, o := s.in[x], smallKey(x).Owner()
	s.steps[x] = false
	v, err := s.ledger.View(o)
	if err == nil {
		err = s.reads(x, v, smallRows, in.State == kvtransfer.InWitnessing && s.fault == "a lie in the bytes")
	}
	foreign := err != nil && s.fault == "a lie in the bytes"
	if err := s.ledger.Unhold(o); err != nil {
		return err
	}
	if in.State != kvtransfer.InWitnessing {
		return s.release()
	}
	if foreign {
		in.WitnessedRows(0)
		return s.ended(x)
	}
	if err != nil {
		return err
	}
	in.WitnessedRows(-1)
	in.WitnessedLast("")
	return nil
}

// reads checks what a kernel reads: rows of this request alone.
func (s *small) reads(x int, v page.View, rows int, quiet bool) error {
	for row := range rows {
		if got := s.bytes[v.Slot(row/smallSize).Page][row%smallSize]; got != x+1 {
			if quiet {
				return fmt.Errorf("row %d is foreign", row)
			}
			return fmt.Errorf("request %d reads row %d, which is %d's", x, row, got-1)
		}
	}
	return nil
}

// made takes the step's result: the only token, and the end.
func (s *small) made(m smallMsg) error {
	in, o := s.in[m.x], smallKey(m.x).Owner()
	s.steps[m.x] = false
	v, err := s.ledger.View(o)
	if err == nil {
		if err := s.reads(m.x, v, smallRows, false); err != nil {
			return err
		}
	}
	s.bytes[m.grant.Slot(smallRows/smallSize).Page][smallRows%smallSize] = m.x + 1
	if err := s.ledger.Settle(m.grant); err != nil {
		return err
	}
	if in.State.Over() {
		return s.release()
	}
	if _, err := s.ledger.Grow(o, smallRows+1); err != nil {
		return err
	}
	in.Finish()
	s.served[m.x] = true
	return s.ended(m.x)
}

// ended does what is due once when an attempt is over.
func (s *small) ended(x int) error {
	in, o := s.in[x], smallKey(x).Owner()
	if !in.State.Over() {
		return fmt.Errorf("request %d is %s", x, in.State)
	}
	if in.State == kvtransfer.InQuarantined {
		if err := s.ledger.Quarantine(o); err != nil {
			return err
		}
	}
	if err := s.ledger.Release(o); err != nil {
		return err
	}
	if in.Prefill != (kvtransfer.Peer{}) && !in.Err.IsZero() {
		kind := "gone"
		if in.Err.Code == kvtransfer.Cancelled {
			kind = "cancel"
		}
		s.send(smallMsg{to: "prefill", kind: kind, x: x, life: s.lives[1]})
	}
	return s.release()
}

// release has pages cleared that nobody holds any more.
func (s *small) release() error {
	if ids := s.ledger.TakeZeroing(); len(ids) > 0 {
		s.send(smallMsg{kind: "zero", pages: slices.Clone(ids)})
	}
	return s.verify()
}
