package decode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"quire/bus"
	"quire/journal"
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/kvtransfer/seal"
	"quire/model"
	"quire/tape"
	tracing "quire/trace"
)

// Keys is what the service needs of the keys directory.
type Keys interface {
	seal.Verifier
	Signer(role kvtransfer.Role) (seal.Signer, error)
	PromptKey() [32]byte
}

// Config is what a decode worker runs with.
type Config struct {
	ID              string          // slug, unique among decode workers
	Model           string          // full name
	ModelSlug       string          // as in job subjects
	Pool            uint64          // number of the engine's page pool, not 0
	MaxOpen         int             // hand-offs at once; 0 = 64
	MaxBatch        int             // sequences of a step; 0 = MaxOpen
	MaxModelLen     int             // tokens of a request at most; 0 = what context and pool allow
	Lease           kvtransfer.Tick // 0 = 10 s
	JournalOptional bool            // decode without a journal; a counter says so
	JournalOff      bool            // nothing is recorded; the same counter says so
	JournalBuffer   int             // facts that may wait; 0 = 1024
	Version         string          // of the build, for the journal
	// Taped are the tenants whose hand-offs are recorded, content included; Tape takes the parts and does not wait. Both or none
	// are set.
	Taped []string
	Tape  func(tape.Part)

	Bus       bus.Bus
	KV        bus.Bus // where the KV stream is, if not on Bus: a server in this process that is a leaf node of Bus's
	Frames    string  // URL of that server for prefill workers; "" = frames come through Bus
	Names     bus.Names
	Keys      Keys
	Engine    model.Engine
	Tokenizer *model.Tokenizer // what pickers make text with
	// NewPicker, if set, makes pickers instead of Tokenizer: for engines that choose by themselves.
	NewPicker func(Picking) *model.Picker
	Log       *slog.Logger
	Trace     *tracing.Exporter // takes spans; nil = nobody does
}

// Times and bounds of the service.
const (
	tickEvery    = 20 * time.Millisecond
	retryEvery   = 250 * time.Millisecond
	storeTimeout = 4 * time.Second // of one control message
	closeTimeout = 2 * time.Second // for the journal's last facts
	kvPending    = 64              // frames not yet acknowledged
	kvAckWait    = 2 * time.Second
	copiers      = 2 // goroutines that open and copy frames
	queuedEvents = 256
)

// Errors that end a life of the process.
var (
	errClosed   = errors.New("decode: closed")
	errNewEpoch = errors.New("decode: the KV stream was out of reach for a lease")
)

// Snapshot is what the service tells about itself, as of the last heartbeat.
type Snapshot struct {
	Peer      kvtransfer.Peer
	Heartbeat kvtransfer.Heartbeat
	Counters  Counters
	Unsigned  uint64 // messages that nobody with a key signed, or that cannot be read
	Journal   journal.Stats
}

// Service is a running decode worker. It lives one epoch after another: a life ends when its KV stream is out of reach for a
// lease, and the next begins with an empty pool and another name on the bus.
type Service struct {
	cfg    Config
	signer seal.Signer
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	life   atomic.Pointer[life]
}

// Start takes an epoch, joins the bus and works until Close, or until the worker must stop (see Done). It waits for the bus
// and its streams as long as ctx allows.
func Start(ctx context.Context, cfg Config) (*Service, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Lease == 0 {
		cfg.Lease = defaultLease
	}
	if cfg.NewPicker == nil && cfg.Tokenizer == nil {
		return nil, fmt.Errorf("decode: %s: no tokenizer", cfg.ID)
	}
	if cfg.Pool == 0 {
		return nil, fmt.Errorf("decode: %s: pool number 0", cfg.ID)
	}
	if cfg.KV == nil {
		cfg.KV = cfg.Bus
	}
	if last := cfg.Engine.Info().Pages - 1; last >= 0 {
		if err := cfg.Engine.Zero([]page.ID{page.ID(last)}); err != nil {
			return nil, fmt.Errorf("decode: %s: pool of %d pages: %w", cfg.ID, last+1, err)
		}
	}
	signer, err := cfg.Keys.Signer(kvtransfer.RoleDecode)
	if err != nil {
		return nil, fmt.Errorf("decode: key: %w", err)
	}
	s := &Service{cfg: cfg, signer: signer}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	first, err := startLife(ctx, s)
	if err != nil {
		return nil, err
	}
	s.life.Store(first)
	s.wg.Go(s.supervise)
	return s, nil
}

// supervise follows a life that ended for want of its stream with the next; any other end is the service's.
func (s *Service) supervise() {
	for {
		l := s.life.Load()
		<-l.ctx.Done()
		err := context.Cause(l.ctx)
		if !errors.Is(err, errNewEpoch) {
			s.cancel(err) // before the life is over: a device that hangs may never let go of it
			l.close()
			return
		}
		if !l.closeIn(kvtransfer.StallStop * s.cfg.Lease) {
			s.cancel(kvtransfer.Errorf(kvtransfer.DeviceFailed, "decode: the device has not answered for %d ms since epoch %d ended",
				kvtransfer.StallStop*s.cfg.Lease/kvtransfer.Millisecond, l.peer.Epoch))
			return
		}
		s.cfg.Log.Warn("decode starts a new epoch", "id", s.cfg.ID, "epoch", l.peer.Epoch, "error", err)
		if err := s.cfg.Engine.Zero(l.allPages()); err != nil {
			s.cancel(fmt.Errorf("decode: pool: %w", err))
			return
		}
		next, err := startLife(s.ctx, s)
		if err != nil {
			s.cancel(err)
			return
		}
		s.life.Store(next)
	}
}

func (s *Service) taped() map[string]bool {
	out := map[string]bool{}
	for _, tenant := range s.cfg.Taped {
		out[tenant] = s.cfg.Tape != nil
	}
	return out
}

// Stats tells about the worker as of the last heartbeat.
func (s *Service) Stats() Snapshot { return *s.life.Load().snap.Load() }

// Peer is the present life of this worker.
func (s *Service) Peer() kvtransfer.Peer { return s.life.Load().peer }

// Done is closed when the worker has stopped; Err says why. It stops by itself when an invariant broke, the device failed for
// good, or a younger process has its name.
func (s *Service) Done() <-chan struct{} { return s.ctx.Done() }

// Err is why the worker stopped, nil while it runs and after Close.
func (s *Service) Err() error {
	if err := context.Cause(s.ctx); err != nil && !errors.Is(err, errClosed) {
		return err
	}
	return nil
}

// Drain takes no more requests and waits until the running ones have ended, their ends are acknowledged and every page is
// free.
func (s *Service) Drain(ctx context.Context) error {
	l := s.life.Load()
	l.post(Drain{})
	select {
	case <-l.drained:
		return nil
	case <-l.ctx.Done():
		return s.Err()
	case <-ctx.Done():
		return fmt.Errorf("decode: drain: %d running: %w", s.Stats().Heartbeat.Running, ctx.Err())
	}
}

// Close stops at once. What was open is Lost to its routers. A second call does nothing.
func (s *Service) Close() error {
	s.cancel(errClosed)
	s.life.Load().stop(errClosed)
	s.wg.Wait()
	return nil
}
