package router

import "quire/kvtransfer"

// After corrupt pages a request may have one more attempt, on another prefill worker. Its job is addressed to that worker, so
// that the one whose pages were refused cannot take it.

// corrupt ends an attempt whose pages were refused: one new attempt where another prefill can serve it now, else the end.
// An attempt that no prefill had seen yet (its promise was wrong) has nobody to stay away from.
func (l *Loop) corrupt(a *attempt, refusal kvtransfer.Error) {
	r := a.req
	r.corrupts++
	r.refused, r.refusal = a.served.ID, refusal
	if r.corrupts > 1 || a.phase != reserving && r.refused == "" || l.stranded(r) {
		l.finish(r, kvtransfer.End{Error: refusal})
		return
	}
	l.again(r, refusal)
}

// stranded says that a request whose pages were refused has no other prefill to go to.
func (l *Loop) stranded(r *request) bool {
	if r.refused == "" {
		return false
	}
	decodes, _ := l.usableIn(l.roster.decodes)
	for _, d := range decodes {
		if l.other(d, r) != nil {
			return false
		}
	}
	return len(decodes) > 0 // else a decode is what it lacks
}

// chooseFor is choose, by the rule for refused requests where it applies.
func (l *Loop) chooseFor(r *request) (choice, bool) {
	if r.refused == "" {
		return l.choose(r.rows(), r.avoid)
	}
	return l.chooseBy(r.rows(), r.avoid, func(d *worker) (choice, bool) {
		p := l.other(d, r)
		if p == nil {
			return choice{}, false
		}
		return choice{decode: d, pool: p.hb.Pool, slug: p.hb.ModelSlug, target: p.hb.Peer.ID}, true
	})
}

// other finds a prefill for a decode that is not the refused one: the one with most room among those whose fingerprints match.
func (l *Loop) other(d *worker, r *request) *worker {
	var best *worker
	most := 0
	prefills, _ := l.usableIn(l.roster.prefills)
	for _, p := range prefills {
		if p.hb.Peer.ID == r.refused || l.match(p, d) != "" || r.rows() > p.tokens() {
			continue
		}
		if free := p.directFree() - l.directed(p.hb.Peer.ID); free > most {
			best, most = p, free
		}
	}
	return best
}

// directFree is how many jobs addressed to it a prefill can take, by its heartbeat: none while one there waits for pages, which
// shows in that it offers fewer slots than are left.
func (w *worker) directFree() int {
	if w.hb.SlotsFree < w.hb.Slots-w.hb.Running {
		return 0
	}
	return w.hb.Slots + kvtransfer.DirectSlots - w.hb.Running
}

// directed counts this router's jobs that are addressed to a prefill and have no outcome yet.
func (l *Loop) directed(id string) int {
	n := 0
	for _, a := range l.attempts {
		if a.target == id && a.prefill {
			n++
		}
	}
	return n
}
