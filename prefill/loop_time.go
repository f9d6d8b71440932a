package prefill

import (
	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// Time, heartbeats, and what others may know of the loop.

// tick moves time on: claims are repeated, and what ran out ends.
func (l *Loop) tick(now kvtransfer.Tick) {
	passed := now - l.now
	l.now = max(l.now, now)
	l.pass(passed)
	for _, a := range l.attempts {
		if a.out.Tick(l.now) {
			l.emit(SendClaim{To: a.out.Reservation().Decode, Msg: a.out.Claim()})
		}
	}
	l.decodes = keep(l.decodes, func(d decode) bool { return l.now-d.heard < forgetDecode })
}

// heartbeat notes that one life of a decode is there. Older lives are ignored.
func (l *Loop) heartbeat(p kvtransfer.Peer) {
	if p.Role != kvtransfer.RoleDecode {
		l.stats.Ignored++
		return
	}
	for _, a := range l.attempts {
		a.out.Heard(p)
	}
	for i := range l.decodes {
		if d := &l.decodes[i]; d.id == p.ID {
			if p.Epoch >= d.epoch {
				d.epoch, d.heard = p.Epoch, l.now
			}
			return
		}
	}
	if len(l.decodes) < maxDecodes {
		l.decodes = append(l.decodes, decode{id: p.ID, epoch: p.Epoch, heard: l.now})
	}
}

// dead says that a reservation's decode is no decode, or has started again since: nobody would hear an answer.
func (l *Loop) dead(p kvtransfer.Peer) bool {
	if p.Role != kvtransfer.RoleDecode || p.Epoch == 0 {
		return true
	}
	for _, d := range l.decodes {
		if d.id == p.ID {
			return d.epoch > p.Epoch
		}
	}
	return false
}

// Figures are what a heartbeat says about the worker.
type Figures struct {
	MaxModelLen      int // tokens
	Pages            page.Counts
	Slots, SlotsFree int
	Running          int
	Draining         bool
	Silent           bool // the device does not answer: no heartbeat is to be sent
}

// Figures says what the worker can take. A worker on which a job waits for pages has no free slot.
func (l *Loop) Figures() Figures {
	limit, _ := l.limit()
	f := Figures{MaxModelLen: limit, Pages: l.ledger.Counts(), Slots: l.cfg.Slots, Running: len(l.attempts), Draining: l.draining || l.halted,
		Silent: l.Stalled() && !l.halted}
	if !f.Draining && !l.waiting() {
		f.SlotsFree = max(0, l.cfg.Slots-len(l.attempts))
	}
	return f
}

// State is where the latest attempt of a key stands here; false when there is none.
func (l *Loop) State(k kvtransfer.Key) (kvtransfer.OutboundState, bool) {
	for i := len(l.attempts) - 1; i >= 0; i-- {
		if a := l.attempts[i]; a.out.Key() == k {
			return a.out.State(), true
		}
	}
	return 0, false
}

// ClaimState is where the attempt of one claim stands here; false when there is none.
func (l *Loop) ClaimState(k kvtransfer.Key, c kvtransfer.ClaimID) (kvtransfer.OutboundState, bool) {
	if a := l.find(k, c); a != nil {
		return a.out.State(), true
	}
	return 0, false
}

// Stats gives the counters.
func (l *Loop) Stats() Stats { return l.stats }

// Verify checks the loop's invariants: for tests and the simulator.
func (l *Loop) Verify() error {
	if n := len(l.attempts) + l.asked.n(); n > l.cfg.Slots+kvtransfer.DirectSlots {
		return kvtransfer.Errorf(kvtransfer.Invariant, "prefill: attempts %d, asked for %d, slots %d + %d", len(l.attempts), l.asked.n(), l.cfg.Slots, kvtransfer.DirectSlots)
	}
	if len(l.flight) > l.cfg.InFlight {
		return kvtransfer.Errorf(kvtransfer.Invariant, "prefill: frames in flight %d, bound %d", len(l.flight), l.cfg.InFlight)
	}
	return l.ledger.Verify()
}
