package prefill

import (
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/kvtransfer/seal"
	"quire/model"
)

// LoopConfig is what a loop is made with. It never changes.
type LoopConfig struct {
	Peer         kvtransfer.Peer // this life of this worker
	Info         model.Info      // of the engine
	Pool         uint64          // number of the engine's pool, not 0
	Slots        int             // hand-offs worked on at once, >= 1
	Chunk        int             // tokens of a step at most; 0 = DefaultChunk
	InFlight     int             // frames being sealed or stored at once; 0 = DefaultInFlight
	Lease        kvtransfer.Tick // how long the device may owe an answer; 0 = 10 s
	MaxPayload   int             // bytes that the bus takes in one message
	MaxModelLen  int             // tokens of a prompt at most; 0 = what context and pool allow
	MixedCompute bool            // take reservations of another compute fingerprint
	PromptKey    [32]byte        // of the keyed prompt digests
	Entropy      func(n int) []byte
	KeyPair      func(seed [32]byte) seal.KeyPair // of a claim; nil = seal.NewKeyPair
}

// Bounds of a loop.
const (
	DefaultInFlight = 8    // frames: 8 MiB
	perAttempt      = 8    // frames of one hand-off in flight, below the window of its subject
	maxDecodes      = 1024 // decodes remembered by their heartbeats
	forgetDecode    = 300 * kvtransfer.Second
	zeroTries       = 3
	stepTries       = 2
	waitParts       = 3 // a job waits for pages, or a device, during 2/3 of its lease
	defaultLease    = 10 * kvtransfer.Second
)

// Loop holds a prefill worker's state and makes all its decisions. It is not safe for use from several goroutines.
//
// Invariants: attempts and jobs asked for are together at most Slots + DirectSlots; at most one step is out; a frame leaves only when its Outbound hands it out; pages are
// released when no frame needs them any more and go back to Free only after Zeroed.
type Loop struct {
	cfg      LoopConfig
	now      kvtransfer.Tick
	ledger   *page.Ledger
	attempts []*attempt // in order of arrival
	decodes  []decode   // in order of first sight
	step     *step      // nil when none is out
	steps    uint64     // number of the last step
	turn     int        // attempt with which the next step starts
	sendTurn int        // attempt with which the next frame starts
	perToken kvtransfer.Tick
	asked    asked
	flight   []FrameID        // frames with the sealer or the stream
	zeroing  int              // failed tries of zeroing in a row
	releases []release        // pages out to be zeroed, oldest first
	stepping kvtransfer.Stall // steps that are out
	clearing kvtransfer.Stall // zeroings that are out
	draining bool
	drained  bool
	halted   bool
	stats    Stats

	fx []Effect // of the event being handled
}

// attempt is one hand-off being worked on.
type attempt struct {
	out      *kvtransfer.Outbound
	delivery uint64
	acked    bool
	tokens   []int32 // never written
	frameKey [32]byte
	view     page.View // rows computed so far; the zero View while it waits for pages
	paged    bool      // the ledger has pages for it
	released bool
	inStep   bool
	seals    int // Holds out. Invariant: frames of it in flight and not yet sealed.
	failures int // of its steps in a row
	hidden   []float32
	since    kvtransfer.Tick
	told     bool // Ended was emitted
	slots    []page.Slot
	computed kvtransfer.Tick // from since until the last row was there
}

// release is a set of pages out to be zeroed.
type release struct {
	first page.ID
	at    kvtransfer.Tick
}

// decode is one decode as its heartbeats show it.
type decode struct {
	id    string
	epoch uint64
	heard kvtransfer.Tick
}

// step is the Compute that is out.
type step struct {
	started kvtransfer.Tick
	tokens  int // Invariant: 1 <= tokens <= budget.
	budget  int
	parts   []stepPart
}

// stepPart is one attempt's part of it.
type stepPart struct {
	frame FrameID // key and claim
	grant page.Grant
}

// Stats counts what happened in this life.
type Stats struct {
	Jobs, JobsRefused, JobsUnsigned           uint64
	Done, Gone, Cancelled, Aborted, Lost      uint64
	Ignored                                   uint64 // events that fit nothing: stale, foreign or repeated
	Steps, StepTokens, StepsFailed            uint64
	FramesStored, FramesFull, ManifestsStored uint64
}

// New makes a loop with all pages free. The first event should be a Tick.
func New(cfg LoopConfig) *Loop {
	if cfg.InFlight < 1 {
		cfg.InFlight = DefaultInFlight
	}
	if cfg.Chunk < 1 {
		cfg.Chunk = DefaultChunk
	}
	if cfg.KeyPair == nil {
		cfg.KeyPair = seal.NewKeyPair
	}
	if cfg.Lease <= 0 {
		cfg.Lease = defaultLease
	}
	cfg.Slots = max(1, cfg.Slots)
	return &Loop{cfg: cfg, ledger: page.NewLedger(cfg.Pool, cfg.Info.Pages, cfg.Info.PageSize)}
}

// Handle takes one event and says what to do about it, in order.
func (l *Loop) Handle(ev Event) []Effect {
	l.fx = nil
	if l.halted {
		if j, ok := ev.(Job); ok {
			l.job(j)
		}
		return l.fx
	}
	switch ev := ev.(type) {
	case Tick:
		l.tick(ev.Now)
	case Job:
		l.job(ev)
	case JobRefused:
		l.jobRefused(ev)
	case Claimed:
		l.claimed(ev)
	case Gone:
		l.gone(ev)
	case Cancel:
		l.cancel(ev)
	case DecodeHeartbeat:
		l.heartbeat(ev.From)
	case ChunkDone:
		l.chunkDone(ev)
	case FrameSealed:
		l.frameSealed(ev)
	case FrameStored:
		l.frameStored(ev)
	case FrameFull:
		l.frameFull(ev)
	case FrameFailed:
		l.frameFailed(ev)
	case ManifestStored:
		l.manifest(ev.Key, ev.Claim, func(a *attempt) { l.stats.ManifestsStored++; a.out.ManifestStored() })
	case ManifestFull:
		l.manifest(ev.Key, ev.Claim, func(a *attempt) { a.out.ManifestFull() })
	case ManifestFailed:
		l.manifest(ev.Key, ev.Claim, func(a *attempt) { l.abort(a, ev.Error) })
	case Zeroed:
		l.zeroed(ev)
	case Drain:
		l.draining = true
	case Abandon:
		l.abandon()
	}
	l.pump()
	fx := l.fx
	l.fx = nil
	return fx
}

// pump starts whatever may start now. Its order: first what ends and frees, then what uses it.
func (l *Loop) pump() {
	for _, a := range l.attempts {
		l.takePages(a)
		l.settleEnd(a)
	}
	if ids := l.ledger.TakeZeroing(); len(ids) > 0 {
		l.releases = append(l.releases, release{first: ids[0], at: l.now})
		l.zero(ids)
	}
	l.attempts = keep(l.attempts, func(a *attempt) bool { return !a.told || a.inStep || a.seals > 0 })
	l.startStep()
	l.sendFrames()
	for _, a := range l.attempts {
		l.sendManifest(a)
	}
	more := pulls(l.cfg.Slots, len(l.attempts), l.asked, l.waiting() || l.Stalled(), l.draining)
	if more.direct {
		l.asked.direct = true
		l.emit(PullJob{Direct: true})
	}
	if more.shared {
		l.asked.shared = true
		l.emit(PullJob{})
	}
	if l.draining && !l.drained && l.idle() {
		l.drained = true
		l.emit(Drained{})
	}
}

// idle says that nothing is left to do and every page is free.
func (l *Loop) idle() bool {
	return len(l.attempts) == 0 && l.step == nil && len(l.flight) == 0 && l.ledger.Counts().Free == l.cfg.Info.Pages
}

// waiting says whether a job here has no pages yet.
func (l *Loop) waiting() bool {
	for _, a := range l.attempts {
		if !a.paged && !a.out.State().Ended() {
			return true
		}
	}
	return false
}

// settleEnd tells once how an attempt ended, and releases its pages as soon as no frame needs them.
func (l *Loop) settleEnd(a *attempt) {
	ended := a.out.State().Ended()
	if a.paged && !a.released && (ended || a.out.Sent()) {
		a.released = true
		l.check(l.ledger.Release(a.out.Key().Owner()))
	}
	if !ended || a.told {
		return
	}
	a.told = true
	l.ack(a)
	l.count(a.out.State())
	if why := a.out.Err(); a.out.State() == kvtransfer.OutboundLost && why.Code == kvtransfer.BusFailed {
		// Decode hears control messages yet gets no frames: it need not wait for the lease.
		l.emit(SendAbort{To: a.out.Reservation().Decode, Msg: kvtransfer.Abort{Key: a.out.Key(), Claim: a.out.ClaimID(), Error: why}})
	}
	stored, _ := a.out.Progress()
	l.emit(Ended{Key: a.out.Key(), Tenant: a.out.Reservation().Tenant, Claim: a.out.ClaimID(), State: a.out.State(), Error: a.out.Err(),
		N: a.out.Reservation().N, Rows: a.out.Rows(), Frames: stored, Pages: a.slots, Took: l.now - a.since, Computed: a.computed})
}

func (l *Loop) count(s kvtransfer.OutboundState) {
	switch s {
	case kvtransfer.OutboundDone:
		l.stats.Done++
	case kvtransfer.OutboundGone:
		l.stats.Gone++
	case kvtransfer.OutboundCancelled:
		l.stats.Cancelled++
	case kvtransfer.OutboundAborted:
		l.stats.Aborted++
	case kvtransfer.OutboundLost:
		l.stats.Lost++
	}
}

func (l *Loop) emit(fx Effect) { l.fx = append(l.fx, fx) }

// ack acknowledges an attempt's job once.
func (l *Loop) ack(a *attempt) {
	if !a.acked {
		a.acked = true
		l.emit(AckJob{Delivery: a.delivery})
	}
}

// abort ends an attempt and tells decode.
func (l *Loop) abort(a *attempt, why kvtransfer.Error) {
	if m, ok := a.out.Abort(why); ok {
		l.emit(SendAbort{To: a.out.Reservation().Decode, Msg: m})
	}
}

// check stops the loop on an error that cannot be: the ledger refused what the loop's own state allows.
func (l *Loop) check(err error) {
	if err != nil {
		l.halt(kvtransfer.Errorf(kvtransfer.Invariant, "prefill: %v", err))
	}
}

// find gives the attempt of a claim, or nil.
func (l *Loop) find(k kvtransfer.Key, c kvtransfer.ClaimID) *attempt {
	for _, a := range l.attempts {
		if a.out.Key() == k && a.out.ClaimID() == c {
			return a
		}
	}
	return nil
}

// keep filters in place.
func keep[T any](s []T, ok func(T) bool) []T {
	kept := s[:0]
	for _, v := range s {
		if ok(v) {
			kept = append(kept, v)
		}
	}
	clear(s[len(kept):])
	return kept
}
