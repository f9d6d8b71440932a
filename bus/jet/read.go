package jet

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"quire/bus"
)

// readStall is how long a read may stand still.
const readStall = 10 * time.Second

var (
	_ bus.Reader = (*Conn)(nil)
	_ bus.Taper  = (*Conn)(nil)
)

// Read implements bus.Reader. It leaves nothing behind on the server: its consumer is ephemeral and takes no acknowledgements.
func (c *Conn) Read(ctx context.Context, stream string, from uint64, fn func(bus.Stored) error) (bus.StreamState, error) {
	return c.read(ctx, stream, jetstream.OrderedConsumerConfig{OptStartSeq: from}, fn)
}

// ReadSubject implements bus.Reader.
func (c *Conn) ReadSubject(ctx context.Context, stream, subject string, fn func(bus.Stored) error) (bus.StreamState, error) {
	return c.read(ctx, stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}}, fn)
}

func (c *Conn) read(ctx context.Context, stream string, what jetstream.OrderedConsumerConfig, fn func(bus.Stored) error) (bus.StreamState, error) {
	label := "read " + stream
	if err := c.ready(label); err != nil {
		return bus.StreamState{}, err
	}
	set, cancel := bounded(ctx)
	defer cancel()
	st, err := c.js.Stream(set, stream)
	if err != nil {
		return bus.StreamState{}, wrap(label, err)
	}
	s := st.CachedInfo().State
	state := bus.StreamState{First: s.FirstSeq, Last: s.LastSeq, Messages: s.Msgs, Bytes: s.Bytes, FirstTime: s.FirstTime, LastTime: s.LastTime}
	what.DeliverPolicy, what.OptStartSeq = jetstream.DeliverByStartSequencePolicy, max(what.OptStartSeq, s.FirstSeq, 1)
	if s.Msgs == 0 || what.OptStartSeq > s.LastSeq {
		return state, nil
	}
	cons, err := st.OrderedConsumer(set, what)
	if err != nil {
		return state, wrap(label, err)
	}
	if info := cons.CachedInfo(); info != nil && info.NumPending == 0 {
		return state, nil
	}
	it, err := cons.Messages(jetstream.PullMaxBytes(bus.MaxPullBytes), jetstream.PullExpiry(readStall))
	if err != nil {
		return state, wrap(label, err)
	}
	defer it.Stop()
	for {
		m, err := next(ctx, it)
		if err != nil {
			return state, wrap(label, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return state, wrap(label, err)
		}
		if meta.Sequence.Stream > state.Last { // stored since; it stands for all that is left of a filter
			return state, nil
		}
		err = fn(bus.Stored{Msg: bus.Msg{Subject: m.Subject(), Header: m.Headers(), Data: m.Data()}, Sequence: meta.Sequence.Stream, Time: meta.Timestamp})
		if err != nil || meta.Sequence.Stream >= state.Last || meta.NumPending == 0 {
			return state, err
		}
	}
}

// next waits for a message, but not for ever.
func next(ctx context.Context, it jetstream.MessagesContext) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readStall, fmt.Errorf("%w: no message for %v", bus.ErrTimeout, readStall))
	defer cancel()
	m, err := it.Next(jetstream.NextContext(ctx))
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return m, err
}

// EnsureTape implements bus.Taper.
func (c *Conn) EnsureTape(ctx context.Context) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := c.ready("ensure the tape's streams"); err != nil {
		return err
	}
	for _, spec := range bus.TapeStreams(c.names) {
		if err := c.ensure(ctx, spec, c.replicas()); err != nil {
			return err
		}
	}
	return nil
}
