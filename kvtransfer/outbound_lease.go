package kvtransfer

// How an Outbound is taken, kept alive and ended.

// Claim takes the attempt: Jobbed -> Claiming. In Claiming it gives the same claim again; the loop repeats it when Tick says so.
func (o *Outbound) Claim() Claim {
	if o.state == OutboundJobbed {
		o.state, o.claimedAt, o.alive = OutboundClaiming, o.now, o.now
	}
	o.claimAgain = o.now + o.res.Lease/outboundClaimParts
	return Claim{Key: o.res.Key, Claim: o.claim, ClaimKey: o.claimKey, Reservation: o.hash}
}

// Claimed is decode's yes: Claiming -> Sending. The same answer again only sets the deadline anew.
func (o *Outbound) Claimed(m Claimed) error {
	if err := o.mine("claimed", m.Key, m.Claim); err != nil {
		return err
	}
	switch o.state {
	case OutboundClaiming:
		o.state = OutboundSending
	case OutboundSending, OutboundManifested:
	default:
		return Errorf(HandoffIdentity, "outbound: claimed in state %s", o.state)
	}
	if m.DeadlineLeft > 0 {
		o.deadline = o.now + m.DeadlineLeft
	}
	o.heard = o.now
	return nil
}

// Gone is decode's no: the attempt was another's, or ended.
func (o *Outbound) Gone(m Gone) error {
	if err := o.mine("gone", m.Key, m.Claim); err != nil {
		return err
	}
	o.end(OutboundGone, m.Error)
	return nil
}

// Cancel ends the attempt from the other side.
func (o *Outbound) Cancel(m Cancel) error {
	if m.Key != o.res.Key {
		return Errorf(HandoffIdentity, "outbound: cancel of %s at %s", m.Key, o.res.Key)
	}
	o.end(OutboundCancelled, m.Error)
	return nil
}

// Abort ends the attempt because this worker cannot serve it, and gives what to tell decode. ok is false after an end: then
// nothing is to be said.
func (o *Outbound) Abort(why Error) (m Abort, ok bool) {
	if o.state.Ended() {
		return Abort{}, false
	}
	o.end(OutboundAborted, why)
	return Abort{Key: o.res.Key, Claim: o.claim, Error: why}, true
}

// Heard says that decode's heartbeat came. One of another epoch is silence: that decode no longer knows the attempt.
func (o *Outbound) Heard(p Peer) {
	if p == o.res.Decode {
		o.heard = o.now
	}
}

// Pinged says that Progress was sent.
func (o *Outbound) Pinged() { o.alive = o.now }

// WantsPing says that a step just done is worth a Progress message: decode's lease runs and was not restarted for a while.
func (o *Outbound) WantsPing() bool {
	return o.state == OutboundSending && !o.Sent() && o.now-o.alive >= o.res.Lease/outboundAliveParts
}

// Tick moves time on and ends what ran out: the deadline, a claim without an answer, a full stream or a silent decode for one
// lease. It returns true when the claim is due again.
func (o *Outbound) Tick(now Tick) (claimAgain bool) {
	o.now = max(o.now, now)
	lease := o.res.Lease
	switch {
	case o.state.Ended():
	case o.deadline != 0 && o.now >= o.deadline:
		o.end(OutboundCancelled, Errorf(DeadlineExceeded, "outbound: deadline passed %d ms ago", (o.now-o.deadline)/Millisecond))
	case o.now-o.heard >= lease:
		o.end(OutboundLost, Errorf(WorkerLost, "outbound: %s silent for %d ms, lease %d ms",
			o.res.Decode, (o.now-o.heard)/Millisecond, lease/Millisecond))
	case o.state == OutboundClaiming && o.now-o.claimedAt >= lease:
		o.end(OutboundLost, Errorf(LeaseExpired, "outbound: claim unanswered for %d ms, lease %d ms",
			(o.now-o.claimedAt)/Millisecond, lease/Millisecond))
	case o.fullSince != 0 && o.now-o.fullSince >= lease:
		o.end(OutboundLost, Errorf(BusFailed, "outbound: stream full for %d ms, %d of %d frames stored",
			(o.now-o.fullSince)/Millisecond, o.stored, len(o.frames)))
	case o.state == OutboundClaiming:
		return o.now >= o.claimAgain
	}
	return false
}

// Waited is how long ago the claim was first sent.
func (o *Outbound) Waited() Tick { return o.now - o.claimedAt }

// end is the only way into an end; the first one stays.
func (o *Outbound) end(s OutboundState, why Error) {
	if !o.state.Ended() {
		o.state, o.err, o.out = s, why, false
	}
}

// mine refuses what names another attempt or claim.
func (o *Outbound) mine(what string, k Key, c ClaimID) error {
	if k != o.res.Key || c != o.claim {
		return Errorf(HandoffIdentity, "outbound: %s names %s claim %s, here is %s claim %s", what, k, c, o.res.Key, o.claim)
	}
	return nil
}
