package bustest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"quire/bus"
)

// consumer is the server's side; guarded by the broker's mu.
type consumer struct {
	s       *stream
	cfg     bus.Consumer
	members []*member
	turn    int
	seen    map[uint64]*delivery // every message delivered and not acknowledged
	idle    *time.Timer          // drops the consumer when nobody pulls
	gone    bool                 // the server no longer has it
}

type delivery struct {
	count int
	out   bool // with a member, AckWait (or a Nak's delay) running
	done  bool // acknowledged in a stream that keeps its messages
	timer *time.Timer
	token uint64 // tells a delivery from a later one of the same message
}

// member is one process's pull on a consumer.
type member struct {
	c      *Conn
	cfg    bus.Consumer
	fn     func(bus.Delivery)
	cons   *consumer // nil while the server or stream is away
	box    mailbox
	hungry bool               // Want gave a value that no message has met yet
	fed    chan *bus.Delivery // capacity 1
	stop   chan struct{}
	ended  chan struct{} // the Want goroutine is gone
	gone   bool
}

// Consume implements bus.Bus.
func (c *Conn) Consume(ctx context.Context, cfg bus.Consumer, fn func(bus.Delivery)) (bus.Sub, error) {
	if cfg.Name == "" || len(cfg.Subjects) == 0 {
		return nil, fmt.Errorf("bus: consumer %q of %s: %d filters: both must be set", cfg.Name, cfg.Stream, len(cfg.Subjects))
	}
	if err := c.b.fail("consume", cfg.Stream); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, timedOut("consume "+cfg.Stream, err)
	}
	if cfg.AckWait == 0 {
		cfg.AckWait = bus.DefaultAckWait
	}
	if cfg.MaxPending == 0 {
		cfg.MaxPending = bus.DefaultPending
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if err := c.ready("consume " + cfg.Stream); err != nil {
		return nil, err
	}
	m := &member{c: c, cfg: cfg, fn: fn, stop: make(chan struct{}), ended: make(chan struct{}), fed: make(chan *bus.Delivery, 1)}
	if err := m.join(); err != nil {
		return nil, err
	}
	c.members = append(c.members, m)
	if cfg.Want != nil {
		go m.eat()
	} else {
		close(m.ended)
		m.cons.s.pump()
	}
	return m, nil
}

// join makes or finds the consumer. Called under b.mu.
func (m *member) join() error {
	s := m.c.b.streams[m.cfg.Stream]
	if s == nil {
		return fmt.Errorf("bus: consumer %s of %s: %w", m.cfg.Name, m.cfg.Stream, bus.ErrNoStream)
	}
	for name, o := range s.consumers {
		if name == m.cfg.Name || !s.spec.WorkQueue {
			continue
		}
		for _, x := range o.cfg.Subjects {
			for _, y := range m.cfg.Subjects {
				if bus.Overlaps(x, y) {
					return fmt.Errorf("bus: consumer %s of %s: filter %s overlaps %s of consumer %s", m.cfg.Name, s.spec.Name, y, x, name)
				}
			}
		}
	}
	cons := s.consumers[m.cfg.Name]
	if cons == nil {
		if l := s.spec.MaxConsumers; l > 0 && len(s.consumers) >= l {
			return fmt.Errorf("bus: consumer %s of %s: %d consumers of %d", m.cfg.Name, s.spec.Name, len(s.consumers), l)
		}
		cons = &consumer{s: s, cfg: m.cfg, seen: map[uint64]*delivery{}}
		s.consumers[m.cfg.Name] = cons
	}
	if cons.idle != nil {
		cons.idle.Stop()
		cons.idle = nil
	}
	cons.cfg = m.cfg
	cons.members = append(cons.members, m)
	m.cons = cons
	return nil
}

// rejoin makes the consumer again after the server came back. Called under b.mu.
func (m *member) rejoin() {
	if m.cons == nil && !m.gone && m.join() == nil {
		m.cons.s.pump()
	}
}

// eat receives from Want and waits for a message, one after the other.
func (m *member) eat() {
	defer close(m.ended)
	for {
		select {
		case <-m.stop:
			return
		case _, ok := <-m.cfg.Want:
			if !ok {
				return
			}
		}
		m.c.b.mu.Lock()
		m.hungry = true
		if m.cons != nil {
			m.cons.s.pump()
		}
		m.c.b.mu.Unlock()
		select {
		case <-m.stop:
			return
		case d := <-m.fed:
			m.handle(d)
		}
	}
}

// Drain implements bus.Sub.
func (m *member) Drain() error {
	b := m.c.b
	b.mu.Lock()
	if m.gone {
		b.mu.Unlock()
		return nil
	}
	m.gone, m.hungry = true, false
	m.c.members = slices.DeleteFunc(m.c.members, func(o *member) bool { return o == m })
	if m.cons != nil {
		m.cons.leave(m)
	}
	close(m.stop)
	b.mu.Unlock()
	m.box.drain(false) // what waits there is given back, see give
	<-m.ended
	select {
	case d := <-m.fed:
		m.handle(d)
	default:
	}
	return nil
}

// leave takes a member away and, when it was the last, starts the time after which the consumer is dropped.
func (c *consumer) leave(m *member) {
	c.members = slices.DeleteFunc(c.members, func(o *member) bool { return o == m })
	m.cons = nil
	if len(c.members) == 0 && c.idle == nil {
		c.idle = time.AfterFunc(bus.InactiveAfter, func() {
			c.s.b.mu.Lock()
			defer c.s.b.mu.Unlock()
			if c.idle != nil && c.s.consumers[c.cfg.Name] == c {
				c.end()
				delete(c.s.consumers, c.cfg.Name)
			}
		})
	}
}

// end stops a consumer's timers and sets its members free.
func (c *consumer) end() {
	c.gone = true
	for _, d := range c.seen {
		if d.timer != nil {
			d.timer.Stop()
		}
	}
	c.seen = map[uint64]*delivery{}
	if c.idle != nil {
		c.idle.Stop()
		c.idle = nil
	}
	for _, m := range c.members {
		m.cons = nil
	}
	c.members = nil
}

func (s *stream) dropConsumers() {
	for _, c := range s.consumers {
		c.end()
	}
	s.consumers = map[string]*consumer{}
}

func (c *consumer) forget(seq uint64) {
	if d := c.seen[seq]; d != nil {
		if d.timer != nil {
			d.timer.Stop()
		}
		delete(c.seen, seq)
	}
}

// pump delivers what can be delivered. Called under b.mu.
func (s *stream) pump() {
	for _, name := range slices.Sorted(maps.Keys(s.consumers)) {
		for c := s.consumers[name]; c.step(); {
		}
	}
}

// step delivers one message, the oldest that may go out, to the next member in turn that takes one.
func (c *consumer) step() bool {
	m := c.next()
	if m == nil {
		return false
	}
	out := 0
	for _, d := range c.seen {
		if d.out {
			out++
		}
	}
	if out >= c.cfg.MaxPending {
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

func (c *consumer) next() *member {
	for i := range c.members {
		m := c.members[(c.turn+i)%len(c.members)]
		if m.cfg.Want == nil || m.hungry {
			return m
		}
	}
	return nil
}

// give starts AckWait and hands the message over.
func (c *consumer) give(m *member, st stored) {
	d := c.seen[st.seq]
	if d == nil {
		d = &delivery{}
		c.seen[st.seq] = d
	}
	d.count++
	d.out = true
	d.token++
	token := d.token
	d.timer = time.AfterFunc(c.cfg.AckWait, func() { c.expire(st.seq, token) })
	out := c.outgoing(m, st, token)
	if m.cfg.Want != nil {
		m.hungry = false
		m.fed <- out
		return
	}
	if !m.box.put(func() { m.handle(out) }) {
		d.timer.Stop()
		d.out = false
	}
}

// handle runs the callback, or gives the message back when the member is draining; one that may be delivered only once goes to
// the callback all the same.
func (m *member) handle(d *bus.Delivery) {
	m.c.b.mu.Lock()
	gone := m.gone
	m.c.b.mu.Unlock()
	if gone && m.cfg.MaxDeliver != 1 {
		_ = d.Nak(0)
		return
	}
	m.fn(*d)
}

var errSettled = errors.New("bus: message already settled")

// outgoing is what the callback gets. As on NATS, an acknowledgement that comes late still counts, one of a message that is
// gone does nothing, and a late Nak does nothing.
func (c *consumer) outgoing(m *member, st stored, token uint64) *bus.Delivery {
	used, seq := false, st.seq
	once := func(fn func()) error {
		b := c.s.b
		b.mu.Lock()
		defer b.mu.Unlock()
		if used {
			return fmt.Errorf("bus: message %d of %s: %w", seq, c.s.spec.Name, errSettled)
		}
		if !b.up || c.gone {
			return fmt.Errorf("bus: message %d of %s: %w", seq, c.s.spec.Name, bus.ErrDown)
		}
		used = true
		fn()
		c.s.pump()
		return nil
	}
	return &bus.Delivery{
		Msg: copyMsg(st.msg), Sequence: seq, Delivered: c.seen[seq].count,
		Ack:  func() error { return once(func() { c.ack(seq) }) },
		Term: func() error { return once(func() { c.ack(seq) }) },
		Nak:  func(delay time.Duration) error { return once(func() { c.nak(seq, token, delay) }) },
	}
}

func (c *consumer) ack(seq uint64) {
	d := c.seen[seq]
	if d == nil {
		return
	}
	if c.s.spec.WorkQueue {
		c.s.drop(seq)
		return
	}
	d.timer.Stop()
	d.out, d.done = false, true
}

func (c *consumer) nak(seq, token uint64, delay time.Duration) {
	d := c.seen[seq]
	if d == nil || d.token != token || !d.out {
		return
	}
	d.timer.Stop()
	if delay <= 0 {
		d.out = false
		return
	}
	d.timer = time.AfterFunc(delay, func() { c.expire(seq, token) })
}

// expire makes a message free for another delivery.
func (c *consumer) expire(seq, token uint64) {
	c.s.b.mu.Lock()
	defer c.s.b.mu.Unlock()
	if d := c.seen[seq]; d != nil && d.token == token && d.out {
		d.out = false
		c.s.pump()
	}
}
