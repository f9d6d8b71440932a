package router

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
	"quire/keys"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/router/openai"
	"quire/tape"
	"quire/trace"
)

// Keys is what the service needs of the keys directory.
type Keys interface {
	seal.Verifier
	Signer(role kvtransfer.Role) (seal.Signer, error)
	PromptKey() [32]byte
}

// Config is what a router runs with.
type Config struct {
	ID      string // slug, unique among routers
	Served  Served
	Text    Text
	Policy  Policy // Model, Fingerprint and Context are taken from Served
	Version string // of the build, for the journal
	// JournalOff: nothing is recorded, and Health says so.
	JournalOff bool
	Bus        bus.Bus
	Names      bus.Names
	Keys       Keys
	Log        *slog.Logger
	// Taped are the tenants whose content is recorded; Tape takes it and does not wait. Both or none are set.
	Taped []string
	Tape  func(tape.Take)
	// Trace sends spans; nil = nobody takes them. Contexts travel either way.
	Trace *trace.Exporter
	// StuckAfter: requests are open and nothing has happened to any of them for so long: Health says so. 0 = 2 min.
	StuckAfter time.Duration
}

// Times and bounds of the service.
const (
	tickEvery     = 50 * time.Millisecond
	beatEvery     = 250 * time.Millisecond
	callTimeout   = time.Second     // of Reserve and Resend: three unanswered are Lost
	storeTimeout  = 2 * time.Second // of a job and of a cancel
	queuedEvents  = 1024
	loopStuck     = 5 * time.Second // the loop has not turned for so long
	silentEpoch   = 5 * time.Minute // after which a decode's stream is deleted
	janitorPeriod = time.Minute
)

// Service is a running router: goroutines turn the bus and the doors into events of one loop, and perform its effects.
type Service struct {
	cfg     Config
	peer    kvtransfer.Peer
	signer  seal.Signer
	loop    *Loop // run's alone
	start   time.Time
	created time.Time
	events  chan Event
	box     *replyBox
	journal *journal.Writer
	meter   *meter

	mu      sync.Mutex
	streams map[uint64]*stream
	asks    map[uint64]chan Effect
	lastRef uint64

	snap     atomic.Pointer[Stats]
	turned   atomic.Int64 // time of the loop's last turn, ns since start
	progress atomic.Int64 // time of the last thing that happened to a request
	beats    epochs
	roll     roll // run's alone
	looks    looker
	asked    chan func() // to be run on the loop's goroutine
	tracks   tracks      // run's alone

	ctx     context.Context
	cancel  context.CancelCauseFunc
	wg      sync.WaitGroup
	subs    []bus.Sub
	undo    []func()
	drained chan struct{}
	closed  sync.Once
}

var _ Backend = (*Service)(nil)

var errClosed = errors.New("router: closed")

// Start takes an epoch, joins the bus and works until Close, or until the router must stop (see Done). It waits for the bus
// and its streams as long as ctx allows.
func Start(ctx context.Context, cfg Config) (*Service, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.StuckAfter <= 0 {
		cfg.StuckAfter = 2 * time.Minute
	}
	cfg.Policy.Model, cfg.Policy.Fingerprint, cfg.Policy.Context = cfg.Served.Name, cfg.Served.Fingerprint, cfg.Served.Context
	signer, err := cfg.Keys.Signer(kvtransfer.RoleRouter)
	if err != nil {
		return nil, fmt.Errorf("router: key: %w", err)
	}
	s := &Service{
		cfg: cfg, signer: signer, start: time.Now(), created: time.Now(), events: make(chan Event, queuedEvents),
		box: newReplyBox(), meter: newMeter(), streams: map[uint64]*stream{}, asks: map[uint64]chan Effect{}, drained: make(chan struct{}),
		asked: make(chan func()), tracks: newTracks(trace.Tracer{Role: "router", ID: cfg.ID, Export: cfg.Trace}),
	}
	s.peer = kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: cfg.ID}
	err = s.retry(ctx, "epoch", func() (err error) {
		if err = cfg.Bus.Streams().EnsureShared(ctx); err != nil {
			return err
		}
		s.peer.Epoch, err = cfg.Bus.Streams().NextEpoch(ctx, string(kvtransfer.RoleRouter), cfg.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	promptKey, taped := cfg.Keys.PromptKey(), map[string]bool{}
	for _, tenant := range cfg.Taped {
		taped[tenant] = cfg.Tape != nil
	}
	s.loop = New(LoopConfig{Router: s.peer, Policy: cfg.Policy, Entropy: keys.Entropy, Taped: taped,
		Digest: func(tenant string, tokens []int32) [32]byte { return seal.PromptDigest(promptKey, tenant, tokens) }})
	s.journal = journal.NewWriter(journal.Config{Bus: cfg.Bus, Names: cfg.Names, Peer: s.peer, Signer: signer, Off: cfg.JournalOff, Notify: s.journalChanged, Now: s.now})
	s.put(s.started())
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.snapshot()
	s.wg.Go(s.run)
	if err := s.join(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	s.wg.Go(s.janitor)
	return s, nil
}

// run is the loop's goroutine: one event at a time, each behind a Tick, and the effects in order.
func (s *Service) run() {
	tick, beat := time.NewTicker(tickEvery), time.NewTicker(beatEvery)
	defer tick.Stop()
	defer beat.Stop()
	s.beat()
	for {
		select {
		case <-s.ctx.Done():
			s.failAll()
			return
		case ev := <-s.events:
			s.handle(ev)
		case look := <-s.asked:
			look()
		case <-tick.C:
			s.handle(Tick{Now: s.now()})
			s.snapshot()
		case <-beat.C:
			s.beat()
		}
	}
}

func (s *Service) handle(ev Event) {
	s.turned.Store(int64(time.Since(s.start)))
	if _, isTick := ev.(Tick); !isTick {
		s.loop.Now(s.now())
	}
	for _, fx := range s.loop.Handle(ev) {
		s.perform(fx)
	}
	switch ev.(type) {
	case Heard, BusChanged, Submitted, Drain:
		s.snapshot()
	}
}

func (s *Service) snapshot() {
	st := s.loop.Stats()
	s.call(&st)
	s.snap.Store(&st)
}

// Stats tells about the router as of its last turn.
func (s *Service) Stats() Stats { return *s.snap.Load() }

// Peer is this life of this router.
func (s *Service) Peer() kvtransfer.Peer { return s.peer }

// Done is closed when the router has stopped; Err says why. It stops by itself when a younger process has its name.
func (s *Service) Done() <-chan struct{} { return s.ctx.Done() }

// Err is why the router stopped, nil while it runs and after Close.
func (s *Service) Err() error {
	if err := context.Cause(s.ctx); err != nil && !errors.Is(err, errClosed) {
		return err
	}
	return nil
}

// Drain takes nothing new and waits until every request has its end; what runs when ctx ends is cancelled.
func (s *Service) Drain(ctx context.Context) error {
	left := time.Minute
	if until, ok := ctx.Deadline(); ok {
		left = max(0, time.Until(until)*3/4) // the rest is for the workers, which are drained behind the router
	}
	s.post(Drain{Left: kvtransfer.Tick(left.Microseconds())})
	select {
	case <-s.drained:
		return nil
	case <-s.ctx.Done():
		return s.Err()
	case <-ctx.Done():
		st := s.Stats()
		return fmt.Errorf("router: drain: %d requests wait, %d run: %w", st.Queued, st.Prefilling+st.Running, ctx.Err())
	}
}

// Close stops at once: open requests end with an error. A second call does nothing.
func (s *Service) Close() error {
	var errs []error
	s.closed.Do(func() {
		s.cancel(errClosed)
		for _, sub := range s.subs {
			errs = append(errs, sub.Drain())
		}
		for _, undo := range s.undo {
			undo()
		}
		s.wg.Wait()
		s.failAll()
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		errs = append(errs, s.journal.Close(ctx))
	})
	return errors.Join(errs...)
}

// failAll ends what is open when the router stops.
func (s *Service) failAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ref, t := range s.streams {
		t.fail(kvtransfer.Errorf(kvtransfer.Draining, "router: stopped"))
		delete(s.streams, ref)
	}
}

func (s *Service) stop(err error) {
	s.cfg.Log.Error("router stops", "id", s.cfg.ID, "epoch", s.peer.Epoch, "error", err)
	s.cancel(err)
}

func (s *Service) now() kvtransfer.Tick { return kvtransfer.Tick(time.Since(s.start).Microseconds()) }

// post hands an event to the loop; after the end it is dropped, and false says so.
func (s *Service) post(ev Event) bool {
	select {
	case s.events <- ev:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// retry repeats what needs the bus, until it works or ctx ends.
func (s *Service) retry(ctx context.Context, what string, try func() error) error {
	pause := 50 * time.Millisecond
	for {
		err := try()
		if err == nil {
			return nil
		}
		if !errors.Is(err, bus.ErrDown) && !errors.Is(err, bus.ErrNoStream) && !errors.Is(err, bus.ErrTimeout) && !errors.Is(err, bus.ErrNoResponders) {
			return fmt.Errorf("router: %s: %w", what, err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("router: %s: %w", what, errors.Join(ctx.Err(), err))
		}
		pause = min(2*pause, 2*time.Second)
	}
}

// Rules implements Backend.
func (s *Service) Rules() openai.Rules {
	return openai.Rules{Model: s.cfg.Served.Name, Aliases: s.cfg.Served.Aliases, Vocab: s.cfg.Text.Vocab(), Defaults: s.cfg.Served.Defaults}
}

// Piece implements Backend.
func (s *Service) Piece(id int32) []byte { return s.cfg.Text.Piece(id) }
