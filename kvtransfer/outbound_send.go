package kvtransfer

// What an Outbound sends: frames as their rows are computed, then the manifest.

// Computed says that rows [0, rows) are computed. Rows never shrink and never pass N.
func (o *Outbound) Computed(rows int) error {
	if rows < o.rows || rows > o.res.N {
		return Errorf(Invariant, "outbound: computed rows %d after %d of %d", rows, o.rows, o.res.N)
	}
	o.rows = rows
	return nil
}

// NextFrame hands out the lowest frame that may be sealed and stored now, for the first time or again. Each frame handed out
// is answered by Stored, Full or an end. Nothing comes before Claimed, while the stream is full, or after an end.
func (o *Outbound) NextFrame() (FrameHeader, bool) {
	if o.state != OutboundSending || o.now < o.retryAt {
		return FrameHeader{}, false
	}
	ready := o.cut.Ready(o.rows)
	for i := o.firstWaiting(); i < ready; i++ {
		if o.frames[i].status != frameWaiting {
			continue
		}
		o.frames[i].status = frameOut
		o.next = max(o.next, i+1)
		h := o.cut.Header(i)
		h.Key, h.Claim = o.res.Key, o.claim
		return h, true
	}
	return FrameHeader{}, false
}

// firstWaiting is where looking for a frame may start: everything new is at next; something to send again may be before.
func (o *Outbound) firstWaiting() int {
	if o.fullSince == 0 {
		return o.next
	}
	return 0
}

// Stored says that the stream acknowledged a frame sealed under this tag. The same again changes nothing; another tag under
// the same index is an Invariant error, since sealing is a function of the frame.
func (o *Outbound) Stored(index uint32, tag [16]byte) error {
	if int64(index) >= int64(len(o.frames)) {
		return Errorf(Invariant, "outbound: stored frame %d of %d", index, len(o.frames))
	}
	f := &o.frames[index]
	switch {
	case f.status == frameStored && f.tag == tag:
		return nil
	case f.status == frameStored:
		return Errorf(Invariant, "outbound: frame %d stored under two tags", index)
	case int(index) >= o.next:
		return Errorf(Invariant, "outbound: frame %d stored, %d handed out", index, o.next)
	}
	f.status, f.tag = frameStored, tag
	o.stored++
	o.alive = o.now
	if o.fullSince != 0 && !o.anyWaiting() {
		o.fullSince, o.backoff, o.retryAt = 0, 0, 0
	} else if o.fullSince != 0 {
		o.fullSince, o.backoff = max(o.now, 1), 0 // something moves: the lease for the rest starts again
	}
	return nil
}

// anyWaiting says whether a frame handed out before must be sent again.
func (o *Outbound) anyWaiting() bool {
	for _, f := range o.frames[:o.next] {
		if f.status == frameWaiting {
			return true
		}
	}
	return false
}

// Full says that the stream did not take a frame: it is handed out again, the same bytes, after a wait that doubles from 20 ms
// to 500 ms. After a lease in which nothing was stored, Tick ends the attempt.
func (o *Outbound) Full(index uint32) error {
	if int64(index) >= int64(o.next) {
		return Errorf(Invariant, "outbound: frame %d full, %d handed out", index, o.next)
	}
	if o.frames[index].status == frameOut {
		o.frames[index].status = frameWaiting
		o.wait()
	}
	return nil
}

// wait starts or lengthens the back-off. A refusal during a running wait does not lengthen it: several frames were in flight.
func (o *Outbound) wait() {
	if o.fullSince == 0 {
		o.fullSince = max(o.now, 1)
	}
	if o.now >= o.retryAt {
		o.backoff = min(max(2*o.backoff, outboundBackoffMin), outboundBackoffMax)
		o.retryAt = o.now + o.backoff
	}
}

// Sent says that every frame is stored: the pages may go and the manifest may leave.
func (o *Outbound) Sent() bool { return o.stored == len(o.frames) }

// Tags are the stored frames' tags in index order. Call it when Sent.
func (o *Outbound) Tags() [][16]byte {
	tags := make([][16]byte, len(o.frames))
	for i, f := range o.frames {
		tags[i] = f.tag
	}
	return tags
}

// ManifestDue says that Manifest would give one now.
func (o *Outbound) ManifestDue() bool {
	return (o.state == OutboundSending || o.state == OutboundManifested) && o.Sent() && !o.out && o.now >= o.retryAt
}

// Manifest hands out the statement of what was sent, once for every time that it must be stored; digest is the digest of Tags.
// It comes only when every frame is stored, and again after ManifestFull and its wait.
func (o *Outbound) Manifest(digest [32]byte) (Manifest, bool) {
	if !o.ManifestDue() {
		return Manifest{}, false
	}
	o.state, o.out = OutboundManifested, true
	return Manifest{Key: o.res.Key, Claim: o.claim, Reservation: o.hash, Tenant: o.res.Tenant,
		N: o.res.N, C: o.res.C, Sent: o.cut.Rows(), Pages: (o.res.N + o.res.PageSize - 1) / o.res.PageSize,
		Frames: len(o.frames), Digest: digest}, true
}

// ManifestStored says that the stream has the manifest: Manifested -> Done.
func (o *Outbound) ManifestStored() {
	if o.state == OutboundManifested && o.out {
		o.state, o.out, o.fullSince = OutboundDone, false, 0
	}
}

// ManifestFull says that the stream did not take the manifest: it is handed out again after a wait.
func (o *Outbound) ManifestFull() {
	if o.state == OutboundManifested && o.out {
		o.out = false
		o.wait()
	}
}
