package matrix

import (
	"context"
	"strings"
	"sync"
	"time"

	"quire/bus"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
)

// step is a message of a hand-off, by who gets it.
type step string

const (
	reserve     step = "reserve"
	reservation step = "reservation"
	job         step = "job"
	claim       step = "claim"
	claimed     step = "claimed"
	frame       step = "frame"
	manifest    step = "manifest"
	verdict     step = "verdict" // its acknowledgement by the journal
	outcome     step = "outcome"
	token       step = "token"
	end         step = "end"
	acked       step = "ack" // the router has the end
)

// steps are in the order in which a good hand-off takes them.
var steps = []step{reserve, reservation, job, claim, claimed, frame, manifest, verdict, outcome, token, end, acked}

// message is one message on its way through a tap.
type message struct {
	step step
	key  kvtransfer.Key
	tap  *tap
	data []byte
	pass func()        // hands it on; may be called again
	done chan struct{} // closed when the receiver has acknowledged or terminated it, or its callback has returned
}

// rule holds messages.
type rule struct {
	match     func(*message) bool
	once      bool // holds the first one alone
	copies    bool // lets the first pass and keeps a copy
	redeliver bool // lets the first pass and loses its acknowledgement, so that the server delivers again; holds that one
	held      chan *message
	seen      int
	repeats   int
	finished  bool
}

// network is the taps of one world and the rules that they follow.
type network struct {
	names bus.Names
	keys  seal.Verifier

	mu    sync.Mutex
	rules []*rule
	first kvtransfer.Key // the attempt of the first message that was held
	last  kvtransfer.Key // the attempt of the last manifest
	watch func(*message) // told of every message, before the rules; may be nil
}

// hold adds a rule. Its channel gets each message that it holds.
func (n *network) hold(r rule) *rule {
	n.mu.Lock()
	defer n.mu.Unlock()
	r.held = make(chan *message, 64)
	n.rules = append(n.rules, &r)
	return &r
}

// drop ends a rule.
func (n *network) drop(r *rule) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r.finished = true
}

// through decides about a message: false means that it is held.
func (n *network) through(m *message) bool {
	n.mu.Lock()
	switch m.step {
	case manifest:
		n.last = m.key
	case verdict:
		m.key = n.last // one request at a time fits the pool
	}
	watch := n.watch
	var by *rule
	for _, r := range n.rules {
		if by == nil && !r.finished && !(r.once && r.seen > 0) && r.match(m) {
			by = r
			r.seen++
		}
	}
	first := by != nil && by.seen == 1
	if by != nil && n.first == (kvtransfer.Key{}) {
		n.first = m.key
	}
	n.mu.Unlock()
	if watch != nil {
		watch(m)
	}
	if by == nil || by.redeliver && first {
		return true
	}
	select {
	case by.held <- m:
	default: // more than anybody asks for
	}
	return by.copies
}

// tap is a bus of one process of the world.
type tap struct {
	bus.Bus
	net *network
	who string

	mu      sync.Mutex
	cut     bool          // nothing goes out or comes in
	dead    bool          // for good
	gone    chan struct{} // closed when dead
	backlog []func()      // deliveries that wait for the cut to end
}

func (n *network) tap(b bus.Bus, who string) *tap {
	return &tap{Bus: b, net: n, who: who, gone: make(chan struct{})}
}

func (t *tap) isCut() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cut || t.dead
}

// partition cuts the process off; heal lets what waited come.
func (t *tap) partition() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cut = true
}

func (t *tap) heal() {
	t.mu.Lock()
	t.cut = false
	waiting := t.backlog
	t.backlog = nil
	t.mu.Unlock()
	for _, pass := range waiting {
		pass()
	}
}

// die cuts the process off for good: it says no more, and nothing reaches it.
func (t *tap) die() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.dead {
		t.dead, t.backlog = true, nil
		close(t.gone)
	}
}

// deliver lets a message in, holds it, or keeps it for the end of the cut.
func (t *tap) deliver(m *message) {
	t.mu.Lock()
	switch {
	case t.dead:
		t.mu.Unlock()
		return
	case t.cut:
		t.backlog = append(t.backlog, func() { t.deliver(m) })
		t.mu.Unlock()
		return
	}
	t.mu.Unlock()
	if m.step == "" || t.net.through(m) {
		m.pass()
	}
}

// Publish implements bus.Bus.
func (t *tap) Publish(subject string, header map[string][]string, data []byte) error {
	if t.isCut() {
		return bus.ErrDown
	}
	if env, err := wire.Open(data); err == nil && env.Kind == kvtransfer.KindReservation {
		if r, err := wire.Decode[kvtransfer.Reservation](env.Body); err == nil {
			m := &message{step: reservation, key: r.Key, tap: t, data: data, done: make(chan struct{})}
			var once sync.Once
			m.pass = func() {
				_ = t.Bus.Publish(subject, header, data)
				once.Do(func() { close(m.done) })
			}
			if !t.net.through(m) {
				return nil
			}
			m.pass()
			return nil
		}
	}
	return t.Bus.Publish(subject, header, data)
}

// Request implements bus.Bus.
func (t *tap) Request(ctx context.Context, subject string, data []byte) (bus.Msg, error) {
	if t.isCut() {
		return bus.Msg{}, bus.ErrDown
	}
	return t.Bus.Request(ctx, subject, data)
}

// Enqueue implements bus.Bus.
func (t *tap) Enqueue(ctx context.Context, m bus.Enqueue) (uint64, error) {
	if t.isCut() {
		return 0, bus.ErrDown
	}
	seq, err := t.Bus.Enqueue(ctx, m)
	if err == nil && strings.HasPrefix(m.Subject, t.net.names.Journal("verdict", "decode")) {
		// The record is stored; the writer hears of it when the tap lets it.
		v := &message{step: verdict, tap: t, done: make(chan struct{})}
		passed := make(chan struct{})
		var once sync.Once
		v.pass = func() { once.Do(func() { close(passed); close(v.done) }) }
		if t.net.through(v) {
			v.pass()
		}
		select {
		case <-passed:
		case <-t.gone:
			return 0, bus.ErrClosed
		case <-ctx.Done():
			return 0, bus.ErrTimeout
		}
	}
	return seq, err
}

// Subscribe implements bus.Bus.
func (t *tap) Subscribe(subject, queue string, fn func(bus.Msg)) (bus.Sub, error) {
	var one sync.Mutex
	return t.Bus.Subscribe(subject, queue, func(in bus.Msg) {
		m := &message{tap: t, data: in.Data, done: make(chan struct{})}
		m.step, m.key = t.core(in)
		var once sync.Once
		m.pass = func() {
			one.Lock()
			defer one.Unlock()
			fn(in)
			once.Do(func() { close(m.done) })
		}
		t.deliver(m)
	})
}

// Consume implements bus.Bus.
func (t *tap) Consume(ctx context.Context, c bus.Consumer, fn func(bus.Delivery)) (bus.Sub, error) {
	var one sync.Mutex
	return t.Bus.Consume(ctx, c, func(d bus.Delivery) {
		m := &message{tap: t, data: d.Data, done: make(chan struct{})}
		m.step, m.key = t.stored(d)
		var once sync.Once
		answer := func(what func() error) func() error {
			return func() error {
				defer once.Do(func() { close(m.done) })
				if t.isCut() {
					return bus.ErrDown
				}
				if t.swallows(m) {
					return nil
				}
				return what()
			}
		}
		out := d
		out.Ack, out.Term = answer(d.Ack), answer(d.Term)
		out.Nak = func(delay time.Duration) error { return d.Nak(delay) }
		m.pass = func() {
			one.Lock()
			defer one.Unlock()
			fn(out)
		}
		t.deliver(m)
	})
}

// swallows says whether an acknowledgement is lost on its way, so that the server delivers again.
func (t *tap) swallows(m *message) bool {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	for _, r := range t.net.rules {
		if r.redeliver && !r.finished && r.match(m) {
			return true
		}
	}
	return false
}

// core tells the messages of core NATS apart.
func (t *tap) core(in bus.Msg) (step, kvtransfer.Key) {
	if r, err := wire.DecodeReply(in.Data); err == nil && strings.Contains(in.Subject, ".reply.") {
		switch n := r.Header.Number; n {
		case 0:
			return outcome, r.Header.Key
		case 1:
			return token, r.Header.Key
		case maxTokens + 1:
			return end, r.Header.Key
		}
		return "", kvtransfer.Key{}
	}
	env, err := seal.OpenEnvelope(t.net.keys, in.Data)
	if err != nil {
		return "", kvtransfer.Key{}
	}
	switch env.Kind {
	case kvtransfer.KindReserve:
		if m, err := wire.Decode[kvtransfer.Reserve](env.Body); err == nil {
			return reserve, m.Key
		}
	case kvtransfer.KindResend:
		if m, err := wire.Decode[kvtransfer.Resend](env.Body); err == nil && m.Ack {
			return acked, m.Key
		}
	}
	return "", kvtransfer.Key{}
}

// stored tells the messages of streams apart.
func (t *tap) stored(d bus.Delivery) (step, kvtransfer.Key) {
	key := keyOf(d.Subject)
	if f, err := wire.DecodeFrame(d.Data); err == nil && strings.Contains(d.Subject, ".kv.") {
		return frame, f.Header.Key
	}
	env, err := seal.OpenEnvelope(t.net.keys, d.Data)
	if err != nil {
		return "", key
	}
	switch env.Kind {
	case kvtransfer.KindJob:
		return job, key
	case kvtransfer.KindClaim:
		return claim, key
	case kvtransfer.KindClaimed:
		return claimed, key
	case kvtransfer.KindManifest:
		return manifest, key
	}
	return "", key
}

// keyOf reads the last part of a subject.
func keyOf(subject string) (k kvtransfer.Key) {
	last := subject[strings.LastIndexByte(subject, '.')+1:]
	id, attempt, ok := strings.Cut(last, "-")
	if !ok || len(id) != 32 {
		return k
	}
	for i := range k.ID {
		k.ID[i] = unhex(id[2*i])<<4 | unhex(id[2*i+1])
	}
	for _, c := range attempt {
		k.Attempt = k.Attempt*10 + uint32(c-'0')
	}
	return k
}

func unhex(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}
