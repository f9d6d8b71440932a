package bustest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"quire/bus"
)

// Conn is one process's connection to a Broker.
type Conn struct {
	b           *Broker
	state       bus.State // guarded by b.mu, like everything below
	watchers    []*watcher
	subs        []*subscription
	members     []*member
	ensured     []bus.StreamSpec // made again by Start
	wantsBucket bool
	done        chan struct{} // closed by Close
}

var (
	_ bus.Bus = (*Conn)(nil)
	_ bus.API = (*Conn)(nil)
)

type watcher struct {
	fn  func(bus.State, error)
	box mailbox
}

// ready says why an operation cannot run now. Called under b.mu.
func (c *Conn) ready(what string) error {
	switch {
	case c.state == bus.Closed:
		return fmt.Errorf("bus: %s: %w", what, bus.ErrClosed)
	case !c.b.up:
		return fmt.Errorf("bus: %s: %w", what, bus.ErrDown)
	}
	return nil
}

// Publish implements bus.Bus. A stream that takes the subject stores the message too, as on NATS.
func (c *Conn) Publish(subject string, header map[string][]string, data []byte) error {
	_, err := c.publish(bus.Msg{Subject: subject, Header: header, Data: data})
	return err
}

// publish says how many subscribers got the message.
func (c *Conn) publish(m bus.Msg) (int, error) {
	if err := bus.CheckSubject(m.Subject); err != nil {
		return 0, err
	}
	if err := c.b.fail("publish", m.Subject); err != nil {
		return 0, err
	}
	if err := c.b.checkSize(m); err != nil {
		return 0, err
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if err := c.ready("publish to " + m.Subject); err != nil {
		return 0, err
	}
	c.b.tap(m)
	n := c.b.route(m)
	if s := c.b.streamOf(m.Subject); s != nil {
		_, _ = s.store(m, "")
	}
	return n, nil
}

// Request implements bus.Bus.
func (c *Conn) Request(ctx context.Context, subject string, data []byte) (bus.Msg, error) {
	got := make(chan bus.Msg, 1)
	done, err := c.ask(bus.Msg{Subject: subject, Header: bus.HeaderOf(ctx), Data: data}, func(m bus.Msg) {
		select {
		case got <- m:
		default:
		}
	})
	if err != nil {
		return bus.Msg{}, err
	}
	defer done()
	select {
	case m := <-got:
		return m, nil
	case <-ctx.Done():
		return bus.Msg{}, timedOut("request to "+subject, ctx.Err())
	case <-c.done:
		return bus.Msg{}, fmt.Errorf("bus: request to %s: %w", subject, bus.ErrClosed)
	}
}

// ask publishes m with a fresh inbox as reply; done gives the inbox up.
func (c *Conn) ask(m bus.Msg, fn func(bus.Msg)) (done func(), err error) {
	if err := bus.CheckSubject(m.Subject); err != nil {
		return nil, err
	}
	if err := c.b.fail("request", m.Subject); err != nil {
		return nil, err
	}
	if err := c.b.checkSize(m); err != nil {
		return nil, err
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if err := c.ready("request to " + m.Subject); err != nil {
		return nil, err
	}
	c.b.inbox++
	m.Reply = fmt.Sprintf("_INBOX.%d", c.b.inbox)
	s := c.subscribe(m.Reply, "", fn)
	c.b.tap(m)
	if c.b.route(m) == 0 {
		c.unsubscribe(s)
		return nil, fmt.Errorf("bus: request to %s: %w", m.Subject, bus.ErrNoResponders)
	}
	return func() {
		c.b.mu.Lock()
		c.unsubscribe(s)
		c.b.mu.Unlock()
		s.box.close()
	}, nil
}

// Watch implements bus.Bus.
func (c *Conn) Watch(fn func(bus.State, error)) (cancel func()) {
	w := &watcher{fn: fn}
	c.b.mu.Lock()
	state := c.state
	c.watchers = append(c.watchers, w)
	first := make(chan struct{})
	w.box.put(func() { fn(state, nil); close(first) })
	c.b.mu.Unlock()
	<-first
	return func() {
		c.b.mu.Lock()
		c.watchers = slices.DeleteFunc(c.watchers, func(o *watcher) bool { return o == w })
		c.b.mu.Unlock()
		w.box.close()
	}
}

// setState is called under b.mu.
func (c *Conn) setState(s bus.State, err error) {
	if c.state == s || c.state == bus.Closed {
		return
	}
	c.state = s
	for _, w := range c.watchers {
		w.box.put(func() { w.fn(s, err) })
	}
}

// Limits implements bus.Bus.
func (c *Conn) Limits() bus.Limits {
	return bus.Limits{MaxPayload: c.b.opt.MaxPayload, Server: "2.15.2", URL: "nats://in-memory"}
}

// Close implements bus.Bus.
func (c *Conn) Close() error {
	c.b.mu.Lock()
	if c.state == bus.Closed {
		c.b.mu.Unlock()
		return nil
	}
	subs, members := slices.Clone(c.subs), slices.Clone(c.members)
	c.b.watches = slices.DeleteFunc(c.b.watches, func(w *epochWatch) bool {
		if w.conn == c {
			w.box.close()
		}
		return w.conn == c
	})
	c.b.mu.Unlock()
	for _, m := range members {
		_ = m.Drain()
	}
	for _, s := range subs {
		_ = s.Drain()
	}
	c.b.mu.Lock()
	if c.state != bus.Closed {
		close(c.done)
	}
	c.setState(bus.Closed, nil)
	c.b.conns = slices.DeleteFunc(c.b.conns, func(o *Conn) bool { return o == c })
	c.b.mu.Unlock()
	return nil
}

func timedOut(what string, err error) error {
	if err == context.Canceled {
		return fmt.Errorf("bus: %s: %w", what, err)
	}
	return fmt.Errorf("bus: %s: %w (%w)", what, bus.ErrTimeout, err)
}

// Stream implements bus.API.
func (c *Conn) Stream(ctx context.Context, a bus.Ask, fn func(bus.Msg) error) error {
	if a.Idle == 0 {
		a.Idle = time.Minute
	}
	frames, gone := make(chan bus.Msg), make(chan struct{})
	done, err := c.ask(bus.Msg{Subject: a.Subject, Header: a.Header, Data: a.Data}, func(m bus.Msg) {
		select {
		case frames <- m:
		case <-gone:
		}
	})
	if err != nil {
		return err
	}
	defer done()
	defer close(gone)
	idle := time.NewTimer(a.Idle)
	defer idle.Stop()
	for {
		select {
		case m := <-frames:
			if len(m.Data) == 0 && len(m.Header) == 0 {
				return nil
			}
			if e := bus.AsServiceError(m); e != nil {
				return e
			}
			if err := fn(m); err != nil {
				return err
			}
			idle.Reset(a.Idle)
		case <-idle.C:
			return fmt.Errorf("bus: answer from %s: silent for %v: %w", a.Subject, a.Idle, bus.ErrTimeout)
		case <-ctx.Done():
			return timedOut("answer from "+a.Subject, ctx.Err())
		case <-c.done:
			return fmt.Errorf("bus: answer from %s: %w", a.Subject, bus.ErrClosed)
		}
	}
}
