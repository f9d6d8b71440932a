package sim

import (
	"quire/kvtransfer"
)

// checkEnd: at most one end reaches a client, and it has the right status.
func (a *ask) checkEnd() {
	if len(a.ends) > 1 {
		a.w.fail("ends", "request %d (%s): end %d: %+v after %+v", a.n, a.key(), len(a.ends), a.ends[len(a.ends)-1], a.ends[0])
		return
	}
	end := a.ends[0]
	a.w.cov.end(end)
	if (end.Finish == "") == end.Error.IsZero() {
		a.w.fail("ends", "request %d (%s): finish %q and error %q", a.n, a.key(), end.Finish, end.Error.Code)
		return
	}
	if end.Error.IsZero() {
		if a.begun != 1 || !a.accepted {
			a.w.fail("ends", "request %d (%s): a good end, begun %d times, accepted %t", a.n, a.key(), a.begun, a.accepted)
		}
		a.checkWhole()
		return
	}
	if why := a.wrong(end.Error); why != "" {
		a.w.fail("ends", "request %d (%s): %s: %s: %s", a.n, a.key(), end.Error.Code, why, end.Error.Detail)
	}
	if a.late && a.mustServe() {
		a.w.fail("liveness", "request %d (%s): asked of a whole cluster, not served: %s: %s", a.n, a.key(), end.Error.Code, end.Error.Detail)
	}
}

// wrong says why an error is not the right one for what happened to this request; "" when it may be.
func (a *ask) wrong(err kvtransfer.Error) string {
	p := a.w.plan
	if p.Rogue > 0 && err.Code != kvtransfer.Invariant {
		return "" // a lie may be refused for anything that it names
	}
	switch err.Code {
	case kvtransfer.Cancelled:
		return unless(a.cancelled, "nobody cancelled it")
	case kvtransfer.ClientGone:
		return unless(a.left, "its client is there")
	case kvtransfer.DeadlineExceeded:
		limit := Time(p.router.DefaultDeadline)
		if a.deadline > 0 {
			limit = a.deadline
		}
		return unless(a.shell.p.now()-a.at >= kvtransfer.Tick(float64(limit)*0.6), "its deadline has not come")
	case kvtransfer.ContextLengthExceeded:
		return unless(len(a.tokens)+max(a.max, 1) > p.leastRows(), "it fits everywhere")
	case kvtransfer.InvalidRequest:
		return unless(a.invalid(), "nothing is wrong with it")
	case kvtransfer.Overloaded:
		return "" // the queue's bound; after the heal it is not right, which liveness says
	case kvtransfer.Invariant:
		return "an invariant broke"
	}
	switch err.Class() {
	case kvtransfer.ClassCorrupt:
		return "nobody lied"
	case kvtransfer.ClassLost, kvtransfer.ClassFailed:
		return unless(p.faulty(), "there were no faults")
	case kvtransfer.ClassRefused:
		return unless(p.faulty() || !a.accepted || a.w.q.now < 20*sec, "everything was there")
	}
	return "such an error does not reach clients"
}

// invalid says that no cluster could take the request, whatever its size.
func (a *ask) invalid() bool {
	if len(a.tokens) == 0 {
		return true
	}
	return int(a.tokens[len(a.tokens)-1]) >= a.w.plan.engine.Vocab
}

func unless(ok bool, why string) string {
	if ok {
		return ""
	}
	return why
}

// mustServe says that a whole cluster has to serve the request.
func (a *ask) mustServe() bool { return len(a.tokens)+max(a.max, 1) <= a.w.plan.limitRows() }

// checkEnds: at the end of a run every request has exactly one end, unless its router died.
func (c *clients) checkEnds() {
	for _, a := range c.asks {
		if len(a.ends) == 0 && !a.routerDied && !a.refused {
			c.w.fail("ends", "request %d (%s): no end, and its router %s lives", a.n, a.key(), a.shell.peer)
		}
		if a.late && a.mustServe() && (len(a.ends) == 0 || !a.ends[0].Error.IsZero()) {
			c.w.fail("liveness", "request %d (%s): asked of a whole cluster, not served", a.n, a.key())
		}
	}
}
