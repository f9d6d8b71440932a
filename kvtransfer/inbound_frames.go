package kvtransfer

// FrameAnswer is what to do with a frame that arrived.
type FrameAnswer uint8

// Answers to a frame.
const (
	FrameOpen   FrameAnswer = iota + 1 // open it in scratch, then tell Opened
	FrameIgnore                        // received before, the same bytes: acknowledge, do nothing
	FrameRefuse                        // not for this attempt, claim or state: terminate, count
)

// Frame takes a frame's header and tag, neither of which is authenticated yet: only opening tells whether the claim's holder
// sealed it.
func (m *Inbound) Frame(h FrameHeader, tag [16]byte, now Tick) FrameAnswer {
	if !m.unfit(now).IsZero() {
		return FrameRefuse
	}
	if m.State != InFilling || h.Key != m.Key() || h.Claim != m.Claimed.Claim {
		m.Ignored++
		return FrameRefuse
	}
	if f, ok := m.frames[h.Index]; ok && f.Tag == tag {
		return FrameIgnore
	}
	return FrameOpen
}

// OpenAnswer is what to do with a frame after it was opened in scratch.
type OpenAnswer uint8

// Answers to an opened frame.
const (
	OpenCopy    OpenAnswer = iota + 1 // copy it into the pages, then tell Copied
	OpenIgnore                        // arrived twice while it was being opened: acknowledge, do nothing
	OpenCount                         // did not open, or is for an attempt that is over: terminate, count
	OpenCorrupt                       // the claim's holder contradicts itself: the attempt is over
)

// Opening is what came of opening a frame in scratch.
type Opening struct {
	OK     bool
	Bytes  int       // opened
	Hidden []float32 // what follows the rows, where the header says so
}

// Opened takes the result of opening a frame. Another frame under an index that was received, or one that lies outside of the
// reservation, is Corrupt once it opened: only the claim's holder can have sealed it.
func (m *Inbound) Opened(h FrameHeader, tag [16]byte, o Opening, now Tick) (OpenAnswer, Error) {
	if !m.unfit(now).IsZero() {
		return OpenCount, Error{}
	}
	if !o.OK || m.State != InFilling || h.Key != m.Key() || h.Claim != m.Claimed.Claim {
		m.Ignored++
		return OpenCount, Error{}
	}
	if f, ok := m.frames[h.Index]; ok {
		if f.Tag == tag {
			return OpenIgnore, Error{}
		}
		return m.corrupt(Errorf(HandoffContent, "frame %d: two of them open", h.Index))
	}
	if err := m.fits(h, o); !err.IsZero() {
		return m.corrupt(err)
	}
	m.frames[h.Index] = ReceivedFrame{Header: h, Tag: tag, Bytes: o.Bytes, Opened: true}
	if h.Hidden > 0 {
		m.hidden = o.Hidden
	}
	m.copying++
	return OpenCopy, Error{}
}

func (m *Inbound) corrupt(err Error) (OpenAnswer, Error) {
	m.End(err)
	return OpenCorrupt, err
}

// fits checks what must hold before a frame's bytes may be copied at all; whether all frames together are the hand-off is
// the gate's question.
func (m *Inbound) fits(h FrameHeader, o Opening) Error {
	if err := checkHeaderRange(h, m.Reservation, m.Shape); !err.IsZero() {
		return err
	}
	if most := m.Shape.Layers * (m.Reservation.N - m.Reservation.C); int(h.Index) >= most {
		return Errorf(HandoffCount, "frame %d: at most %d can come", h.Index, most)
	}
	if h.Hidden != 0 && (h.Hidden != m.Shape.Dim || m.hidden != nil) {
		return Errorf(HandoffCount, "frame %d: hidden vector %d of %d, had one: %t", h.Index, h.Hidden, m.Shape.Dim, m.hidden != nil)
	}
	if want := m.Shape.FrameBytes(h); o.Bytes != want || len(o.Hidden) != h.Hidden {
		return Errorf(HandoffContent, "frame %d: expected %d bytes, opened %d", h.Index, want, o.Bytes)
	}
	return Error{}
}

// Copied says that a frame's bytes are in the pages, or that the copy was refused (err). It is called exactly once for each
// OpenCopy, also after the attempt is over.
func (m *Inbound) Copied(index uint32, err Error, now Tick) {
	m.copying--
	f, ok := m.frames[index]
	if m.State.Over() || !ok {
		return
	}
	if !err.IsZero() {
		m.End(err)
		return
	}
	f.Copied = true
	m.frames[index] = f
	m.Lease.Restart(now)
}

// Copying is how many frames are being copied.
func (m *Inbound) Copying() int { return m.copying }
