package sim

import (
	"fmt"

	"quire/kvtransfer"
)

// node is one machine's place in the cluster: processes live there one after another, now and then two at a time.
type node struct {
	w    *World
	role kvtransfer.Role
	id   string
	boot func(p *proc) // starts a process's shell
	cur  *proc         // the youngest process; nil before the first
	cut  bool          // nothing gets through between it and the bus
	slow Time          // what its link adds to every message
	rate float64       // of its clock, against true time

	draining bool // its process is asked to shut down
	lies     bool // its process may be a rogue

	restart *timer // a start that is due
}

func (n *node) String() string { return fmt.Sprintf("%s/%s", n.role, n.id) }

// start begins a new process here. An older one that still runs will hear of its successor's epoch.
func (n *node) start() {
	n.restart.stop()
	n.restart = nil
	p := &proc{w: n.w, n: n, born: n.w.q.now, peer: kvtransfer.Peer{Role: n.role, ID: n.id}}
	n.cur = p
	n.w.procs = append(n.w.procs, p)
	p.c = n.w.bus.connect(p)
	n.w.logf("%s starts", n)
	n.boot(p)
}

// startIn starts a process after a while, unless one is due already.
func (n *node) startIn(d Time) {
	if n.restart == nil {
		n.restart = n.w.q.after(d, n.start)
	}
}

// proc is one process. Everything that happens in it goes through run, so that a dead one does nothing more and a stopped one
// nothing now.
type proc struct {
	w                *World
	n                *node
	peer             kvtransfer.Peer // Epoch is 0 until it has taken one
	c                *conn
	born             Time
	dead             bool
	paused           bool
	backlog          []func()
	died             []func()      // what the world does when it is gone
	idle             func() string // says what is left in it; nil before it has a loop
	lastUp, lastDown Time          // of links that keep the order
}

func (p *proc) String() string { return p.peer.String() }

func (p *proc) run(fn func()) {
	switch {
	case p.dead:
	case p.paused:
		p.backlog = append(p.backlog, fn)
	default:
		fn()
	}
}

// now is the process's monotonic clock.
func (p *proc) now() kvtransfer.Tick {
	return kvtransfer.Tick(float64(p.w.q.now-p.born)*p.n.rate) + 1
}

// after counts on the process's clock.
func (p *proc) after(d Time, fn func()) *timer {
	t := &timer{fn: fn, p: p}
	p.w.q.add(Time(float64(d)/p.n.rate), t)
	return t
}

// kill ends the process as kill -9 does: what it had said is on its way, the server notices after a while.
func (p *proc) kill(notice Time) {
	if p.dead {
		return
	}
	p.dead, p.backlog = true, nil
	p.w.logf("%s is dead", p)
	p.w.q.after(notice, p.c.leave)
	for _, fn := range p.died {
		fn()
	}
}

// pause is SIGSTOP, resume SIGCONT: what came meanwhile is handled then, late.
func (p *proc) pause() { p.paused = true }

func (p *proc) resume() {
	p.paused = false
	for len(p.backlog) > 0 && !p.paused && !p.dead {
		fn := p.backlog[0]
		p.backlog = p.backlog[1:]
		fn()
	}
}

// toBus implements link.
func (p *proc) toBus(fn func()) {
	if p.dead {
		return
	}
	if d, ok := p.w.net.hop(p, &p.lastUp); ok {
		p.w.q.post(d, nil, fn)
	}
}

// toProc implements link.
func (p *proc) toProc(fn func()) {
	if p.dead {
		return
	}
	if d, ok := p.w.net.hop(p, &p.lastDown); ok {
		p.w.q.post(d, p, fn)
	}
}

// twice implements link.
func (p *proc) twice() bool {
	if !p.w.dice.chance(p.w.net.dup) {
		return false
	}
	p.w.cov.mark("fault: message repeated")
	return true
}

// sent implements link.
func (p *proc) sent(subject string, data []byte) []byte {
	p.w.net.record(subject, data)
	return p.w.net.garble(data)
}

// sure implements link.
func (p *proc) sure(fn func()) {
	p.w.q.after(p.w.net.delay(), func() {
		if p.n.cut && !p.dead {
			p.w.q.after(200*ms, func() { p.sure(fn) })
			return
		}
		p.run(fn)
	})
}

// crew is some goroutines that share a queue of work: jobs start in order, at most size at a time. A job calls done when it is over.
type crew struct {
	size, busy int
	jobs       []func(done func())
}

func (c *crew) push(job func(done func())) {
	c.jobs = append(c.jobs, job)
	c.pump()
}

func (c *crew) pump() {
	for c.busy < c.size && len(c.jobs) > 0 {
		job := c.jobs[0]
		c.jobs = c.jobs[1:]
		c.busy++
		job(func() {
			c.busy--
			c.pump()
		})
	}
}
