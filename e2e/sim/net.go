package sim

// network is the way of messages between processes and the bus. Zero chances mean a network without faults.
type network struct {
	w        *World
	min, max Time    // of a hop
	drop     float64 // messages lost
	dup      float64 // messages repeated
	spike    float64 // messages that take up to spikeMax
	spikeMax Time
	flip     float64 // messages with a changed byte
	fifo     bool    // a link keeps the order
	burst    Time    // until then nothing gets from the bus to a router: the middle of a stream of tokens is lost
}

func (n *network) delay() Time {
	if n.w.dice.chance(n.spike) {
		n.w.cov.mark("fault: message delayed")
		return n.w.dice.between(n.max, n.spikeMax)
	}
	return n.w.dice.between(n.min, n.max)
}

// hop gives how long a message takes over a process's link; false means that it is lost.
func (n *network) hop(p *proc, last *Time) (Time, bool) {
	now := n.w.q.now
	switch {
	case p.n.cut:
		n.w.cov.mark("fault: link cut")
		return 0, false
	case n.w.dice.chance(n.drop):
		n.w.cov.mark("fault: message lost")
		return 0, false
	case now < n.burst && last == &p.lastDown && p.n.role == "router":
		n.w.cov.mark("fault: middle of a stream lost")
		return 0, false
	}
	at := now + n.delay() + p.n.slow
	if n.fifo {
		at = max(at, *last)
	}
	if at < *last {
		n.w.cov.mark("fault: messages out of order")
	}
	*last = max(*last, at)
	return at - now, true
}

// garble changes a byte now and then.
func (n *network) garble(data []byte) []byte {
	if len(data) == 0 || !n.w.dice.chance(n.flip) {
		return data
	}
	n.w.cov.mark("fault: byte changed")
	out := append([]byte(nil), data...)
	out[n.w.dice.IntN(len(out))] ^= byte(1 + n.w.dice.IntN(255))
	return out
}

// heal makes the network whole.
func (n *network) heal() {
	n.drop, n.dup, n.spike, n.flip, n.burst = 0, 0, 0, 0, 0
	n.min, n.max = 100, 1*ms
}
