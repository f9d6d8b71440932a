// Package bustest is a bus in memory for tests, and the suite that every bus must pass.
//
// A Broker plays the server; each Connect gives one process's connection. It keeps the rules of NATS that the services rely on
// (and its traps: redelivery after AckWait counts from the pull, a refused id is not remembered, a purge keeps the ids). It
// starts goroutines only while there is something to deliver, takes time from package time alone and uses no randomness, so
// it runs inside a testing/synctest bubble, where AckWait and ages pass on the bubble's clock. Close the Broker at the end.
package bustest

import (
	"fmt"
	"sync"

	"quire/bus"
)

// Options of a Broker. The zero value is a fresh server with max_payload 8 MiB.
type Options struct {
	Names      bus.Names
	MaxPayload int
	// Fail, when set, is asked before each operation ("publish", "request", "enqueue", "consume", "stream") with its subject or
	// stream; what it returns is the operation's error. It runs under no lock.
	Fail func(op, what string) error
	// Tap, when set, sees every message that a publisher sent, stored or not, in order. It must not call the bus.
	Tap func(m bus.Msg)
}

// Broker is the server.
type Broker struct {
	opt Options

	mu      sync.Mutex
	up      bool
	closed  bool
	conns   []*Conn
	subs    []*subscription
	queues  map[string]int // round-robin position per queue group and subject
	streams map[string]*stream
	epochs  map[string]uint64 // "<role>.<id>"
	bucket  bool              // the epoch bucket exists
	rev     uint64
	watches []*epochWatch
	inbox   uint64
	order   sync.Mutex // held across Tap, so that it sees messages in order
}

// New starts a Broker.
func New(o Options) *Broker {
	if o.MaxPayload == 0 {
		o.MaxPayload = bus.DefaultPayload
	}
	return &Broker{opt: o, up: true, queues: map[string]int{}, streams: map[string]*stream{}, epochs: map[string]uint64{}}
}

// Connect gives a connection. Each process of a test has its own.
func (b *Broker) Connect() *Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &Conn{b: b, state: bus.Down, done: make(chan struct{})}
	if b.up {
		c.state = bus.Up
	}
	if b.closed {
		c.state = bus.Closed
	}
	b.conns = append(b.conns, c)
	return c
}

// Stop takes the server away: every operation fails with ErrDown until Start. Streams in memory, consumers and their
// deliveries are lost; streams on disk and epochs stay.
func (b *Broker) Stop() {
	b.mu.Lock()
	b.up = false
	for name, s := range b.streams {
		s.dropConsumers()
		if !s.spec.File {
			s.remove()
			delete(b.streams, name)
		}
	}
	b.setStates(bus.Down, bus.ErrDown)
	b.mu.Unlock()
}

// Start brings the server back; connections make their streams and consumers again.
func (b *Broker) Start() {
	b.mu.Lock()
	b.up = true
	for _, c := range b.conns {
		for _, s := range c.ensured {
			b.ensure(s)
		}
		if c.wantsBucket {
			b.bucket = true
		}
	}
	for _, c := range b.conns {
		for _, m := range c.members {
			m.rejoin()
		}
	}
	b.setStates(bus.Up, nil)
	b.mu.Unlock()
}

// Close ends every connection and goroutine.
func (b *Broker) Close() {
	b.mu.Lock()
	conns := append([]*Conn(nil), b.conns...)
	b.closed = true
	b.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
	b.mu.Lock()
	for _, s := range b.streams {
		s.dropConsumers()
		s.remove()
	}
	b.streams = map[string]*stream{}
	b.mu.Unlock()
}

// Stored gives the messages of a stream, oldest first; nil when there is no such stream.
func (b *Broker) Stored(name string) []bus.Msg {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.streams[name]
	if s == nil {
		return nil
	}
	out := make([]bus.Msg, 0, len(s.msgs))
	for _, m := range s.msgs {
		out = append(out, copyMsg(m.msg))
	}
	return out
}

func (b *Broker) setStates(s bus.State, err error) {
	for _, c := range b.conns {
		c.setState(s, err)
	}
}

func (b *Broker) fail(op, what string) error {
	if b.opt.Fail == nil {
		return nil
	}
	return b.opt.Fail(op, what)
}

// tap reports a message; publishers call it in the order in which they were served.
func (b *Broker) tap(m bus.Msg) {
	if b.opt.Tap != nil {
		b.order.Lock()
		b.opt.Tap(copyMsg(m))
		b.order.Unlock()
	}
}

func (b *Broker) checkSize(m bus.Msg) error {
	if size := bus.HeaderSize(m.Header) + len(m.Data); size > b.opt.MaxPayload {
		return fmt.Errorf("bus: publish to %s: %d bytes, max_payload %d: %w", m.Subject, size, b.opt.MaxPayload, bus.ErrTooLarge)
	}
	return nil
}

func copyMsg(m bus.Msg) bus.Msg {
	c := bus.Msg{Subject: m.Subject, Reply: m.Reply, Data: append([]byte(nil), m.Data...)}
	if m.Header != nil {
		c.Header = make(map[string][]string, len(m.Header))
		for k, v := range m.Header {
			c.Header[k] = append([]string(nil), v...)
		}
	}
	return c
}
