package router

import (
	"slices"

	"quire/kvtransfer"
)

// LoopConfig is what a loop is made with.
type LoopConfig struct {
	Router  kvtransfer.Peer // this process
	Policy  Policy
	Entropy func(n int) []byte
	// Digest is the keyed digest of a prompt: taken once at the edge, only compared afterwards.
	Digest func(tenant string, tokens []int32) [32]byte
	// Taped are the tenants whose requests are recorded with their content.
	Taped map[string]bool
}

// Loop holds a router's state and makes all its decisions, one event at a time.
//
// Invariants: a request is in requests exactly from Accept to Finish; it is in queue, or has one attempt in attempts, never
// both; a closing attempt belongs to no request.
type Loop struct {
	cfg        LoopConfig
	policy     Policy
	now        kvtransfer.Tick
	busUp      bool
	maxPayload int
	draining   bool
	drainBy    kvtransfer.Tick
	drained    bool
	dirty      bool // room may have come free, or somebody waits anew: place has work

	roster   roster
	queue    queue
	requests map[uint64]*request
	byID     map[kvtransfer.HandoffID]*request
	attempts map[kvtransfer.Key]*attempt
	closing  map[kvtransfer.Key]*closing
	timers   timers          // of attempts
	running  map[string]int  // attempts by tenant
	average  kvtransfer.Tick // of the time that requests took, smoothed
	stats    Stats
	out      []Effect
}

// request is one request between Accept and Finish.
type request struct {
	ref       uint64
	id        kvtransfer.HandoffID
	tenant    string
	prompt    []int32
	output    []int32 // ids that went to the client. Invariant: only grows; len <= maxTokens
	maxTokens int
	sampling  kvtransfer.Sampling
	submitted kvtransfer.Tick
	placed    kvtransfer.Tick // first Reserve; -1 before
	deadline  kvtransfer.Tick // when
	unfit     kvtransfer.Tick // since when no worker could ever hold it; -1 = some can
	attempts  uint32          // made so far
	losses    int
	corrupts  int
	started   bool // the client knows that it runs
	avoid     string
	refused   string           // id of the prefill whose pages a gate or a witness refused; no later job may go there
	refusal   kvtransfer.Error // and with what words
	current   *attempt         // nil while it waits
	last      kvtransfer.Key
	lastPeer  kvtransfer.Peer
}

// rows is what the request takes in pages: the prompt and every token that it may make.
func (r *request) rows() int { return len(r.prompt) + r.maxTokens }

// phase is how far an attempt is.
type phase uint8

const (
	reserving phase = iota // Reserve is out
	storing                // the job is on its way to the stream
	waiting                // for the outcome
	answering              // the outcome was good
)

func (p phase) String() string {
	return [...]string{"reserving", "storing", "prefill", "running"}[p]
}

// attempt is one hand-off.
type attempt struct {
	key         kvtransfer.Key
	req         *request
	decode      kvtransfer.Peer
	pool, slug  string
	target      string          // prefill that alone may take the job, or AnyWorker. Invariant: never req.refused
	served      kvtransfer.Peer // prefill that claimed, as the outcome said
	pages       int
	phase       phase
	resumed     int // output tokens that were sent along
	again       int // output tokens that the client has and that will come once more
	digest      [32]byte
	prints      kvtransfer.Fingerprints
	reservation []byte
	seed        [32]byte
	tries       int             // of the call over the bus that is out, or waits for retryAt
	retryAt     kvtransfer.Tick // 0 = a call is out, or none is due
	job         uint64          // sequence in the stream; 0 = not known
	next        uint32          // number of the reply that comes next
	early       map[uint32]kvtransfer.ReplyBody
	heard       kvtransfer.Tick // last sign of life
	asking      bool            // a resend is out
	behind      bool            // decode has more than came: ask again
	unanswered  int
	prefill     bool            // holds a prefill slot
	dueAt       kvtransfer.Tick // of its timer
}

// closing is an attempt whose end decode has still to be told of.
type closing struct {
	key    kvtransfer.Key
	decode kvtransfer.Peer
	from   uint32
	tries  int
	nextAt kvtransfer.Tick // 0 = a call is out
}

const (
	silence    = kvtransfer.Second // without a reply: ask for a resend
	retryPause = kvtransfer.Second / 4
	maxTries   = 3   // of a call over the bus
	maxEarly   = 256 // replies that came before their turn
	maxClosing = 65536
)

// New makes a loop at tick 0 with nobody present and the bus down.
func New(cfg LoopConfig) *Loop {
	return &Loop{
		cfg: cfg, policy: cfg.Policy.withDefaults(), roster: newRoster(cfg.Policy.withDefaults().Silence), queue: newQueue(),
		requests: map[uint64]*request{}, byID: map[kvtransfer.HandoffID]*request{},
		attempts: map[kvtransfer.Key]*attempt{}, closing: map[kvtransfer.Key]*closing{},
		running: map[string]int{}, stats: newStats(),
	}
}

// Handle takes one event and returns what is to be done, in order.
func (l *Loop) Handle(ev Event) []Effect {
	l.out = nil
	switch ev := ev.(type) {
	case Tick:
		l.tick(ev.Now)
	case BusChanged:
		l.busUp, l.maxPayload, l.dirty = ev.Up, ev.MaxPayload, true
	case Heard:
		l.hear(ev.Heartbeat)
	case Submitted:
		l.submit(ev)
	case Reserved:
		l.reserved(ev)
		l.watch(ev.Key)
	case JobStored:
		l.jobStored(ev)
		l.watch(ev.Key)
	case Replied:
		l.replied(ev)
		l.watch(ev.Key)
	case Resent:
		l.resent(ev)
		l.watch(ev.Key)
	case ClientGone:
		if r := l.requests[ev.Ref]; r != nil {
			l.abandon(r, kvtransfer.Errorf(kvtransfer.ClientGone, "router: the client closed the connection"))
		}
	case CancelAsked:
		l.cancelAsked(ev)
	case StatusAsked:
		l.statusAsked(ev)
	case Drain:
		l.drain(ev.Left)
	}
	l.place()
	if l.draining && !l.drained && len(l.requests) == 0 && (len(l.closing) == 0 || l.now >= l.drainBy+lastWords) {
		l.drained = true
		l.do(Drained{})
	}
	return l.out
}

// lastWords is how long after its deadline a drain waits for decodes to hear that attempts are over: until they have, they keep
// the answers and cannot drain themselves.
const lastWords = 150 * kvtransfer.Millisecond

func (l *Loop) do(e Effect) { l.out = append(l.out, e) }

// hear takes a heartbeat; a new life of a decode ends what its last life had.
func (l *Loop) hear(hb kvtransfer.Heartbeat) {
	l.dirty = true
	if !l.roster.hear(l.now, hb) {
		return
	}
	for _, a := range l.attemptsInOrder() {
		if hb.Peer.Role == kvtransfer.RoleDecode && a.decode.ID == hb.Peer.ID && a.decode.Epoch < hb.Peer.Epoch {
			l.lose(a, kvtransfer.Errorf(kvtransfer.WorkerLost, "router: %s started anew as epoch %d", a.decode, hb.Peer.Epoch))
		}
	}
	for _, key := range l.closingInOrder() {
		if c := l.closing[key]; hb.Peer.Role == kvtransfer.RoleDecode && c.decode.ID == hb.Peer.ID && c.decode.Epoch < hb.Peer.Epoch {
			delete(l.closing, key)
		}
	}
}

func (l *Loop) submit(ev Submitted) {
	l.stats.Submitted++
	maxTokens, err := l.admit(len(ev.Tokens), ev.MaxTokens)
	switch {
	case l.draining:
		err = kvtransfer.Errorf(kvtransfer.Draining, "router: shutting down")
	case len(ev.Tokens) == 0:
		err = kvtransfer.Errorf(kvtransfer.InvalidRequest, "router: the prompt has 0 tokens, want at least 1")
		err.Param = "prompt"
	case err.IsZero():
		err = l.queue.room(l.policy, ev.Tenant)
	}
	if !err.IsZero() {
		l.refuse(ev.Ref, len(ev.Tokens), err)
		return
	}
	r := &request{
		ref: ev.Ref, tenant: ev.Tenant, prompt: ev.Tokens, maxTokens: maxTokens, sampling: ev.Sampling,
		submitted: l.now, placed: -1, unfit: -1, deadline: l.now + l.deadline(ev.Deadline),
	}
	copy(r.id[:], l.cfg.Entropy(len(r.id)))
	if !ev.SeedSet {
		r.sampling.Seed = number64(l.cfg.Entropy(8))
	}
	l.requests[r.ref], l.byID[r.id] = r, r
	l.queue.push(r)
	l.dirty = true
	l.do(Accept{Ref: r.ref, ID: r.id, Prompt: len(r.prompt), MaxTokens: maxTokens, Seed: r.sampling.Seed})
}

// deadline is how long a request may take: what was asked for, within bounds.
func (l *Loop) deadline(asked kvtransfer.Tick) kvtransfer.Tick {
	if asked <= 0 {
		asked = l.policy.DefaultDeadline
	}
	return min(asked, l.policy.MaxDeadline)
}

func number64(b []byte) uint64 {
	var n uint64
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}

// refuse ends a request that was not admitted.
func (l *Loop) refuse(ref uint64, prompt int, err kvtransfer.Error) {
	l.stats.end(string(err.Code))
	l.do(Finish{Ref: ref, End: kvtransfer.End{Error: err, Prompt: prompt}, RetryAfter: l.retryAfter(err)})
}

// retryAfter guesses when there is room again: what waits, at the pace of late.
func (l *Loop) retryAfter(err kvtransfer.Error) kvtransfer.Tick {
	switch kvtransfer.Lookup(err.Code).HTTP {
	case 429:
		each := max(l.average, kvtransfer.Second)
		wait := each * kvtransfer.Tick(l.queue.n+1) / kvtransfer.Tick(max(1, len(l.attempts)))
		return min(max(wait, kvtransfer.Second), 60*kvtransfer.Second)
	case 503:
		return 2 * kvtransfer.Second
	}
	return 0
}

func (l *Loop) cancelAsked(ev CancelAsked) {
	r := l.byID[ev.ID]
	found := r != nil && r.tenant == ev.Tenant
	if found {
		l.abandon(r, kvtransfer.Errorf(kvtransfer.Cancelled, "router: cancelled by its tenant"))
	}
	l.do(CancelAnswered{Ask: ev.Ask, Found: found})
}

func (l *Loop) statusAsked(ev StatusAsked) {
	r := l.byID[ev.ID]
	if r == nil || r.tenant != ev.Tenant {
		l.do(StatusAnswered{Ask: ev.Ask})
		return
	}
	s := Status{State: "queued", Prompt: len(r.prompt), Output: len(r.output), Attempts: int(r.attempts)}
	if r.current != nil {
		s.State = r.current.phase.String()
	}
	l.do(StatusAnswered{Ask: ev.Ask, Found: true, Status: s})
}

// drain refuses what waits at once: another router may take it.
func (l *Loop) drain(left kvtransfer.Tick) {
	if !l.draining {
		l.draining, l.drainBy = true, l.now+left
	}
	for _, r := range l.queue.all() {
		if r.placed < 0 {
			l.abandon(r, kvtransfer.Errorf(kvtransfer.Draining, "router: shutting down"))
		}
	}
}

// attemptsInOrder gives the attempts by key: nothing depends on the order of a map.
func (l *Loop) attemptsInOrder() []*attempt {
	list := make([]*attempt, 0, len(l.attempts))
	for _, a := range l.attempts {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b *attempt) int { return compareKeys(a.key, b.key) })
	return list
}

func (l *Loop) closingInOrder() []kvtransfer.Key {
	list := make([]kvtransfer.Key, 0, len(l.closing))
	for key := range l.closing {
		list = append(list, key)
	}
	slices.SortFunc(list, compareKeys)
	return list
}

func compareKeys(a, b kvtransfer.Key) int {
	if c := slices.Compare(a.ID[:], b.ID[:]); c != 0 {
		return c
	}
	return int(a.Attempt) - int(b.Attempt)
}

// Now moves the clock without looking at what is due, so that the next event is handled at its own time.
func (l *Loop) Now(now kvtransfer.Tick) { l.now = max(l.now, now) }
