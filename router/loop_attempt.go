package router

import (
	"quire/kvtransfer"
)

// place gives waiting requests their turn until nobody can be placed. A request that has waited longer than Patience is not
// overtaken any more: room that comes free is kept for it.
func (l *Loop) place() {
	if !l.dirty || !l.busUp || l.queue.n == 0 {
		return
	}
	l.dirty = false
	for l.placeOne() {
	}
}

func (l *Loop) placeOne() bool {
	if old := l.queue.oldest(); old != nil && l.now-old.submitted > l.policy.Patience && old.unfit < 0 && !l.crowded(old.tenant) {
		return l.try(old)
	}
	for _, tenant := range l.queue.turn {
		if !l.crowded(tenant) && l.try(l.queue.waiting[tenant][0]) {
			return true
		}
	}
	return false
}

// crowded says that a tenant has as many attempts as it may.
func (l *Loop) crowded(tenant string) bool {
	return l.policy.MaxRunningTenant > 0 && l.running[tenant] >= l.policy.MaxRunningTenant
}

// try sends a Reserve for a request if there is room for it.
func (l *Loop) try(r *request) bool {
	if r == nil {
		return false
	}
	c, ok := l.chooseFor(r)
	if !ok && l.stranded(r) {
		l.abandon(r, r.refusal)
		return true
	}
	if !ok {
		return false
	}
	l.queue.remove(r)
	l.queue.pass(r.tenant)
	l.begin(r, c)
	return true
}

// begin makes the next attempt. Where tokens have left already, decode gets them too, but for the last one: it is made once
// more, which shows that the answer goes on as it was, and that there is always one to make.
func (l *Loop) begin(r *request, c choice) {
	r.attempts++
	a := &attempt{
		key: kvtransfer.Key{ID: r.id, Attempt: r.attempts}, req: r, decode: c.decode.hb.Peer, pool: c.pool, slug: c.slug, target: c.target,
		pages: c.pages, heard: l.now, early: map[uint32]kvtransfer.ReplyBody{}, prefill: true, prints: c.decode.hb.Fingerprints,
		dueAt: never,
	}
	if n := len(r.output); n > 0 {
		a.resumed, a.again = n-1, 1
	}
	copy(a.seed[:], l.cfg.Entropy(len(a.seed)))
	a.digest = l.cfg.Digest(r.tenant, a.tokens())
	c.decode.slots.take(1)
	c.decode.pages.take(c.pages)
	l.roster.group(c.pool).take(1)
	l.running[r.tenant]++
	l.attempts[a.key] = a
	r.current, r.last, r.lastPeer = a, a.key, a.decode
	if r.placed < 0 {
		r.placed = l.now
	}
	l.stats.Attempts++
	l.sendReserve(a)
	l.watch(a.key)
}

// tokens are those that decode reserves for: the prompt, and in a resumed request what has left already.
func (a *attempt) tokens() []int32 {
	if a.resumed == 0 {
		return a.req.prompt
	}
	return append(append(make([]int32, 0, len(a.req.prompt)+a.resumed), a.req.prompt...), a.req.output[:a.resumed]...)
}

func (l *Loop) sendReserve(a *attempt) {
	a.tries++
	a.retryAt = 0
	r := a.req
	l.do(SendReserve{Key: a.key, To: a.decode, Seed: a.seed, Reserve: kvtransfer.Reserve{
		Key: a.key, Tenant: r.tenant, Tokens: a.tokens(), Prompt: len(r.prompt), MaxTokens: r.maxTokens - a.resumed,
		Digest: a.digest, Sampling: r.sampling, Router: l.cfg.Router, DeadlineLeft: r.deadline - l.now, Fingerprints: a.prints,
	}})
}

// reserved takes decode's answer to Reserve.
func (l *Loop) reserved(ev Reserved) {
	a := l.attempts[ev.Key]
	if a == nil && ev.Reservation != nil {
		l.unwanted(ev.Key, ev.Reservation.Decode)
		return
	}
	if a == nil || a.phase != reserving || a.retryAt != 0 {
		return
	}
	switch {
	case ev.Err == FaultNobody:
		l.shut(a.decode)
		l.elsewhere(a)
	case ev.Err == FaultTooLarge:
		l.failed(a, kvtransfer.Errorf(kvtransfer.PayloadTooLarge, "router: Reserve for %d tokens does not fit max_payload %d", len(a.tokens()), l.maxPayload))
	case ev.Err != FaultNone && a.tries < maxTries:
		a.retryAt = l.now + retryPause // the same bytes: decode answers a second Reserve as it did the first
	case ev.Err != FaultNone:
		l.lose(a, kvtransfer.Errorf(kvtransfer.WorkerLost, "router: %s did not answer Reserve, %d tries: %s", a.decode, a.tries, ev.Err))
	case !ev.Refused.IsZero():
		l.refusedBy(a, ev.Refused)
	case ev.Reservation != nil:
		l.promised(a, ev)
	}
}

// unwanted tells a decode that its promise has come for an attempt that is over. What was said of the end may have reached it before
// the Reserve did, and then it would hold the pages for a lease.
func (l *Loop) unwanted(k kvtransfer.Key, decode kvtransfer.Peer) {
	if len(l.closing) < maxClosing {
		c := &closing{key: k, decode: decode}
		l.closing[k] = c
		l.acknowledge(c)
	}
}

// refusedBy tells what only this decode cannot do now from what no decode will do.
func (l *Loop) refusedBy(a *attempt, err kvtransfer.Error) {
	l.stats.ReserveRefused++
	switch err.Code {
	case kvtransfer.PoolExhausted, kvtransfer.Overloaded, kvtransfer.Draining, kvtransfer.DeviceFailed: // another router was quicker, or it hangs
		l.shut(a.decode)
		l.elsewhere(a)
	case kvtransfer.JournalDown, kvtransfer.BusDown, kvtransfer.Mismatch, kvtransfer.ModelNotFound:
		l.shut(a.decode)
		if l.openDecodes() == 0 {
			l.close(a, true)
			l.finish(a.req, kvtransfer.End{Error: err})
			return
		}
		l.elsewhere(a)
	case kvtransfer.NotFound: // it promised, its answer was lost, and the promise has ended since
		l.lose(a, kvtransfer.Errorf(kvtransfer.WorkerLost, "router: %s promised and ended %s before its answer came", a.decode, a.key))
	default:
		l.failed(a, err)
	}
}

// shut gives a decode nothing until its next heartbeat.
func (l *Loop) shut(p kvtransfer.Peer) {
	if w := l.roster.decodes[p.ID]; w != nil && w.hb.Peer == p {
		w.shut = true
	}
}

func (l *Loop) openDecodes() int {
	n := 0
	for _, w := range l.roster.decodes {
		if l.usable(w) && !w.shut {
			n++
		}
	}
	return n
}

// elsewhere puts a request back whose attempt took no state. It does not count as a loss.
func (l *Loop) elsewhere(a *attempt) {
	r := a.req
	l.close(a, true)
	r.avoid = a.decode.ID
	l.queue.pushFront(r)
}

// promised takes a reservation and sends the job.
func (l *Loop) promised(a *attempt, ev Reserved) {
	if err := a.check(*ev.Reservation, l.cfg.Router); !err.IsZero() {
		l.lose(a, err)
		return
	}
	a.reservation, a.phase, a.tries, a.heard = ev.Envelope, storing, 0, l.now
	l.storeJob(a)
}

// check compares decode's promise with what it was asked for.
func (a *attempt) check(rv kvtransfer.Reservation, router kvtransfer.Peer) kvtransfer.Error {
	n := len(a.req.prompt) + a.resumed
	rows := a.req.rows()
	switch {
	case rv.Key != a.key || rv.Decode != a.decode || rv.Router != router || rv.Tenant != a.req.tenant || rv.Digest != a.digest || rv.Fingerprints != a.prints:
		return kvtransfer.Errorf(kvtransfer.HandoffIdentity, "router: reservation of %s by %s is not what was asked for", rv.Key, rv.Decode)
	case rv.N != n || rv.MaxTokens != a.req.maxTokens-a.resumed || rv.C != 0:
		return kvtransfer.Errorf(kvtransfer.HandoffCount, "router: reservation: asked %d + %d tokens, reserved %d + %d, cached %d",
			n, a.req.maxTokens-a.resumed, rv.N, rv.MaxTokens, rv.C)
	case rv.PageSize <= 0 || len(rv.Pages)*rv.PageSize < rows:
		return kvtransfer.Errorf(kvtransfer.HandoffCount, "router: reservation: %d pages of %d for %d rows", len(rv.Pages), rv.PageSize, rows)
	}
	return kvtransfer.Error{}
}

func (l *Loop) storeJob(a *attempt) {
	a.tries++
	a.retryAt = 0
	l.do(StoreJob{Key: a.key, Model: a.slug, Pool: a.pool, Target: a.target, Reservation: a.reservation, Tokens: a.tokens()})
}

func (l *Loop) jobStored(ev JobStored) {
	a := l.attempts[ev.Key]
	if a == nil || a.phase == reserving || a.retryAt != 0 {
		if ev.Sequence != 0 && a == nil {
			l.do(DropJob{Key: ev.Key, Sequence: ev.Sequence}) // given up while the job was on its way
		}
		return
	}
	if ev.Err == FaultNone {
		if a.job == 0 {
			l.recordJob(a, ev.Sequence)
		}
		a.job = ev.Sequence
	}
	if a.phase != storing {
		return // the outcome was quicker
	}
	switch {
	case ev.Err == FaultNone:
		a.phase, a.tries = waiting, 0
	case ev.Err == FaultTooLarge:
		l.failed(a, kvtransfer.Errorf(kvtransfer.PayloadTooLarge, "router: job of %d tokens does not fit max_payload %d", len(a.tokens()), l.maxPayload))
	case a.tries < maxTries:
		a.retryAt = l.now + retryPause
	default:
		l.lose(a, kvtransfer.Errorf(kvtransfer.BusFailed, "router: job not stored, %d tries: %s", a.tries, ev.Err))
	}
}

// recordJob tells the journal that an attempt's job is on the queue.
func (l *Loop) recordJob(a *attempt, sequence uint64) {
	r := a.req
	lim, _ := l.limit()
	l.do(RecordJob{Placed{
		Key: a.key, Tenant: r.tenant, Decode: a.decode, Prompt: len(r.prompt), MaxTokens: r.maxTokens, Resumed: a.resumed, Limit: lim,
		Target: a.target, Sequence: sequence, Queued: r.placed - r.submitted,
	}})
}
