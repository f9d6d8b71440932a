package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"quire/bus"
	"quire/bus/bustest"
)

// The simulated bus is held to the contract that the real one keeps: an adapter lets its queue run with the clock of a
// bubble and gives it the shape of bus.Bus. Its links are without delay and faults.

// contract drives one broker.
type contract struct {
	mu    sync.Mutex
	q     queue
	b     *broker
	start time.Time
	kick  chan struct{}
	stop  chan struct{}
}

func newContract(t *testing.T) *contract {
	c := &contract{start: time.Now(), kick: make(chan struct{}, 1), stop: make(chan struct{})}
	c.b = newBroker(&c.q)
	go c.drive()
	t.Cleanup(func() { close(c.stop) })
	return c
}

// drive runs what is due.
func (c *contract) drive() {
	for {
		c.mu.Lock()
		now := Time(time.Since(c.start).Microseconds())
		for c.q.next(now) {
		}
		wait := time.Hour
		if len(c.q.heap) > 0 {
			wait = duration(c.q.heap[0].at - now)
		}
		c.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-c.kick:
		case <-c.stop:
			return
		}
		timer.Stop()
	}
}

// do runs fn with the queue at the present time.
func (c *contract) do(fn func()) {
	c.mu.Lock()
	for now := Time(time.Since(c.start).Microseconds()); c.q.next(now); {
	}
	fn()
	c.mu.Unlock()
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// plain is a link without delay and faults.
type plain struct{ q *queue }

func (p plain) toBus(fn func())                { p.q.after(0, fn) }
func (p plain) toProc(fn func())               { p.q.after(0, fn) }
func (p plain) sure(fn func())                 { p.q.after(0, fn) }
func (p plain) twice() bool                    { return false }
func (p plain) sent(_ string, b []byte) []byte { return b }
func (p plain) after(d Time, fn func()) *timer { return p.q.after(d, fn) }

// adapter is bus.Bus over one connection.
type adapter struct {
	c *contract
	*conn
}

func (c *contract) connect() *adapter {
	a := &adapter{c: c}
	c.do(func() { a.conn = c.b.connect(plain{&c.q}) })
	return a
}

const forever = 3600 * sec

// wait starts an operation and waits for its result.
func wait[T any](ctx context.Context, c *contract, what string, start func(cb func(T, error))) (T, error) {
	type result struct {
		v   T
		err error
	}
	ch := make(chan result, 1)
	c.do(func() { start(func(v T, err error) { ch <- result{v, err} }) })
	select {
	case r := <-ch:
		return r.v, r.err
	case <-ctx.Done():
		var none T
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return none, fmt.Errorf("bus: %s: %w", what, bus.ErrTimeout)
		}
		return none, ctx.Err()
	}
}

func (a *adapter) Publish(subject string, header map[string][]string, data []byte) (err error) {
	a.c.do(func() { err = a.publish(bus.Msg{Subject: subject, Header: header, Data: data}) })
	return err
}

func (a *adapter) Request(ctx context.Context, subject string, data []byte) (bus.Msg, error) {
	return wait(ctx, a.c, "request to "+subject, func(cb func(bus.Msg, error)) {
		a.request(bus.Msg{Subject: subject, Header: bus.HeaderOf(ctx), Data: data}, forever, cb)
	})
}

// inOrder runs callbacks one at a time outside of the queue's lock.
type inOrder struct {
	mu   sync.Mutex
	jobs []func()
	busy bool
	idle *sync.Cond
}

func newInOrder() *inOrder {
	o := &inOrder{}
	o.idle = sync.NewCond(&o.mu)
	return o
}

func (o *inOrder) put(fn func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.jobs = append(o.jobs, fn)
	if !o.busy {
		o.busy = true
		go o.run()
	}
}

func (o *inOrder) run() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.jobs) > 0 {
		fn := o.jobs[0]
		o.jobs = o.jobs[1:]
		o.mu.Unlock()
		fn()
		o.mu.Lock()
	}
	o.busy = false
	o.idle.Broadcast()
}

func (o *inOrder) wait() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.busy {
		o.idle.Wait()
	}
}

type drainFunc func() error

func (d drainFunc) Drain() error { return d() }

func (a *adapter) Subscribe(subject, queue string, fn func(bus.Msg)) (bus.Sub, error) {
	var sub *subscription
	var err error
	box := newInOrder()
	a.c.do(func() {
		sub, err = a.subscribe(subject, queue, func(m bus.Msg) { box.put(func() { fn(m) }) })
	})
	if err != nil {
		return nil, err
	}
	return drainFunc(func() error {
		a.c.do(sub.drain)
		box.wait()
		return nil
	}), nil
}

func (a *adapter) Enqueue(ctx context.Context, m bus.Enqueue) (uint64, error) {
	type stored struct {
		seq uint64
		err error
	}
	s, err := wait(ctx, a.c, "enqueue to "+m.Subject, func(cb func(stored, error)) {
		a.enqueue(m, forever, func(seq uint64, err error) { cb(stored{seq, err}, nil) })
	})
	if err != nil {
		return 0, err
	}
	return s.seq, s.err
}

// reader is one Consume.
type reader struct {
	a    *adapter
	m    *member
	cfg  bus.Consumer
	fn   func(bus.Delivery)
	box  *inOrder
	fed  chan bus.Delivery
	stop chan struct{}
	done chan struct{}
	once sync.Once
}

func (a *adapter) Consume(ctx context.Context, cfg bus.Consumer, fn func(bus.Delivery)) (bus.Sub, error) {
	r := &reader{a: a, cfg: cfg, fn: fn, box: newInOrder(), fed: make(chan bus.Delivery, 1), stop: make(chan struct{}), done: make(chan struct{})}
	m, err := wait(ctx, a.c, "consume "+cfg.Stream, func(cb func(*member, error)) {
		a.consume(cfg, cfg.Want != nil, forever, r.take, cb)
	})
	if err != nil {
		return nil, err
	}
	r.m = m
	if cfg.Want == nil {
		close(r.done)
	} else {
		go r.eat()
	}
	return drainFunc(r.drain), nil
}

// take is called under the queue's lock.
func (r *reader) take(d *delivery) {
	settle := func(do func(*delivery) error) func() error {
		return func() (err error) {
			r.a.c.do(func() { err = do(d) })
			return err
		}
	}
	out := bus.Delivery{Msg: d.Msg, Sequence: d.seq, Delivered: d.count, Ack: settle((*delivery).ack), Term: settle((*delivery).ack),
		Nak: func(delay time.Duration) error {
			return settle(func(d *delivery) error { return d.nak(micros(delay)) })()
		}}
	if r.cfg.Want != nil {
		r.fed <- out
		return
	}
	r.box.put(func() {
		select {
		case <-r.stop:
			_ = out.Nak(0)
		default:
			r.fn(out)
		}
	})
}

func (r *reader) eat() {
	defer close(r.done)
	for {
		select {
		case <-r.stop:
			return
		case <-r.a.c.stop:
			return
		case _, ok := <-r.cfg.Want:
			if !ok {
				return
			}
		}
		r.a.c.do(r.m.want)
		select {
		case <-r.stop:
			return
		case <-r.a.c.stop:
			return
		case d := <-r.fed:
			r.fn(d)
		}
	}
}

func (r *reader) drain() error {
	r.once.Do(func() {
		r.a.c.do(func() {
			close(r.stop)
			r.m.drain()
		})
		r.box.wait()
		<-r.done
		select {
		case d := <-r.fed:
			r.fn(d)
		default:
		}
	})
	return nil
}

func (a *adapter) Watch(fn func(bus.State, error)) (cancel func()) {
	box := newInOrder()
	first := true
	var undo func()
	a.c.do(func() {
		undo = a.watch(func(s bus.State) {
			if first {
				first = false
				fn(s, nil)
				return
			}
			box.put(func() { fn(s, nil) })
		})
	})
	return func() { a.c.do(undo) }
}

func (a *adapter) Limits() bus.Limits {
	return bus.Limits{MaxPayload: a.b.maxPayload, Server: "simulated", URL: "sim://"}
}

func (a *adapter) Close() error {
	a.c.do(a.close)
	return nil
}

func (a *adapter) Streams() bus.Streams { return streamsAdapter{a} }

type streamsAdapter struct{ a *adapter }

func (s streamsAdapter) wait(ctx context.Context, what string, start func(cb func(error))) error {
	_, err := wait(ctx, s.a.c, what, func(cb func(nothing, error)) { start(func(err error) { cb(nothing{}, err) }) })
	return err
}

func (s streamsAdapter) EnsureShared(ctx context.Context) error {
	return s.wait(ctx, "shared streams", func(cb func(error)) { s.a.ensureShared(forever, cb) })
}

func (s streamsAdapter) EnsureKV(ctx context.Context, decode string, epoch uint64) error {
	return s.wait(ctx, "KV stream", func(cb func(error)) { s.a.ensureKV(decode, epoch, forever, cb) })
}

func (s streamsAdapter) Delete(ctx context.Context, stream string) error {
	return s.wait(ctx, "delete", func(cb func(error)) { s.a.deleteStream(stream, forever, cb) })
}

func (s streamsAdapter) DeleteMessage(ctx context.Context, stream string, sequence uint64) error {
	return s.wait(ctx, "delete message", func(cb func(error)) { s.a.deleteMessage(stream, sequence, forever, cb) })
}

func (s streamsAdapter) Purge(ctx context.Context, stream, subject string) error {
	return s.wait(ctx, "purge", func(cb func(error)) { s.a.purge(stream, subject, forever, cb) })
}

func (s streamsAdapter) Names(ctx context.Context, prefix string) ([]string, error) {
	return wait(ctx, s.a.c, "names", func(cb func([]string, error)) { s.a.listStreams(prefix, forever, cb) })
}

func (s streamsAdapter) NextEpoch(ctx context.Context, role, id string) (uint64, error) {
	return wait(ctx, s.a.c, "epoch", func(cb func(uint64, error)) { s.a.nextEpoch(role, id, forever, cb) })
}

func (s streamsAdapter) WatchEpoch(ctx context.Context, role, id string, fn func(uint64)) (func(), error) {
	box := newInOrder()
	w, err := wait(ctx, s.a.c, "watch", func(cb func(*epochWatch, error)) {
		s.a.watchEpoch(role, id, forever, func(e uint64) { box.put(func() { fn(e) }) }, cb)
	})
	if err != nil {
		return nil, err
	}
	return func() {
		s.a.c.do(func() { s.a.epochs = slices.DeleteFunc(s.a.epochs, func(o *epochWatch) bool { return o == w }) })
	}, nil
}

var _ bus.Bus = (*adapter)(nil)

// TestBusContract holds the simulated bus to what the services rely on; the API door, which the simulator has no use for, is
// left out.
func TestBusContract(t *testing.T) {
	for _, c := range bustest.Cases() {
		if c.Name == "API" || c.Name == "API failures" {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Test(t, newContract(t).connect()) })
		})
	}
}

// TestBusContractRestart takes the server away and brings it back.
func TestBusContractRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newContract(t)
		at := func(*conn) Time { return 0 }
		bustest.Restart(t, c.connect(), c.connect(), func() { c.do(func() { c.b.crash(at) }) }, func() { c.do(func() { c.b.restart(at) }) })
	})
}
