package kvtransfer

import (
	"maps"
	"slices"
)

// InboundState is where one hand-off attempt stands as decode sees it. doc.go has the picture.
type InboundState uint8

// States of an inbound hand-off, in the order in which a good one passes through them.
const (
	InReserved    InboundState = iota + 1 // pages promised; nobody has claimed
	InFilling                             // claimed; frames come; a manifest may be waiting for them
	InJudging                             // the gate said yes; the journal has not acknowledged it yet
	InAdmitted                            // acknowledged: the pages are owned, kernels may read
	InWitnessing                          // decode recomputes and compares; no token has left
	InRunning                             // both parts of the witness agreed; tokens leave
	InEnded                               // over after it ran: normal finish or a typed error
	InRefused                             // over before it ran, and no page is suspect
	InQuarantined                         // over because its pages are suspect: they leave by way of quarantine
)

// String gives the state's name.
func (s InboundState) String() string {
	names := [...]string{"none", "reserved", "filling", "judging", "admitted", "witnessing", "running", "ended", "refused", "quarantined"}
	if int(s) >= len(names) {
		return "unknown"
	}
	return names[s]
}

// Over says that the attempt has ended.
func (s InboundState) Over() bool { return s >= InEnded }

// Inbound is one attempt of one hand-off as decode sees it: a pure state machine. Its methods take what arrived and answer
// what is to be done; they do nothing else. It is not safe for concurrent use.
type Inbound struct {
	Reservation Reservation
	Hash        [32]byte // of the reservation's body as sent
	Shape       CutShape
	Tokens      int // length of the token ids captured when the reservation was made
	Lease       Lease

	State InboundState
	Err   Error // why it is over; zero while it is not, and after a normal finish

	Claimed Claim     // valid from InFilling on
	Prefill Peer      // who claimed
	Stated  *Manifest // the manifest, once it came
	Sender  Peer      // who signed the manifest

	// Invariant: a key of frames is the index in its header. A frame is here once it opened.
	frames  map[uint32]ReceivedFrame
	copying int       // frames being copied; Invariant: 0 <= copying <= len(frames)
	hidden  []float32 // [Dim], from the last frame
	Ignored int       // messages that were not for this attempt, claim or state

	rowsAgree bool // witness (a)
	lastAgree bool // witness (b)
}

// NewInbound starts an attempt whose reservation was just promised. The lease runs from now.
func NewInbound(r Reservation, hash [32]byte, shape CutShape, lease Lease) *Inbound {
	return &Inbound{
		Reservation: r, Hash: hash, Shape: shape, Tokens: r.N, Lease: lease,
		State: InReserved, frames: map[uint32]ReceivedFrame{},
	}
}

// Clone copies the machine; the copy shares nothing that is ever written.
func (m *Inbound) Clone() *Inbound {
	c := *m
	c.frames = maps.Clone(m.frames)
	return &c
}

// Key is the attempt.
func (m *Inbound) Key() Key { return m.Reservation.Key }

// Frames gives the frames that opened, in index order.
func (m *Inbound) Frames() []ReceivedFrame {
	out := make([]ReceivedFrame, 0, len(m.frames))
	for _, i := range slices.Sorted(maps.Keys(m.frames)) {
		out = append(out, m.frames[i])
	}
	return out
}

// Hidden is the last layer's output that prefill sent, [Dim] f32; nil before it came.
func (m *Inbound) Hidden() []float32 { return m.hidden }

// ClaimAnswer is what to tell a worker that claims.
type ClaimAnswer uint8

// Answers to a claim.
const (
	ClaimBound ClaimAnswer = iota + 1 // the first valid one: pages Reserved -> Filling, answer Claimed
	ClaimAgain                        // the same one again: answer Claimed again
	ClaimGone                         // not (or no longer) this worker's: answer Gone with the error
)

// Claim takes a claim, signed by from. The first valid one binds the attempt; it restarts the lease.
func (m *Inbound) Claim(from Peer, c Claim, now Tick) (ClaimAnswer, Error) {
	if err := m.unfit(now); !err.IsZero() {
		return ClaimGone, err
	}
	if m.State != InReserved {
		if from == m.Prefill && c == m.Claimed {
			return ClaimAgain, Error{}
		}
		m.Ignored++
		return ClaimGone, Errorf(Mismatch, "claim: attempt %s is bound to another claim", m.Key())
	}
	if c.Reservation != m.Hash {
		m.Ignored++
		return ClaimGone, Errorf(HandoffIdentity, "claim: reservation hash %x, claim %x", m.Hash[:8], c.Reservation[:8])
	}
	m.State, m.Claimed, m.Prefill = InFilling, c, from
	m.Lease.Restart(now)
	return ClaimBound, Error{}
}

// unfit says why nothing may be taken any more: the attempt is over, or its time is.
func (m *Inbound) unfit(now Tick) Error {
	if m.State.Over() {
		m.Ignored++
		if m.Err.IsZero() {
			return Errorf(NotFound, "hand-off %s: has ended", m.Key())
		}
		return m.Err
	}
	if err := m.Late(now); !err.IsZero() {
		m.Ignored++
		return err
	}
	return Error{}
}

// Late says whether the attempt's time is up: its lease before the verdict, its deadline always.
func (m *Inbound) Late(now Tick) Error {
	if m.State.Over() {
		return Error{}
	}
	if m.State < InJudging {
		return m.Lease.Expired(now)
	}
	return m.Lease.Overdue(now)
}

// mine says whether a message of prefill is of the bound claim, before the verdict.
func (m *Inbound) mine(from Peer, c ClaimID, now Tick) bool {
	if !m.unfit(now).IsZero() {
		return false
	}
	if m.State != InFilling || from != m.Prefill || c != m.Claimed.Claim {
		m.Ignored++
		return false
	}
	return true
}

// Progress restarts the lease if it is of the bound claim; it says whether it was.
func (m *Inbound) Progress(from Peer, p Progress, now Tick) bool {
	if !m.mine(from, p.Claim, now) {
		return false
	}
	m.Lease.Restart(now)
	return true
}

// Abort ends the attempt if it is of the bound claim and before the verdict; it says whether it was.
func (m *Inbound) Abort(from Peer, a Abort, now Tick) bool {
	if !m.mine(from, a.Claim, now) {
		return false
	}
	m.End(a.Error.orElse(PrefillFailed))
	return true
}

// End ends the attempt with an error, from any state: Corrupt and, once the pages were readable, nothing else leads to
// quarantine. An attempt that is over stays as it is.
func (m *Inbound) End(err Error) {
	switch {
	case m.State.Over():
		return
	case err.Class() == ClassCorrupt:
		m.State = InQuarantined
	case m.State == InRunning:
		m.State = InEnded
	default:
		m.State = InRefused
	}
	m.Err = err
}

// Finish ends a running attempt well.
func (m *Inbound) Finish() {
	if m.State == InRunning {
		m.State = InEnded
	}
}

// orElse gives the error a code where it has none, or one that a worker may not give.
func (e Error) orElse(c Code) Error {
	if class := e.Class(); class == ClassNone || class == ClassBug {
		return Error{Code: c, Detail: e.Detail, Param: e.Param}
	}
	return e
}
