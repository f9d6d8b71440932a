package prefill

import (
	"context"
	"crypto/rand"
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
	"quire/kvtransfer/wire"
	"quire/model"
	"quire/trace"
)

// Keys is what the service needs of the keys directory.
type Keys interface {
	seal.Verifier
	Signer(role kvtransfer.Role) (seal.Signer, error)
	PromptKey() [32]byte
}

// Config is what a prefill worker runs with.
type Config struct {
	ID           string          // slug, unique among prefill workers
	Model        string          // full name
	ModelSlug    string          // as in job subjects
	PoolNumber   uint64          // of the engine's page pool, not 0
	Slots        int             // hand-offs at once; 0 = DefaultSlots
	Chunk        int             // tokens of a step at most; 0 = DefaultChunk
	MaxModelLen  int             // tokens of a prompt at most; 0 = what context and pool allow
	Lease        kvtransfer.Tick // how long the device may owe an answer; 0 = 10 s
	MixedCompute bool
	Version      string // of the build, for the journal
	JournalOff   bool   // nothing is recorded
	Bus          bus.Bus
	Names        bus.Names
	Keys         Keys
	Engine       model.Engine
	// DialFrames, if set, connects to the server of a decode that takes its frames directly.
	DialFrames func(ctx context.Context, url string) (FrameBus, error)
	Log        *slog.Logger
	Trace      *trace.Exporter // takes spans; nil = nobody does
}

// Times and bounds of the service.
const (
	DefaultSlots = 4
	tickEvery    = 20 * time.Millisecond
	beatEvery    = 250 * time.Millisecond
	storeTimeout = 4 * time.Second        // of one publish; then the same bytes are sent again
	closeTimeout = time.Second            // for the journal's last facts
	abandonWait  = 500 * time.Millisecond // for the last aborts
	leaveWait    = time.Second            // for the last jobs and aborts of a worker that must stop
	jobAckWait   = 30 * time.Second
	jobPending   = 1024 // jobs not yet acknowledged, of all workers that share the consumer
	senders      = 4    // goroutines that read, seal and store frames
	queuedEvents = 256
)

// Snapshot is what the service tells about itself.
type Snapshot struct {
	Peer     kvtransfer.Peer
	Figures  Figures
	Stats    Stats
	Unsigned uint64 // messages that nobody with a key signed, or that cannot be read
}

// Service is a running prefill worker: goroutines turn the bus and the engine into events of one loop, and perform its effects.
type Service struct {
	cfg     Config
	peer    kvtransfer.Peer
	direct  direct
	scratch sync.Pool // *[]byte: frames are read, sealed and sent from the same memory
	signer  seal.Signer
	journal *journal.Writer
	loop    *Loop // run's alone
	start   time.Time
	events  chan input
	want    chan struct{} // one signal for each job that any worker may take
	// wantDirect is the same for jobs addressed to this worker.
	wantDirect chan struct{}
	silent     bool                    // run's alone: no heartbeat goes out
	jobs       map[uint64]bus.Delivery // run's alone: pulled and not yet acknowledged
	nextJob    uint64
	tracks     tracks // run's alone

	control, frames, steps, zeros queue[func()]

	cancel  context.CancelCauseFunc
	ctx     context.Context
	wg      sync.WaitGroup
	subs    []bus.Sub // the first two read jobs
	unwatch func()
	drained chan struct{}
	joined  chan struct{} // closed when subs is whole
	snap    atomic.Pointer[Snapshot]

	unsigned atomic.Uint64 // see Snapshot
}

// input is an event and, for a job, its delivery; flushed is closed once the control messages it caused are sent.
type input struct {
	ev       Event
	delivery *bus.Delivery
	flushed  chan struct{}
	look     func() // instead of an event: looks at the loop and changes nothing
}

// Start takes an epoch, joins the bus and works until Close, or until the worker must stop (see Done). It waits for the bus
// and its streams as long as ctx allows.
func Start(ctx context.Context, cfg Config) (*Service, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Slots == 0 {
		cfg.Slots = DefaultSlots
	}
	if last := cfg.Engine.Info().Pages - 1; last >= 0 {
		if err := cfg.Engine.Zero([]page.ID{page.ID(last)}); err != nil {
			return nil, fmt.Errorf("prefill: pool of %d pages: %w", last+1, err)
		}
	}
	if cfg.ID == kvtransfer.AnyWorker {
		return nil, fmt.Errorf("prefill: id %q: in a job's subject it means any worker; choose another", cfg.ID)
	}
	signer, err := cfg.Keys.Signer(kvtransfer.RolePrefill)
	if err != nil {
		return nil, fmt.Errorf("prefill: key: %w", err)
	}
	s := &Service{cfg: cfg, signer: signer, start: time.Now(), events: make(chan input, queuedEvents),
		want: make(chan struct{}, 1), wantDirect: make(chan struct{}, 1), jobs: map[uint64]bus.Delivery{}, drained: make(chan struct{}), joined: make(chan struct{})}
	s.direct = direct{dial: cfg.DialFrames, warn: s.warn, links: map[kvtransfer.Peer]*link{}}
	s.tracks = newTracks(trace.Tracer{Role: "prefill", ID: cfg.ID, Export: cfg.Trace})
	for _, q := range []*queue[func()]{&s.control, &s.frames, &s.steps, &s.zeros} {
		q.init()
	}
	s.peer = kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: cfg.ID}
	err = s.retry(ctx, "epoch", func() (err error) {
		s.peer.Epoch, err = cfg.Bus.Streams().NextEpoch(ctx, string(kvtransfer.RolePrefill), cfg.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.loop = New(LoopConfig{Peer: s.peer, Info: cfg.Engine.Info(), Pool: cfg.PoolNumber, Slots: cfg.Slots, Chunk: cfg.Chunk,
		Lease: cfg.Lease, MaxPayload: cfg.Bus.Limits().MaxPayload, MaxModelLen: cfg.MaxModelLen, MixedCompute: cfg.MixedCompute,
		PromptKey: cfg.Keys.PromptKey(), Entropy: entropy})
	s.journal = s.newJournal()
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.record(s.started())
	s.snapshot()
	s.wg.Go(s.run)
	s.work()
	if err := s.join(ctx); err != nil {
		s.Close()
		return nil, err
	}
	close(s.joined)
	return s, nil
}

// run is the loop's goroutine: one event at a time, each behind a Tick, and the effects in order.
func (s *Service) run() {
	tick, beat := time.NewTicker(tickEvery), time.NewTicker(beatEvery)
	defer tick.Stop()
	defer beat.Stop()
	s.handle(Tick{Now: s.now()})
	s.beat()
	for {
		select {
		case <-s.ctx.Done():
			return
		case in := <-s.events:
			s.handle(Tick{Now: s.now()})
			if in.look != nil {
				in.look()
				continue
			}
			if j, ok := in.ev.(Job); ok {
				s.nextJob++
				j.Delivery = s.nextJob
				s.jobs[j.Delivery] = *in.delivery
				s.tracks.job = trace.FromHeader(in.delivery.Header)
				in.ev = j
			}
			s.handle(in.ev)
			s.tracks.job = trace.Context{}
			if in.flushed != nil {
				s.control.push(func() { close(in.flushed) })
			}
		case <-tick.C:
			s.handle(Tick{Now: s.now()})
		case <-beat.C:
			s.beat()
		}
	}
}

func (s *Service) handle(ev Event) {
	for _, fx := range s.loop.Handle(ev) {
		s.perform(fx)
	}
}

// beat publishes the heartbeat and renews the snapshot.
func (s *Service) beat() {
	snap := s.snapshot()
	f := snap.Figures
	if s.quiet(f.Silent) {
		return
	}
	prints := s.cfg.Engine.Info().Fingerprints
	body, err := wire.Encode(&kvtransfer.Heartbeat{Peer: s.peer, Model: s.cfg.Model, ModelSlug: s.cfg.ModelSlug, Pool: prints.Pool(),
		Fingerprints: prints, MaxModelLen: f.MaxModelLen, PageSize: s.cfg.Engine.Info().PageSize, Pages: f.Pages, Slots: f.Slots,
		SlotsFree: f.SlotsFree, Running: f.Running, Draining: f.Draining,
		Refused: kvtransfer.Refusals{Unsigned: snap.Unsigned, Control: snap.Stats.Ignored, Job: snap.Stats.JobsRefused}})
	if err != nil {
		s.stop(fmt.Errorf("prefill: heartbeat: %w", err))
		return
	}
	// A heartbeat that does not go out is silence, which is what it means.
	_ = s.cfg.Bus.Publish(s.cfg.Names.Heartbeat(string(kvtransfer.RolePrefill), s.cfg.ID), nil, s.sign(kvtransfer.KindHeartbeat, body))
}

func (s *Service) snapshot() *Snapshot {
	snap := &Snapshot{Peer: s.peer, Figures: s.loop.Figures(), Stats: s.loop.Stats(), Unsigned: s.unsigned.Load()}
	s.snap.Store(snap)
	return snap
}

func (s *Service) now() kvtransfer.Tick { return kvtransfer.Tick(time.Since(s.start).Microseconds()) }

// post hands an event to the loop; after the end it is dropped.
func (s *Service) post(ev Event) { s.postInput(input{ev: ev}) }

func (s *Service) postInput(in input) {
	select {
	case s.events <- in:
	case <-s.ctx.Done():
	}
}

func (s *Service) sign(kind kvtransfer.Kind, body []byte) []byte {
	return seal.Sign(s.signer, s.peer, kind, body)
}

func entropy(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}
