package decode

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"quire/bus"
	"quire/journal"
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/kvtransfer/seal"
	"quire/model"
	tracing "quire/trace"
)

// life is one epoch: goroutines turn the bus and the engine into events of one loop, and perform its effects.
type life struct {
	s       *Service
	cfg     Config
	peer    kvtransfer.Peer
	start   time.Time
	loop    *Loop // run's alone
	events  chan input
	scratch sync.Pool // *[]byte: frames are opened here before they are copied

	// run's alone.
	deliveries map[uint64]bus.Delivery // not answered
	asks       map[uint64]string       // where to answer requests
	handles    uint64                  // the last one given out
	tracks     tracks
	full       bool // the journal's buffer, as the loop knows it
	silent     bool // the device does not answer

	pickers map[kvtransfer.Key]*model.Picker // the step goroutine's alone, but for forgets
	traces  map[kvtransfer.Key]*trace        // of taped attempts
	mu      sync.Mutex                       // guards pickers, traces and subs

	acks, outbox, control, frames, steps, witnesses, zeros queue

	journal *journal.Writer
	ctx     context.Context
	cancel  context.CancelCauseFunc
	wg      sync.WaitGroup
	kv      bus.Sub // the KV stream's consumer
	subs    []bus.Sub
	unwatch []func()
	kick    chan struct{} // the bus is back
	drained chan struct{}
	snap    atomic.Pointer[Snapshot]

	unsigned atomic.Uint64 // see Snapshot
}

// input is an event, with the delivery or the request that brought it.
type input struct {
	ev       Event
	delivery *bus.Delivery
	reply    string
	of       tracing.Context // of the request
	look     func()          // instead of an event: looks at the loop and changes nothing
}

// startLife takes an epoch and joins the bus.
func startLife(ctx context.Context, s *Service) (*life, error) {
	l := &life{
		s: s, cfg: s.cfg, peer: kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: s.cfg.ID}, start: time.Now(),
		events: make(chan input, queuedEvents), deliveries: map[uint64]bus.Delivery{}, asks: map[uint64]string{},
		pickers: map[kvtransfer.Key]*model.Picker{}, traces: map[kvtransfer.Key]*trace{}, kick: make(chan struct{}, 1), drained: make(chan struct{}),
	}
	err := l.retry(ctx, "epoch", func() (err error) {
		l.peer.Epoch, err = s.cfg.Bus.Streams().NextEpoch(ctx, string(kvtransfer.RoleDecode), s.cfg.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	l.tracks = newTracks(tracing.Tracer{Role: "decode", ID: s.cfg.ID, Export: s.cfg.Trace}, l.start)
	promptKey := s.cfg.Keys.PromptKey()
	l.loop = New(LoopConfig{
		Self: l.peer, Frames: s.cfg.Frames, Model: s.cfg.Model, ModelSlug: s.cfg.ModelSlug, Info: s.cfg.Engine.Info(), Pool: s.cfg.Pool,
		Lease: s.cfg.Lease, MaxOpen: s.cfg.MaxOpen, MaxBatch: s.cfg.MaxBatch, MaxModelLen: s.cfg.MaxModelLen,
		JournalOptional: s.cfg.JournalOptional || s.cfg.JournalOff, Entropy: entropy, Taped: s.taped(),
		PromptDigest: func(tenant string, tokens []int32) [32]byte { return seal.PromptDigest(promptKey, tenant, tokens) },
	})
	l.ctx, l.cancel = context.WithCancelCause(s.ctx)
	l.journal = journal.NewWriter(journal.Config{
		Bus: s.cfg.Bus, Names: s.cfg.Names, Peer: l.peer, Signer: s.signer, Buffer: s.cfg.JournalBuffer, Off: s.cfg.JournalOff, Notify: l.onJournal, Now: l.now,
	})
	l.warn("journal", l.journal.Put(l.started()))
	l.snap.Store(&Snapshot{Peer: l.peer})
	for _, q := range l.queues() {
		q.init()
		l.wg.Go(q.run)
	}
	for range copiers - 1 {
		l.wg.Go(l.frames.run)
	}
	l.wg.Go(l.run)
	if err := l.join(ctx); err != nil {
		l.stop(errClosed)
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *life) queues() []*queue {
	return []*queue{&l.acks, &l.outbox, &l.control, &l.frames, &l.steps, &l.witnesses, &l.zeros}
}

// run is the loop's goroutine: one event at a time, each behind a Tick, and the effects in order.
func (l *life) run() {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		l.handle(Tick{Now: l.now()})
		select {
		case <-l.ctx.Done():
			return
		case in := <-l.events:
			l.handle(Tick{Now: l.now()})
			if in.look != nil {
				in.look()
				continue
			}
			l.handle(l.register(in))
		case <-tick.C:
		}
	}
}

func (l *life) handle(ev Event) {
	_, drain := ev.(Drain)
	for _, e := range l.loop.Handle(ev) {
		l.perform(e)
	}
	if silent := l.loop.Stalled(); silent != l.silent {
		l.silent = silent
		l.tellSilence()
	}
	if (drain || l.loop.draining) && l.loop.Idle() {
		select {
		case <-l.drained:
		default:
			close(l.drained)
		}
	}
}

// tellSilence says when the device stops to answer, and when it does again.
func (l *life) tellSilence() {
	if l.silent {
		l.cfg.Log.Error("decode: the device does not answer: no heartbeat until it does", "id", l.peer.ID, "epoch", l.peer.Epoch)
		return
	}
	l.cfg.Log.Info("decode: the device answers again", "id", l.peer.ID, "epoch", l.peer.Epoch)
}

// register gives an event's delivery or request the handle by which the loop answers it.
func (l *life) register(in input) Event {
	l.handles++
	n := l.handles
	if in.delivery != nil {
		l.deliveries[n] = *in.delivery
	}
	if in.reply != "" {
		l.asks[n] = in.reply
	}
	switch e := in.ev.(type) {
	case ReserveAsked:
		e.ID = n
		l.tracks.asked(n, in.of)
		return e
	case ResendAsked:
		e.ID = n
		return e
	case ClaimCame:
		e.Delivery = n
		return e
	case ProgressCame:
		e.Delivery = n
		return e
	case AbortCame:
		e.Delivery = n
		return e
	case CancelCame:
		e.Delivery = n
		return e
	case ManifestCame:
		e.Delivery = n
		l.tracks.stated(e.M.Key, tracing.FromHeader(in.delivery.Header))
		return e
	case FrameCame:
		e.Delivery = n
		return e
	}
	return in.ev
}

// stop ends this life for a reason.
func (l *life) stop(err error) {
	if l.ctx.Err() == nil && !errors.Is(err, errClosed) {
		l.cfg.Log.Error("decode stops", "id", l.peer.ID, "epoch", l.peer.Epoch, "error", err)
	}
	l.cancel(err)
}

// close ends the goroutines and waits for them: no step, copy or witness is under way when it returns.
func (l *life) close() {
	l.mu.Lock()
	subs, unwatch := slices.Clone(l.subs), slices.Clone(l.unwatch)
	if l.kv != nil {
		subs = append(subs, l.kv)
	}
	l.mu.Unlock()
	for _, sub := range subs {
		l.warn("drain", sub.Drain())
	}
	for _, fn := range unwatch {
		fn()
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := l.journal.Close(ctx); err != nil {
		l.cfg.Log.Warn("decode: journal", "error", err)
	}
	for _, q := range l.queues() {
		q.close()
	}
	l.wg.Wait()
}

// closeIn is close, for which it waits so long. False says that a device hangs: what it was given may still touch the pages, so that no
// other life can have them.
func (l *life) closeIn(most kvtransfer.Tick) bool {
	over := make(chan struct{})
	go func() {
		l.close()
		close(over)
	}()
	late := time.NewTimer(time.Duration(most) * time.Microsecond)
	defer late.Stop()
	select {
	case <-over:
		return true
	case <-late.C:
		return false
	}
}

func (l *life) now() kvtransfer.Tick { return kvtransfer.Tick(time.Since(l.start).Microseconds()) }

// post hands an event to the loop; after the end it is dropped.
func (l *life) post(ev Event) { l.postInput(input{ev: ev}) }

func (l *life) postInput(in input) {
	select {
	case l.events <- in:
	case <-l.ctx.Done():
	}
}

func (l *life) allPages() []page.ID {
	ids := make([]page.ID, l.cfg.Engine.Info().Pages)
	for i := range ids {
		ids[i] = page.ID(i)
	}
	return ids
}

// retry calls fn until it succeeds or ctx ends: processes start in any order. It logs the first failure.
func (l *life) retry(ctx context.Context, what string, fn func() error) error {
	for first := true; ; first = false {
		err := fn()
		if err == nil {
			return nil
		}
		if first {
			l.cfg.Log.Info("decode waits", "for", what, "error", err)
		}
		select {
		case <-time.After(retryEvery):
		case <-ctx.Done():
			return fmt.Errorf("decode: %s: %w", what, err)
		}
	}
}

// warn logs what the protocol mends by itself.
func (l *life) warn(what string, err error) {
	if err != nil && l.ctx.Err() == nil {
		l.cfg.Log.Warn("decode: "+what, "error", err)
	}
}

func entropy(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}
