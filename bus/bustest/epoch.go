package bustest

import (
	"context"
	"fmt"
	"slices"

	"quire/bus"
)

type epochWatch struct {
	conn *Conn
	key  string
	fn   func(uint64)
	box  mailbox
}

func (s streams) NextEpoch(ctx context.Context, role, id string) (uint64, error) {
	key := role + "." + id
	if err := s.begin(ctx, key); err != nil {
		return 0, err
	}
	b := s.c.b
	defer b.mu.Unlock()
	if !b.bucket {
		return 0, fmt.Errorf("bus: epoch of %s: bucket %s: %w", key, b.opt.Names.EpochBucket(), bus.ErrNoStream)
	}
	b.rev++
	b.epochs[key] = b.rev
	rev := b.rev
	for _, w := range b.watches {
		if w.key == key {
			w.box.put(func() { w.fn(rev) })
		}
	}
	return rev, nil
}

func (s streams) WatchEpoch(ctx context.Context, role, id string, fn func(epoch uint64)) (cancel func(), err error) {
	key := role + "." + id
	if err := s.begin(ctx, key); err != nil {
		return nil, err
	}
	b := s.c.b
	defer b.mu.Unlock()
	if !b.bucket {
		return nil, fmt.Errorf("bus: epoch of %s: bucket %s: %w", key, b.opt.Names.EpochBucket(), bus.ErrNoStream)
	}
	w := &epochWatch{conn: s.c, key: key, fn: fn}
	b.watches = append(b.watches, w)
	if now, ok := b.epochs[key]; ok {
		w.box.put(func() { fn(now) })
	}
	return func() {
		b.mu.Lock()
		b.watches = slices.DeleteFunc(b.watches, func(o *epochWatch) bool { return o == w })
		b.mu.Unlock()
		w.box.close()
	}, nil
}
