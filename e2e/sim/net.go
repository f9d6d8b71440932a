package sim

import (
	"strings"

	"quire/bus"
)

// network is the way of messages between processes and the bus. Zero chances mean a network without faults.
type network struct {
	w        *World
	min, max Time    // of a hop
	drop     float64 // messages lost
	dup      float64 // messages repeated
	spike    float64 // messages that take up to spikeMax
	spikeMax Time
	flip     float64   // messages with a changed byte
	fifo     bool      // a link keeps the order
	echo     float64   // messages that have an older one of their hand-off come again
	tape     []bus.Msg // the last messages, for replays
	burst    Time      // until then nothing gets from the bus to a router: the middle of a stream of tokens is lost
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
	n.drop, n.dup, n.spike, n.flip, n.echo, n.burst = 0, 0, 0, 0, 0, 0
	n.min, n.max = 100, 1*ms
}

// record keeps a message for a replay; heartbeats, answers and the journal are not worth it.
func (n *network) record(subject string, data []byte) {
	if n.w.plan.Replay+n.w.plan.Echo == 0 || strings.HasPrefix(subject, "_INBOX") || strings.HasPrefix(subject, "quire.hb.") || strings.HasPrefix(subject, "quire.journal") {
		return
	}
	if len(n.tape) >= 256 {
		n.tape = n.tape[128:]
	}
	if n.w.dice.chance(n.echo) {
		n.answer(handoffOf(subject))
	}
	n.tape = append(n.tape, bus.Msg{Subject: subject, Data: data})
}

// answer sends an older message of a hand-off again, soon: late messages meet it in all its states.
func (n *network) answer(handoff string) {
	var of []bus.Msg
	for _, m := range n.tape {
		if handoff != "" && handoffOf(m.Subject) == handoff {
			of = append(of, m)
		}
	}
	if len(of) == 0 {
		return
	}
	m := pick(n.w.dice, of...)
	n.w.q.post(n.w.dice.between(0, 30*ms), nil, func() {
		if !n.w.healed {
			n.w.cov.mark("fault: message of the hand-off again")
			n.w.bus.replay(m)
		}
	})
}

// handoffOf gives the hand-off in a subject, whatever its attempt; "" when there is none.
func handoffOf(subject string) string {
	last := subject[strings.LastIndexByte(subject, '.')+1:]
	if id, _, ok := strings.Cut(last, "-"); ok && len(id) == 32 {
		return id
	}
	return ""
}

// replay sends one of them again, more often a late one.
func (n *network) replay() {
	if len(n.tape) == 0 {
		return
	}
	i := max(n.w.dice.IntN(len(n.tape)), n.w.dice.IntN(len(n.tape)))
	n.w.cov.mark("fault: old message replayed")
	n.w.bus.replay(n.tape[i])
}
