package router

import (
	"fmt"

	"quire/kvtransfer"
)

// Rules of admission and placement. They are the same for both doors, streaming or not.

// Policy is what the operator and the model fix. Zero durations and bounds are replaced by defaults.
type Policy struct {
	Model            string   // the name under which it is served
	Fingerprint      [32]byte // of the model; workers with another one are not used; zero = any
	Context          int      // tokens that the model can take
	MaxModelLen      int      // an explicit lower limit; 0 = auto
	DefaultMaxTokens int      // for requests without max_tokens; default 1024
	MixedCompute     bool     // pair workers whose compute fingerprints differ

	MaxQueue         int             // requests waiting, in all; default 1024
	MaxQueueTenant   int             // and of one tenant; default 256
	MaxRunningTenant int             // attempts of one tenant at a time; 0 = no bound of its own
	Silence          kvtransfer.Tick // a worker not heard for so long gets nothing new; default 3 s
	LostAfter        kvtransfer.Tick // and loses what it has; default 5 s
	Grace            kvtransfer.Tick // how long a queued request waits for a missing role; default 10 s
	Patience         kvtransfer.Tick // a request that waited so long is not overtaken any more; default 5 s
	DefaultDeadline  kvtransfer.Tick // default 10 min
	MaxDeadline      kvtransfer.Tick // default 1 h
	MaxAttempts      int             // hand-offs of one request that may be Lost; default 3
}

func (p Policy) withDefaults() Policy {
	set := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	tick := func(v *kvtransfer.Tick, def kvtransfer.Tick) {
		if *v <= 0 {
			*v = def
		}
	}
	set(&p.DefaultMaxTokens, 1024)
	set(&p.MaxQueue, 1024)
	set(&p.MaxQueueTenant, 256)
	set(&p.MaxAttempts, 3)
	tick(&p.Silence, 3*kvtransfer.Second)
	tick(&p.LostAfter, 5*kvtransfer.Second)
	tick(&p.Grace, 10*kvtransfer.Second)
	tick(&p.Patience, 5*kvtransfer.Second)
	tick(&p.DefaultDeadline, 600*kvtransfer.Second)
	tick(&p.MaxDeadline, 3600*kvtransfer.Second)
	return p
}

// Limit is how many tokens a request may take, prompt and max_tokens together, and what sets it.
type Limit struct {
	Tokens int
	By     string
}

func (l Limit) lower(tokens int, by string) Limit {
	if l.By == "" || tokens < l.Tokens {
		return Limit{tokens, by}
	}
	return l
}

// limit = min(model context, smallest usable prefill pool, usable decode pool, bus). The largest decode counts, for placement
// chooses the decode; the smallest prefill counts, for any of them may take the job.
func (l *Loop) limit() (Limit, kvtransfer.Error) {
	if !l.busUp {
		return Limit{}, kvtransfer.Errorf(kvtransfer.BusDown, "router: the bus is not connected")
	}
	pairs, err := l.pairs()
	if !err.IsZero() {
		return Limit{}, err
	}
	var lim, decode Limit
	if l.policy.Context > 0 {
		lim = lim.lower(l.policy.Context, "model context")
	}
	if l.policy.MaxModelLen > 0 {
		lim = lim.lower(l.policy.MaxModelLen, "--max-model-len")
	}
	pageSize := 0
	for _, p := range pairs {
		lim = lim.lower(p.prefill.tokens(), "prefill pool of "+p.prefill.hb.Peer.ID)
		if t := p.decode.tokens(); decode.By == "" || t > decode.Tokens {
			decode = Limit{t, "decode pool of " + p.decode.hb.Peer.ID}
			pageSize = p.decode.hb.PageSize
		}
	}
	lim = lim.lower(decode.Tokens, decode.By)
	if l.maxPayload > 0 {
		lim = lim.lower(busTokens(l.maxPayload, pageSize), "bus max_payload")
	}
	return lim, kvtransfer.Error{}
}

// busTokens is the longest request whose Reserve (4 bytes a token) and Job (the same, and 15 bytes a page) fit a message.
func busTokens(maxPayload, pageSize int) int {
	const overhead = 16 << 10 // signatures, stop strings, biases, fixed fields
	if maxPayload <= overhead || pageSize <= 0 {
		return 0
	}
	return (maxPayload - overhead) * pageSize / (4*pageSize + 15)
}

// pair is a prefill and a decode that may exchange pages.
type pair struct{ prefill, decode *worker }

// usable says whether a worker may get something new.
func (l *Loop) usable(w *worker) bool {
	return l.now-w.heard <= l.policy.Silence && !w.hb.Draining && l.serves(w)
}

func (l *Loop) serves(w *worker) bool {
	return l.policy.Fingerprint == [32]byte{} || w.hb.Fingerprints.Model == l.policy.Fingerprint
}

// match names the fingerprint in which two workers differ; "" when they may be paired.
func (l *Loop) match(p, d *worker) string {
	a, b := p.hb.Fingerprints, d.hb.Fingerprints
	switch {
	case a.Model != b.Model:
		return "model"
	case a.Layout != b.Layout:
		return "layout"
	case a.Compute != b.Compute && !l.policy.MixedCompute:
		return "compute"
	}
	return ""
}

// pairs lists who may work together now, or says which role is missing, or in what they differ.
func (l *Loop) pairs() ([]pair, kvtransfer.Error) {
	var pairs []pair
	differ := ""
	prefills, other := l.usableIn(l.roster.prefills)
	if len(prefills) == 0 {
		return nil, missing(kvtransfer.NoPrefill, "prefill", other)
	}
	decodes, other := l.usableIn(l.roster.decodes)
	if len(decodes) == 0 {
		return nil, missing(kvtransfer.NoDecode, "decode", other)
	}
	for _, p := range prefills {
		for _, d := range decodes {
			what := l.match(p, d)
			if what == "" {
				pairs = append(pairs, pair{p, d})
			} else if differ == "" {
				differ = fmt.Sprintf("%s and %s differ in %s", p.hb.Peer.ID, d.hb.Peer.ID, what)
			}
		}
	}
	if len(pairs) == 0 {
		return nil, kvtransfer.Errorf(kvtransfer.Mismatch, "router: %d prefill, %d decode, no pair: %s", len(prefills), len(decodes), differ)
	}
	return pairs, kvtransfer.Error{}
}

// usableIn gives the usable workers in order of id, and why one is not, if any is not.
func (l *Loop) usableIn(workers map[string]*worker) (list []*worker, other string) {
	for _, id := range ids(workers) {
		w := workers[id]
		switch {
		case l.usable(w):
			list = append(list, w)
		case l.now-w.heard > l.policy.Silence:
			other = id + " is silent"
		case w.hb.Draining:
			other = id + " is draining"
		case !l.serves(w):
			other = fmt.Sprintf("%s serves another model, %q", id, w.hb.Model)
		}
	}
	return list, other
}

func missing(code kvtransfer.Code, role, other string) kvtransfer.Error {
	if other == "" {
		return kvtransfer.Errorf(code, "router: no %s worker is there", role)
	}
	return kvtransfer.Errorf(code, "router: no %s worker can be used: %s", role, other)
}

// admit applies the formula. maxTokens 0 means absent; the answer is what the request gets.
func (l *Loop) admit(prompt, maxTokens int) (int, kvtransfer.Error) {
	lim, err := l.limit()
	if !err.IsZero() {
		return 0, err
	}
	if maxTokens == 0 {
		maxTokens = max(1, min(lim.Tokens-prompt, l.policy.DefaultMaxTokens))
	}
	return maxTokens, lim.check(prompt, maxTokens)
}

// check says what is too long, with the numbers and what sets the limit.
func (l Limit) check(prompt, maxTokens int) kvtransfer.Error {
	if prompt <= l.Tokens-maxTokens { // no sum: neither number is bounded yet
		return kvtransfer.Error{}
	}
	return kvtransfer.Errorf(kvtransfer.ContextLengthExceeded, "router: prompt of %d tokens + max_tokens %d exceeds the limit of %d tokens, set by %s",
		prompt, maxTokens, l.Tokens, l.By)
}

// choice is where a request goes.
type choice struct {
	decode *worker
	pool   string // whose prefills may take the job
	target string // the one that alone may, or AnyWorker
	slug   string // the model, in job subjects
	pages  int
}

// choose finds a decode with room for so many rows and a prefill with a free slot that matches it: the decode with most free
// pages, another than avoid where there is one.
func (l *Loop) choose(rows int, avoid string) (choice, bool) {
	return l.chooseBy(rows, avoid, func(d *worker) (choice, bool) {
		pool, slug, ok := l.freePrefill(d, rows)
		return choice{decode: d, pool: pool, slug: slug, target: kvtransfer.AnyWorker}, ok
	})
}

// chooseBy is choose with another way to find a decode's prefill.
func (l *Loop) chooseBy(rows int, avoid string, prefill func(d *worker) (choice, bool)) (choice, bool) {
	var best choice
	free, found, bestAvoided := 0, false, false
	for _, id := range ids(l.roster.decodes) {
		d := l.roster.decodes[id]
		if !l.usable(d) || d.shut || rows > d.tokens() || d.slots.taken() >= d.hb.Slots {
			continue
		}
		pages := d.pagesFor(rows)
		left := d.hb.Pages.Total - d.pages.taken() - pages
		c, ok := prefill(d)
		if left < 0 || !ok {
			continue
		}
		avoided := id == avoid
		if !found || (bestAvoided && !avoided) || (bestAvoided == avoided && left > free) {
			c.pages = pages
			best, free, found, bestAvoided = c, left, true, avoided
		}
	}
	return best, found
}

// freePrefill finds the pool with most free prefill slots among those that match a decode.
func (l *Loop) freePrefill(d *worker, rows int) (pool, slug string, ok bool) {
	slots := make(map[string]int)
	slugs := make(map[string]string)
	var order []string
	for _, id := range ids(l.roster.prefills) {
		p := l.roster.prefills[id]
		if !l.usable(p) || l.match(p, d) != "" || rows > p.tokens() {
			continue
		}
		if _, seen := slots[p.hb.Pool]; !seen {
			order = append(order, p.hb.Pool)
		}
		slots[p.hb.Pool] += p.hb.Slots
		slugs[p.hb.Pool] = p.hb.ModelSlug
	}
	best := 0
	for _, name := range order {
		if free := slots[name] - l.roster.group(name).taken(); free > best {
			best, pool, slug, ok = free, name, slugs[name], true
		}
	}
	return pool, slug, ok
}
