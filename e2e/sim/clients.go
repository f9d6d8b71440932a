package sim

import (
	"fmt"

	"quire/kvtransfer"
	"quire/router"
)

// clients ask, wait, cancel and leave.
type clients struct {
	w    *World
	asks []*ask
}

// ask is one request as its client sees it.
type ask struct {
	w        *World
	n        int
	tenant   string
	tokens   []int32
	max      int  // 0 = absent
	deadline Time // 0 = absent
	late     bool // asked after the heal: it must be served, or refused for its size

	shell               *routerShell // nil until it reached a router
	at                  kvtransfer.Tick
	ref                 uint64
	accepted            bool
	id                  kvtransfer.HandoffID
	seed                uint64
	most                int // output tokens, as the router says
	begun               int
	got                 []int32
	ends                []kvtransfer.End
	cancelled           bool
	left                bool
	routerDied, refused bool // refused: no router listened, several times
}

func (a *ask) key() string {
	return fmt.Sprintf("%x, prompt %d, max_tokens %d", a.id[:3], len(a.tokens), a.max)
}

// over says that the client waits for nothing any more.
func (a *ask) over() bool { return len(a.ends) > 0 || a.routerDied || a.refused }

// of lists what a router's clients wait for.
func (c *clients) of(s *routerShell) []*ask {
	var list []*ask
	for _, a := range c.asks {
		if a.shell == s && !a.over() {
			list = append(list, a)
		}
	}
	return list
}

// open counts the requests that are not over.
func (c *clients) open() int {
	n := 0
	for _, a := range c.asks {
		if !a.over() {
			n++
		}
	}
	return n
}

// draw makes a request of any kind.
func (c *clients) draw() *ask {
	d, p := c.w.dice, c.w.plan
	a := &ask{w: c.w, n: len(c.asks), tenant: pick(d, "acme", "zeta", "ibis")}
	n := 1 + d.IntN(p.PromptMax)
	if d.chance(0.3) {
		n = p.limitRows() - d.IntN(3) // near the bound, on both sides
	}
	if d.chance(0.03) {
		n = p.limitRows() + d.IntN(40)
	}
	a.tokens = make([]int32, max(n, 1))
	for i := range a.tokens {
		a.tokens[i] = int32(2 + d.IntN(p.engine.Vocab-2))
	}
	a.max = 1 + d.IntN(p.OutputMax)
	switch {
	case d.chance(0.08):
		a.max = 0
	case d.chance(0.05):
		a.max = p.limitRows() - len(a.tokens) + d.IntN(3) - 1
		a.max = max(a.max, 1)
	}
	if d.chance(0.3) {
		a.deadline = d.between(200*ms, 6*sec)
	}
	if d.chance(0.01) {
		a.tokens = nil
	}
	if d.chance(0.01) {
		a.tokens = append(a.tokens, int32(p.engine.Vocab+3))
	}
	return a
}

// drawServable makes a request that a whole cluster serves.
func (c *clients) drawServable() *ask {
	a := c.draw()
	a.late, a.deadline = true, 0
	if len(a.tokens) == 0 || int(a.tokens[len(a.tokens)-1]) >= c.w.plan.engine.Vocab {
		a.tokens = []int32{2}
	}
	return a
}

// submit sends a request to some router that listens.
func (c *clients) submit(a *ask) {
	c.asks = append(c.asks, a)
	c.reach(a, 0)
}

func (c *clients) reach(a *ask, tries int) {
	var open []*routerShell
	for _, s := range c.w.routers {
		if s.ready && !s.ended && !s.p.dead {
			open = append(open, s)
		}
	}
	if len(open) == 0 {
		if tries > 20 {
			a.refused = true
			return
		}
		c.w.q.after(200*ms, func() { c.reach(a, tries+1) })
		return
	}
	s := open[c.w.dice.IntN(len(open))]
	a.shell = s
	s.p.run(func() {
		s.ref++
		a.ref, a.at = s.ref, s.p.now()
		s.asks[a.ref] = a
		s.handle(router.Submitted{Ref: a.ref, Tenant: a.tenant, Tokens: a.tokens, MaxTokens: a.max, Sampling: kvtransfer.Sampling{Logprobs: -1},
			SeedSet: c.w.dice.chance(0.5), Deadline: kvtransfer.Tick(a.deadline)})
	})
	if !a.late {
		c.trouble(a)
	}
}

// trouble lets the client cancel, leave or ask how it stands some time later.
func (c *clients) trouble(a *ask) {
	d := c.w.dice
	later := func(fn func(*routerShell)) {
		c.w.q.after(d.between(0, 1500*ms), func() {
			if a.shell != nil && !a.shell.ended && !a.over() {
				a.shell.p.run(func() { fn(a.shell) })
			}
		})
	}
	if d.chance(c.w.plan.Cancel) {
		later(func(s *routerShell) {
			if a.accepted && !a.over() {
				a.cancelled = true
				s.handle(router.CancelAsked{Ask: 1, Tenant: a.tenant, ID: a.id})
			}
		})
	}
	if d.chance(c.w.plan.Cancel) {
		later(func(s *routerShell) {
			if !a.over() {
				a.left = true
				s.handle(router.ClientGone{Ref: a.ref})
			}
		})
	}
	if d.chance(0.1) { // of another tenant, and of nobody: nothing may come of it
		later(func(s *routerShell) { s.handle(router.CancelAsked{Ask: 2, Tenant: "other", ID: a.id}) })
		later(func(s *routerShell) { s.handle(router.StatusAsked{Ask: 3, Tenant: a.tenant, ID: a.id}) })
	}
}

// give is tokens that reach the client.
func (a *ask) give(tokens []kvtransfer.Token) {
	if len(a.ends) > 0 {
		a.w.fail("ends", "request %d (%s): %d tokens after its end", a.n, a.key(), len(tokens))
	}
	if a.begun == 0 {
		a.w.fail("ends", "request %d (%s): tokens before its outcome", a.n, a.key())
	}
	for _, t := range tokens {
		a.got = append(a.got, t.ID)
	}
	a.checkContent()
}

// finish is the end that reaches the client.
func (a *ask) finish(end kvtransfer.End) {
	a.w.logf("request %d ends: %s %v with %d tokens", a.n, end.Finish, end.Error, len(a.got))
	a.ends = append(a.ends, end)
	a.checkEnd()
}
