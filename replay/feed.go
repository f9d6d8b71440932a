package replay

import (
	"context"
	"runtime"
	"sync"

	"quire/journal"
	"quire/kvtransfer/seal"
)

// Bounds of what is read ahead of what was looked at.
const (
	lotItems = 128
	lotBytes = 512 << 10
)

// lot is a few messages in order, and their records once done is closed.
type lot struct {
	items  []Item
	parsed [][]journal.Parsed
	done   chan struct{}
}

// feed reads a source. Records are read and their signatures checked on all CPUs, a bounded number of messages ahead; take gets
// them in the source's order, one call at a time.
func feed(ctx context.Context, src Source, keys seal.Verifier, take func(Item, []journal.Parsed)) (Extent, error) {
	ctx, cancel := context.WithCancel(ctx)
	workers := runtime.GOMAXPROCS(0)
	work, order := make(chan *lot, 2*workers), make(chan *lot, 4*workers)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range workers {
		wg.Go(func() {
			for l := range work {
				l.parse(keys)
			}
		})
	}
	var ext Extent
	var err error
	wg.Go(func() {
		defer close(order)
		defer close(work)
		ext, err = cut(ctx, src, func(l *lot) error {
			for _, to := range []chan *lot{order, work} {
				select {
				case to <- l:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})
	})
	for l := range order {
		select {
		case <-l.done:
		case <-ctx.Done():
			continue
		}
		for i, it := range l.items {
			take(it, l.parsed[i])
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	return ext, err
}

// cut reads a source in lots.
func cut(ctx context.Context, src Source, give func(*lot) error) (Extent, error) {
	next, bytes := &lot{done: make(chan struct{})}, 0
	ext, err := src.Items(ctx, func(it Item) error {
		next.items = append(next.items, it)
		if bytes += len(it.Data); len(next.items) < lotItems && bytes < lotBytes {
			return nil
		}
		l := next
		next, bytes = &lot{done: make(chan struct{})}, 0
		return give(l)
	})
	if err == nil && len(next.items) > 0 {
		err = give(next)
	}
	return ext, err
}

func (l *lot) parse(keys seal.Verifier) {
	defer close(l.done)
	l.parsed = make([][]journal.Parsed, len(l.items))
	for i, it := range l.items {
		parts := journal.Split(it.Data)
		out := make([]journal.Parsed, len(parts))
		for j, b := range parts {
			var sig []byte
			if j == len(parts)-1 {
				sig = it.Signature
			}
			out[j] = journal.Parse(b, sig, keys)
		}
		l.parsed[i] = out
	}
}
