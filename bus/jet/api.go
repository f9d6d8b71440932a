package jet

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"quire/bus"
)

const (
	endpointMessages = 4096
	endpointBytes    = 64 << 20
	streamFrames     = 4096 // frames of one answer that may wait for the reader
)

// service is a running NATS service.
type service struct {
	c     *Conn
	svc   micro.Service
	once  sync.Once
	mu    sync.Mutex
	idle  *sync.Cond
	calls int // callbacks that run now
}

// Serve implements bus.API.
func (c *Conn) Serve(_ context.Context, spec bus.ServiceSpec, fn func(*bus.Call)) (bus.Sub, error) {
	if spec.Name == "" || spec.Queue == "" || len(spec.Endpoints) == 0 {
		return nil, fmt.Errorf("bus: service %q: queue %q, %d endpoints: each must be set", spec.Name, spec.Queue, len(spec.Endpoints))
	}
	s := &service{c: c}
	s.idle = sync.NewCond(&s.mu)
	cfg := micro.Config{
		Name: spec.Name, Version: spec.Version, Description: spec.Description, Metadata: spec.Metadata, QueueGroup: spec.Queue,
		ErrorHandler: func(_ micro.Service, e *micro.NATSError) {
			c.log.Warn("bus: service", "name", spec.Name, "subject", e.Subject, "error", e.Description)
		},
	}
	if spec.Stats != nil {
		cfg.StatsHandler = func(*micro.Endpoint) any { return spec.Stats() }
	}
	var err error
	if err = c.probe.listen(c.nc); err != nil {
		return nil, wrap("service "+spec.Name, err)
	}
	if s.svc, err = micro.AddService(c.nc, cfg); err != nil {
		return nil, wrap("service "+spec.Name, err)
	}
	for _, e := range spec.Endpoints {
		if err := s.add(spec, e, fn); err != nil {
			_ = s.svc.Stop()
			return nil, wrap("service "+spec.Name+": endpoint "+e.Name, err)
		}
	}
	if c.nc.IsConnected() {
		_ = c.nc.FlushTimeout(apiTimeout)
	}
	c.track(s)
	return s, nil
}

func (s *service) add(spec bus.ServiceSpec, e bus.Endpoint, fn func(*bus.Call)) error {
	if e.MaxPending == 0 {
		e.MaxPending = endpointMessages
	}
	if e.MaxPendingBytes == 0 {
		e.MaxPendingBytes = endpointBytes
	}
	return s.svc.AddEndpoint(e.Name, micro.HandlerFunc(func(r micro.Request) { s.handle(e, r, fn) }),
		micro.WithEndpointSubject(e.Subject), micro.WithEndpointMetadata(e.Metadata),
		micro.WithEndpointQueueGroup(spec.Queue), micro.WithEndpointPendingLimits(e.MaxPending, e.MaxPendingBytes))
}

func (s *service) handle(e bus.Endpoint, r micro.Request, fn func(*bus.Call)) {
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.calls--
		s.mu.Unlock()
		s.idle.Broadcast()
	}()
	reply := r.Reply()
	answer := func(probe string, header map[string][]string, data []byte) error {
		if err := bus.CheckSubject(reply); err != nil {
			return fmt.Errorf("bus: answer to %s: no reply subject", r.Subject())
		}
		if err := s.c.ready("answer to " + r.Subject()); err != nil {
			return err
		}
		return wrap("answer to "+r.Subject(), s.c.nc.PublishMsg(&nats.Msg{Subject: reply, Reply: probe, Header: header, Data: data}))
	}
	caller := &caller{gone: make(chan struct{})}
	fn(&bus.Call{
		Msg:      bus.Msg{Subject: r.Subject(), Reply: reply, Header: map[string][]string(r.Headers()), Data: r.Data()},
		Endpoint: e.Name, Tenant: bus.TenantOf(e.Subject, r.Subject()), Room: int(s.c.nc.MaxPayload()),
		Reach: func(header map[string][]string, data []byte) error { return answer("", header, data) },
		Probe: func(header map[string][]string, data []byte) error {
			return answer(s.c.probe.ask(caller, reply), header, data)
		},
		Gone: caller.gone,
	})
}

// Drain implements bus.Sub.
func (s *service) Drain() error {
	var err error
	s.once.Do(func() {
		s.c.untrack(s)
		err = s.svc.Stop()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.calls > 0 {
		s.idle.Wait()
	}
	if s.c.nc.IsClosed() {
		return nil
	}
	return wrap("stop service", err)
}

// Stream implements bus.API.
func (c *Conn) Stream(ctx context.Context, a bus.Ask, fn func(bus.Msg) error) error {
	what := "answer from " + a.Subject
	if a.Idle == 0 {
		a.Idle = time.Minute
	}
	if err := bus.CheckSubject(a.Subject); err != nil {
		return err
	}
	m := &nats.Msg{Subject: a.Subject, Reply: c.nc.NewInbox(), Header: a.Header, Data: a.Data}
	if err := c.checkSize(m); err != nil {
		return err
	}
	if err := c.ready("request to " + a.Subject); err != nil {
		return err
	}
	frames := make(chan *nats.Msg, streamFrames)
	sub, err := c.nc.ChanSubscribe(m.Reply, frames)
	if err != nil {
		return wrap("request to "+a.Subject, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := c.nc.PublishMsg(m); err != nil {
		return wrap("request to "+a.Subject, err)
	}
	idle := time.NewTimer(a.Idle)
	defer idle.Stop()
	for {
		select {
		case f, ok := <-frames:
			if !ok {
				return wrap(what, nats.ErrConnectionClosed)
			}
			if end, err := c.frame(f, fn); end {
				return wrapStream(what, err)
			}
			idle.Reset(a.Idle)
		case <-idle.C:
			return fmt.Errorf("bus: %s: silent for %v: %w", what, a.Idle, bus.ErrTimeout)
		case <-ctx.Done():
			return wrap(what, ctx.Err())
		case <-c.closed:
			return wrap(what, nats.ErrConnectionClosed)
		}
	}
}

// frame handles one message of an answer and says whether it was the last.
func (c *Conn) frame(m *nats.Msg, fn func(bus.Msg) error) (end bool, err error) {
	if len(m.Data) == 0 {
		if len(m.Header) == 0 {
			return true, nil
		}
		if m.Header.Get("Status") == "503" {
			return true, bus.ErrNoResponders
		}
	}
	b := message(m)
	if e := bus.AsServiceError(b); e != nil {
		return true, e
	}
	err = fn(b)
	return err != nil, err
}

// wrapStream adds what was asked to the bus's own errors and leaves those of the service and of the callback as they are.
func wrapStream(what string, err error) error {
	if err == bus.ErrNoResponders {
		return fmt.Errorf("bus: %s: %w", what, err)
	}
	return err
}
