package prefill

import (
	"fmt"

	"quire/kvtransfer"
	"quire/kvtransfer/seal"
)

// Frames and manifests on their way to decode's stream.

// sendFrames hands out frames in round robin between attempts until the bounds are reached. Each holds its pages until it is
// sealed.
func (l *Loop) sendFrames() {
	for idle := 0; len(l.attempts) > 0 && idle < len(l.attempts) && len(l.flight) < l.cfg.InFlight && !l.halted; {
		l.sendTurn %= len(l.attempts)
		a := l.attempts[l.sendTurn]
		l.sendTurn++
		if l.inFlight(a) >= perAttempt {
			idle++
			continue
		}
		h, ok := a.out.NextFrame()
		if !ok {
			idle++
			continue
		}
		idle = 0
		l.sendFrame(a, h)
	}
}

func (l *Loop) sendFrame(a *attempt, h kvtransfer.FrameHeader) {
	id := FrameID{Key: h.Key, Claim: h.Claim, Index: h.Index}
	l.check(l.ledger.Hold(h.Key.Owner()))
	a.seals++
	l.flight = append(l.flight, id)
	fx := SealAndSend{Frame: id, To: a.out.Reservation().Decode, Header: h, View: a.view, Key: a.frameKey, Hash: a.out.Hash(),
		MsgID: fmt.Sprintf("%s/%s/%d", h.Key, h.Claim, h.Index)}
	if h.Hidden > 0 {
		fx.Hidden = a.hidden
	}
	l.emit(fx)
}

// inFlight is how many frames of an attempt are with the sealer or the stream.
func (l *Loop) inFlight(a *attempt) int {
	n := 0
	for _, f := range l.flight {
		if f.Key == a.out.Key() && f.Claim == a.out.ClaimID() {
			n++
		}
	}
	return n
}

// frameSealed ends the hold of a frame whose bytes are out of the pool.
func (l *Loop) frameSealed(ev FrameSealed) {
	a := l.find(ev.Frame.Key, ev.Frame.Claim)
	if a == nil || a.seals == 0 {
		l.stats.Ignored++
		return
	}
	a.seals--
	l.check(l.ledger.Unhold(ev.Frame.Key.Owner()))
}

// landed takes a frame out of flight and gives its attempt, or nil when it has been removed since. ok is false for a frame
// that is not in flight.
func (l *Loop) landed(id FrameID) (a *attempt, ok bool) {
	n := len(l.flight)
	l.flight = keep(l.flight, func(f FrameID) bool { return f != id })
	if len(l.flight) == n {
		l.stats.Ignored++
		return nil, false
	}
	return l.find(id.Key, id.Claim), true
}

func (l *Loop) frameStored(ev FrameStored) {
	a, ok := l.landed(ev.Frame)
	if !ok {
		return
	}
	l.stats.FramesStored++
	if a != nil {
		l.check(a.out.Stored(ev.Frame.Index, ev.Tag))
	}
}

func (l *Loop) frameFull(ev FrameFull) {
	a, ok := l.landed(ev.Frame)
	if !ok {
		return
	}
	l.stats.FramesFull++
	if a != nil {
		l.check(a.out.Full(ev.Frame.Index))
	}
}

func (l *Loop) frameFailed(ev FrameFailed) {
	a, ok := l.landed(ev.Frame)
	if !ok || a == nil {
		return
	}
	if !ev.Sealed && a.seals > 0 {
		a.seals--
		l.check(l.ledger.Unhold(ev.Frame.Key.Owner()))
	}
	l.abort(a, ev.Error)
}

// sendManifest sends the manifest when every frame is stored.
func (l *Loop) sendManifest(a *attempt) {
	if !a.out.ManifestDue() {
		return
	}
	if m, ok := a.out.Manifest(seal.Digest(a.out.Tags())); ok {
		l.emit(SendManifest{To: a.out.Reservation().Decode, Msg: m, MsgID: fmt.Sprintf("%s/%s/m", m.Key, m.Claim)})
	}
}

// manifest hands what became of a manifest to its attempt.
func (l *Loop) manifest(k kvtransfer.Key, c kvtransfer.ClaimID, do func(*attempt)) {
	if a := l.find(k, c); a != nil && a.out.State() == kvtransfer.OutboundManifested {
		do(a)
		return
	}
	l.stats.Ignored++
}
