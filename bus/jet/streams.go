package jet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"quire/bus"
)

type streams struct{ c *Conn }

// EnsureShared implements bus.Streams.
func (s streams) EnsureShared(ctx context.Context) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := s.c.ready("ensure streams"); err != nil {
		return err
	}
	if err := s.c.checkForeign(ctx); err != nil {
		return err
	}
	if err := s.c.ensureShared(ctx); err != nil {
		return err
	}
	s.c.mu.Lock()
	s.c.shared = true
	s.c.mu.Unlock()
	return nil
}

// sharedSpecs are the shared streams with the limits that the operator chose.
func (c *Conn) sharedSpecs() []bus.StreamSpec {
	specs := bus.SharedStreams(c.names)
	for i, spec := range specs {
		if spec.Name != c.names.JournalStream() {
			continue
		}
		if c.opt.JournalBytes != 0 {
			specs[i].MaxBytes = c.opt.JournalBytes
		}
		if c.opt.JournalAge != 0 {
			specs[i].MaxAge = c.opt.JournalAge
		}
	}
	return specs
}

func (c *Conn) ensureShared(ctx context.Context) error {
	for _, spec := range c.sharedSpecs() {
		if err := c.ensure(ctx, spec, c.replicas()); err != nil {
			return err
		}
	}
	return c.ensureBucket(ctx)
}

// clustered is how many replicas a stream has that is to outlive a server.
const clustered = 3

// replicas is how many copies the streams get that all share: where nobody says, three on a NATS cluster that has as many servers.
func (c *Conn) replicas() int {
	switch {
	case c.opt.Replicas > 0:
		return c.opt.Replicas
	case c.nc.ConnectedClusterName() != "" && len(c.nc.Servers()) >= clustered:
		return clustered
	}
	return 1
}

// noPeers says that a stream cannot have so many replicas here.
func noPeers(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == codeNoPeers || api.ErrorCode == codeNotClustered)
}

// ensure makes a stream, or says how the one that is there differs.
func (c *Conn) ensure(ctx context.Context, spec bus.StreamSpec, replicas int) error {
	want := config(spec, replicas)
	_, err := c.js.CreateStream(ctx, want)
	if replicas > 1 && c.opt.Replicas == 0 && noPeers(err) {
		c.log.Warn("bus: a stream has one replica: the NATS cluster has too few JetStream servers for more", "stream", spec.Name, "wanted", replicas, "error", err)
		want.Replicas = 1
		_, err = c.js.CreateStream(ctx, want)
	}
	for wait := 10 * time.Millisecond; storeBusy(err) && wait < time.Second; wait *= 2 {
		if !c.pause(ctx.Done(), nil, wait) {
			break
		}
		_, err = c.js.CreateStream(ctx, want)
	}
	if err == nil {
		return nil
	}
	if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return room(spec, wrap("make stream "+spec.Name, err))
	}
	have, err := c.js.Stream(ctx, spec.Name)
	if err != nil {
		return wrap("look at stream "+spec.Name, err)
	}
	return differ(want, have.CachedInfo().Config)
}

// storeBusy says that a stream cannot be made just now, because the server still removes an earlier one of that name.
func storeBusy(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == codeStreamCreate
}

// room adds the remedy to an error about resources.
func room(spec bus.StreamSpec, err error) error {
	if !errors.Is(err, bus.ErrFull) {
		return err
	}
	limit := "max_memory_store"
	if spec.File {
		limit = "max_file_store"
	}
	return fmt.Errorf("%w: the stream reserves %d bytes: raise jetstream { %s } in the server's configuration or free space", err, spec.MaxBytes, limit)
}

func config(spec bus.StreamSpec, replicas int) jetstream.StreamConfig {
	unlimited := func(n int64) int64 {
		if n == 0 {
			return -1
		}
		return n
	}
	c := jetstream.StreamConfig{
		Name: spec.Name, Subjects: spec.Subjects, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
		MaxAge: spec.MaxAge, MaxBytes: unlimited(spec.MaxBytes), MaxMsgs: unlimited(spec.MaxMsgs),
		MaxMsgsPerSubject: unlimited(spec.MaxMsgsPerSubject), MaxConsumers: int(unlimited(int64(spec.MaxConsumers))),
		Duplicates: spec.Duplicates, DenyDelete: spec.DenyDelete, DenyPurge: spec.DenyPurge,
		Storage: jetstream.MemoryStorage, Replicas: replicas, MaxMsgSize: -1,
		DiscardNewPerSubject: spec.MaxMsgsPerSubject > 0,
	}
	if spec.File {
		c.Storage = jetstream.FileStorage
	}
	if spec.WorkQueue {
		c.Retention = jetstream.WorkQueuePolicy
	}
	return c
}

// differ names the first field in which a stream is not what Quire needs. The number of replicas is the operator's, and of streams
// on disk, which keep what is to last, how much and for how long.
func differ(want, have jetstream.StreamConfig) error {
	if want.Storage == jetstream.FileStorage {
		want.MaxAge, want.MaxBytes = have.MaxAge, have.MaxBytes
	}
	for _, f := range []struct {
		name       string
		want, have any
	}{
		{"subjects", strings.Join(want.Subjects, ","), strings.Join(have.Subjects, ",")},
		{"storage", want.Storage, have.Storage},
		{"retention", want.Retention, have.Retention},
		{"discard", want.Discard, have.Discard},
		{"discard_new_per_subject", want.DiscardNewPerSubject, have.DiscardNewPerSubject},
		{"max_age", want.MaxAge, have.MaxAge},
		{"max_bytes", want.MaxBytes, have.MaxBytes},
		{"max_msgs", want.MaxMsgs, have.MaxMsgs},
		{"max_msgs_per_subject", want.MaxMsgsPerSubject, have.MaxMsgsPerSubject},
		{"max_consumers", want.MaxConsumers, have.MaxConsumers},
		{"duplicate_window", want.Duplicates, have.Duplicates},
		{"deny_delete", want.DenyDelete, have.DenyDelete},
		{"deny_purge", want.DenyPurge, have.DenyPurge},
		{"no_ack", want.NoAck, have.NoAck},
	} {
		if f.want != f.have {
			return fmt.Errorf("bus: stream %s is configured otherwise: %s is %v, Quire needs %v: "+
				"change it (nats stream edit %s) or remove it (nats stream rm %s)", want.Name, f.name, f.have, f.want, want.Name, want.Name)
		}
	}
	return nil
}

// EnsureKV implements bus.Streams.
func (s streams) EnsureKV(ctx context.Context, decode string, epoch uint64) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	spec := bus.KVSpec(s.c.names, decode, epoch)
	if err := s.c.ready("make stream " + spec.Name); err != nil {
		return err
	}
	if err := s.c.js.DeleteStream(ctx, spec.Name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return wrap("empty stream "+spec.Name, err)
	}
	s.c.forgetLives(spec.Name)
	if err := s.c.ensure(ctx, spec, 1); err != nil {
		return err
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for name := range s.c.kv { // an earlier epoch of the same decode is over; not being able to make its stream again is no loss
		if strings.HasPrefix(name, s.c.names.KVPrefix()+decode+"_") {
			delete(s.c.kv, name)
		}
	}
	s.c.kv[spec.Name] = spec
	return nil
}

// restore makes again what was ensured and is gone.
func (c *Conn) restore(ctx context.Context) error {
	c.mu.Lock()
	shared := c.shared
	var specs []bus.StreamSpec
	for _, spec := range c.kv {
		specs = append(specs, spec)
	}
	c.mu.Unlock()
	if shared {
		if err := c.ensureShared(ctx); err != nil {
			return err
		}
	}
	for _, spec := range specs {
		if err := c.ensure(ctx, spec, 1); err != nil {
			return err
		}
	}
	return nil
}

// Delete implements bus.Streams.
func (s streams) Delete(ctx context.Context, stream string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	s.c.mu.Lock()
	delete(s.c.kv, stream)
	s.c.mu.Unlock()
	if err := s.c.ready("delete stream " + stream); err != nil {
		return err
	}
	err := s.c.js.DeleteStream(ctx, stream)
	if err == nil {
		s.c.forgetLives(stream)
	}
	return wrap("delete stream "+stream, err)
}

// handle gives a stream without asking the server for its state.
func (s streams) handle(ctx context.Context, what, stream string, fn func(jetstream.Stream) error) error {
	if err := s.c.ready(what); err != nil {
		return err
	}
	st, err := s.c.js.Stream(ctx, stream)
	if err != nil {
		return wrap(what, err)
	}
	return wrap(what, fn(st))
}

// DeleteMessage implements bus.Streams.
func (s streams) DeleteMessage(ctx context.Context, stream string, sequence uint64) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return s.handle(ctx, fmt.Sprintf("delete message %d of %s", sequence, stream), stream, func(st jetstream.Stream) error {
		return st.DeleteMsg(ctx, sequence)
	})
}

// Purge implements bus.Streams.
func (s streams) Purge(ctx context.Context, stream, subject string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return s.handle(ctx, fmt.Sprintf("purge %s of %s", subject, stream), stream, func(st jetstream.Stream) error {
		return st.Purge(ctx, jetstream.WithPurgeSubject(subject))
	})
}

// Names implements bus.Streams.
func (s streams) Names(ctx context.Context, prefix string) ([]string, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := s.c.ready("list streams"); err != nil {
		return nil, err
	}
	var names []string
	list := s.c.js.StreamNames(ctx)
	for name := range list.Name() {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, wrap("list streams", list.Err())
}
