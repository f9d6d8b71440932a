package sim

import (
	"errors"
	"fmt"
	"slices"

	"quire/bus"
)

// consumer is the server's side of reading a stream.
type consumer struct {
	s       *stream
	cfg     bus.Consumer
	members []*member
	turn    int
	seen    map[uint64]*given // messages delivered and not acknowledged
	idle    *timer
	gone    bool
}

// given is what became of one message.
type given struct {
	count int
	out   bool // AckWait, or a Nak's delay, runs
	done  bool // acknowledged in a stream that keeps its messages
	timer *timer
	token uint64 // tells a delivery from a later one of the same message
}

// member is one process's pull on a consumer.
type member struct {
	c      *conn
	cfg    bus.Consumer
	fn     func(*delivery)
	onWant bool      // takes one message for each want
	pulls  []*pull   // at the server, oldest first
	cons   *consumer // nil while server or stream is away
	gone   bool
}

// pull is one request for one message. It expires on both sides; the client repeats it until something came.
type pull struct {
	expires Time
	over    bool // fed, or given up by the client
}

// pullExpiry is how long a pull waits at the server.
const pullExpiry = 500 * ms

// delivery is one message as a member gets it. Exactly one of ack, term and nak is called.
type delivery struct {
	bus.Msg
	seq   uint64
	count int
	m     *member
	cons  *consumer
	token uint64
	used  bool
}

// consume makes or joins a consumer. onWant: one message comes for each want.
func (c *conn) consume(cfg bus.Consumer, onWant bool, timeout Time, fn func(*delivery), cb func(*member, error)) {
	if cfg.AckWait == 0 {
		cfg.AckWait = bus.DefaultAckWait
	}
	if cfg.MaxPending == 0 {
		cfg.MaxPending = bus.DefaultPending
	}
	if cfg.Name == "" || len(cfg.Subjects) == 0 {
		err := fmt.Errorf("bus: consumer %q of %s: %d filters: both must be set", cfg.Name, cfg.Stream, len(cfg.Subjects))
		c.l.after(0, func() { cb(nil, err) })
		return
	}
	call(c, "consume "+cfg.Stream, timeout, func() (*member, error) {
		m := &member{c: c, cfg: cfg, fn: fn, onWant: onWant}
		if err := m.join(); err != nil {
			return nil, err
		}
		c.members = append(c.members, m)
		m.cons.s.pump()
		return m, nil
	}, cb)
}

// join makes or finds the consumer.
func (m *member) join() error {
	s := m.c.b.streams.get(m.cfg.Stream)
	if s == nil {
		return fmt.Errorf("bus: consumer %s of %s: %w", m.cfg.Name, m.cfg.Stream, bus.ErrNoStream)
	}
	for i, name := range s.consumers.names {
		if name == m.cfg.Name || !s.spec.WorkQueue {
			continue
		}
		for _, x := range s.consumers.values[i].cfg.Subjects {
			for _, y := range m.cfg.Subjects {
				if bus.Overlaps(x, y) {
					return fmt.Errorf("bus: consumer %s of %s: filter %s overlaps %s of consumer %s", m.cfg.Name, s.spec.Name, y, x, name)
				}
			}
		}
	}
	cons := s.consumers.get(m.cfg.Name)
	if cons == nil {
		if l := s.spec.MaxConsumers; l > 0 && len(s.consumers.names) >= l {
			return fmt.Errorf("bus: consumer %s of %s: %d consumers of %d", m.cfg.Name, s.spec.Name, len(s.consumers.names), l)
		}
		cons = &consumer{s: s, cfg: m.cfg, seen: map[uint64]*given{}}
		s.consumers.put(m.cfg.Name, cons)
	}
	cons.idle.stop()
	cons.idle = nil
	cons.cfg = m.cfg
	cons.members = append(cons.members, m)
	m.cons = cons
	return nil
}

// rejoin makes the consumer again, as often as it takes: its stream may be somebody else's to make.
func (m *member) rejoin() {
	if m.gone || m.cons != nil || m.c.gone || m.c.closed {
		return
	}
	if !m.c.b.up || m.join() != nil {
		m.c.l.after(300*ms, m.rejoin)
		return
	}
	m.c.lost = slices.DeleteFunc(m.c.lost, func(o *member) bool { return o == m })
	m.c.members = append(m.c.members, m)
	m.cons.s.pump()
}

// want asks for one more message, again and again until one came.
func (m *member) want() {
	if m.gone || m.c.closed {
		return
	}
	p := &pull{expires: m.c.b.q.now + pullExpiry}
	m.c.l.toBus(func() {
		m.pulls = append(m.pulls, p)
		if m.cons != nil {
			m.cons.s.pump()
		}
	})
	m.c.l.after(pullExpiry+50*ms, func() {
		if !p.over {
			p.over = true
			m.want()
		}
	})
}

// hungry says whether a pull waits at the server.
func (m *member) hungry() bool {
	now := m.c.b.q.now
	m.pulls = slices.DeleteFunc(m.pulls, func(p *pull) bool { return p.expires <= now })
	return len(m.pulls) > 0
}

// drain takes the member away at once.
func (m *member) drain() {
	if m.gone {
		return
	}
	m.gone = true
	m.c.members = slices.DeleteFunc(m.c.members, func(o *member) bool { return o == m })
	m.c.lost = slices.DeleteFunc(m.c.lost, func(o *member) bool { return o == m })
	if m.cons != nil {
		m.cons.leave(m)
	}
}

// leave takes a member away; a consumer from which nobody pulls is dropped after a while.
func (c *consumer) leave(m *member) {
	c.members = slices.DeleteFunc(c.members, func(o *member) bool { return o == m })
	m.cons = nil
	if len(c.members) == 0 && c.idle == nil {
		c.idle = c.s.b.q.after(micros(bus.InactiveAfter), func() {
			if len(c.members) == 0 && c.s.consumers.get(c.cfg.Name) == c {
				c.end()
				c.s.consumers.remove(c.cfg.Name)
			}
		})
	}
}

func (c *consumer) end() {
	c.gone = true
	c.seen = map[uint64]*given{}
	c.idle.stop()
	for _, m := range c.members {
		m.cons = nil
		m.c.members = slices.DeleteFunc(m.c.members, func(o *member) bool { return o == m })
		m.c.lost = append(m.c.lost, m)
		m.c.l.after(500*ms, m.rejoin) // pulls miss heartbeats
	}
	c.members = nil
}

func (s *stream) dropConsumers() {
	for _, c := range s.consumers.values {
		c.end()
	}
	s.consumers = named[*consumer]{}
}

// pump delivers what can be delivered.
func (s *stream) pump() {
	if len(s.msgs) == 0 {
		return
	}
	for _, c := range s.consumers.values {
		for c.step() {
		}
	}
}

// step delivers the oldest message that may go out to the next member in turn that takes one.
func (c *consumer) step() bool {
	m := c.next()
	if m == nil {
		return false
	}
	if len(c.seen) >= c.cfg.MaxPending && c.pending() >= c.cfg.MaxPending {
		return false
	}
	for _, st := range c.s.msgs {
		d := c.seen[st.seq]
		if d != nil && (d.out || d.done || c.cfg.MaxDeliver > 0 && d.count >= c.cfg.MaxDeliver) {
			continue
		}
		if slices.ContainsFunc(c.cfg.Subjects, func(p string) bool { return bus.Matches(p, st.msg.Subject) }) {
			c.turn++
			c.give(m, st)
			return true
		}
	}
	return false
}

// pending counts the messages that are out.
func (c *consumer) pending() int {
	n := 0
	for _, d := range c.seen {
		if d.out {
			n++
		}
	}
	return n
}

func (c *consumer) next() *member {
	for i := range c.members {
		m := c.members[(c.turn+i)%len(c.members)]
		if !m.onWant || m.hungry() {
			return m
		}
	}
	return nil
}

// give starts AckWait and hands the message over.
func (c *consumer) give(m *member, st stored) {
	d := c.seen[st.seq]
	if d == nil {
		d = &given{}
		c.seen[st.seq] = d
	}
	d.count++
	d.out = true
	d.token++
	token := d.token
	if d.count > 1 {
		c.s.b.mark("bus: redelivery")
	}
	d.timer = c.s.b.q.after(micros(c.cfg.AckWait), func() { c.expire(st.seq, token) })
	p := &pull{}
	if m.onWant {
		p = m.pulls[0]
		m.pulls = m.pulls[1:]
	}
	deliver := func() {
		if !m.gone && !p.over {
			p.over = m.onWant
			m.fn(&delivery{Msg: st.msg, seq: st.seq, count: d.count, m: m, cons: c, token: token})
		}
	}
	m.c.l.toProc(deliver)
	if m.c.l.twice() && !m.onWant {
		m.c.l.toProc(deliver)
	}
}

// expire makes a message free for another delivery.
func (c *consumer) expire(seq, token uint64) {
	if d := c.seen[seq]; !c.gone && d != nil && d.token == token && d.out {
		c.s.b.mark("time-out: AckWait")
		d.out = false
		c.s.pump()
	}
}

var errSettled = errors.New("bus: message already settled")

// settle sends what the process says about a delivery. As on NATS, an acknowledgement that comes late still counts, one of a
// message that is gone does nothing, and a late nak does nothing.
func (d *delivery) settle(fn func()) error {
	if d.used {
		return fmt.Errorf("bus: message %d of %s: %w", d.seq, d.m.cfg.Stream, errSettled)
	}
	if err := d.m.c.ready("settle a message of " + d.m.cfg.Stream); err != nil {
		return err
	}
	if d.cons.gone {
		return fmt.Errorf("bus: message %d of %s: the consumer is gone: %w", d.seq, d.m.cfg.Stream, bus.ErrDown)
	}
	d.used = true
	d.m.c.l.toBus(func() {
		if d.m.c.b.up && !d.cons.gone {
			fn()
			d.cons.s.pump()
		}
	})
	return nil
}

func (d *delivery) ack() error { return d.settle(d.acked) }

func (d *delivery) acked() {
	c := d.cons
	g := c.seen[d.seq]
	if g == nil {
		return
	}
	g.timer.stop()
	if c.s.spec.WorkQueue {
		c.s.drop(d.seq)
		return
	}
	g.out, g.done = false, true
}

func (d *delivery) nak(delay Time) error {
	return d.settle(func() {
		g := d.cons.seen[d.seq]
		if g == nil || g.token != d.token || !g.out {
			return
		}
		g.timer.stop()
		if delay <= 0 {
			g.out = false
			return
		}
		g.timer = d.cons.s.b.q.after(delay, func() { d.cons.expire(d.seq, d.token) })
	})
}
