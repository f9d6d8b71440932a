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

// run publishes what waits until it is stored, then what waits by then: one message carries as many records as there are, up to
// the next one that is signed. Checkpoints come in between; after a Close in order, the last record says so.
func (w *Writer) run(ctx context.Context) {
	defer close(w.done)
	defer w.abandon()
	chain := NewChain(w.cfg.Peer)
	timer := time.NewTimer(w.cfg.Checkpoint)
	defer timer.Stop()
	for {
		batch, closing := w.waiting()
		if len(batch) == 0 {
			if closing {
				w.farewell(ctx, &chain)
				return
			}
			timer.Reset(w.checkpointIn(chain))
			select {
			case <-w.wake:
			case <-timer.C:
				w.checkpoint(ctx, &chain)
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				return
			}
			continue
		}
		err := w.publish(ctx, &chain, batch)
		if ctx.Err() != nil && err != nil {
			return
		}
		w.finish(len(batch), err)
		if chain.Counter-chain.Signed >= coverEvery {
			w.checkpoint(ctx, &chain)
		}
	}
}

func (w *Writer) checkpoint(ctx context.Context, chain *Chain) {
	_ = w.publish(ctx, chain, []*entry{{rec: Record{At: w.cfg.Now(), Facts: Checkpoint{Lost: w.lost()}}}})
}

// publish stores records as one message and moves the chain on.
func (w *Writer) publish(ctx context.Context, chain *Chain, batch []*entry) error {
	var data, last []byte
	next := *chain
	for _, e := range batch {
		b, to, err := next.Next(e.rec)
		if err != nil {
			return err
		}
		if data != nil {
			data = append(data, '\n')
		}
		data, last, next = append(data, b...), b, to
	}
	kinds := batch[len(batch)-1].rec.Facts.kind()
	m := bus.Enqueue{Data: data, Expect: w.cfg.Stream, ID: fmt.Sprintf("%s.%d.%d", next.Service, next.Epoch, next.Counter)}
	switch {
	case Signs(kinds):
		next.Signed = next.Counter
		if w.cfg.Signer != nil {
			m.Header = map[string][]string{SignatureHeader: {hex.EncodeToString(Sign(w.cfg.Signer, last))}}
		}
	case len(batch) > 1:
		kinds = KindFacts
	}
	m.Subject = w.cfg.Names.Journal(string(kinds), next.Service)
	if err := w.store(ctx, m); err != nil {
		return err
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
	_ = w.publish(ctx, chain, []*entry{{rec: Record{At: w.cfg.Now(), Facts: Stopped{Lost: w.lost()}}}})
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

// Bounds of one message.
const (
	batchRecords = 64
	batchBytes   = 256 << 10 // of all records, unless one alone is larger
)

// waiting gives the entries at the head of the queue that one message takes, up to the first that is signed, and drops those
// that nobody wants any more.
func (w *Writer) waiting() (batch []*entry, closing bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := w.queue[:0]
	for _, e := range w.queue {
		if e.gone {
			w.stats.Refused++
			continue
		}
		kept = append(kept, e)
	}
	clear(w.queue[len(kept):])
	w.queue = kept
	limit := batchBytes
	if most := w.cfg.Bus.Limits().MaxPayload; most > 0 {
		limit = min(limit, most/2)
	}
	for size := 0; len(batch) < min(len(w.queue), batchRecords); {
		e := w.queue[len(batch)]
		if size += e.size; size > limit && len(batch) > 0 {
			break
		}
		batch = append(batch, e)
		if Signs(e.rec.Facts.kind()) {
			break
		}
	}
	return batch, w.closing
}

// finish reports the outcome of the entries at the queue's head and takes them off.
func (w *Writer) finish(n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.queue[:n] {
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
	w.queue = append([]*entry(nil), w.queue[n:]...)
}

// store publishes the same bytes until the bus has them. Only a message that the bus can never take, or the end of ctx, ends
// it with an error.
func (w *Writer) store(ctx context.Context, m bus.Enqueue) error {
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
			return fmt.Errorf("journal: %s: %d bytes: %w", m.Subject, len(m.Data), err)
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
