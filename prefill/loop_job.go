package prefill

import (
	"errors"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/kvtransfer/seal"
)

// How a job comes in, is checked, claimed, and given pages; and what decode says about it.

// job takes a verified job: it is claimed at once and computed as soon as it has pages, or claimed and aborted with the
// numbers of what is wrong, since an abort counts only for its own claim. Nothing is computed of a refused job.
func (l *Loop) job(ev Job) {
	l.came(ev.Direct)
	l.stats.Jobs++
	r := ev.Reservation
	if l.known(r.Key) || l.dead(r.Decode) {
		l.stats.Ignored++
		l.emit(AckJob{Delivery: ev.Delivery})
		return
	}
	id := kvtransfer.ClaimID(l.cfg.Entropy(16))
	pair := l.cfg.KeyPair([32]byte(l.cfg.Entropy(32)))
	a, why := l.accept(ev, id, pair)
	if !why.IsZero() {
		l.stats.JobsRefused++
		l.emit(SendClaim{To: r.Decode, Msg: kvtransfer.Claim{Key: r.Key, Claim: id, ClaimKey: pair.Public(), Reservation: ev.Hash}})
		l.emit(SendAbort{To: r.Decode, Msg: kvtransfer.Abort{Key: r.Key, Claim: id, Error: why}})
		l.emit(AckJob{Delivery: ev.Delivery})
		l.emit(Ended{Key: r.Key, Tenant: r.Tenant, Claim: id, State: kvtransfer.OutboundAborted, Error: why, N: r.N})
		return
	}
	l.attempts = append(l.attempts, a)
	l.emit(SendClaim{To: r.Decode, Msg: a.out.Claim()})
}

// accept makes the attempt of a job, or says why this worker cannot serve it.
func (l *Loop) accept(ev Job, id kvtransfer.ClaimID, pair seal.KeyPair) (*attempt, kvtransfer.Error) {
	if why := l.refuse(ev); !why.IsZero() {
		return nil, why
	}
	r, info := ev.Reservation, l.cfg.Info
	shape := kvtransfer.CutShape{Layers: info.Layers, RowBytes: info.BytesPerRow / info.Layers, Dim: info.Dim}
	cut, err := kvtransfer.NewCut(r.C, r.N, shape, kvtransfer.CutBytes(l.cfg.MaxPayload))
	if err != nil {
		return nil, asError(err, kvtransfer.PrefillFailed)
	}
	out, err := kvtransfer.NewOutbound(kvtransfer.OutboundConfig{Reservation: r, Hash: ev.Hash, Claim: id,
		ClaimKey: pair.Public(), Cut: cut, Now: l.now})
	if err != nil {
		return nil, asError(err, kvtransfer.PrefillFailed)
	}
	key, err := seal.PairFrameKey(pair, r.DecodeKey, ev.Hash, id)
	if err != nil {
		return nil, kvtransfer.Errorf(kvtransfer.HandoffIdentity, "prefill: frame key: %v", err)
	}
	return &attempt{out: out, delivery: ev.Delivery, tokens: ev.Tokens, frameKey: key, since: l.now}, kvtransfer.Error{}
}

// refuse checks a job against its reservation, this engine and this pool. It names the first thing that is wrong.
func (l *Loop) refuse(ev Job) kvtransfer.Error {
	r, info := ev.Reservation, l.cfg.Info
	n := len(ev.Tokens)
	switch {
	case l.halted:
		return kvtransfer.Errorf(kvtransfer.WorkerLost, "prefill: %s stops", l.cfg.Peer)
	case l.draining:
		return kvtransfer.Errorf(kvtransfer.Draining, "prefill: %s is shutting down", l.cfg.Peer)
	case l.Stalled():
		return l.stall()
	case len(l.attempts)+l.asked.n() >= l.cfg.Slots+kvtransfer.DirectSlots: // it was not asked for
		return kvtransfer.Errorf(kvtransfer.Overloaded, "prefill: %d hand-offs, slots %d + %d", len(l.attempts), l.cfg.Slots, kvtransfer.DirectSlots)
	case n != r.N || n < 1:
		return kvtransfer.Errorf(kvtransfer.HandoffCount, "prefill: token count: reserved %d, job %d", r.N, n)
	case r.C < 0 || r.C >= r.N:
		return kvtransfer.Errorf(kvtransfer.HandoffCount, "prefill: cached rows %d of %d", r.C, r.N)
	case r.PageSize < 1 || len(r.Pages) < (r.N-1)/r.PageSize+1:
		return kvtransfer.Errorf(kvtransfer.HandoffCount, "prefill: rows %d, reserved %d pages of %d rows", r.N, len(r.Pages), r.PageSize)
	case seal.PromptDigest(l.cfg.PromptKey, r.Tenant, ev.Tokens) != r.Digest:
		return kvtransfer.Errorf(kvtransfer.HandoffIdentity, "prefill: prompt digest: the job's %d tokens are not the reserved ones", n)
	}
	if why := l.strange(r.Fingerprints); !why.IsZero() {
		return why
	}
	if limit, what := l.limit(); n > limit {
		return kvtransfer.Errorf(kvtransfer.ContextLengthExceeded, "prefill: prompt %d tokens, limit %d (%s)", n, limit, what)
	}
	for i, t := range ev.Tokens {
		if t < 0 || int(t) >= info.Vocab {
			return kvtransfer.Errorf(kvtransfer.InvalidRequest, "prefill: token at position %d is not in the vocabulary of %d", i, info.Vocab)
		}
	}
	return kvtransfer.Error{}
}

// strange says in which fingerprint a reservation differs from this worker.
func (l *Loop) strange(f kvtransfer.Fingerprints) kvtransfer.Error {
	own := l.cfg.Info.Fingerprints
	for _, d := range []struct {
		what      string
		its, mine [32]byte
	}{{"model", f.Model, own.Model}, {"layout", f.Layout, own.Layout}, {"compute", f.Compute, own.Compute}} {
		if d.its != d.mine && (d.what != "compute" || !l.cfg.MixedCompute) {
			return kvtransfer.Errorf(kvtransfer.Mismatch, "prefill: %s fingerprint: reserved %x, here %x", d.what, d.its[:4], d.mine[:4])
		}
	}
	return kvtransfer.Error{}
}

// limit is how many tokens a prompt may have here, and what sets it.
func (l *Loop) limit() (tokens int, what string) {
	tokens, what = l.cfg.Info.Context, "model context"
	if pool := l.cfg.Info.Pages * l.cfg.Info.PageSize; pool < tokens {
		tokens, what = pool, "prefill pool"
	}
	if m := l.cfg.MaxModelLen; m > 0 && m < tokens {
		tokens, what = m, "max-model-len"
	}
	return tokens, what
}

// jobRefused drops a job that nobody signed.
func (l *Loop) jobRefused(ev JobRefused) {
	l.came(ev.Direct)
	l.stats.JobsUnsigned++
	l.emit(AckJob{Delivery: ev.Delivery})
}

// came notes that a job that was asked for is here.
func (l *Loop) came(direct bool) {
	if direct {
		l.asked.direct = false
	} else {
		l.asked.shared = false
	}
}

// known says whether an attempt is being worked on here.
func (l *Loop) known(k kvtransfer.Key) bool {
	for _, a := range l.attempts {
		if a.out.Key() == k {
			return true
		}
	}
	return false
}

// takePages gives a waiting attempt its pages. One that waited for most of its lease is aborted, before decode's lease ends.
func (l *Loop) takePages(a *attempt) {
	if a.paged || a.out.State().Ended() {
		return
	}
	owner, n := a.out.Key().Owner(), a.out.Reservation().N
	slots, err := l.ledger.Reserve(owner, n)
	switch {
	case err == nil:
		a.paged, a.slots = true, slots
		a.view, err = l.ledger.Own(owner)
		l.check(err)
	case errors.Is(err, page.ErrExhausted) || errors.Is(err, page.ErrExists):
		if a.out.Waited() >= a.out.Reservation().Lease*(waitParts-1)/waitParts {
			c := l.ledger.Counts()
			l.abort(a, kvtransfer.Errorf(kvtransfer.PoolExhausted, "prefill: rows %d take %d pages, free %d of %d for %d ms",
				n, l.ledger.PagesFor(n), c.Free, c.Total, a.out.Waited()/kvtransfer.Millisecond))
		}
	default:
		l.check(err)
	}
}

// abandon aborts what is open, so that decode's clients need not wait for a lease.
func (l *Loop) abandon() {
	l.draining = true
	for _, a := range l.attempts {
		l.abort(a, kvtransfer.Errorf(kvtransfer.WorkerLost, "prefill: %s shut down with %d of %d rows computed",
			l.cfg.Peer, a.out.Rows(), len(a.tokens)))
	}
}

// claimed, gone and cancel hand decode's words to the attempt; the job is acknowledged with the claim's answer.
func (l *Loop) claimed(ev Claimed) {
	if a := l.spoken(ev.From, ev.Msg.Key); a != nil && a.out.Claimed(ev.Msg) == nil {
		l.ack(a)
		return
	}
	l.stats.Ignored++
}

func (l *Loop) gone(ev Gone) {
	if a := l.spoken(ev.From, ev.Msg.Key); a == nil || a.out.Gone(ev.Msg) != nil {
		l.stats.Ignored++
	}
}

func (l *Loop) cancel(ev Cancel) {
	if a := l.spoken(ev.From, ev.Msg.Key); a == nil || a.out.Cancel(ev.Msg) != nil {
		l.stats.Ignored++
	}
}

// spoken gives the running attempt of a key, if this decode epoch made its reservation.
func (l *Loop) spoken(from kvtransfer.Peer, k kvtransfer.Key) *attempt {
	for _, a := range l.attempts {
		if a.out.Key() == k && a.out.Reservation().Decode == from && !a.out.State().Ended() {
			return a
		}
	}
	return nil
}

// asError keeps a typed error and gives another a code.
func asError(err error, code kvtransfer.Code) kvtransfer.Error {
	var e kvtransfer.Error
	if errors.As(err, &e) {
		return e
	}
	return kvtransfer.Errorf(code, "%v", err)
}
