package bustest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"quire/bus"
)

type stored struct {
	msg bus.Msg
	seq uint64
	at  time.Time
}

// stream is guarded by the broker's mu.
type stream struct {
	b         *Broker
	spec      bus.StreamSpec
	msgs      []stored
	bytes     int64
	last      uint64
	ids       map[string]id
	consumers map[string]*consumer
	age       *time.Timer
}

type id struct {
	seq uint64
	at  time.Time
}

func (b *Broker) streamOf(subject string) *stream {
	for _, s := range b.streams {
		for _, p := range s.spec.Subjects {
			if bus.Matches(p, subject) {
				return s
			}
		}
	}
	return nil
}

func (b *Broker) ensure(spec bus.StreamSpec) *stream {
	s := b.streams[spec.Name]
	if s == nil {
		s = &stream{b: b, spec: spec, ids: map[string]id{}, consumers: map[string]*consumer{}}
		b.streams[spec.Name] = s
	}
	return s
}

func msgBytes(m bus.Msg) int64 { return int64(len(m.Subject) + bus.HeaderSize(m.Header) + len(m.Data)) }

// store appends m. The id is remembered only when the message is stored.
func (s *stream) store(m bus.Msg, msgID string) (uint64, error) {
	now := time.Now()
	if old, ok := s.ids[msgID]; ok && msgID != "" && now.Sub(old.at) < s.spec.Duplicates {
		return old.seq, fmt.Errorf("bus: %s: message id %s is sequence %d: %w", m.Subject, msgID, old.seq, bus.ErrDuplicate)
	}
	if err := s.room(m); err != nil {
		return 0, err
	}
	s.last++
	s.msgs = append(s.msgs, stored{msg: copyMsg(m), seq: s.last, at: now})
	s.bytes += msgBytes(m)
	if msgID != "" {
		s.ids[msgID] = id{seq: s.last, at: now}
	}
	s.watchAge()
	s.pump()
	return s.last, nil
}

func (s *stream) room(m bus.Msg) error {
	full := func(what string, have, limit int64) error {
		return fmt.Errorf("bus: %s in %s: maximum %s: %d of %d: %w", m.Subject, s.spec.Name, what, have, limit, bus.ErrFull)
	}
	if l := s.spec.MaxBytes; l > 0 && s.bytes+msgBytes(m) > l {
		return full("bytes", s.bytes, l)
	}
	if l := s.spec.MaxMsgs; l > 0 && int64(len(s.msgs)) >= l {
		return full("messages", int64(len(s.msgs)), l)
	}
	if l := s.spec.MaxMsgsPerSubject; l > 0 {
		n := int64(0)
		for _, o := range s.msgs {
			if o.msg.Subject == m.Subject {
				n++
			}
		}
		if n >= l {
			return full("messages per subject", n, l)
		}
	}
	return nil
}

// drop removes a message; consumers forget it.
func (s *stream) drop(seq uint64) bool {
	i, ok := slices.BinarySearchFunc(s.msgs, seq, func(m stored, seq uint64) int { return int(int64(m.seq) - int64(seq)) })
	if !ok {
		return false
	}
	s.bytes -= msgBytes(s.msgs[i].msg)
	s.msgs = slices.Delete(s.msgs, i, i+1)
	for _, c := range s.consumers {
		c.forget(seq)
	}
	return true
}

// watchAge keeps one timer, at the end of the oldest message's life.
func (s *stream) watchAge() {
	if s.spec.MaxAge == 0 || s.age != nil || len(s.msgs) == 0 {
		return
	}
	s.age = time.AfterFunc(time.Until(s.msgs[0].at.Add(s.spec.MaxAge)), func() {
		s.b.mu.Lock()
		defer s.b.mu.Unlock()
		if s.age == nil {
			return
		}
		s.age = nil
		for len(s.msgs) > 0 && time.Since(s.msgs[0].at) >= s.spec.MaxAge {
			s.drop(s.msgs[0].seq)
		}
		s.watchAge()
		s.pump()
	})
}

// remove ends the stream's timers.
func (s *stream) remove() {
	if s.age != nil {
		s.age.Stop()
		s.age = nil
	}
}

// Enqueue implements bus.Bus.
func (c *Conn) Enqueue(ctx context.Context, e bus.Enqueue) (uint64, error) {
	m := bus.Msg{Subject: e.Subject, Header: e.Header, Data: slices.Clone(e.Data)}
	if err := bus.CheckSubject(e.Subject); err != nil {
		return 0, err
	}
	if err := c.b.fail("enqueue", e.Subject); err != nil {
		return 0, err
	}
	if err := c.b.checkSize(m); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, timedOut("enqueue to "+e.Subject, err)
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if err := c.ready("enqueue to " + e.Subject); err != nil {
		return 0, err
	}
	c.b.tap(m)
	s := c.b.streamOf(e.Subject)
	if s == nil {
		return 0, fmt.Errorf("bus: enqueue to %s: %w", e.Subject, bus.ErrNoStream)
	}
	if e.Expect != "" && e.Expect != s.spec.Name {
		return 0, fmt.Errorf("bus: enqueue to %s: stream %s took it, expected %s: %w", e.Subject, s.spec.Name, e.Expect, bus.ErrNoStream)
	}
	return s.store(m, e.ID)
}

// Streams implements bus.Bus.
func (c *Conn) Streams() bus.Streams { return streams{c} }

type streams struct{ c *Conn }

func (s streams) begin(ctx context.Context, what string) error {
	if err := s.c.b.fail("stream", what); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return timedOut("stream "+what, err)
	}
	s.c.b.mu.Lock()
	if err := s.c.ready("stream " + what); err != nil {
		s.c.b.mu.Unlock()
		return err
	}
	return nil
}

func (s streams) EnsureShared(ctx context.Context) error {
	if err := s.begin(ctx, "shared"); err != nil {
		return err
	}
	defer s.c.b.mu.Unlock()
	for _, spec := range bus.SharedStreams(s.c.b.opt.Names) {
		s.c.b.ensure(spec)
		s.c.remember(spec)
	}
	s.c.b.bucket, s.c.wantsBucket = true, true
	return nil
}

// remember is called under b.mu.
func (c *Conn) remember(spec bus.StreamSpec) {
	c.forgetStream(spec.Name)
	c.ensured = append(c.ensured, spec)
}

func (c *Conn) forgetStream(name string) {
	c.ensured = slices.DeleteFunc(c.ensured, func(o bus.StreamSpec) bool { return o.Name == name })
}

func (s streams) EnsureKV(ctx context.Context, decode string, epoch uint64) error {
	spec := bus.KVSpec(s.c.b.opt.Names, decode, epoch)
	if err := s.begin(ctx, spec.Name); err != nil {
		return err
	}
	defer s.c.b.mu.Unlock()
	s.c.b.deleteStream(spec.Name)
	s.c.b.ensure(spec)
	s.c.remember(spec)
	return nil
}

func (b *Broker) deleteStream(name string) bool {
	st := b.streams[name]
	if st == nil {
		return false
	}
	st.dropConsumers()
	st.remove()
	delete(b.streams, name)
	return true
}

func (s streams) Delete(ctx context.Context, name string) error {
	if err := s.begin(ctx, name); err != nil {
		return err
	}
	defer s.c.b.mu.Unlock()
	s.c.forgetStream(name)
	if !s.c.b.deleteStream(name) {
		return fmt.Errorf("bus: delete %s: %w", name, bus.ErrNoStream)
	}
	return nil
}

// find runs fn on a stream under the lock.
func (s streams) find(ctx context.Context, name string, fn func(*stream) error) error {
	if err := s.begin(ctx, name); err != nil {
		return err
	}
	defer s.c.b.mu.Unlock()
	st := s.c.b.streams[name]
	if st == nil {
		return fmt.Errorf("bus: %s: %w", name, bus.ErrNoStream)
	}
	return fn(st)
}

func (s streams) DeleteMessage(ctx context.Context, name string, sequence uint64) error {
	return s.find(ctx, name, func(st *stream) error {
		if st.spec.DenyDelete {
			return fmt.Errorf("bus: delete message %d of %s: message delete not permitted", sequence, name)
		}
		if !st.drop(sequence) {
			return fmt.Errorf("bus: delete message %d of %s: no such message", sequence, name)
		}
		st.pump()
		return nil
	})
}

func (s streams) Purge(ctx context.Context, name, subject string) error {
	return s.find(ctx, name, func(st *stream) error {
		if st.spec.DenyPurge {
			return fmt.Errorf("bus: purge %s of %s: stream purge not permitted", subject, name)
		}
		for _, m := range slices.Clone(st.msgs) {
			if bus.Matches(subject, m.msg.Subject) {
				st.drop(m.seq)
			}
		}
		st.pump()
		return nil
	})
}

func (s streams) Names(ctx context.Context, prefix string) ([]string, error) {
	if err := s.begin(ctx, prefix); err != nil {
		return nil, err
	}
	defer s.c.b.mu.Unlock()
	var names []string
	for n := range s.c.b.streams {
		if strings.HasPrefix(n, prefix) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names, nil
}
