package sim

import (
	"io"
)

// Options of a run. The zero value is a plain one.
type Options struct {
	Trace  io.Writer // what happens, line by line
	early  bool      // without the faults of drawNewer
	plant  string
	change func(*Plan)
	keys   keyring
}

// Result is what a run was.
type Result struct {
	Failure  *Failure // nil when every checker is content
	Coverage *Coverage
	Events   uint64 // handled by loops
	History  uint64 // hash of them: equal runs have equal ones
	Asks     int
	Time     Time // simulated
}

// Run runs one seed to its end.
func Run(seed uint64, o Options) Result {
	w := newWorld(seed, o)
	w.live()
	return Result{Failure: w.failure, Coverage: w.cov, Events: w.events, History: w.history, Asks: len(w.clients.asks), Time: w.q.now}
}

// live is a run's three parts.
func (w *World) live() {
	p := w.plan
	w.schedule()
	for range p.Asks {
		w.q.after(w.dice.between(0, p.Safety), func() { w.clients.submit(w.clients.draw()) })
	}
	w.until(p.Safety, func() bool { return false })
	w.heal()
	if !w.until(30*sec, func() bool { return w.clients.open() == 0 }) {
		w.fail("liveness", "%d requests are open 30 s after the heal:\n%s", w.clients.open(), w.dump())
	}
	w.until(5*sec, func() bool { return w.q.now+2*ms > w.lastLate() })
	w.until(1200*ms, func() bool { return false }) // no heartbeat of before counts any more
	if !w.until(10*sec, w.whole) {
		w.fail("liveness", "the cluster is not whole 10 s after the last request:\n%s", w.dump())
	}
	for range p.LateAsks {
		w.q.after(w.dice.between(0, 300*ms), func() { w.clients.submit(w.clients.drawServable()) })
	}
	w.until(300*ms, func() bool { return false })
	if !w.until(30*sec, func() bool { return w.clients.open() == 0 }) {
		w.fail("liveness", "%d requests asked of a whole cluster are open after 30 s:\n%s", w.clients.open(), w.dump())
	}
	if w.failure == nil {
		w.clients.checkEnds()
	}
	w.rest()
}

// until lets the world go on for a while, until cond holds; it says whether it did.
func (w *World) until(d Time, cond func() bool) bool {
	const look = 50 * ms
	end := w.q.now + d
	for w.q.now < end && w.failure == nil {
		slice := min(end, w.q.now+look)
		for w.failure == nil && w.q.next(slice) {
			if w.q.runs > 3_000_000 {
				w.fail("liveness", "no rest after %d events", w.q.runs)
			}
		}
		if cond() {
			return true
		}
	}
	return w.failure != nil
}

// lastLate is when the last message that was slow before the heal arrives: a link that keeps its order delays those behind it.
func (w *World) lastLate() Time {
	var last Time
	for _, p := range w.procs {
		if !p.dead {
			last = max(last, p.lastUp, p.lastDown)
		}
	}
	return last
}

// whole says that every router sees every worker, nothing of before is left in it, and all journals are written: one that
// waits between its tries takes none of a decode's facts.
func (w *World) whole() bool {
	for _, n := range w.nodes {
		if n.cur == nil || n.cur.dead || n.cur.idle == nil {
			return false
		}
	}
	for _, s := range w.decodes {
		if !s.ended && !s.p.dead && (s.full || len(s.journal.queue) > 0) {
			return false
		}
	}
	n := 0
	for _, s := range w.routers {
		if s.ended || s.p.dead {
			continue
		}
		n++
		st := s.loop.Stats()
		if !s.ready || st.Decodes < w.plan.Decodes || st.Prefills < w.plan.Prefills || st.Closing > 0 || !st.Missing.IsZero() {
			return false
		}
	}
	return n >= w.plan.Routers
}
