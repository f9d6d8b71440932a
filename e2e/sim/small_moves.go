package sim

import (
	"fmt"
	"slices"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// smallMove is one thing that can happen in a state.
type smallMove struct {
	name string
	do   func(*small) error
}

// moves lists what can happen now: what each side begins by itself, what arrives, and the fault.
func (s *small) moves() []smallMove {
	var out []smallMove
	add := func(name string, do func(*small) error) { out = append(out, smallMove{name, do}) }
	for x := range 2 {
		n := s.ledger.PagesFor(smallRows + 1) // the requests are alike: 0 asks first
		if !s.asked[x] && (x == 0 || s.asked[0]) && s.ledger.Counts().Free >= n {
			add(fmt.Sprintf("reserve %d", x), func(s *small) error { return s.reserve(x) })
		}
		if o := s.out[x]; o != nil && !o.State().Ended() {
			if o.Rows() < smallRows {
				add(fmt.Sprintf("compute %d", x), func(s *small) error { return s.out[x].Computed(min(s.out[x].Rows()+smallSize, smallRows)) })
			}
			if _, ok := o.Clone().NextFrame(); ok {
				add(fmt.Sprintf("frame %d", x), func(s *small) error { return s.frame(x) })
			}
			if o.ManifestDue() {
				add(fmt.Sprintf("manifest %d", x), func(s *small) error { return s.manifest(x) })
			}
		}
		if m := s.in[x]; m != nil && m.State == kvtransfer.InRunning && !s.steps[x] {
			add(fmt.Sprintf("step %d", x), func(s *small) error { return s.step(x) })
		}
	}
	for i, m := range s.way {
		add("arrives: "+m.text, func(s *small) error {
			s.way = slices.Delete(s.way, i, i+1)
			return s.arrive(m)
		})
	}
	if s.left {
		out = append(out, s.faults()...)
	}
	if len(out) == 0 && s.waits() {
		add("a lease passes", (*small).pass)
	}
	return out
}

// waits says that only time can end what is open.
func (s *small) waits() bool {
	for x := range 2 {
		if s.in[x] != nil && !s.in[x].State.Over() || s.out[x] != nil && !s.out[x].State().Ended() {
			return true
		}
	}
	return false
}

func (s *small) pass() error {
	s.now += smallLease
	for x := range 2 {
		if s.out[x] != nil {
			s.out[x].Tick(s.now)
		}
		if m := s.in[x]; m != nil {
			if err := m.Late(s.now); !err.IsZero() {
				m.End(err)
				if err := s.ended(x); err != nil {
					return err
				}
			}
		}
	}
	return s.verify()
}

// faults lists the ways in which the fault can happen now.
func (s *small) faults() []smallMove {
	var out []smallMove
	add := func(name string, do func(*small) error) {
		out = append(out, smallMove{name, func(s *small) error {
			s.left = false
			return do(s)
		}})
	}
	for i, m := range s.way {
		travels := m.to == "decode" || m.to == "prefill"
		switch {
		case travels && s.fault == "a message repeated":
			add("repeat "+m.text, func(s *small) error { return s.arrive(m) })
		case travels && s.fault == "a message lost":
			add("lose "+m.text, func(s *small) error { s.way = slices.Delete(s.way, i, i+1); return nil })
		case m.kind == "frame" && s.fault == "a byte changed":
			add("change "+m.text, func(s *small) error { return s.change(i, func(m *smallMsg) { m.bad = true }) })
		case m.kind == "journal" && s.fault == "journal fails", m.kind == "copy" && s.fault == "copy fails",
			(m.kind == "witness" || m.kind == "made") && s.fault == "device fails":
			add("fails: "+m.text, func(s *small) error {
				s.way = slices.Delete(s.way, i, i+1)
				return s.fails(m)
			})
		case m.kind == "frame" && s.fault == "a lie in the bytes":
			add("lie "+m.text, func(s *small) error { return s.change(i, func(m *smallMsg) { m.kind = "foreign frame" }) })
		case m.kind == "frame" && s.fault == "two frames of one index":
			add("second "+m.text, func(s *small) error { m.kind = "second frame"; s.send(m); return nil })
		case m.kind == "manifest" && s.fault == "a lie in the manifest":
			add("lie "+m.text, func(s *small) error { return s.change(i, func(m *smallMsg) { m.kind = "false manifest" }) })
		}
	}
	for x := range 2 {
		m, o := s.in[x], s.out[x]
		switch {
		case s.fault == "cancel" && m != nil && !m.State.Over():
			add(fmt.Sprintf("cancel %d", x), func(s *small) error {
				s.in[x].End(kvtransfer.Errorf(kvtransfer.Cancelled, "by its tenant"))
				return s.ended(x)
			})
		case s.fault == "abort" && o != nil && !o.State().Ended():
			add(fmt.Sprintf("abort %d", x), func(s *small) error {
				if _, ok := s.out[x].Abort(kvtransfer.Errorf(kvtransfer.PrefillFailed, "no")); ok {
					s.send(smallMsg{to: "decode", kind: "abort", x: x, life: s.lives[0]})
				}
				return nil
			})
		case s.fault == "another worker claims" && m != nil:
			add(fmt.Sprintf("other claim %d", x), func(s *small) error { return s.claim(x, smallOther, kvtransfer.ClaimID{9}) })
		}
	}
	switch s.fault {
	case "lease out":
		if s.waits() {
			add("a lease passes", (*small).pass)
		}
	case "decode crashes":
		add("decode crashes", (*small).decodeCrashes)
	case "prefill crashes":
		add("prefill crashes", func(s *small) error {
			s.lives[1]++
			s.out = [2]*kvtransfer.Outbound{}
			return nil
		})
	}
	return out
}

// change puts another message in place of one.
func (s *small) change(i int, how func(*smallMsg)) error {
	m := s.way[i]
	s.way = slices.Delete(s.way, i, i+1)
	how(&m)
	s.send(m)
	return nil
}

// decodeCrashes empties decode: its memory, its table, what it was doing. Messages to it and from it are on their way.
func (s *small) decodeCrashes() error {
	n := s.ledger.Counts().Total
	s.ledger = page.NewLedger(1, n, smallSize)
	s.bytes = make([][smallSize]int, n)
	for x := range 2 {
		s.lost[x] = s.lost[x] || s.in[x] != nil
	}
	s.in, s.steps = [2]*kvtransfer.Inbound{}, [2]bool{}
	s.lives[0]++
	s.way = slices.DeleteFunc(s.way, func(m smallMsg) bool { return m.to == "" })
	return nil
}

func (s *small) reserve(x int) error {
	s.asked[x] = true
	k := smallKey(x)
	slots, err := s.ledger.Reserve(k.Owner(), smallRows+1)
	if err != nil {
		return err
	}
	for _, slot := range slots {
		if s.bytes[slot.Page] != [smallSize]int{} {
			return fmt.Errorf("page %d is promised and holds %v", slot.Page, s.bytes[slot.Page])
		}
	}
	r := kvtransfer.Reservation{Key: k, Decode: smallDecode, Tenant: "acme", N: smallRows, MaxTokens: 1, Pages: slices.Clone(slots),
		PageSize: smallSize, Lease: smallLease}
	s.in[x] = kvtransfer.NewInbound(r, [32]byte{byte(x + 1)}, smallShape, kvtransfer.NewLease(s.now, smallLease, 10*smallLease))
	s.send(smallMsg{to: "prefill", kind: "job", x: x, life: s.lives[1], index: s.lives[0]})
	return s.verify()
}

// frame gives a frame to the bus; that it is stored is told later.
func (s *small) frame(x int) error {
	h, ok := s.out[x].NextFrame()
	if !ok {
		return fmt.Errorf("request %d: no frame", x)
	}
	s.send(smallMsg{to: "decode", kind: "frame", x: x, index: int(h.Index), life: s.lives[0]})
	s.send(smallMsg{to: "prefill", kind: "stored", x: x, index: int(h.Index), life: s.lives[1]})
	return nil
}

func (s *small) manifest(x int) error {
	m, ok := s.out[x].Manifest(kvtransfer.DigestTags(s.out[x].Tags()))
	if !ok || m.Frames != smallFrames {
		return fmt.Errorf("request %d: manifest %+v", x, m)
	}
	s.send(smallMsg{to: "decode", kind: "manifest", x: x, life: s.lives[0]})
	s.out[x].ManifestStored()
	return nil
}

// step has the token made: row 3 is written.
func (s *small) step(x int) error {
	g, err := s.ledger.Grant(smallKey(x).Owner(), smallRows, smallRows+1)
	if err != nil {
		return err
	}
	s.steps[x] = true
	s.send(smallMsg{kind: "made", x: x, grant: g})
	return s.verify()
}

func (s *small) verify() error { return s.ledger.Verify() }
