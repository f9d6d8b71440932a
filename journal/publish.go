package journal

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"quire/bus"
)

// Times of checkpoints.
const (
	defaultCheckpoint = 5 * time.Second // after a record that no signature covers yet
	idleCheckpoints   = 6               // times that, without any record
	coverEvery        = 256             // records that one signature covers at most
	farewellWait      = 500 * time.Millisecond
)

// What readers may expect of a process that runs: it writes a checkpoint at least so often, and one that has written nothing
// for so long is dead, or its records are lost.
const (
	CheckpointEvery = idleCheckpoints * defaultCheckpoint
	SilentAfter     = 3 * CheckpointEvery
)

// run publishes the queue's head until it is stored, then the next. Checkpoints come in between; after a Close in order, the
// last record says so.
func (w *Writer) run(ctx context.Context) {
	defer close(w.done)
	defer w.abandon()
	chain := NewChain(w.cfg.Peer)
	timer := time.NewTimer(w.cfg.Checkpoint)
	defer timer.Stop()
	for {
		e, closing := w.head()
		if e == nil {
			if closing {
				w.farewell(ctx, &chain)
				return
			}
			timer.Reset(w.checkpointIn(chain))
			select {
			case <-w.wake:
			case <-timer.C:
				if err := w.publish(ctx, &chain, Record{At: w.cfg.Now(), Facts: Checkpoint{Lost: w.lost()}}); err != nil && ctx.Err() != nil {
					return
				}
			case <-ctx.Done():
				return
			}
			continue
		}
		err := w.publish(ctx, &chain, e.rec)
		if ctx.Err() != nil && err != nil {
			return
		}
		w.finish(e, err)
		if chain.Counter-chain.Signed >= coverEvery {
			_ = w.publish(ctx, &chain, Record{At: w.cfg.Now(), Facts: Checkpoint{Lost: w.lost()}})
		}
	}
}

// publish stores one record and moves the chain on.
func (w *Writer) publish(ctx context.Context, chain *Chain, r Record) error {
	b, next, err := chain.Next(r)
	if err != nil {
		return err
	}
	if err := w.store(ctx, r, next, b); err != nil {
		return err
	}
	next.Signed = chain.Signed
	if Signs(r.Facts.kind()) {
		next.Signed = next.Counter
	}
	*chain = next
	return nil
}

// checkpointIn is how long a writer without records waits for the next one before it writes a checkpoint.
func (w *Writer) checkpointIn(chain Chain) time.Duration {
	if chain.Counter > chain.Signed {
		return w.cfg.Checkpoint
	}
	return idleCheckpoints * w.cfg.Checkpoint
}

// farewell writes the last record of a chain that has any, unless the bus is away: nobody waits long for it.
func (w *Writer) farewell(ctx context.Context, chain *Chain) {
	if chain.Counter == 0 || w.Stats().Failing != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, farewellWait)
	defer cancel()
	_ = w.publish(ctx, chain, Record{At: w.cfg.Now(), Facts: Stopped{Lost: w.lost()}})
}

// lost is how many records were turned away so far.
func (w *Writer) lost() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats.Refused
}

// abandon tells those who still wait that their records are lost; the records stay in the queue for Close to count.
func (w *Writer) abandon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closing = true
	for _, e := range w.queue {
		if e.wait != nil {
			e.wait <- ErrClosed
		}
	}
}

// head gives the first entry that somebody still wants, and drops those that nobody does.
func (w *Writer) head() (e *entry, closing bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) > 0 && w.queue[0].gone {
		w.queue = w.queue[1:]
		w.stats.Refused++
	}
	if len(w.queue) == 0 {
		return nil, w.closing
	}
	return w.queue[0], w.closing
}

// finish reports the outcome of the queue's head and takes it off.
func (w *Writer) finish(e *entry, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = w.queue[1:]
	if e.wait != nil {
		e.wait <- err
	} else {
		w.puts--
	}
	if err != nil {
		w.stats.Refused++
	} else {
		w.stats.Stored++
	}
}

// store publishes the same bytes until the bus has them. Only a record that the bus can never take, or the end of ctx, ends
// it with an error.
func (w *Writer) store(ctx context.Context, r Record, at Chain, b []byte) error {
	m := bus.Enqueue{Subject: w.cfg.Names.Journal(string(r.Facts.kind()), at.Service), Data: b, Expect: w.cfg.Stream,
		ID: fmt.Sprintf("%s.%d.%d", at.Service, at.Epoch, at.Counter)}
	if w.cfg.Signer != nil && Signs(r.Facts.kind()) {
		m.Header = map[string][]string{SignatureHeader: {hex.EncodeToString(Sign(w.cfg.Signer, b))}}
	}
	pause := w.cfg.Wait
	for {
		try, cancel := context.WithTimeout(ctx, w.cfg.Try)
		_, err := w.cfg.Bus.Enqueue(try, m)
		cancel()
		if err == nil || errors.Is(err, bus.ErrDuplicate) {
			w.changed(nil)
			return nil
		}
		w.changed(err)
		if errors.Is(err, bus.ErrTooLarge) {
			return fmt.Errorf("journal: %s of %s: %d bytes: %w", r.Facts.kind(), r.Key, len(b), err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		pause = min(2*pause, 16*w.cfg.Wait)
	}
}

// changed keeps the last outcome and notifies on a change.
func (w *Writer) changed(err error) {
	w.mu.Lock()
	before := w.failing
	w.failing = err
	if err != nil {
		w.stats.Retries++
	}
	w.mu.Unlock()
	if w.cfg.Notify != nil && (before == nil) != (err == nil) {
		w.cfg.Notify(err)
	}
}
