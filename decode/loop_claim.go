package decode

import (
	"bytes"
	"slices"

	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
)

// onReserve promises pages, or refuses and takes no state. The same request again gets the same promise.
func (l *Loop) onReserve(e ReserveAsked) {
	r, k := e.M, e.M.Key
	refuse := func(err kvtransfer.Error) {
		l.count.ReserveRefused++
		l.do(Refused{ID: e.ID, M: kvtransfer.Refused{Key: k, Error: err}})
	}
	if e.From.Role != kvtransfer.RoleRouter || e.From != r.Router {
		refuse(kvtransfer.Errorf(kvtransfer.NotAllowed, "decode: reserve: signed by %s for %s", e.From, r.Router))
		return
	}
	if h, ok := l.get(k); ok {
		l.again(e, h, refuse)
		return
	}
	// What is wrong with the request comes first: a Reserve that gets nothing ends nothing.
	if err := l.wrong(r); !err.IsZero() {
		refuse(err)
		return
	}
	l.supersede(e.From, k)
	if err := fits(r, l.room()); !err.IsZero() {
		refuse(err)
		return
	}
	h, err := l.promise(r)
	if !err.IsZero() {
		refuse(err)
		return
	}
	l.add(h)
	l.routers[h.router] = l.now
	l.count.Reserved++
	l.do(Journal{Fact: l.fact(h, FactReserved)})
	l.do(Reserved{ID: e.ID, M: h.in.Reservation, Body: h.body})
}

// wrong says why this worker takes a request at no time, or takes none at all.
func (l *Loop) wrong(r kvtransfer.Reserve) kvtransfer.Error {
	if l.Stalled() {
		return kvtransfer.Errorf(kvtransfer.DeviceFailed, "decode: reserve: the device has not answered for %d ms", l.quiet()/kvtransfer.Millisecond)
	}
	if err := admit(r, l.room()); !err.IsZero() {
		return err
	}
	if l.cfg.PromptDigest(r.Tenant, r.Tokens) != r.Digest {
		return kvtransfer.Errorf(kvtransfer.HandoffIdentity, "decode: reserve: the digest is not that of these %d tokens", len(r.Tokens))
	}
	if err := seal.CheckPublic(r.RouterKey); err != nil {
		return kvtransfer.Errorf(kvtransfer.InvalidRequest, "decode: reserve: reply key: %v", err)
	}
	return kvtransfer.Error{}
}

// room is what there is now.
func (l *Loop) room() room {
	return room{
		Draining: l.draining, JournalFull: l.journalFull && !l.cfg.JournalOptional, Fingerprint: l.cfg.Info.Fingerprints, Vocab: l.cfg.Info.Vocab,
		MaxRows: l.cfg.MaxModelLen, PagesFree: l.ledger.Counts().Free, PageSize: l.cfg.Info.PageSize,
		Open: l.settled().open, MaxOpen: l.cfg.MaxOpen, Known: len(l.handoffs), MaxKnown: l.cfg.MaxOpen + l.cfg.MaxKept,
	}
}

// again answers a Reserve for an attempt that is known.
func (l *Loop) again(e ReserveAsked, h *handoff, refuse func(kvtransfer.Error)) {
	res := h.in.Reservation
	same := e.From == h.router && e.M.Digest == res.Digest && len(e.M.Tokens) == res.N && e.M.MaxTokens == res.MaxTokens
	switch {
	case !same:
		refuse(kvtransfer.Errorf(kvtransfer.InvalidRequest, "decode: reserve: attempt %s is another request", e.M.Key))
	case h.in.State.Over():
		refuse(kvtransfer.Errorf(kvtransfer.NotFound, "decode: reserve: attempt %s has ended", e.M.Key))
	default:
		l.do(Reserved{ID: e.ID, M: res, Body: h.body})
	}
}

// promise takes the pages and makes the reservation.
func (l *Loop) promise(r kvtransfer.Reserve) (*handoff, kvtransfer.Error) {
	pair := l.cfg.KeyPair([32]byte(l.cfg.Entropy(32)))
	n := len(r.Tokens)
	slots, err := l.ledger.Reserve(r.Key.Owner(), n+r.MaxTokens)
	if err != nil {
		return nil, kvtransfer.Errorf(kvtransfer.PoolExhausted, "decode: reserve: %v", err)
	}
	undo := func(format string, args ...any) (*handoff, kvtransfer.Error) {
		if err := l.ledger.Release(r.Key.Owner()); err != nil {
			l.bug("release: %v", err)
		}
		return nil, kvtransfer.Errorf(kvtransfer.InvalidRequest, format, args...)
	}
	res := kvtransfer.Reservation{
		Key: r.Key, Decode: l.cfg.Self, Router: r.Router, Tenant: r.Tenant, N: n, MaxTokens: r.MaxTokens, Digest: r.Digest,
		Pages: slices.Clone(slots), PageSize: l.cfg.Info.PageSize, Fingerprints: l.cfg.Info.Fingerprints, Lease: l.cfg.Lease,
		DecodeKey: pair.Public(),
	}
	body, err := wire.Encode(res)
	if err != nil {
		return undo("decode: reserve: %v", err)
	}
	hash := seal.HashReservation(body)
	replyKey, err := seal.PairReplyKey(pair, r.RouterKey, hash)
	if err != nil {
		return undo("decode: reserve: %v", err)
	}
	info := l.cfg.Info
	shape := kvtransfer.CutShape{Layers: info.Layers, RowBytes: info.BytesPerRow / info.Layers, Dim: info.Dim}
	return &handoff{
		in:   kvtransfer.NewInbound(res, hash, shape, kvtransfer.NewLease(l.now, l.cfg.Lease, r.DeadlineLeft)),
		body: bytes.Clone(body), tokens: slices.Clone(r.Tokens), prompt: r.Prompt, sampling: r.Sampling, router: r.Router,
		pair: pair, replyKey: replyKey, rows: n,
	}, kvtransfer.Error{}
}

// supersede ends earlier attempts of the same hand-off: the router has given them up.
func (l *Loop) supersede(router kvtransfer.Peer, k kvtransfer.Key) {
	for _, h := range l.table.byID[k.ID] {
		if o := h.key(); o.Attempt < k.Attempt && h.router == router {
			l.table.touched = append(l.table.touched, h)
			l.end(h, kvtransfer.Errorf(kvtransfer.Cancelled, "decode: attempt %d replaces attempt %d", k.Attempt, o.Attempt))
		}
	}
}

// onClaim binds the attempt to the first valid claim.
func (l *Loop) onClaim(e ClaimCame) {
	k := e.M.Key
	h, ok := l.get(k)
	if !ok || e.From.Role != kvtransfer.RolePrefill {
		l.refuseClaim(e, kvtransfer.Errorf(kvtransfer.NotFound, "decode: claim: attempt %s is not known", k))
		return
	}
	bound, lease := h.in.State != kvtransfer.InReserved, h.in.Lease
	if !bound {
		// Before the machine binds it: a key that gives no secret binds nothing.
		key, err := seal.PairFrameKey(h.pair, e.M.ClaimKey, h.in.Hash, e.M.Claim)
		if err != nil {
			l.refuseClaim(e, kvtransfer.Errorf(kvtransfer.HandoffIdentity, "decode: claim: %v", err))
			return
		}
		h.frameKey = key
	}
	answer, err := h.in.Claim(e.From, e.M, l.now)
	switch answer {
	case kvtransfer.ClaimGone:
		l.refuseClaim(e, err)
		return
	case kvtransfer.ClaimBound:
		if err := l.ledger.Fill(k.Owner()); err != nil {
			l.bug("claim: %v", err)
			return
		}
		l.do(Journal{Fact: l.fact(h, FactClaimed)})
		l.tapeHead(h, e.M, lease)
	}
	l.do(Ack{Delivery: e.Delivery})
	l.do(Control{To: e.From, Key: k, Kind: kvtransfer.KindClaimed, M: kvtransfer.Claimed{
		Key: k, Claim: e.M.Claim, LeaseLeft: h.in.Lease.Left(l.now), DeadlineLeft: h.in.Lease.DeadlineLeft(l.now),
	}})
}

func (l *Loop) refuseClaim(e ClaimCame, err kvtransfer.Error) {
	l.count.ClaimsRefused++
	l.turnedAway(l.handoffs[e.M.Key], "claim", 0, err)
	l.do(Term{Delivery: e.Delivery})
	if e.From.Role == kvtransfer.RolePrefill {
		l.gone(e.From, e.M.Key, e.M.Claim, err)
	}
}

// settle acknowledges a control message that counted and refuses one that did not.
func (l *Loop) settle(delivery uint64, counted bool) {
	if counted {
		l.do(Ack{Delivery: delivery})
		return
	}
	l.count.ControlIgnored++
	l.do(Term{Delivery: delivery})
}

func (l *Loop) onProgress(e ProgressCame) {
	h, ok := l.get(e.M.Key)
	l.settle(e.Delivery, ok && h.in.Progress(e.From, e.M, l.now))
}

func (l *Loop) onAbort(e AbortCame) {
	h, ok := l.get(e.M.Key)
	counted := ok && h.in.Abort(e.From, e.M, l.now)
	l.settle(e.Delivery, counted)
	if counted {
		l.ended(h)
	}
}

func (l *Loop) onCancel(e CancelCame) {
	h, ok := l.get(e.M.Key)
	counted := ok && e.From == h.router
	l.settle(e.Delivery, counted)
	if counted {
		err := e.M.Error
		if err.Code != kvtransfer.ClientGone && err.Code != kvtransfer.DeadlineExceeded {
			err = kvtransfer.Error{Code: kvtransfer.Cancelled, Detail: err.Detail}
		}
		l.end(h, err)
	}
}

// onRouter takes a router's sign of life. A later epoch of the same router means that the earlier one is gone.
func (l *Loop) onRouter(e RouterAlive) {
	gone := func(p kvtransfer.Peer) bool {
		return p.ID == e.Peer.ID && p.Role == e.Peer.Role && p.Epoch < e.Peer.Epoch
	}
	if _, ok := l.routers[e.Peer]; ok {
		l.routers[e.Peer] = l.now
	}
	l.abandonOf(gone, func(p kvtransfer.Peer) kvtransfer.Error {
		return kvtransfer.Errorf(kvtransfer.WorkerLost, "decode: router %s has a later epoch %d", p, e.Peer.Epoch)
	})
}

// silentRouters ends the requests of router epochs that fell silent, and forgets routers without requests.
func (l *Loop) silentRouters() {
	silent := func(p kvtransfer.Peer) bool { return l.now-l.routers[p] >= l.cfg.RouterSilence }
	l.abandonOf(silent, func(p kvtransfer.Peer) kvtransfer.Error {
		return kvtransfer.Errorf(kvtransfer.WorkerLost, "decode: router %s silent for %d us", p, l.now-l.routers[p])
	})
	for p := range l.routers {
		if l.table.of[p] == 0 {
			delete(l.routers, p)
		}
	}
}

// abandonOf ends and forgets the attempts of the router epochs that are lost.
func (l *Loop) abandonOf(lost func(kvtransfer.Peer) bool, why func(kvtransfer.Peer) kvtransfer.Error) {
	for p := range l.table.of {
		if !lost(p) {
			continue
		}
		for _, h := range l.oldestFirst() { // of all lost epochs, so that the order is not the map's
			if lost(h.router) {
				l.abandon(h, why(h.router))
			}
		}
		return
	}
}

// abandon ends an attempt that nobody waits for any more, and forgets it.
func (l *Loop) abandon(h *handoff, err kvtransfer.Error) {
	l.end(h, err)
	l.forget(h)
}
