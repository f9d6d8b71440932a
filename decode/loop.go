package decode

import (
	"fmt"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/kvtransfer/seal"
	"quire/model"
)

// LoopConfig is what a loop is made with. Durations are in ticks.
type LoopConfig struct {
	Self      kvtransfer.Peer // this life of this process
	Model     string          // full name, for heartbeats
	ModelSlug string
	Info      model.Info // of the engine
	Pool      uint64     // number of the page pool, not 0
	Frames    string     // for heartbeats: where frames may be sent directly; "" = nowhere

	Lease         kvtransfer.Tick // 10 s when 0
	RouterSilence kvtransfer.Tick // a router epoch silent for so long is gone; Lease when 0
	BeatEvery     kvtransfer.Tick // 300 ms when 0
	MaxOpen       int             // attempts at a time; 64 when 0
	MaxKept       int             // ended attempts whose replies are kept; 256 when 0
	MaxBatch      int             // sequences of a step; MaxOpen when 0
	MaxModelLen   int             // tokens of a request; the largest that fits when 0

	// JournalOptional lets requests run when the journal cannot acknowledge a verdict; Counters.Unjournaled counts them.
	JournalOptional bool

	// Taped are the tenants of whose hand-offs everything is handed on to be recorded, content included.
	Taped map[string]bool

	Entropy      func(n int) []byte                                 // n random bytes
	KeyPair      func(seed [32]byte) seal.KeyPair                   // of a reservation; seal.NewKeyPair when nil
	PromptDigest func(tenant string, tokens []int32) (sum [32]byte) // the cluster's keyed digest
}

const (
	maxFailures  = 3   // times in a row that a step, a witness or a zeroing may fail
	resendLimit  = 256 // replies of one Resent
	defaultOpen  = 64
	defaultKept  = 256
	defaultLease = 10 * kvtransfer.Second
	defaultBeat  = 300 * kvtransfer.Millisecond
)

// Counters counts what was refused or failed. They only grow.
type Counters struct {
	Reserved, ReserveRefused             uint64
	ResendsRefused                       uint64
	ClaimsRefused, ControlIgnored        uint64
	FramesCopied, FramesRepeated         uint64
	FramesRefused, FramesUnopened        uint64
	ManifestsRefused                     uint64
	Admitted, GateRefused, WitnessFailed uint64
	Finished, Failed, Lost, Cancelled    uint64
	Steps, StepsFailed, Tokens           uint64
	RepliesResent                        uint64
	Unjournaled                          uint64
}

// Loop holds decode's state and makes all its decisions, one event at a time. It has no goroutine, lock or clock.
type Loop struct {
	cfg      LoopConfig
	now      kvtransfer.Tick
	nextBeat kvtransfer.Tick
	ledger   *page.Ledger

	handoffs map[kvtransfer.Key]*handoff // looked up with get, so that table hears of it
	table    table
	routers  map[kvtransfer.Peer]kvtransfer.Tick // last sign of life of each router epoch with a hand-off here

	step     []seqOut // the step that is out; empty when none is
	steps    uint64   // number of the last step
	zeroing  int      // pages out to be zeroed
	zeroFail int      // failures in a row
	releases []release
	strays   strays

	stalls [calls]kvtransfer.Stall // what is with the engine, by kind

	draining    bool
	journalFull bool
	stopped     bool
	count       Counters
	out         []Effect // of the event being handled
}

// seqOut is one sequence of the step that is out.
type seqOut struct {
	key     kvtransfer.Key
	witness bool
	grant   page.Grant // zero in a witness, which holds its pages by Hold
}

// New makes a loop with an empty pool.
func New(cfg LoopConfig) *Loop {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	defTick := func(v *kvtransfer.Tick, d kvtransfer.Tick) {
		if *v == 0 {
			*v = d
		}
	}
	def(&cfg.MaxOpen, defaultOpen)
	def(&cfg.MaxKept, defaultKept)
	def(&cfg.MaxBatch, cfg.MaxOpen)
	defTick(&cfg.Lease, defaultLease)
	defTick(&cfg.RouterSilence, cfg.Lease)
	defTick(&cfg.BeatEvery, defaultBeat)
	if cfg.KeyPair == nil {
		cfg.KeyPair = seal.NewKeyPair
	}
	most := min(cfg.Info.Context, cfg.Info.Pages*cfg.Info.PageSize)
	if cfg.MaxModelLen == 0 || cfg.MaxModelLen > most {
		cfg.MaxModelLen = most
	}
	return &Loop{
		cfg:      cfg,
		ledger:   page.NewLedger(cfg.Pool, cfg.Info.Pages, cfg.Info.PageSize),
		handoffs: map[kvtransfer.Key]*handoff{}, table: newTable(),
		routers: map[kvtransfer.Peer]kvtransfer.Tick{},
	}
}

// Handle takes one event and gives what is to be done, in order. After a Stop it gives nothing.
func (l *Loop) Handle(ev Event) []Effect {
	if l.stopped {
		return nil
	}
	l.out = nil
	l.dispatch(ev)
	if !l.stopped {
		l.startStep()
		l.zeroReleased()
		l.settled()
	}
	out := l.out
	l.out = nil
	return out
}

func (l *Loop) dispatch(ev Event) {
	l.reported(ev)
	switch e := ev.(type) {
	case Tick:
		l.onTick(e)
	case ReserveAsked:
		l.onReserve(e)
	case ResendAsked:
		l.onResend(e)
	case ClaimCame:
		l.onClaim(e)
	case ProgressCame:
		l.onProgress(e)
	case AbortCame:
		l.onAbort(e)
	case CancelCame:
		l.onCancel(e)
	case FrameCame:
		l.onFrame(e)
	case FrameOpened:
		l.onOpened(e)
	case FrameCopied:
		l.onCopied(e)
	case ManifestCame:
		l.onManifest(e)
	case Journaled:
		l.onJournaled(e)
	case WitnessDone:
		l.onWitness(e)
	case StepDone:
		l.onStep(e)
	case RouterAlive:
		l.onRouter(e)
	case Zeroed:
		l.onZeroed(e)
	case StreamLost:
		l.onStreamLost()
	case JournalState:
		l.journalFull = e.Full
	case Drain:
		l.draining = true
		l.beat()
	}
}

// do adds an effect.
func (l *Loop) do(e Effect) {
	l.began(e)
	l.out = append(l.out, e)
}

// bug stops the process: an invariant broke, and nothing that this loop knows can be trusted any more.
func (l *Loop) bug(format string, args ...any) {
	if l.stopped {
		return
	}
	l.stopped = true
	l.do(Stop{Err: kvtransfer.Errorf(kvtransfer.Invariant, "decode: "+format, args...)})
}

// broken stops the process when an effect's error says that an invariant broke in what performed it.
func (l *Loop) broken(err kvtransfer.Error) bool {
	if err.Class() == kvtransfer.ClassBug {
		l.bug("%s", err.Detail)
	}
	return l.stopped
}

// onTick takes the time: it ends what is late, forgets what need not be kept, and sends the heartbeat.
func (l *Loop) onTick(e Tick) {
	passed := e.Now - l.now
	l.now = max(l.now, e.Now)
	if l.pass(passed); l.stopped {
		return
	}
	for _, h := range l.takeDue() {
		if err := h.in.Late(l.now); !err.IsZero() {
			l.end(h, err)
		}
		if h.in.State.Over() && l.now >= h.keepUntil {
			l.forget(h)
		} else {
			l.later(h)
		}
	}
	l.silentRouters()
	if l.now >= l.nextBeat && !l.Stalled() {
		l.beat()
	}
}

// beat publishes what this process can take.
func (l *Loop) beat() {
	l.nextBeat = l.now + l.cfg.BeatEvery
	l.recordStrays()
	l.do(Beat{M: l.heartbeat()})
}

// heartbeat is what this process says about itself now.
func (l *Loop) heartbeat() kvtransfer.Heartbeat {
	t := l.settled()
	return kvtransfer.Heartbeat{
		Peer: l.cfg.Self, Model: l.cfg.Model, ModelSlug: l.cfg.ModelSlug,
		Pool: l.cfg.Info.Fingerprints.Pool(), Fingerprints: l.cfg.Info.Fingerprints,
		MaxModelLen: l.cfg.MaxModelLen, PageSize: l.cfg.Info.PageSize, Pages: l.ledger.Counts(),
		Slots: l.cfg.MaxOpen, SlotsFree: l.cfg.MaxOpen - t.open, Running: t.running, Draining: l.draining,
		Refused: kvtransfer.Refusals{
			Reserve: l.count.ReserveRefused, Resend: l.count.ResendsRefused, Claim: l.count.ClaimsRefused, Control: l.count.ControlIgnored,
			Frame: l.count.FramesRefused, Unopened: l.count.FramesUnopened, Repeated: l.count.FramesRepeated, Manifest: l.count.ManifestsRefused,
		}, Frames: l.cfg.Frames,
	}
}

// Idle says that nothing is open, no end waits for its acknowledgement and no page is on its way to Free.
func (l *Loop) Idle() bool {
	c := l.ledger.Counts()
	return len(l.handoffs) == 0 && len(l.step) == 0 && c.Free == c.Total
}

// State is where an attempt stands; false for one that is not in the table.
func (l *Loop) State(k kvtransfer.Key) (kvtransfer.InboundState, bool) {
	h, ok := l.handoffs[k]
	if !ok {
		return 0, false
	}
	return h.in.State, true
}

// ReservationState is where the attempt of one reservation stands; false when it is not in the table, though another of the same
// attempt may be: a Reserve that comes again after the end makes one.
func (l *Loop) ReservationState(k kvtransfer.Key, hash [32]byte) (kvtransfer.InboundState, bool) {
	if h, ok := l.handoffs[k]; ok && h.in.Hash == hash {
		return h.in.State, true
	}
	return 0, false
}

// Counters gives the counters.
func (l *Loop) Counters() Counters { return l.count }

// Verify checks the loop's invariants: the ledger's own, and that every owner of pages is explained.
func (l *Loop) Verify() error {
	if err := l.ledger.Verify(); err != nil {
		return err
	}
	if err := l.verifyTable(); err != nil {
		return err
	}
	for _, h := range l.oldestFirst() {
		k := h.key()
		s, _, _, ok := l.ledger.State(k.Owner())
		if want, must := pagesOf(h.in.State); must && (!ok || s != want) {
			return fmt.Errorf("decode: table: %s is %s, its pages are %s", k, h.in.State, s)
		}
	}
	return nil
}

// pagesOf is the state that the pages of an open attempt have.
func pagesOf(s kvtransfer.InboundState) (want page.State, must bool) {
	switch {
	case s == kvtransfer.InReserved:
		return page.Reserved, true
	case s < kvtransfer.InAdmitted:
		return page.Filling, true
	case !s.Over():
		return page.Owned, true
	}
	return page.Free, false
}
