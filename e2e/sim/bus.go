package sim

import (
	"fmt"
	"slices"

	"quire/bus"
)

// link is the way between one process and the bus. What goes over it may be late, lost or repeated.
type link interface {
	toBus(fn func())
	toProc(fn func())
	// twice says whether a message goes over this link two times now; sent gives its bytes as they come out at the other end.
	twice() bool
	sent(subject string, data []byte) []byte
	// sure is toProc for what the client library makes good by itself: it comes late, once, after a cut link is mended.
	sure(fn func())
	// after counts on the process's own clock and ends with the process.
	after(d Time, fn func()) *timer
}

// broker is the server of the simulated bus. It does at once what reaches it.
type broker struct {
	q          *queue
	up         bool
	names      bus.Names
	maxPayload int
	window     int  // messages of one hand-off in a KV stream; 0 = bus.KVWindow
	maxAge     Time // of messages in memory; 0 = as the streams say
	syncEvery  Time // how often files are synced; 0 = before each acknowledgement

	conns       []*conn
	streams     named[*stream]
	inboxes     map[string]func(bus.Msg) // by subject
	journalDown bool                     // QUIRE_JOURNAL takes nothing
	bucket      bool
	rev         uint64            // of the epoch bucket
	epochs      map[string]uint64 // by <role>.<id>
	calls       uint64
	mark        func(string) // coverage; nil = none
}

func newBroker(q *queue) *broker {
	return &broker{q: q, up: true, maxPayload: bus.DefaultPayload,
		inboxes: map[string]func(bus.Msg){}, epochs: map[string]uint64{}, mark: func(string) {}}
}

// conn is one process's connection.
type conn struct {
	b      *broker
	l      link
	up     bool // as the process sees it
	closed bool // by the process
	gone   bool // the server noticed
	subs   []*subscription
	members,
	lost []*member // lost: to be joined again when server and stream are back
	watchers []*watcher
	epochs   []*epochWatch
	ensured  []bus.StreamSpec
	bucket   bool
}

type watcher struct{ fn func(bus.State) }

type epochWatch struct {
	key string
	fn  func(uint64)
}

// subscription is one listener on core NATS.
type subscription struct {
	c              *conn
	subject, queue string
	fn             func(bus.Msg)
	ended          bool
}

func (b *broker) connect(l link) *conn {
	c := &conn{b: b, l: l, up: b.up}
	b.conns = append(b.conns, c)
	return c
}

// ready says why nothing can be sent.
func (c *conn) ready(what string) error {
	switch {
	case c.closed:
		return fmt.Errorf("bus: %s: %w", what, bus.ErrClosed)
	case !c.up:
		return fmt.Errorf("bus: %s: %w", what, bus.ErrDown)
	}
	return nil
}

func (c *conn) sendable(what string, m bus.Msg) error {
	if err := bus.CheckSubject(m.Subject); err != nil {
		return err
	}
	if err := c.ready(what + " " + m.Subject); err != nil {
		return err
	}
	if n := len(m.Data) + bus.HeaderSize(m.Header); n > c.b.maxPayload {
		return fmt.Errorf("bus: %s %s: %d bytes, max_payload %d: %w", what, m.Subject, n, c.b.maxPayload, bus.ErrTooLarge)
	}
	return nil
}

// publish sends on core NATS.
func (c *conn) publish(m bus.Msg) error {
	if err := c.sendable("publish", m); err != nil {
		return err
	}
	m.Data = c.l.sent(m.Subject, m.Data)
	send := func() {
		if c.b.up {
			c.b.route(m)
		}
	}
	c.l.toBus(send)
	if c.l.twice() {
		c.l.toBus(send)
	}
	return nil
}

// route passes a message on to everybody who listens; it says how many they are.
func (b *broker) route(m bus.Msg) int {
	if fn, ok := b.inboxes[m.Subject]; ok {
		fn(m)
		return 1
	}
	n := 0
	groups := map[string]bool{}
	for i := range b.conns {
		c := b.conns[(i+int(b.calls))%len(b.conns)] // turns for queue groups
		for _, s := range c.subs {
			if s.ended || !bus.Matches(s.subject, m.Subject) || s.queue != "" && groups[s.queue] {
				continue
			}
			if s.queue != "" {
				groups[s.queue] = true
			}
			n++
			deliver := func() {
				if !s.ended {
					s.fn(m)
				}
			}
			c.l.toProc(deliver)
			if c.l.twice() {
				c.l.toProc(deliver)
			}
		}
	}
	b.calls++
	return n
}

// replay puts a message on the bus once more, long after it was sent: whoever recorded the bus can do that.
func (b *broker) replay(m bus.Msg) {
	if !b.up {
		return
	}
	if s := b.streamOf(m.Subject); s != nil {
		_, _ = s.store(m, "")
		return
	}
	m.Reply = "_INBOX.nobody"
	b.route(m)
}

func (c *conn) subscribe(subject, queue string, fn func(bus.Msg)) (*subscription, error) {
	if err := c.ready("subscribe to " + subject); err != nil {
		return nil, err
	}
	s := &subscription{c: c, subject: subject, queue: queue, fn: fn}
	c.subs = append(c.subs, s)
	return s, nil
}

func (s *subscription) drain() {
	s.ended = true
	s.c.subs = slices.DeleteFunc(s.c.subs, func(o *subscription) bool { return o == s })
}

// request asks for one answer; cb is called once.
func (c *conn) request(m bus.Msg, timeout Time, cb func(bus.Msg, error)) {
	if err := c.sendable("request", m); err != nil {
		c.l.after(0, func() { cb(bus.Msg{}, err) })
		return
	}
	c.b.calls++
	m.Data = c.l.sent(m.Subject, m.Data)
	m.Reply = fmt.Sprintf("_INBOX.%d", c.b.calls)
	done := false
	finish := func(answer bus.Msg, err error) {
		if !done {
			done = true
			delete(c.b.inboxes, m.Reply)
			cb(answer, err)
		}
	}
	t := c.l.after(timeout, func() {
		c.b.mark("time-out: request")
		finish(bus.Msg{}, fmt.Errorf("bus: request to %s: %w", m.Subject, bus.ErrTimeout))
	})
	c.b.inboxes[m.Reply] = func(answer bus.Msg) {
		c.l.toProc(func() { t.stop(); finish(answer, nil) })
	}
	c.l.toBus(func() {
		if c.b.up && c.b.route(m) == 0 {
			c.l.toProc(func() {
				t.stop()
				finish(bus.Msg{}, fmt.Errorf("bus: request to %s: %w", m.Subject, bus.ErrNoResponders))
			})
		}
	})
}

// call runs do on the server and brings its result back; cb is called once, with ErrTimeout when nothing came back.
func call[T any](c *conn, what string, timeout Time, do func() (T, error), cb func(T, error)) {
	var none T
	if err := c.ready(what); err != nil {
		c.l.after(0, func() { cb(none, err) })
		return
	}
	done := false
	t := c.l.after(timeout, func() {
		if !done {
			done = true
			c.b.mark("time-out: " + firstWord(what))
			cb(none, fmt.Errorf("bus: %s: %w", what, bus.ErrTimeout))
		}
	})
	c.l.toBus(func() {
		if !c.b.up || c.gone {
			return
		}
		v, err := do()
		c.l.toProc(func() {
			if !done {
				done = true
				t.stop()
				cb(v, err)
			}
		})
	})
}

func firstWord(s string) string {
	for i := range s {
		if s[i] == ' ' {
			return s[:i]
		}
	}
	return s
}

// watch tells each change of state; first the present one.
func (c *conn) watch(fn func(bus.State)) (cancel func()) {
	w := &watcher{fn}
	c.watchers = append(c.watchers, w)
	switch {
	case c.closed:
		fn(bus.Closed)
	case c.up:
		fn(bus.Up)
	default:
		fn(bus.Down)
	}
	return func() { c.watchers = slices.DeleteFunc(c.watchers, func(o *watcher) bool { return o == w }) }
}

func (c *conn) tell(s bus.State) {
	for _, w := range slices.Clone(c.watchers) {
		w.fn(s)
	}
}

// close ends the connection from the process's side.
func (c *conn) close() {
	if c.closed {
		return
	}
	c.closed = true
	c.leave()
	c.tell(bus.Closed)
}

// leave is the server noticing that a connection is gone: what it had is free for others.
func (c *conn) leave() {
	if c.gone {
		return
	}
	c.gone = true
	for _, s := range slices.Clone(c.subs) {
		s.drain()
	}
	for _, m := range slices.Clone(c.members) {
		m.drain()
	}
	c.lost, c.epochs = nil, nil
	c.b.conns = slices.DeleteFunc(c.b.conns, func(o *conn) bool { return o == c })
}

// crash stops the server: what is in memory or not synced is gone, and so are all consumers.
func (b *broker) crash(each func(*conn) Time) {
	b.up = false
	for _, name := range b.streamNames("") {
		s := b.streams.get(name)
		s.dropConsumers()
		if !s.spec.File {
			s.gone = true
			b.streams.remove(name)
			continue
		}
		s.forgetUnsynced()
	}
	for _, c := range slices.Clone(b.conns) {
		c.l.after(each(c), func() {
			if !b.up && c.up && !c.gone {
				c.up = false
				c.tell(bus.Down)
			}
		})
	}
}

// restart brings the server back; connections follow, each in its time.
func (b *broker) restart(each func(*conn) Time) {
	b.up = true
	for _, c := range slices.Clone(b.conns) {
		c.l.after(each(c), func() {
			if !b.up || c.gone {
				return
			}
			b.mark("fault: bus restart")
			noticed := !c.up
			c.up = false
			c.rejoin()
			c.up = true
			if !noticed {
				c.tell(bus.Down)
			}
			c.tell(bus.Up)
		})
	}
}

// rejoin makes again what this connection had made, as the client library does.
func (c *conn) rejoin() {
	for _, spec := range c.ensured {
		c.b.ensure(spec)
	}
	c.b.bucket = c.b.bucket || c.bucket
	for _, m := range slices.Clone(c.lost) {
		m.rejoin()
	}
}
