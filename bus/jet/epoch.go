package jet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ensureBucket makes QUIRE_EPOCH, whose revisions are epochs.
func (c *Conn) ensureBucket(ctx context.Context) error {
	name := c.names.EpochBucket()
	kv, err := c.js.KeyValue(ctx, name)
	if err == nil {
		return c.checkBucket(ctx, kv)
	}
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		_, err = c.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: name, Description: "one life of one process: the revision of <role>.<id> is its epoch",
			History: 1, Storage: jetstream.FileStorage, MaxBytes: 16 << 20, MaxValueSize: 1024, Replicas: c.replicas(),
		})
		if errors.Is(err, jetstream.ErrBucketExists) {
			err = nil
		}
	}
	return wrap("make bucket "+name, err)
}

// checkBucket refuses a bucket that forgets: after a restart its revisions, and so the epochs, would begin again.
func (c *Conn) checkBucket(ctx context.Context, kv jetstream.KeyValue) error {
	st, err := kv.Status(ctx)
	if err != nil {
		return wrap("look at bucket "+kv.Bucket(), err)
	}
	full, ok := st.(*jetstream.KeyValueBucketStatus)
	if ok && full.StreamInfo().Config.Storage != jetstream.FileStorage {
		return fmt.Errorf("bus: bucket %s is configured otherwise: storage is %v, Quire needs %v: remove it (nats kv del %s)",
			kv.Bucket(), full.StreamInfo().Config.Storage, jetstream.FileStorage, kv.Bucket())
	}
	return nil
}

// NextEpoch implements bus.Streams.
func (s streams) NextEpoch(ctx context.Context, role, id string) (uint64, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	key := role + "." + id
	if err := s.c.ready("epoch of " + key); err != nil {
		return 0, err
	}
	kv, err := s.c.js.KeyValue(ctx, s.c.names.EpochBucket())
	if err != nil {
		return 0, wrap("epoch of "+key, err)
	}
	rev, err := kv.Put(ctx, key, []byte(time.Now().UTC().Format(time.RFC3339Nano)))
	return rev, wrap("epoch of "+key, err)
}

// epochWatch follows one key, again after each loss of the server.
type epochWatch struct {
	c    *Conn
	key  string
	fn   func(uint64)
	stop chan struct{}
	once sync.Once
}

// WatchEpoch implements bus.Streams.
func (s streams) WatchEpoch(ctx context.Context, role, id string, fn func(epoch uint64)) (cancel func(), err error) {
	w := &epochWatch{c: s.c, key: role + "." + id, fn: fn, stop: make(chan struct{})}
	ctx, done := bounded(ctx)
	defer done()
	if err := s.c.ready("watch epoch of " + w.key); err != nil {
		return nil, err
	}
	renewed := s.c.renewal()
	if _, err := s.c.js.KeyValue(ctx, s.c.names.EpochBucket()); err != nil {
		return nil, wrap("watch epoch of "+w.key, err)
	}
	kw, err := w.open()
	if err != nil {
		return nil, err
	}
	s.c.track(w)
	go w.run(kw, renewed)
	return func() { _ = w.Drain() }, nil
}

// Drain ends the watch.
func (w *epochWatch) Drain() error {
	w.once.Do(func() {
		w.c.untrack(w)
		close(w.stop)
	})
	return nil
}

func (w *epochWatch) open() (jetstream.KeyWatcher, error) {
	kv, err := w.c.js.KeyValue(context.Background(), w.c.names.EpochBucket())
	if err != nil {
		return nil, wrap("watch epoch of "+w.key, err)
	}
	kw, err := kv.Watch(context.Background(), w.key, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, wrap("watch epoch of "+w.key, err)
	}
	return kw, nil
}

func (w *epochWatch) run(kw jetstream.KeyWatcher, renewed <-chan struct{}) {
	for {
		if again := w.follow(kw, renewed); !again {
			return
		}
		for {
			renewed = w.c.renewal()
			next, err := w.open()
			if err == nil {
				kw = next
				break
			}
			w.c.log.Debug("bus: epoch watch", "error", fmt.Sprint(err))
			if !w.c.pause(w.stop, renewed, time.Second) {
				return
			}
		}
	}
}

// follow reports whether the watch must be opened again.
func (w *epochWatch) follow(kw jetstream.KeyWatcher, renewed <-chan struct{}) bool {
	defer func() { _ = kw.Stop() }()
	for {
		select {
		case <-w.stop:
			return false
		case <-w.c.closed:
			return false
		case <-renewed:
			return true
		case e, ok := <-kw.Updates():
			if !ok {
				return !w.c.nc.IsClosed()
			}
			if e != nil {
				w.fn(e.Revision())
			}
		}
	}
}

// pause waits for d, or less when the server comes back; false when stop or the connection ends it.
func (c *Conn) pause(stop, renewed <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-stop:
		return false
	case <-c.closed:
		return false
	case <-renewed:
	case <-timer.C:
	}
	return true
}
