package sim

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"quire/bus"
)

// stored is one message in a stream.
type stored struct {
	msg bus.Msg
	seq uint64
	at  Time
}

// stream holds messages in order of sequence.
type stream struct {
	b         *broker
	spec      bus.StreamSpec
	msgs      []stored
	bytes     int64
	last      uint64
	ids       map[string]stored
	consumers named[*consumer]
	age       *timer
	gone      bool
}

func micros(d time.Duration) Time { return Time(d.Microseconds()) }

func (b *broker) streamNames(prefix string) []string {
	var names []string
	for _, n := range b.streams.names {
		if strings.HasPrefix(n, prefix) {
			names = append(names, n)
		}
	}
	return names
}

func (b *broker) streamOf(subject string) *stream {
	for _, s := range b.streams.values {
		for _, p := range s.spec.Subjects {
			if bus.Matches(p, subject) {
				return s
			}
		}
	}
	return nil
}

func (b *broker) ensure(spec bus.StreamSpec) *stream {
	s := b.streams.get(spec.Name)
	if s == nil {
		if b.maxAge > 0 && !spec.File {
			spec.MaxAge = duration(b.maxAge)
		}
		s = &stream{b: b, spec: spec, ids: map[string]stored{}}
		b.streams.put(spec.Name, s)
	}
	return s
}

func msgBytes(m bus.Msg) int64 { return int64(len(m.Subject) + bus.HeaderSize(m.Header) + len(m.Data)) }

// store appends m, or says why not. An id is remembered only when its message is stored.
func (s *stream) store(m bus.Msg, id string) (uint64, error) {
	now := s.b.q.now
	if old, ok := s.ids[id]; ok && id != "" && now-old.at < micros(s.spec.Duplicates) {
		s.b.mark("bus: duplicate id")
		if string(old.msg.Data) != string(m.Data) {
			s.b.mark("bus: duplicate id with other content")
		}
		return old.seq, fmt.Errorf("bus: %s: message id %s is sequence %d: %w", m.Subject, id, old.seq, bus.ErrDuplicate)
	}
	if err := s.room(m); err != nil {
		s.b.mark("bus: full")
		return 0, err
	}
	s.last++
	kept := stored{msg: m, seq: s.last, at: now}
	s.msgs = append(s.msgs, kept)
	s.bytes += msgBytes(m)
	if id != "" {
		s.ids[id] = kept
	}
	s.watchAge()
	s.pump()
	return s.last, nil
}

func (s *stream) room(m bus.Msg) error {
	full := func(what string, have, limit int64) error {
		return fmt.Errorf("bus: %s in %s: %s %d of %d: %w", m.Subject, s.spec.Name, what, have, limit, bus.ErrFull)
	}
	if s.b.journalDown && s.spec.Name == s.b.names.JournalStream() {
		return full("bytes", s.bytes, s.bytes)
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
			return full("messages of the subject", n, l)
		}
	}
	return nil
}

func (s *stream) drop(seq uint64) bool {
	i, ok := slices.BinarySearchFunc(s.msgs, seq, func(m stored, seq uint64) int { return int(int64(m.seq) - int64(seq)) })
	if !ok {
		return false
	}
	s.bytes -= msgBytes(s.msgs[i].msg)
	s.msgs = slices.Delete(s.msgs, i, i+1)
	for _, c := range s.consumers.values {
		delete(c.seen, seq)
	}
	return true
}

// watchAge keeps one timer, at the end of the oldest message's life.
func (s *stream) watchAge() {
	if s.spec.MaxAge == 0 || s.age != nil || len(s.msgs) == 0 {
		return
	}
	s.age = s.b.q.after(s.msgs[0].at+micros(s.spec.MaxAge)-s.b.q.now, func() {
		s.age = nil
		for len(s.msgs) > 0 && s.b.q.now-s.msgs[0].at >= micros(s.spec.MaxAge) {
			s.b.mark("time-out: message age")
			s.drop(s.msgs[0].seq)
		}
		if !s.gone {
			s.watchAge()
			s.pump()
		}
	})
}

// forgetUnsynced drops what was written since the last sync.
func (s *stream) forgetUnsynced() {
	every := s.b.syncEvery
	if every == 0 {
		return
	}
	synced := s.b.q.now - s.b.q.now%every
	for i := len(s.msgs) - 1; i >= 0 && s.msgs[i].at > synced; i-- {
		s.b.mark("fault: unsynced write lost")
		s.drop(s.msgs[i].seq)
	}
	for id, m := range s.ids {
		if m.at > synced {
			delete(s.ids, id)
		}
	}
	s.last = 0
	if n := len(s.msgs); n > 0 {
		s.last = s.msgs[n-1].seq
	}
}

// enqueue publishes to a stream and waits for its acknowledgement.
func (c *conn) enqueue(e bus.Enqueue, timeout Time, cb func(uint64, error)) {
	m := bus.Msg{Subject: e.Subject, Header: e.Header, Data: bytes.Clone(e.Data)}
	if err := c.sendable("enqueue to", m); err != nil {
		c.l.after(0, func() { cb(0, err) })
		return
	}
	m.Data = c.l.sent(m.Subject, m.Data)
	store := func() (uint64, error) {
		s := c.b.streamOf(e.Subject)
		if s == nil {
			return 0, fmt.Errorf("bus: enqueue to %s: %w", e.Subject, bus.ErrNoStream)
		}
		if e.Expect != "" && e.Expect != s.spec.Name {
			return 0, fmt.Errorf("bus: enqueue to %s: stream %s took it, expected %s: %w", e.Subject, s.spec.Name, e.Expect, bus.ErrNoStream)
		}
		return s.store(m, e.ID)
	}
	call(c, "enqueue to "+e.Subject, timeout, store, cb)
	if c.l.twice() {
		c.l.toBus(func() {
			if c.b.up && !c.gone {
				_, _ = store()
			}
		})
	}
}

// Nothing is the result of a call that has none.
type nothing = struct{}

func (c *conn) ensureShared(timeout Time, cb func(error)) {
	call(c, "ensure shared streams", timeout, func() (nothing, error) {
		for _, spec := range bus.SharedStreams(c.b.names) {
			c.b.ensure(spec)
			c.remember(spec)
		}
		c.b.bucket, c.bucket = true, true
		return nothing{}, nil
	}, func(_ nothing, err error) { cb(err) })
}

func (c *conn) remember(spec bus.StreamSpec) {
	c.ensured = slices.DeleteFunc(c.ensured, func(o bus.StreamSpec) bool { return o.Name == spec.Name })
	c.ensured = append(c.ensured, spec)
}

// ensureKV makes the KV stream of one decode epoch, empty.
func (c *conn) ensureKV(decode string, epoch uint64, timeout Time, cb func(error)) {
	spec := bus.KVSpec(c.b.names, decode, epoch)
	if c.b.window > 0 {
		spec.MaxMsgsPerSubject = int64(c.b.window)
	}
	call(c, "ensure "+spec.Name, timeout, func() (nothing, error) {
		c.b.remove(spec.Name)
		c.b.ensure(spec)
		c.remember(spec)
		return nothing{}, nil
	}, func(_ nothing, err error) { cb(err) })
}

func (b *broker) remove(name string) bool {
	s := b.streams.get(name)
	if s == nil {
		return false
	}
	s.gone = true
	s.dropConsumers()
	s.age.stop()
	b.streams.remove(name)
	return true
}

func (c *conn) deleteStream(name string, timeout Time, cb func(error)) {
	call(c, "delete "+name, timeout, func() (nothing, error) {
		c.ensured = slices.DeleteFunc(c.ensured, func(o bus.StreamSpec) bool { return o.Name == name })
		if !c.b.remove(name) {
			return nothing{}, fmt.Errorf("bus: delete %s: %w", name, bus.ErrNoStream)
		}
		return nothing{}, nil
	}, func(_ nothing, err error) { cb(err) })
}

// onStream runs do on one stream.
func (c *conn) onStream(what, name string, timeout Time, do func(*stream) error, cb func(error)) {
	call(c, what+" "+name, timeout, func() (nothing, error) {
		s := c.b.streams.get(name)
		if s == nil {
			return nothing{}, fmt.Errorf("bus: %s %s: %w", what, name, bus.ErrNoStream)
		}
		return nothing{}, do(s)
	}, func(_ nothing, err error) { cb(err) })
}

func (c *conn) deleteMessage(name string, seq uint64, timeout Time, cb func(error)) {
	c.onStream("delete message", name, timeout, func(s *stream) error {
		if s.spec.DenyDelete {
			return fmt.Errorf("bus: delete message %d of %s: message delete not permitted", seq, name)
		}
		if !s.drop(seq) {
			return fmt.Errorf("bus: delete message %d of %s: no such message", seq, name)
		}
		s.pump()
		return nil
	}, cb)
}

func (c *conn) purge(name, subject string, timeout Time, cb func(error)) {
	c.onStream("purge", name, timeout, func(s *stream) error {
		if s.spec.DenyPurge {
			return fmt.Errorf("bus: purge %s of %s: stream purge not permitted", subject, name)
		}
		for _, m := range slices.Clone(s.msgs) {
			if bus.Matches(subject, m.msg.Subject) {
				s.drop(m.seq)
			}
		}
		s.pump()
		return nil
	}, cb)
}

func (c *conn) listStreams(prefix string, timeout Time, cb func([]string, error)) {
	call(c, "names "+prefix, timeout, func() ([]string, error) { return c.b.streamNames(prefix), nil }, cb)
}

// nextEpoch takes the next epoch of <role>.<id>.
func (c *conn) nextEpoch(role, id string, timeout Time, cb func(uint64, error)) {
	key := role + "." + id
	call(c, "epoch of "+key, timeout, func() (uint64, error) {
		if !c.b.bucket {
			return 0, fmt.Errorf("bus: epoch of %s: %w", key, bus.ErrNoStream)
		}
		c.b.rev++
		c.b.epochs[key] = c.b.rev
		for _, o := range c.b.conns {
			for _, w := range o.epochs {
				if epoch := c.b.rev; w.key == key {
					o.l.sure(func() {
						if slices.Contains(o.epochs, w) {
							w.fn(epoch)
						}
					})
				}
			}
		}
		return c.b.rev, nil
	}, cb)
}

// watchEpoch tells the present epoch and each later one.
func (c *conn) watchEpoch(role, id string, timeout Time, fn func(uint64), cb func(*epochWatch, error)) {
	key := role + "." + id
	call(c, "watch "+key, timeout, func() (*epochWatch, error) {
		if !c.b.bucket {
			return nil, fmt.Errorf("bus: watch epoch of %s: %w", key, bus.ErrNoStream)
		}
		w := &epochWatch{key: key, fn: fn}
		c.epochs = append(c.epochs, w)
		if present := c.b.epochs[key]; present > 0 {
			c.l.sure(func() { fn(present) })
		}
		return w, nil
	}, cb)
}
