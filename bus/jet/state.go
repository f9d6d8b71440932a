package jet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"quire/bus"
)

type event struct {
	state bus.State
	err   error
}

type watcher struct{ fn func(bus.State, error) }

// Connect connects and checks the server. It waits as long as ctx allows for a server that is not there yet; what only an
// operator can mend (credentials, JetStream missing, max_payload too small) is an error at once.
func Connect(ctx context.Context, o ConnectOptions) (*Conn, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.reconnectWait == 0 {
		o.reconnectWait = 250 * time.Millisecond
	}
	if o.inactive == 0 {
		o.inactive = bus.InactiveAfter
	}
	if err := o.fromContext(); err != nil {
		return nil, err
	}
	c := &Conn{
		opt: o, names: o.Names, log: o.Log, kv: map[string]bus.StreamSpec{}, wake: make(chan struct{}, 1),
		closed: make(chan struct{}), ended: make(chan struct{}), renewed: make(chan struct{}),
	}
	opts, err := o.natsOptions()
	if err != nil {
		return nil, err
	}
	if c.nc, err = nats.Connect(o.urls(), append(opts, c.handlers()...)...); err != nil {
		return nil, fmt.Errorf("bus: connect to %s: %w", redact(o.urls()), err)
	}
	if c.js, err = jetstream.New(c.nc, jetstream.WithDefaultTimeout(apiTimeout)); err != nil {
		c.nc.Close()
		return nil, fmt.Errorf("bus: %w", err)
	}
	if err := c.await(ctx); err != nil {
		c.nc.Close()
		return nil, err
	}
	c.state = bus.Up
	l := c.Limits()
	c.log.Info("bus: connected", "url", l.URL, "server", l.Server, "max_payload", l.MaxPayload)
	go c.supervise()
	return c, nil
}

// handlers feed the supervisor; they run on nats.go's own goroutine and must not wait.
func (c *Conn) handlers() []nats.Option {
	return []nats.Option{
		nats.ConnectHandler(func(*nats.Conn) { c.post(event{state: bus.Up}) }),
		nats.ReconnectHandler(func(*nats.Conn) { c.post(event{state: bus.Up}) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { c.post(event{state: bus.Down, err: err}) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { c.post(event{state: bus.Down, err: err}) }),
		nats.ClosedHandler(func(*nats.Conn) { close(c.closed) }),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			if s != nil {
				c.log.Warn("bus: subscription", "subject", s.Subject, "error", err)
			} else {
				c.log.Warn("bus: server says", "error", err)
			}
		}),
	}
}

// post queues an event; the list stays short, since repeats of one state are merged.
func (c *Conn) post(e event) {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return
	}
	if n := len(c.events); n > 0 && c.events[n-1].state == e.state {
		c.events[n-1] = e
	} else {
		c.events = append(c.events, e)
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Conn) take() []event {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.events
	c.events = nil
	return e
}

// await waits for the first connection and then checks the server.
func (c *Conn) await(ctx context.Context) error {
	told := false
	for connected := false; !connected; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("bus: connect to %s: %w", redact(c.opt.urls()), ctx.Err())
		case <-c.closed:
			return fmt.Errorf("bus: connect to %s: %w: %w", redact(c.opt.urls()), bus.ErrClosed, c.nc.LastError())
		case <-c.wake:
		}
		for _, e := range c.take() {
			if errors.Is(e.err, nats.ErrAuthorization) || errors.Is(e.err, nats.ErrAuthExpired) || errors.Is(e.err, nats.ErrAuthRevoked) {
				return fmt.Errorf("bus: connect to %s: %w: check --nats-creds, the nkey, user or token", redact(c.opt.urls()), e.err)
			}
			if connected = e.state == bus.Up; !connected && !told {
				told = true
				c.log.Warn("bus: waiting for NATS", "url", redact(c.opt.urls()), "error", e.err)
			}
		}
	}
	return c.check(ctx)
}

// supervise follows the connection until it is closed, one event at a time.
func (c *Conn) supervise() {
	defer close(c.ended)
	for {
		select {
		case <-c.closed:
			c.enter(bus.Closed, nil)
			c.log.Info("bus: closed")
			return
		case <-c.wake:
		}
		for _, e := range c.take() {
			switch {
			case e.state == bus.Down && c.present() == bus.Up:
				c.enter(bus.Down, e.err)
				c.log.Warn("bus: connection lost, trying again", "error", e.err)
			case e.state == bus.Up && c.present() == bus.Down:
				c.back()
			}
		}
	}
}

// back makes the streams again and then says Up; while that fails and the server stays, it tries again.
func (c *Conn) back() {
	told := false
	for wait := 50 * time.Millisecond; c.nc.IsConnected(); wait = min(2*wait, 2*time.Second) {
		ctx, cancel := context.WithTimeout(context.Background(), apiTimeout)
		err := c.restore(ctx)
		cancel()
		if err == nil {
			c.mu.Lock()
			close(c.renewed)
			c.renewed = make(chan struct{})
			c.mu.Unlock()
			l := c.Limits()
			c.log.Info("bus: connected again", "url", l.URL, "server", l.Server)
			c.enter(bus.Up, nil)
			return
		}
		if !told {
			told = true
			c.log.Error("bus: connected again, but the streams cannot be made", "error", err)
		}
		select {
		case <-c.closed:
			return
		case <-time.After(wait):
		}
	}
}

func (c *Conn) present() bus.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// renewal is closed when the server next comes back.
func (c *Conn) renewal() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.renewed
}

// enter changes the state and tells the watchers.
func (c *Conn) enter(s bus.State, err error) {
	c.calls.Lock()
	defer c.calls.Unlock()
	c.mu.Lock()
	c.state, c.reason = s, err
	watchers := slices.Clone(c.watchers)
	c.mu.Unlock()
	for _, w := range watchers {
		w.fn(s, err)
	}
}

// Watch implements bus.Bus.
func (c *Conn) Watch(fn func(bus.State, error)) (cancel func()) {
	w := &watcher{fn}
	c.calls.Lock()
	defer c.calls.Unlock()
	c.mu.Lock()
	state, reason := c.state, c.reason
	c.watchers = append(c.watchers, w)
	c.mu.Unlock()
	fn(state, reason)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.watchers = slices.DeleteFunc(c.watchers, func(o *watcher) bool { return o == w })
	}
}
