package jet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"quire/bus"
)

const (
	pullExpiry    = 10 * time.Second // one pull request's life on the server
	pullHeartbeat = time.Second      // two missing ones and the consumer is made again
	prefetch      = 256              // messages that one pull may bring, beside MaxBytes
)

// consumer is one process's pull on a consumer of the server.
type consumer struct {
	c     *Conn
	cfg   bus.Consumer
	fn    func(bus.Delivery)
	token bool // Want gave a value that no message has met yet
	once  sync.Once
	stop  chan struct{}
	ended chan struct{}
}

// Consume implements bus.Bus.
func (c *Conn) Consume(ctx context.Context, cfg bus.Consumer, fn func(bus.Delivery)) (bus.Sub, error) {
	if cfg.Name == "" || len(cfg.Subjects) == 0 {
		return nil, fmt.Errorf("bus: consumer %q of %s: %d filters: both must be set", cfg.Name, cfg.Stream, len(cfg.Subjects))
	}
	if cfg.AckWait == 0 {
		cfg.AckWait = bus.DefaultAckWait
	}
	if cfg.MaxPending == 0 {
		cfg.MaxPending = bus.DefaultPending
	}
	if cfg.MaxBytes <= 0 || cfg.MaxBytes > bus.MaxPullBytes {
		cfg.MaxBytes = bus.MaxPullBytes
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := c.ready("consume " + cfg.Stream); err != nil {
		return nil, err
	}
	k := &consumer{c: c, cfg: cfg, fn: fn, stop: make(chan struct{}), ended: make(chan struct{})}
	renewed := c.renewal()
	made, err := k.make(ctx)
	if err != nil {
		return nil, err
	}
	c.track(k)
	go k.run(made, renewed)
	return k, nil
}

// make creates the consumer, or finds the one of that name with the same values.
func (k *consumer) make(ctx context.Context) (jetstream.Consumer, error) {
	cfg := jetstream.ConsumerConfig{
		Name: k.cfg.Name, AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverAllPolicy,
		AckWait: k.cfg.AckWait, MaxDeliver: k.cfg.MaxDeliver, MaxAckPending: k.cfg.MaxPending,
		InactiveThreshold: k.c.opt.inactive,
	}
	if cfg.MaxDeliver == 0 {
		cfg.MaxDeliver = -1
	}
	if len(k.cfg.Subjects) == 1 {
		cfg.FilterSubject = k.cfg.Subjects[0]
	} else {
		cfg.FilterSubjects = k.cfg.Subjects
	}
	made, err := k.c.js.CreateOrUpdateConsumer(ctx, k.cfg.Stream, cfg)
	if err != nil {
		return nil, wrap(fmt.Sprintf("consumer %s of %s", k.cfg.Name, k.cfg.Stream), err)
	}
	k.c.lives.Store(k.place(), made.CachedInfo().Created.UnixNano())
	return made, nil
}

// place is the key of the server's consumer in lives.
func (k *consumer) place() string { return k.cfg.Stream + "/" + k.cfg.Name }

// life is when the server's consumer was made; 0 when its stream is gone. A message of an earlier life must not be acknowledged:
// its sequence is another message's by now.
func (k *consumer) life() int64 {
	at, _ := k.c.lives.Load(k.place())
	n, _ := at.(int64)
	return n
}

// forgetLives ends the consumers of a stream that was deleted.
func (c *Conn) forgetLives(stream string) {
	c.lives.Range(func(key, _ any) bool {
		if strings.HasPrefix(key.(string), stream+"/") {
			c.lives.Delete(key)
		}
		return true
	})
}

// run pulls until Drain, with a new consumer whenever the old one is in doubt.
func (k *consumer) run(made jetstream.Consumer, renewed <-chan struct{}) {
	defer close(k.ended)
	for {
		if err := k.pull(made, renewed); err != nil {
			k.c.log.Debug("bus: consumer is made again", "stream", k.cfg.Stream, "consumer", k.cfg.Name, "reason", err)
		}
		if made, renewed = k.again(); made == nil {
			return
		}
	}
}

// again makes the consumer, trying until it works; nil when Drain or the end of the connection came first.
func (k *consumer) again() (jetstream.Consumer, <-chan struct{}) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		select {
		case <-k.stop:
			return nil, nil
		case <-k.c.closed:
			return nil, nil
		default:
		}
		renewed := k.c.renewal()
		err := k.c.ready("consume " + k.cfg.Stream)
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), apiTimeout)
			var made jetstream.Consumer
			made, err = k.make(ctx)
			cancel()
			if err == nil {
				return made, renewed
			}
		}
		k.c.log.Debug("bus: consumer", "error", err)
		if !k.c.pause(k.stop, renewed, wait) {
			return nil, nil
		}
	}
}

// pull delivers messages until something is wrong, the server came back or Drain.
func (k *consumer) pull(made jetstream.Consumer, renewed <-chan struct{}) error {
	opts := []jetstream.PullMessagesOpt{
		jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat),
	}
	if k.cfg.Want != nil {
		opts = append(opts, jetstream.PullMaxMessages(1))
	} else {
		opts = append(opts, jetstream.PullMaxMessagesWithBytesLimit(min(prefetch, k.cfg.MaxPending), k.cfg.MaxBytes))
	}
	it, err := made.Messages(opts...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-k.stop:
		case <-renewed:
		case <-k.c.closed:
		case <-ctx.Done():
		}
		cancel()
	}()
	err = k.next(ctx, it)
	cancel()
	<-over
	k.leave(it)
	return err
}

var errIdle = errors.New("no pull for long: the server may have dropped the consumer")

// next delivers one message after the other.
func (k *consumer) next(ctx context.Context, it jetstream.MessagesContext) error {
	for last := time.Now(); ; last = time.Now() {
		if k.cfg.Want != nil && !k.token {
			select {
			case <-ctx.Done():
				return nil
			case _, ok := <-k.cfg.Want:
				if !ok {
					<-ctx.Done()
					return nil
				}
				k.token = true
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case time.Since(last) > k.c.opt.inactive/2: // workers that were busy, or a callback that took long
			return errIdle
		}
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		k.hand(m)
	}
}

// leave ends an iterator without leaving a pull behind on the server, and settles what it still brought: given back when the
// consumer is draining, except a message that may be delivered only once, which the callback gets now or nobody would.
func (k *consumer) leave(it jetstream.MessagesContext) {
	it.Drain()
	wait := 2 * time.Second
	if !k.c.nc.IsConnected() {
		wait = 10 * time.Millisecond // the pull ended with the connection; only what is already here matters
	}
	for {
		m, err := it.Next(jetstream.NextMaxWait(wait))
		if err != nil {
			it.Stop()
			return
		}
		k.hand(m)
	}
}

// hand gives a message to the callback, or back when the consumer is draining.
func (k *consumer) hand(m jetstream.Msg) {
	if k.stopping() && k.cfg.MaxDeliver != 1 {
		_ = m.Nak()
		return
	}
	k.deliver(m)
}

func (k *consumer) stopping() bool {
	select {
	case <-k.stop:
		return true
	default:
		return false
	}
}

func (k *consumer) deliver(m jetstream.Msg) {
	k.token = false
	meta, err := m.Metadata()
	if err != nil {
		k.c.log.Error("bus: message without metadata", "subject", m.Subject(), "error", err)
		return
	}
	life := k.life()
	settle := func(fn func() error) func() error {
		return func() error {
			what := fmt.Sprintf("settle message %d of %s", meta.Sequence.Stream, k.cfg.Stream)
			if life == 0 || k.life() != life {
				return fmt.Errorf("bus: %s: its consumer is gone: %w", what, bus.ErrDown)
			}
			if err := k.c.ready(what); err != nil {
				return err
			}
			return wrap(what, fn())
		}
	}
	k.fn(bus.Delivery{
		Msg:      bus.Msg{Subject: m.Subject(), Header: m.Headers(), Data: m.Data()},
		Sequence: meta.Sequence.Stream, Delivered: int(meta.NumDelivered),
		Ack: settle(m.Ack), Term: settle(m.Term),
		Nak: func(delay time.Duration) error { return settle(func() error { return m.NakWithDelay(delay) })() },
	})
}

// Drain implements bus.Sub.
func (k *consumer) Drain() error {
	k.once.Do(func() {
		k.c.untrack(k)
		close(k.stop)
	})
	select {
	case <-k.ended:
		return nil
	case <-time.After(2 * closeWithin):
		return fmt.Errorf("bus: drain consumer %s: %w after %v", k.cfg.Name, bus.ErrTimeout, 2*closeWithin)
	}
}
