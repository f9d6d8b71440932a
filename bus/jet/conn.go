package jet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"quire/bus"
)

const (
	closeWithin = 5 * time.Second // Close and Drain wait this long for callbacks
	apiTimeout  = 5 * time.Second // of one request to JetStream when the caller set no deadline
)

// Conn is a connection to NATS.
type Conn struct {
	nc    *nats.Conn
	js    jetstream.JetStream
	opt   ConnectOptions
	names bus.Names
	log   *slog.Logger

	wake   chan struct{} // capacity 1: events has something
	closed chan struct{} // closed when the connection is
	ended  chan struct{} // closed when the supervisor is gone

	probe probes
	lives sync.Map // "<stream>/<consumer>" -> int64, see consumer.life

	calls sync.Mutex // held across calls of watchers; taken before mu

	mu       sync.Mutex
	events   []event
	state    bus.State
	reason   error
	watchers []*watcher
	shared   bool
	kv       map[string]bus.StreamSpec // ensured and not deleted
	renewed  chan struct{}             // closed and replaced when the server came back
	running  []interface{ Drain() error }
	closing  bool // Close was called: losing the server is no news
}

var (
	_ bus.Bus = (*Conn)(nil)
	_ bus.API = (*Conn)(nil)
)

// Publish implements bus.Bus.
func (c *Conn) Publish(subject string, header map[string][]string, data []byte) error {
	if err := bus.CheckSubject(subject); err != nil {
		return err
	}
	m := &nats.Msg{Subject: subject, Header: header, Data: data}
	if err := c.checkSize(m); err != nil {
		return err
	}
	if err := c.ready("publish to " + subject); err != nil {
		return err
	}
	return wrap("publish to "+subject, c.nc.PublishMsg(m))
}

// ready says at once that the server is away.
func (c *Conn) ready(what string) error {
	if c.nc.IsConnected() {
		return nil
	}
	if c.nc.IsClosed() {
		return fmt.Errorf("bus: %s: %w", what, bus.ErrClosed)
	}
	if c.nc.IsDraining() {
		return nil
	}
	return fmt.Errorf("bus: %s: %w", what, bus.ErrDown)
}

func (c *Conn) checkSize(m *nats.Msg) error {
	limit := int(c.nc.MaxPayload())
	if size := bus.HeaderSize(m.Header) + len(m.Data); limit > 0 && size > limit {
		return fmt.Errorf("bus: publish to %s: %d bytes, max_payload %d: %w", m.Subject, size, limit, bus.ErrTooLarge)
	}
	return nil
}

// Request implements bus.Bus.
func (c *Conn) Request(ctx context.Context, subject string, data []byte) (bus.Msg, error) {
	what := "request to " + subject
	if err := bus.CheckSubject(subject); err != nil {
		return bus.Msg{}, err
	}
	q := &nats.Msg{Subject: subject, Header: bus.HeaderOf(ctx), Data: data}
	if err := c.checkSize(q); err != nil {
		return bus.Msg{}, err
	}
	if err := c.ready(what); err != nil {
		return bus.Msg{}, err
	}
	m, err := c.nc.RequestMsgWithContext(ctx, q)
	if err != nil {
		return bus.Msg{}, wrap(what, err)
	}
	return message(m), nil
}

func message(m *nats.Msg) bus.Msg {
	return bus.Msg{Subject: m.Subject, Reply: m.Reply, Header: m.Header, Data: m.Data}
}

// Subscribe implements bus.Bus.
func (c *Conn) Subscribe(subject, queue string, fn func(bus.Msg)) (bus.Sub, error) {
	sub, err := c.nc.QueueSubscribe(subject, queue, func(m *nats.Msg) { fn(message(m)) })
	if err != nil {
		return nil, wrap("subscribe to "+subject, err)
	}
	s := &coreSub{sub: sub, ended: make(chan struct{})}
	sub.SetClosedHandler(func(string) { close(s.ended) })
	// The server knows of the subscription when Subscribe returns, so that a request sent then finds it.
	if c.nc.IsConnected() {
		_ = c.nc.FlushTimeout(apiTimeout)
	}
	return s, nil
}

type coreSub struct {
	sub   *nats.Subscription
	once  sync.Once
	ended chan struct{}
}

// Drain implements bus.Sub.
func (s *coreSub) Drain() error {
	var err error
	s.once.Do(func() {
		if err = s.sub.Drain(); err != nil {
			if !s.sub.IsValid() || errors.Is(err, nats.ErrConnectionClosed) {
				err = nil
			}
			return
		}
		select {
		case <-s.ended:
		case <-time.After(closeWithin):
			err = fmt.Errorf("drain %s: %w after %v", s.sub.Subject, bus.ErrTimeout, closeWithin)
		}
	})
	return wrap("drain "+s.sub.Subject, err)
}

// Enqueue implements bus.Bus.
func (c *Conn) Enqueue(ctx context.Context, e bus.Enqueue) (uint64, error) {
	what := "enqueue to " + e.Subject
	if err := bus.CheckSubject(e.Subject); err != nil {
		return 0, err
	}
	header := nats.Header{}
	for k, v := range e.Header {
		header[k] = v
	}
	if e.ID != "" {
		header.Set(jetstream.MsgIDHeader, e.ID)
	}
	if e.Expect != "" {
		header.Set(jetstream.ExpectedStreamHeader, e.Expect)
	}
	m := &nats.Msg{Subject: e.Subject, Header: header, Data: e.Data}
	if err := c.checkSize(m); err != nil {
		return 0, err
	}
	if err := c.ready(what); err != nil {
		return 0, err
	}
	ack, err := c.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, wrap(what, err)
	}
	if ack.Duplicate {
		return ack.Sequence, fmt.Errorf("bus: %s: message id %s is sequence %d: %w", what, e.ID, ack.Sequence, bus.ErrDuplicate)
	}
	return ack.Sequence, nil
}

// Streams implements bus.Bus.
func (c *Conn) Streams() bus.Streams { return streams{c} }

// Limits implements bus.Bus.
func (c *Conn) Limits() bus.Limits {
	return bus.Limits{
		MaxPayload: int(c.nc.MaxPayload()), Server: c.nc.ConnectedServerVersion(), URL: c.nc.ConnectedUrlRedacted(),
	}
}

// Close implements bus.Bus.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closing = true
	running := c.running
	c.running = nil
	c.mu.Unlock()
	var wg sync.WaitGroup
	for _, r := range running {
		wg.Go(func() { _ = r.Drain() })
	}
	wg.Wait()
	if !c.nc.IsClosed() && c.nc.Drain() == nil {
		select {
		case <-c.closed:
		case <-time.After(closeWithin):
		}
	}
	c.nc.Close()
	<-c.ended
	return nil
}

// track remembers what Close drains first.
func (c *Conn) track(r interface{ Drain() error }) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = append(c.running, r)
}

func (c *Conn) untrack(r interface{ Drain() error }) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, o := range c.running {
		if o == r {
			c.running = append(c.running[:i:i], c.running[i+1:]...)
			return
		}
	}
}

// bounded gives a context with a deadline, so that a request to a server that fell silent ends.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, apiTimeout)
}
