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
	"quire/kvtransfer"
)

// Bus is what a tape needs of a connection.
type Bus interface {
	bus.Reader
	bus.Taper
	Enqueue(ctx context.Context, m bus.Enqueue) (uint64, error)
	Streams() bus.Streams
}

const (
	waiting   = 4096      // takes and parts that may wait
	waitBytes = 128 << 20 // bytes that they may hold
	patience  = 5 * time.Second
	keyStands = 10 * time.Second // a key is looked up again after this: it may have been erased
)

// Recorder writes takes and parts. Nothing waits for it: what it cannot write is counted and lost.
type Recorder struct {
	bus     Bus
	names   bus.Names
	log     *slog.Logger
	items   chan item
	bytes   atomic.Int64 // that wait
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	dropped atomic.Uint64
	keys    map[string]held // run's alone
	failed  kvtransfer.HandoffID
}

// item is what the recorder can record.
type item struct {
	tenant, subject string
	handoff         kvtransfer.HandoffID
	size            int // bytes, about
	seal            func(Key) ([]byte, error)
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
	r := &Recorder{bus: b, names: names, log: log, items: make(chan item, waiting), cancel: cancel, keys: map[string]held{}}
	r.wg.Go(func() { r.run(ctx) })
	return r, nil
}

// Put hands a take over.
func (r *Recorder) Put(t Take) {
	r.put(item{t.Tenant, r.names.Tape(t.Tenant, t.Handoff.String()), t.Handoff, 8 * (len(t.Prompt) + len(t.Output)), t.Seal})
}

// PutPart hands a part over. The attempt of a part that is not recorded cannot be replayed from its frames.
func (r *Recorder) PutPart(p Part) {
	r.put(item{p.Tenant, r.names.TapePart(p.Tenant, p.Key.String(), p.Number), p.Key.ID, p.size(), p.Seal})
}

func (r *Recorder) put(i item) {
	if r.bytes.Add(int64(i.size)) > waitBytes {
		r.bytes.Add(-int64(i.size))
		r.dropped.Add(1)
		return
	}
	select {
	case r.items <- i:
	default:
		r.bytes.Add(-int64(i.size))
		r.dropped.Add(1)
	}
}

// Dropped is how many takes and parts were not recorded.
func (r *Recorder) Dropped() uint64 { return r.dropped.Load() }

// Close records what waits, for a while, and ends. Put must not be called any more.
func (r *Recorder) Close() {
	close(r.items)
	timer := time.AfterFunc(patience, r.cancel)
	defer timer.Stop()
	r.wg.Wait()
	r.cancel()
}

func (r *Recorder) run(ctx context.Context) {
	for i := range r.items {
		err := r.record(ctx, i)
		r.bytes.Add(-int64(i.size))
		if err == nil {
			continue
		}
		r.dropped.Add(1)
		if r.failed != i.handoff { // once for a hand-off, which may have many parts
			r.failed = i.handoff
			r.log.Warn("tape: a request is not recorded, or not all of it", "handoff", i.handoff.String(), "error", err)
		}
	}
}

func (r *Recorder) record(ctx context.Context, i item) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	h, ok := r.keys[i.tenant]
	if !ok || time.Since(h.at) > keyStands {
		k, err := r.key(ctx, i.tenant)
		if err != nil {
			return err
		}
		h = held{k, time.Now()}
		r.keys[i.tenant] = h
	}
	b, err := i.seal(h.key)
	if err != nil {
		return err
	}
	_, err = r.bus.Enqueue(ctx, bus.Enqueue{Subject: i.subject, Data: b, Expect: r.names.TapeStream()})
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

// Find gives a tenant's key, from the stream behind the bucket (Names.TapeKeysStream).
func Find(ctx context.Context, b bus.Reader, names bus.Names, tenant string) (k Key, err error) {
	return FindIn(ctx, b, names.TapeKeysStream(), names, tenant)
}

// FindIn is Find in a stream of another name.
func FindIn(ctx context.Context, b bus.Reader, stream string, names bus.Names, tenant string) (k Key, err error) {
	found := false
	_, err = b.ReadSubject(ctx, stream, names.TapeKey(tenant), func(m bus.Stored) error {
		found = len(m.Data) == len(k)
		copy(k[:], m.Data)
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
