package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"quire/bus"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
)

// Errors of a Writer, for errors.Is.
var (
	ErrFull   = errors.New("journal: buffer is full") // the bus takes no records; nothing new may be reserved
	ErrClosed = errors.New("journal: closed")
	ErrOff    = errors.New("journal: off") // nothing is recorded: for measuring what recording costs
)

// SignatureHeader carries a record's signature, in hexadecimal digits.
const SignatureHeader = "Quire-Signature"

// Config of a Writer.
type Config struct {
	Bus    bus.Bus
	Names  bus.Names
	Stream string // the stream that must take the records; "" means Names.JournalStream()
	Peer   kvtransfer.Peer
	Signer seal.Signer   // nil: no record is signed
	Buffer int           // records that may wait; 0 means 1024
	Try    time.Duration // how long one publish may take; 0 means 2 s
	Wait   time.Duration // pause after a failed publish, doubled up to 16 times; 0 means 100 ms
	// Off: nothing is recorded. Put takes records and drops them, Append says ErrOff.
	Off bool
	// Checkpoint is how long records may go without a signature that covers them; 0 means 5 s. A writer without records writes
	// a checkpoint every six times that.
	Checkpoint time.Duration
	// Now is the clock of checkpoints, that of the service's records; nil means the time since the writer began.
	Now func() kvtransfer.Tick
	// Notify, when set, hears each change: the error with which records began to fail, nil when they are taken again. It is
	// called from the writer's goroutine and must not block.
	Notify func(error)
}

// Writer publishes the records of one life of one service in order, those that wait at a time as one message, until each is
// acknowledged. A publish whose acknowledgement got lost is repeated with the same bytes and the same message id, so a record is
// stored once.
type Writer struct {
	cfg  Config
	wake chan struct{}
	stop context.CancelFunc
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	queue   []*entry // Invariant: len(queue) <= cfg.Buffer, plus one for each Append under way.
	puts    int      // entries of Put in the queue
	closing bool
	failing error // the last failure, nil while records are taken
	stats   Stats
}

// Stats of a Writer.
type Stats struct {
	Stored  uint64 // records acknowledged
	Retries uint64 // publishes that failed and were repeated
	Refused uint64 // records that were turned away or given up, and not stored
	Pending int    // records waiting
	Full    bool
	Failing error // why records are not taken just now
}

type entry struct {
	rec  Record
	size int        // bytes, about
	wait chan error // for Append; nil for Put. One value is sent.
	gone bool       // Append gave up before it was tried
}

// NewWriter starts the writer's goroutine; Close ends it.
func NewWriter(cfg Config) *Writer {
	if cfg.Stream == "" {
		cfg.Stream = cfg.Names.JournalStream()
	}
	if cfg.Buffer <= 0 {
		cfg.Buffer = 1024
	}
	if cfg.Try <= 0 {
		cfg.Try = 2 * time.Second
	}
	if cfg.Wait <= 0 {
		cfg.Wait = 100 * time.Millisecond
	}
	if cfg.Checkpoint <= 0 {
		cfg.Checkpoint = defaultCheckpoint
	}
	if cfg.Now == nil {
		start := time.Now()
		cfg.Now = func() kvtransfer.Tick { return kvtransfer.Tick(time.Since(start).Microseconds()) }
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &Writer{cfg: cfg, wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	if cfg.Off {
		close(w.done)
		return w
	}
	go w.run(ctx)
	return w
}

// Put hands a record over and does not wait. ErrFull when the buffer is: the fact is not recorded, and the caller must not
// take on what it was to record.
func (w *Writer) Put(r Record) error {
	if w.cfg.Off {
		return nil
	}
	size, err := check(r)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return ErrClosed
	}
	if w.puts >= w.cfg.Buffer {
		w.stats.Refused++
		return fmt.Errorf("%w: %d records wait, last failure: %v", ErrFull, w.puts, w.failing)
	}
	w.puts++
	w.add(&entry{rec: r, size: size})
	return nil
}

// Append hands a record over and waits until the bus has acknowledged it and all before it. An error means that it cannot be
// relied upon; it may still be stored when its publish was already under way.
func (w *Writer) Append(ctx context.Context, r Record) error {
	if w.cfg.Off {
		return ErrOff
	}
	size, err := check(r)
	if err != nil {
		return err
	}
	e := &entry{rec: r, size: size, wait: make(chan error, 1)}
	w.mu.Lock()
	if w.closing {
		w.mu.Unlock()
		return ErrClosed
	}
	w.add(e)
	w.mu.Unlock()
	select {
	case err := <-e.wait:
		return err
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e.gone = true
	return fmt.Errorf("journal: append %s of %s: %w, last failure: %v", r.Facts.kind(), r.Key, ctx.Err(), w.failing)
}

// check finds what would make a record impossible to publish at all, and gives its size.
func check(r Record) (size int, err error) {
	b, err := r.Encode()
	return len(b), err
}

// add puts an entry in the queue and wakes the goroutine. The lock is held.
func (w *Writer) add(e *entry) {
	w.queue = append(w.queue, e)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Stats are the present figures.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	s.Pending, s.Full, s.Failing = len(w.queue), w.puts >= w.cfg.Buffer, w.failing
	return s
}

// Full says whether Put would be refused just now.
func (w *Writer) Full() bool { return w.Stats().Full }

// Close takes no more records, waits until those that wait are stored or ctx ends, and stops the goroutine. The error says how
// many records are lost.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		w.stop()
		<-w.done
	}
	w.stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.queue); n > 0 {
		return fmt.Errorf("journal: close: %d records not stored, last failure: %w", n, w.failing)
	}
	return nil
}
