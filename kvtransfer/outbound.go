package kvtransfer

import (
	"fmt"
	"strings"
)

// OutboundState is where one attempt stands, as prefill sees it.
type OutboundState uint8

// The states of an attempt on prefill's side. The last five are ends.
//
//	Jobbed -> Claiming -> Sending -> Manifested -> Done
//	   \          \          \           \
//	    +----------+----------+-----------+--> Gone | Cancelled | Aborted | Lost
const (
	OutboundJobbed     OutboundState = iota // a reservation is in hand, nothing was said yet
	OutboundClaiming                        // the claim is out; computing may start, no frame may leave
	OutboundSending                         // decode said Claimed: frames leave as their rows are computed
	OutboundManifested                      // every frame is stored and the manifest is on its way
	OutboundDone                            // the manifest is stored: nothing is left to do here
	OutboundGone                            // decode says that the attempt is not this worker's
	OutboundCancelled                       // ended by the other side, or by the request's deadline
	OutboundAborted                         // this worker cannot serve it and said why
	OutboundLost                            // decode or the bus fell silent for a lease
)

// String gives the state's name as scripts and logs print it.
func (s OutboundState) String() string {
	names := [...]string{"jobbed", "claiming", "sending", "manifested", "done", "gone", "cancelled", "aborted", "lost"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Ended says that nothing more will be sent, so the attempt's pages may go.
func (s OutboundState) Ended() bool { return s >= OutboundDone }

// Outbound is one attempt on prefill's side: it says what may be sent when, and when to stop. It does no I/O and computes
// nothing; the loop that owns it tells it what happened. A message that does not belong to the attempt changes nothing and is
// returned as an error.
//
// Invariants: no frame is handed out before Claimed; a frame index is stored under one tag only; the manifest follows the
// last frame's acknowledgement; an ended attempt never leaves its end.
type Outbound struct {
	res      Reservation
	hash     [32]byte // of the reservation's body
	claim    ClaimID
	claimKey [32]byte // public half
	cut      Cut

	state OutboundState
	err   Error // why it ended badly; zero otherwise
	now   Tick  // latest reading

	claimedAt  Tick // first claim: the answer must come within a lease
	claimAgain Tick // next resend
	deadline   Tick // 0 until Claimed; then the request's
	heard      Tick // decode's last heartbeat of the reservation's epoch, or the job's arrival
	alive      Tick // when decode last had a reason to restart its lease: claim, stored frame, progress

	rows   int // computed. from row 0. Invariant: 0 <= rows <= N.
	next   int // frames [0, next) were handed out at least once. Invariant: next <= cut.Ready(rows).
	frames []outboundFrame
	stored int // how many frames are stored

	fullSince Tick // when the stream first refused; 0 while it takes what comes
	backoff   Tick // last wait
	retryAt   Tick // no frame and no manifest before this
	out       bool // the manifest is with the stream
}

// outboundFrame is what became of one frame.
type outboundFrame struct {
	status frameStatus
	tag    [16]byte
}

type frameStatus uint8

const (
	frameWaiting frameStatus = iota // not handed out, or to be sent again
	frameOut                        // with the sealer or the stream
	frameStored                     // acknowledged by the stream
)

// Waits of a sender whose stream is full, and between two sendings of one claim.
const (
	outboundBackoffMin = 20 * Millisecond
	outboundBackoffMax = 500 * Millisecond
	outboundClaimParts = 10 // a claim is repeated every tenth of the lease
	outboundAliveParts = 6  // progress is worth a message after a sixth of the lease
)

// OutboundConfig is what an attempt starts from.
type OutboundConfig struct {
	Reservation Reservation // verified: decode's signature, this worker's fingerprints
	Hash        [32]byte    // SHA-256 of the reservation's encoded body
	Claim       ClaimID
	ClaimKey    [32]byte // public half
	Cut         Cut      // of rows [C, N)
	Now         Tick
}

// NewOutbound starts an attempt in state Jobbed. It fails with HandoffCount when the cut does not cover rows [C, N), and with
// HandoffTime when the reservation has no lease.
func NewOutbound(c OutboundConfig) (*Outbound, error) {
	r := c.Reservation
	if r.C < 0 || r.C >= r.N || c.Cut.from != r.C || c.Cut.to != r.N {
		return nil, Errorf(HandoffCount, "outbound: rows [%d,%d) reserved, [%d,%d) cut", r.C, r.N, c.Cut.from, c.Cut.to)
	}
	if r.Lease <= 0 {
		return nil, Errorf(HandoffTime, "outbound: lease %d us", r.Lease)
	}
	return &Outbound{res: r, hash: c.Hash, claim: c.Claim, claimKey: c.ClaimKey, cut: c.Cut, now: c.Now,
		heard: c.Now, alive: c.Now, frames: make([]outboundFrame, c.Cut.Frames())}, nil
}

// Key names the attempt.
func (o *Outbound) Key() Key { return o.res.Key }

// ClaimID is this worker's take of it.
func (o *Outbound) ClaimID() ClaimID { return o.claim }

// Reservation is what decode promised.
func (o *Outbound) Reservation() Reservation { return o.res }

// Hash is the reservation's hash, which binds every frame.
func (o *Outbound) Hash() [32]byte { return o.hash }

// State is where the attempt stands.
func (o *Outbound) State() OutboundState { return o.state }

// Err is why the attempt ended badly; zero while it runs and when it is done.
func (o *Outbound) Err() Error { return o.err }

// Rows is how many rows, from position 0, are computed.
func (o *Outbound) Rows() int { return o.rows }

// Progress is how many of the frames are stored.
func (o *Outbound) Progress() (stored, frames int) { return o.stored, len(o.frames) }

// Clone copies the attempt.
func (o *Outbound) Clone() *Outbound {
	c := *o
	c.frames = append([]outboundFrame(nil), o.frames...)
	return &c
}

// Dump prints the whole state on one line, without keys: two attempts that print alike behave alike.
func (o *Outbound) Dump() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s rows=%d/%d frames=", o.state, o.rows, o.res.N)
	for i, f := range o.frames {
		if i == 64 {
			fmt.Fprintf(&b, "... %d of %d stored", o.stored, len(o.frames))
			break
		}
		b.WriteByte([...]byte{'.', 'o', 'S'}[f.status])
	}
	fmt.Fprintf(&b, " next=%d alive=%d heard=%d", o.next, o.alive/Millisecond, o.heard/Millisecond)
	if o.state == OutboundClaiming {
		fmt.Fprintf(&b, " claimed=%d again=%d", o.claimedAt/Millisecond, o.claimAgain/Millisecond)
	}
	if o.deadline != 0 {
		fmt.Fprintf(&b, " deadline=%d", o.deadline/Millisecond)
	}
	if o.fullSince != 0 {
		fmt.Fprintf(&b, " full=%d retry=%d", o.fullSince/Millisecond, o.retryAt/Millisecond)
	}
	if !o.err.IsZero() {
		fmt.Fprintf(&b, " error=%s %q", o.err.Code, o.err.Detail)
	}
	return b.String()
}
