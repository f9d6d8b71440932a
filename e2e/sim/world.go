package sim

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"quire/bus"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
)

// World is one run: a cluster, its network, its clients, its checkers.
type World struct {
	Seed uint64
	plan *Plan
	q    queue
	dice dice // of everything that happens
	ids  dice // of what processes take for entropy
	keys keyring
	bus  *broker
	net  *network

	names         bus.Names
	nodes         []*node
	procs, paused []*proc
	routers       []*routerShell
	prefills      []*prefillShell
	decodes       []*decodeShell
	devices       []*device
	clients       clients
	pages         pagesCheck
	verdicts      readsCheck
	oracle        oracle
	cov           *Coverage
	deviceFail    float64
	straggle      float64
	healed        bool
	plant         string
	trace         io.Writer
	failure       *Failure
	history       uint64 // hash of all that happened
	events        uint64
}

// Failure is what a checker found.
type Failure struct {
	Check  string // the checker
	Detail string // one line
	More   string // whole states, where they help
	Seed   uint64
	At     Time
}

// Error is the one line that says what happened and how to see it again.
func (f *Failure) Error() string {
	return fmt.Sprintf("go test ./e2e/sim -run TestSim -seed %d   # %s at %d us: %s", f.Seed, f.Check, f.At, f.Detail)
}

// Planted bugs: what a checker must find.
const (
	plantSkipZero     = "skip zeroing"
	plantLateWrite    = "write after the end"
	plantBlindWitness = "a witness that sees nothing"
	plantNoJournal    = "no journal before the kernel"
	plantTwoOwners    = "a page promised twice"
	plantTwoEnds      = "two ends"
	plantNoEnd        = "no end"
	plantLosePages    = "pages never come back"
	plantMute         = "a decode that says no Claimed"
)

func newWorld(seed uint64, o Options) *World {
	w := &World{Seed: seed, plan: drawPlan(seed), dice: newDice(seed, 2), ids: newDice(seed, 3), cov: NewCoverage(), plant: o.plant, trace: o.Trace}
	if p := w.plan; o.early {
		p.Echo, p.Straggle, p.Hang, p.Rogue2, p.MaxAge = 0, 0, 0, 0, 0
	}
	if o.change != nil {
		o.change(w.plan)
	}
	if w.trace != nil {
		w.cov.log = func(what string) { w.logf("%s", what) }
	}
	w.keys = ring{secret: [32]byte(w.ids.bytes(32))}
	if o.keys != nil {
		w.keys = o.keys
	}
	w.bus = newBroker(&w.q)
	w.bus.mark, w.bus.window, w.bus.maxAge = w.cov.mark, w.plan.Window, w.plan.MaxAge
	w.net = &network{w: w}
	w.clients = clients{w: w}
	w.pages, w.verdicts = pagesCheck{w}, readsCheck{w: w, ok: map[readKey]bool{}}
	w.oracle = oracle{o: w.plan.engine, known: map[string][]int32{}}
	w.build()
	return w
}

// build makes the nodes; their processes start in any order.
func (w *World) build() {
	p := w.plan
	add := func(role kvtransfer.Role, id string, boot func(*proc)) {
		n := &node{w: w, role: role, id: id, boot: boot, rate: 1}
		if p.Clocks {
			n.rate = 0.85 + 0.3*w.dice.Float64()
		}
		w.nodes = append(w.nodes, n)
		n.startIn(w.dice.between(0, 200*ms))
	}
	for i := range p.Routers {
		add(kvtransfer.RoleRouter, fmt.Sprintf("r%d", i+1), bootRouter)
	}
	o := p.engine
	o.Pool, o.Pages, o.PageSize = prefillPool, p.prefillPages, p.prefillSize
	for i := range p.Prefills {
		add(kvtransfer.RolePrefill, fmt.Sprintf("p%d", i+1), bootPrefill(o, false))
	}
	if p.Strange {
		add(kvtransfer.RolePrefill, "px", bootPrefill(o, true))
	}
	o.Pool, o.Pages, o.PageSize = decodePool, p.decodePages, p.decodeSize
	for i := range p.Decodes {
		add(kvtransfer.RoleDecode, fmt.Sprintf("d%d", i+1), bootDecode(o))
	}
}

func (w *World) entropy(n int) []byte { return w.ids.bytes(n) }

func (w *World) digest(tenant string, tokens []int32) [32]byte {
	return seal.PromptDigest(w.keys.promptKey(), tenant, tokens)
}

func (w *World) lease() Time { return Time(w.plan.decode.Lease) }

func (w *World) encode(m any) []byte {
	b, err := wire.Encode(m)
	if err != nil {
		w.fail("wire", "encode %T: %v", m, err)
	}
	return b
}

// fail ends the run; the first failure stays.
func (w *World) fail(check, format string, args ...any) {
	if w.failure == nil {
		first, more, _ := strings.Cut(fmt.Sprintf(format, args...), "\n")
		w.failure = &Failure{Check: check, Detail: first, More: more, Seed: w.Seed, At: w.q.now}
		w.logf("FAILED: %s: %s\n%s", check, first, more)
		if w.trace != nil {
			w.logf("%s", w.dump())
		}
	}
}

// stopped is a process that ended itself: right when its device failed, never because an invariant broke.
func (w *World) stopped(p kvtransfer.Peer, err kvtransfer.Error) {
	w.cov.mark("end: process stops: " + string(err.Code))
	if err.Code != kvtransfer.DeviceFailed || w.plan.DeviceFail+w.plan.Hang == 0 {
		w.fail("pages", "%s stops: %s: %s", p, err.Code, err.Detail)
	}
}

// note takes an event into the history, by which two runs are compared.
func (w *World) note(p kvtransfer.Peer, what string) {
	w.events++
	h := w.history ^ uint64(w.q.now)*0x9e3779b97f4a7c15 ^ p.Epoch<<32
	for i := range len(p.ID) + len(what) {
		if i < len(p.ID) {
			h = (h ^ uint64(p.ID[i])) * 1099511628211
		} else {
			h = (h ^ uint64(what[i-len(p.ID)])) * 1099511628211
		}
	}
	w.history = h
	if w.trace != nil && what != "tick" && what != "heard" && what != "heartbeat" && what != "router alive" {
		w.logf("%s: %s", p, what)
	}
}

func (w *World) logf(format string, args ...any) {
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%10.3f ms  %s\n", float64(w.q.now)/1000, fmt.Sprintf(format, args...))
	}
}

func duration(t Time) time.Duration { return time.Duration(t) * time.Microsecond }

func isDuplicate(err error) bool { return errors.Is(err, bus.ErrDuplicate) }
