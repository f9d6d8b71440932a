package router

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"quire/kvtransfer"
)

// Stats counts since the loop was made.
type Stats struct {
	Submitted      uint64
	Attempts       uint64
	Lost           uint64 // attempts that ended without an answer and without the client's doing
	Retries        uint64
	Corrupt        uint64
	ReserveRefused uint64
	Resends        uint64
	ReplyGaps      uint64
	RepliesIgnored uint64
	OutputTokens   uint64
	Ends           map[string]uint64 // by finish reason or error code

	// Gauges of the moment.
	Queued, Prefilling, Running, Closing int
	Prefills, Decodes                    int                    // usable
	Workers                              []kvtransfer.Heartbeat // of those that are not silent, prefills first, by id
	Limit                                Limit
	Missing                              kvtransfer.Error // why nothing can be admitted, if nothing can
	Draining                             bool
	Oldest                               kvtransfer.Tick // since when the request that waits longest has waited; 0 = none
}

func newStats() Stats { return Stats{Ends: map[string]uint64{}} }

func (s *Stats) end(reason string) { s.Ends[reason]++ }

// Stats gives the counters and the gauges of the moment; the caller owns them.
func (l *Loop) Stats() Stats {
	s := l.stats
	s.Ends = maps.Clone(l.stats.Ends)
	s.Queued, s.Closing, s.Draining = l.queue.n, len(l.closing), l.draining
	for _, a := range l.attempts {
		if a.phase == answering {
			s.Running++
		} else {
			s.Prefilling++
		}
	}
	count := func(workers map[string]*worker) (usable int) {
		for _, id := range ids(workers) {
			w := workers[id]
			if l.now-w.heard <= l.policy.Silence {
				s.Workers = append(s.Workers, w.hb)
			}
			if l.usable(w) {
				usable++
			}
		}
		return usable
	}
	s.Prefills, s.Decodes = count(l.roster.prefills), count(l.roster.decodes)
	s.Limit, s.Missing = l.limit()
	if old := l.queue.oldest(); old != nil {
		s.Oldest = l.now - old.submitted
	}
	return s
}

// Clone copies the loop; Entropy and Digest are shared.
func (l *Loop) Clone() *Loop {
	c := *l
	c.out = nil
	c.roster = l.roster.clone()
	c.running = maps.Clone(l.running)
	c.stats.Ends = maps.Clone(l.stats.Ends)
	c.requests = make(map[uint64]*request, len(l.requests))
	c.byID = make(map[kvtransfer.HandoffID]*request, len(l.byID))
	c.attempts = make(map[kvtransfer.Key]*attempt, len(l.attempts))
	c.closing = make(map[kvtransfer.Key]*closing, len(l.closing))
	for ref, r := range l.requests {
		n := *r
		n.output = slices.Clone(r.output)
		if a := r.current; a != nil {
			b := *a
			b.req, b.early = &n, maps.Clone(a.early)
			n.current = &b
			c.attempts[b.key] = &b
		}
		c.requests[ref], c.byID[n.id] = &n, &n
	}
	c.timers = cloneTimers(l.timers, c.attempts)
	for key, cl := range l.closing {
		n := *cl
		c.closing[key] = &n
	}
	c.queue = queue{waiting: make(map[string][]*request, len(l.queue.waiting)), turn: slices.Clone(l.queue.turn), n: l.queue.n}
	for tenant, list := range l.queue.waiting {
		for _, r := range list {
			c.queue.waiting[tenant] = append(c.queue.waiting[tenant], c.requests[r.ref])
		}
	}
	return &c
}

// Dump prints the whole state, the same for the same state. No token ids.
func (l *Loop) Dump() string {
	var b strings.Builder
	fmt.Fprintf(&b, "now %d ms, bus %t, draining %t\n", l.now/kvtransfer.Millisecond, l.busUp, l.draining)
	dump := func(name string, workers map[string]*worker) {
		for _, id := range ids(workers) {
			w := workers[id]
			fmt.Fprintf(&b, "%s %s@%d: usable %t, shut %t, slots %d/%d, pages %d/%d", name, id, w.hb.Peer.Epoch, l.usable(w), w.shut,
				w.hb.SlotsFree, w.hb.Slots, w.hb.Pages.Free, w.hb.Pages.Total)
			if name == "decode" {
				fmt.Fprintf(&b, ", ours %d slots %d pages, others %d slots %d pages", w.slots.ours, w.pages.ours, w.slots.others, w.pages.others)
			}
			b.WriteByte('\n')
		}
	}
	dump("prefill", l.roster.prefills)
	dump("decode", l.roster.decodes)
	for _, pool := range slices.Sorted(maps.Keys(l.roster.groups)) {
		g := l.roster.groups[pool]
		fmt.Fprintf(&b, "pool %s: ours %d, others %d\n", pool, g.ours, g.others)
	}
	for _, tenant := range l.queue.turn {
		fmt.Fprintf(&b, "waiting %s:", tenant)
		for _, r := range l.queue.waiting[tenant] {
			fmt.Fprintf(&b, " %d", r.ref)
		}
		b.WriteByte('\n')
	}
	for _, ref := range slices.Sorted(maps.Keys(l.requests)) {
		r := l.requests[ref]
		fmt.Fprintf(&b, "request %d: tenant %s, prompt %d, max %d, output %d, attempts %d, losses %d, corrupts %d, started %t",
			r.ref, r.tenant, len(r.prompt), r.maxTokens, len(r.output), r.attempts, r.losses, r.corrupts, r.started)
		if r.refused != "" {
			fmt.Fprintf(&b, ", not by %s", r.refused)
		}
		b.WriteByte('\n')
		if a := r.current; a != nil {
			fmt.Fprintf(&b, "  attempt %d on %s by %s: %s, tries %d, job %d, next %d, early %d, asking %t, unanswered %d\n",
				a.key.Attempt, a.decode, a.target, a.phase, a.tries, a.job, a.next, len(a.early), a.asking, a.unanswered)
		}
	}
	for _, key := range l.closingInOrder() {
		c := l.closing[key]
		fmt.Fprintf(&b, "closing %s on %s: tries %d, from %d\n", shortKey(key), c.decode, c.tries, c.from)
	}
	return b.String()
}

func shortKey(k kvtransfer.Key) string {
	s := k.String()
	return s[8:16] + s[32:]
}

// Phase names how far an attempt is: reserving, storing, prefill, running, closing, or unknown.
func (l *Loop) Phase(k kvtransfer.Key) string {
	if a := l.attempts[k]; a != nil {
		return a.phase.String()
	}
	if l.closing[k] != nil {
		return "closing"
	}
	return "unknown"
}

// Verify checks the loop's invariants, for tests and the simulator.
func (l *Loop) Verify() error {
	n := 0
	for tenant, list := range l.queue.waiting {
		n += len(list)
		if len(list) == 0 || !slices.Contains(l.queue.turn, tenant) {
			return fmt.Errorf("router: queue: tenant %s: %d waiting, in turn %t", tenant, len(list), slices.Contains(l.queue.turn, tenant))
		}
		for _, r := range list {
			if r.current != nil || l.requests[r.ref] != r {
				return fmt.Errorf("router: queue: request %d waits and has an attempt %t", r.ref, r.current != nil)
			}
		}
	}
	if n != l.queue.n || len(l.queue.turn) != len(l.queue.waiting) {
		return fmt.Errorf("router: queue: counted %d, kept %d, turns %d of %d", n, l.queue.n, len(l.queue.turn), len(l.queue.waiting))
	}
	if n+len(l.attempts) != len(l.requests) || len(l.byID) != len(l.requests) {
		return fmt.Errorf("router: requests: %d, waiting %d, attempts %d, by id %d", len(l.requests), n, len(l.attempts), len(l.byID))
	}
	slots := map[kvtransfer.Peer]int{}
	for key, a := range l.attempts {
		if a.req.current != a || a.key != key || l.closing[key] != nil {
			return fmt.Errorf("router: attempt %s: not its request's, or closing", key)
		}
		if a.target == "" || a.target == a.req.refused {
			return fmt.Errorf("router: attempt %s: job for %q, refused %q", key, a.target, a.req.refused)
		}
		slots[a.decode]++
	}
	for _, w := range l.roster.decodes {
		if w.slots.ours != slots[w.hb.Peer] || w.pages.ours < 0 {
			return fmt.Errorf("router: %s: %d slots ours, %d attempts", w.hb.Peer, w.slots.ours, slots[w.hb.Peer])
		}
	}
	for pool, g := range l.roster.groups {
		if g.ours < 0 {
			return fmt.Errorf("router: pool %s: %d ours", pool, g.ours)
		}
	}
	return l.verifyTimers()
}
