package bustest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"quire/bus"
)

type subscription struct {
	c              *Conn
	pattern, queue string
	fn             func(bus.Msg)
	box            mailbox
}

// Subscribe implements bus.Bus.
func (c *Conn) Subscribe(subject, queue string, fn func(bus.Msg)) (bus.Sub, error) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if c.state == bus.Closed {
		return nil, fmt.Errorf("bus: subscribe to %s: %w", subject, bus.ErrClosed)
	}
	return c.subscribe(subject, queue, fn), nil
}

// subscribe and unsubscribe are called under b.mu.
func (c *Conn) subscribe(subject, queue string, fn func(bus.Msg)) *subscription {
	s := &subscription{c: c, pattern: subject, queue: queue, fn: fn}
	c.subs = append(c.subs, s)
	c.b.subs = append(c.b.subs, s)
	return s
}

func (c *Conn) unsubscribe(s *subscription) {
	same := func(o *subscription) bool { return o == s }
	c.subs = slices.DeleteFunc(c.subs, same)
	c.b.subs = slices.DeleteFunc(c.b.subs, same)
}

// Drain implements bus.Sub.
func (s *subscription) Drain() error {
	s.c.b.mu.Lock()
	s.c.unsubscribe(s)
	s.c.b.mu.Unlock()
	s.box.drain(false)
	return nil
}

// route hands m to its subscribers, one of each queue group, in turn. It returns how many got it. Called under b.mu.
func (b *Broker) route(m bus.Msg) int {
	n := 0
	groups, names := map[string][]*subscription{}, []string(nil)
	for _, s := range b.subs {
		if !bus.Matches(s.pattern, m.Subject) {
			continue
		}
		if s.queue == "" {
			s.deliver(m)
			n++
			continue
		}
		if groups[s.queue] == nil {
			names = append(names, s.queue)
		}
		groups[s.queue] = append(groups[s.queue], s)
	}
	for _, q := range names {
		key := q + " " + m.Subject
		g := groups[q]
		g[b.queues[key]%len(g)].deliver(m)
		b.queues[key]++
		n++
	}
	return n
}

func (s *subscription) deliver(m bus.Msg) {
	m = copyMsg(m)
	s.box.put(func() { s.fn(m) })
}

// service is what Serve returns.
type service struct{ subs []*subscription }

// Drain implements bus.Sub.
func (s *service) Drain() error {
	for _, sub := range s.subs {
		_ = sub.Drain()
	}
	return nil
}

// Serve implements bus.API.
func (c *Conn) Serve(_ context.Context, spec bus.ServiceSpec, fn func(*bus.Call)) (bus.Sub, error) {
	if spec.Name == "" || spec.Queue == "" || len(spec.Endpoints) == 0 {
		return nil, fmt.Errorf("bus: service %q: queue %q, %d endpoints: each must be set", spec.Name, spec.Queue, len(spec.Endpoints))
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if c.state == bus.Closed {
		return nil, fmt.Errorf("bus: serve %s: %w", spec.Name, bus.ErrClosed)
	}
	s := &service{}
	for _, e := range spec.Endpoints {
		s.subs = append(s.subs, c.subscribe(e.Subject, spec.Queue, func(m bus.Msg) {
			gone := make(chan struct{})
			var once sync.Once
			fn(&bus.Call{
				Msg: m, Endpoint: e.Name, Tenant: bus.TenantOf(e.Subject, m.Subject), Room: c.b.opt.MaxPayload,
				Reach: func(h map[string][]string, data []byte) error {
					_, err := c.publish(bus.Msg{Subject: m.Reply, Header: h, Data: data})
					return err
				},
				Probe: func(h map[string][]string, data []byte) error {
					n, err := c.publish(bus.Msg{Subject: m.Reply, Header: h, Data: data})
					if err == nil && n == 0 {
						once.Do(func() { close(gone) })
					}
					return err
				},
				Gone: gone,
			})
		}))
	}
	return s, nil
}
