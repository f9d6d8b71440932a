package tape

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"quire/bus"
)

// Bus is what a tape needs of a connection.
type Bus interface {
	bus.Reader
	bus.Taper
	Enqueue(ctx context.Context, m bus.Enqueue) (uint64, error)
	Streams() bus.Streams
}

const (
	waiting   = 256 // takes that may wait
	patience  = 5 * time.Second
	keyStands = 10 * time.Second // a key is looked up again after this: it may have been erased
)

// Recorder writes takes. Nothing waits for it: what it cannot write is counted and lost.
type Recorder struct {
	bus     Bus
	names   bus.Names
	log     *slog.Logger
	takes   chan Take
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	dropped atomic.Uint64
	keys    map[string]held // run's alone
}

type held struct {
	key Key
	at  time.Time
}

// Start makes the streams and begins to record.
func Start(ctx context.Context, b Bus, names bus.Names, log *slog.Logger) (*Recorder, error) {
	if err := b.EnsureTape(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Recorder{bus: b, names: names, log: log, takes: make(chan Take, waiting), cancel: cancel, keys: map[string]held{}}
	r.wg.Go(func() { r.run(ctx) })
	return r, nil
}

// Put hands a take over.
func (r *Recorder) Put(t Take) {
	select {
	case r.takes <- t:
	default:
		r.dropped.Add(1)
	}
}

// Dropped is how many takes were not recorded.
func (r *Recorder) Dropped() uint64 { return r.dropped.Load() }

// Close records what waits, for a while, and ends. Put must not be called any more.
func (r *Recorder) Close() {
	close(r.takes)
	timer := time.AfterFunc(patience, r.cancel)
	defer timer.Stop()
	r.wg.Wait()
	r.cancel()
}

func (r *Recorder) run(ctx context.Context) {
	for t := range r.takes {
		if err := r.record(ctx, t); err != nil {
			r.dropped.Add(1)
			r.log.Warn("tape: a request is not recorded", "handoff", t.Handoff.String(), "error", err)
		}
	}
}

func (r *Recorder) record(ctx context.Context, t Take) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	h, ok := r.keys[t.Tenant]
	if !ok || time.Since(h.at) > keyStands {
		k, err := r.key(ctx, t.Tenant)
		if err != nil {
			return err
		}
		h = held{k, time.Now()}
		r.keys[t.Tenant] = h
	}
	b, err := t.Seal(h.key)
	if err != nil {
		return err
	}
	_, err = r.bus.Enqueue(ctx, bus.Enqueue{Subject: r.names.Tape(t.Tenant, t.Handoff.String()), Data: b, Expect: r.names.TapeStream()})
	return err
}

// key is the tenant's key; the first one to ask makes it.
func (r *Recorder) key(ctx context.Context, tenant string) (Key, error) {
	k, err := Find(ctx, r.bus, r.names, tenant)
	if !errors.Is(err, ErrNoKey) {
		return k, err
	}
	k = NewKey()
	_, err = r.bus.Enqueue(ctx, bus.Enqueue{Subject: r.names.TapeKey(tenant), Data: k[:], Expect: r.names.TapeKeysStream()})
	if errors.Is(err, bus.ErrFull) { // somebody was quicker
		return Find(ctx, r.bus, r.names, tenant)
	}
	return k, err
}

// ErrNoKey says that a tenant has no key: nothing was recorded of it, or its tape was erased.
var ErrNoKey = errors.New("no key: nothing was recorded, or it was erased")

// Find gives a tenant's key.
func Find(ctx context.Context, b bus.Reader, names bus.Names, tenant string) (k Key, err error) {
	found := false
	_, err = b.Read(ctx, names.TapeKeysStream(), 1, func(m bus.Stored) error {
		if m.Subject == names.TapeKey(tenant) {
			found = len(m.Data) == len(k)
			copy(k[:], m.Data)
		}
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("tape: tenant %s: %w", tenant, ErrNoKey)
	}
	return k, err
}

// Erase destroys a tenant's key. Takes of it stay where they are and open for nobody.
func Erase(ctx context.Context, s bus.Streams, names bus.Names, tenant string) error {
	return s.Purge(ctx, names.TapeKeysStream(), names.TapeKey(tenant))
}

// Of reads the take of a hand-off; the last one where there are several.
func Of(ctx context.Context, b bus.Reader, names bus.Names, tenant string, id [16]byte) (Take, error) {
	k, err := Find(ctx, b, names, tenant)
	if err != nil {
		return Take{}, err
	}
	want := names.Tape(tenant, fmt.Sprintf("%x", id))
	var data []byte
	if _, err = b.Read(ctx, names.TapeStream(), 1, func(m bus.Stored) error {
		if m.Subject == want {
			data = m.Data
		}
		return nil
	}); err != nil {
		return Take{}, err
	}
	if data == nil {
		return Take{}, fmt.Errorf("tape: hand-off %x of tenant %s is not on the tape", id, tenant)
	}
	return Open(k, tenant, id, data)
}
