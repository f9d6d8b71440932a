package router

import (
	"fmt"

	"quire/kvtransfer"
)

// failed takes an error from decode, which has ended the attempt there.
func (l *Loop) failed(a *attempt, err kvtransfer.Error) {
	l.close(a, true)
	l.after(a, err)
}

// lose gives up an attempt that decode may still hold: it is cancelled there.
func (l *Loop) lose(a *attempt, err kvtransfer.Error) {
	l.do(SendCancel{Key: a.key, To: a.decode, Error: err})
	l.close(a, false)
	l.after(a, err)
}

// after does what the class of an attempt's error says: a new attempt, or the request's end.
func (l *Loop) after(a *attempt, err kvtransfer.Error) {
	r := a.req
	switch err.Class() {
	case kvtransfer.ClassLost, kvtransfer.ClassFailed:
		l.again(r, err)
	case kvtransfer.ClassCorrupt:
		l.stats.Corrupt++
		l.corrupt(a, kvtransfer.Errorf(kvtransfer.HandoffRefused, "%s: %s", err.Code, err.Detail))
	case kvtransfer.ClassRefused:
		switch err.Code { // what another worker, or this one a little later, may do
		case kvtransfer.PoolExhausted, kvtransfer.Overloaded, kvtransfer.Draining:
			l.shut(a.decode)
			l.later(r)
		case kvtransfer.JournalDown, kvtransfer.BusDown:
			l.shut(a.decode)
			l.again(r, err)
		default:
			l.finish(r, kvtransfer.End{Error: err})
		}
	default:
		l.finish(r, kvtransfer.End{Error: err})
	}
}

// again puts a request back at the front of its tenant's queue, unless it has had all its attempts.
func (l *Loop) again(r *request, err kvtransfer.Error) {
	r.losses++
	r.avoid = r.lastPeer.ID
	l.stats.Lost++
	switch {
	case l.now >= r.deadline:
		l.finish(r, l.late(r))
	case r.losses >= l.policy.MaxAttempts:
		err.Detail = fmt.Sprintf("%s (attempt %d of %d)", err.Detail, r.losses, l.policy.MaxAttempts)
		l.finish(r, kvtransfer.End{Error: err})
	default:
		l.stats.Retries++
		l.queue.pushFront(r)
	}
}

// later puts a request back that found no room: nothing was lost, so it does not count, and its deadline bounds the waiting.
func (l *Loop) later(r *request) {
	if l.now >= r.deadline {
		l.finish(r, l.late(r))
		return
	}
	l.stats.Retries++
	l.queue.pushFront(r)
}

// abandon ends a request from this side: client gone, cancelled, late, shutting down.
func (l *Loop) abandon(r *request, err kvtransfer.Error) {
	l.queue.remove(r)
	if a := r.current; a != nil {
		l.do(SendCancel{Key: a.key, To: a.decode, Error: err})
		l.close(a, false)
	}
	l.finish(r, kvtransfer.End{Error: err})
}

func (l *Loop) late(r *request) kvtransfer.End {
	return kvtransfer.End{Error: kvtransfer.Errorf(kvtransfer.DeadlineExceeded, "router: %d ms have passed, %d output tokens",
		(l.now-r.submitted)/kvtransfer.Millisecond, len(r.output))}
}

// close takes an attempt out of the table: what it held is free, a job that nobody claimed is deleted, and decode is told until
// it answers. told says that decode ended it first.
func (l *Loop) close(a *attempt, told bool) {
	delete(l.attempts, a.key)
	a.req.current = nil
	l.dirty = true
	if w := l.roster.decodes[a.decode.ID]; w != nil && w.hb.Peer.Epoch == a.decode.Epoch {
		w.slots.give(l.now, 1)
		w.pages.give(l.now, a.pages)
	}
	l.freePrefillSlot(a)
	if l.running[a.req.tenant]--; l.running[a.req.tenant] <= 0 {
		delete(l.running, a.req.tenant)
	}
	if a.phase != answering && a.job != 0 {
		l.do(DropJob{Key: a.key, Sequence: a.job})
	}
	l.do(Forget{Key: a.key})
	if told && a.phase == reserving && a.next == 0 {
		return // decode refused: it has nothing to forget
	}
	if len(l.closing) < maxClosing {
		c := &closing{key: a.key, decode: a.decode, from: a.next}
		l.closing[a.key] = c
		l.acknowledge(c)
	}
}

func (l *Loop) freePrefillSlot(a *attempt) {
	if a.prefill {
		a.prefill, l.dirty = false, true
		l.roster.group(a.pool).give(l.now, 1)
	}
}

// acknowledge tells decode that the attempt is over; it may forget it.
func (l *Loop) acknowledge(c *closing) {
	c.tries++
	c.nextAt = 0
	l.do(AskResend{Key: c.key, To: c.decode, From: c.from, Ack: true})
}

func (l *Loop) acknowledged(c *closing, ev Resent) {
	if ev.Err == FaultNone || c.tries >= maxTries {
		delete(l.closing, c.key) // or decode keeps it until the deadline
		return
	}
	c.nextAt = l.now + silence
}

// finish gives a request its one end.
func (l *Loop) finish(r *request, end kvtransfer.End) {
	delete(l.requests, r.ref)
	delete(l.byID, r.id)
	if !end.Error.IsZero() {
		end.Finish, end.Prompt, end.Output = "", len(r.prompt), len(r.output)
	}
	reason := string(end.Finish)
	if reason == "" {
		reason = string(end.Error.Code)
	} else {
		l.average += (l.now - r.submitted - l.average) / 8
	}
	l.stats.end(reason)
	queued := l.now - r.submitted
	if r.placed >= 0 {
		queued = r.placed - r.submitted
	}
	l.do(Finish{Ref: r.ref, End: end, RetryAfter: l.retryAfter(end.Error)})
	if l.cfg.Taped[r.tenant] && end.Error.IsZero() {
		l.do(Tape{ID: r.id, Tenant: r.tenant, Prompt: r.prompt, Output: r.output, Sampling: r.sampling, Max: r.maxTokens, Finish: end.Finish})
	}
	l.do(Record{Finished{
		Key: kvtransfer.Key{ID: r.id, Attempt: r.attempts}, Tenant: r.tenant, Decode: r.lastPeer, Prompt: len(r.prompt),
		Output: end.Output, Seed: r.sampling.Seed, Attempts: int(r.attempts), Finish: end.Finish, Error: end.Error,
		Took: l.now - r.submitted, Queued: queued,
	}})
}

// tick does what is due.
func (l *Loop) tick(now kvtransfer.Tick) {
	l.now, l.dirty = max(l.now, now), true
	for _, a := range l.takeDue() {
		if l.attempts[a.key] == a {
			l.due(a)
			l.watch(a.key)
		}
	}
	for _, key := range l.closingInOrder() {
		if c := l.closing[key]; c.nextAt != 0 && l.now >= c.nextAt {
			l.acknowledge(c)
		}
	}
	l.expire()
	if l.draining && l.now >= l.drainBy {
		for _, a := range l.attemptsInOrder() {
			l.abandon(a.req, kvtransfer.Errorf(kvtransfer.Draining, "router: shutting down"))
		}
		for _, r := range l.queue.all() {
			l.abandon(r, kvtransfer.Errorf(kvtransfer.Draining, "router: shutting down"))
		}
	}
	l.roster.forget(l.now, 4*l.policy.LostAfter)
}

// due looks at one attempt: deadline, silent decode, a call to repeat, a resend to ask for.
func (l *Loop) due(a *attempt) {
	w := l.roster.decodes[a.decode.ID]
	switch {
	case l.now >= a.req.deadline:
		l.abandon(a.req, l.late(a.req).Error)
	case w == nil || l.silent(w):
		l.lose(a, kvtransfer.Errorf(kvtransfer.WorkerLost, "router: no heartbeat of %s for %d ms", a.decode, l.policy.LostAfter/kvtransfer.Millisecond))
	case a.retryAt != 0 && l.now >= a.retryAt && a.phase == reserving:
		l.sendReserve(a)
	case a.retryAt != 0 && l.now >= a.retryAt && a.phase == storing:
		l.storeJob(a)
	case a.phase >= waiting && !a.asking && (a.behind || l.now-a.heard >= silence):
		l.ask(a)
	}
}

// expire ends requests that waited too long: past their deadline, or for a worker that does not come back.
func (l *Loop) expire() {
	if l.queue.n == 0 {
		return
	}
	lim, missing := l.limit()
	for _, r := range l.queue.all() {
		if l.now >= r.deadline {
			l.abandon(r, l.late(r).Error)
			continue
		}
		if l.stranded(r) {
			l.abandon(r, r.refusal)
			continue
		}
		err := missing
		if err.IsZero() {
			err = lim.check(len(r.prompt), r.maxTokens)
		}
		switch {
		case err.IsZero():
			r.unfit = -1
		case r.unfit < 0:
			r.unfit = l.now
		case l.now-r.unfit >= l.policy.Grace:
			l.abandon(r, err)
		}
	}
}
