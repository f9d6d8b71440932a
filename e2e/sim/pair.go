package sim

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"quire/decode"
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/kvtransfer/seal"
	"quire/model"
	"quire/prefill"
)

// Small worlds of the loops: one prefill.Loop and one decode.Loop with two requests of two pages each and one fault of one
// kind, in every order in which messages arrive and device operations end. States whose dumps, pages and messages are equal
// are visited once.

// PairFaults are the kinds of fault, one of which may happen once.
var PairFaults = []string{"none", "a message repeated", "a message lost", "cancel", "lease out", "KV stream lost", "device fails", "journal fails"}

const (
	pairLease = kvtransfer.Second
	pairRows  = 3
)

// pairItem is something that can happen next. run uses nothing but its argument and what never changes.
type pairItem struct {
	text    string
	travels bool // a message, which may be repeated or lost
	kv      bool // in decode's KV stream
	device  bool
	journal bool
	run     func(p *pair, fails bool) error
}

// pair is one state.
type pair struct {
	fault    string
	left     bool
	now      kvtransfer.Tick
	pre      *prefill.Loop
	dec      *decode.Loop
	preBytes []int // by page and slot: 1 + the request whose row it is; 0 = zeros
	decBytes []int
	slots    [2][]page.Slot
	held     int // pages of decode that are promised or not clean yet
	pulls    int
	asked    [2]bool
	ends     [2]int
	served   [2]bool
	items    []pairItem // in order of text
}

var (
	pairRouter = kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: "r1", Epoch: 1}
	pairInfo   = model.Info{Layers: 1, KVHeads: 1, HeadDim: 1, Dim: 1, Vocab: 16, Context: 16, BytesPerRow: 4, PageSize: smallSize, Pages: 3}
	pairPrompt = [2][]int32{{1, 2, 3}, {4, 5, 6}}
)

func newPair(fault string) *pair {
	same := func(n int) []byte { return bytes.Repeat([]byte{7}, n) } // a clone shares it: it must not remember
	p := &pair{fault: fault, left: fault != "none", preBytes: make([]int, 6), decBytes: make([]int, 6)}
	p.pre = prefill.New(prefill.LoopConfig{Peer: smallWorker, Info: pairInfo, Pool: prefillPool, Slots: 2, Chunk: 2,
		MaxPayload: kvtransfer.CutOverhead + 12, Entropy: same})
	p.dec = decode.New(decode.LoopConfig{Self: smallDecode, Model: "fake", ModelSlug: "fake", Info: pairInfo, Pool: decodePool, Lease: pairLease,
		RouterSilence: 1000 * pairLease, BeatEvery: 1000 * pairLease, MaxOpen: 2, Entropy: same,
		PromptDigest: func(tenant string, tokens []int32) [32]byte { return seal.PromptDigest([32]byte{}, tenant, tokens) }})
	return p
}

func (p *pair) clone() *pair {
	c := *p
	c.pre, c.dec = p.pre.Clone(), p.dec.Clone()
	c.preBytes, c.decBytes, c.items = slices.Clone(p.preBytes), slices.Clone(p.decBytes), slices.Clone(p.items)
	return &c
}

func (p *pair) hash() [32]byte {
	var b strings.Builder
	pre, _, _ := strings.Cut(p.pre.Dump(), "\nstats ")
	fmt.Fprintln(&b, p.left, p.now, p.preBytes, p.decBytes, p.slots, p.held, p.pulls, p.asked, p.ends, p.served, pre, p.dec.Dump())
	for _, i := range p.items {
		fmt.Fprintln(&b, i.text)
	}
	return sha256.Sum256([]byte(b.String()))
}

func (p *pair) add(i pairItem) {
	at, _ := slices.BinarySearchFunc(p.items, i, func(a, b pairItem) int { return cmp.Compare(a.text, b.text) })
	p.items = slices.Insert(p.items, at, i)
}

// SearchPair visits every state that one fault of a kind can lead to.
func SearchPair(fault string) SmallResult {
	var r SmallResult
	start := newPair(fault)
	if r.Err = start.prefill(prefill.Tick{Now: 1}); r.Err == nil {
		r.Err = start.decode(decode.Tick{Now: 1})
	}
	seen := map[[32]byte]bool{start.hash(): true}
	todo := []*pair{start}
	for len(todo) > 0 && r.Err == nil {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		r.States++
		moves := p.moves()
		if len(moves) == 0 {
			r.Ends++
			r.Err = p.end(&r)
			continue
		}
		for _, m := range moves {
			c := p.clone()
			if err := m.do(c); err != nil {
				r.Err = fmt.Errorf("%w: fault %q: %s: %w in\n%s\n%s", errSmall, fault, m.name, err, p.pre.Dump(), p.dec.Dump())
				break
			}
			r.Moves++
			if h := c.hash(); !seen[h] {
				seen[h] = true
				todo = append(todo, c)
			}
		}
	}
	return r
}

// pairMove is one thing that can happen in a state.
type pairMove struct {
	name string
	do   func(*pair) error
}

func (p *pair) moves() []pairMove {
	var out []pairMove
	for x := range 2 {
		if !p.asked[x] && (x == 0 || p.asked[0]) && p.held+2 <= pairInfo.Pages {
			out = append(out, pairMove{fmt.Sprintf("reserve %d", x), func(p *pair) error { return p.reserve(x) }})
		}
	}
	take := func(i int, fails bool) func(*pair) error {
		return func(p *pair) error {
			item := p.items[i]
			p.items = slices.Delete(p.items, i, i+1)
			p.left = p.left && !fails
			return item.run(p, fails)
		}
	}
	for i, item := range p.items {
		if strings.HasPrefix(item.text, "job ") && p.pulls == 0 {
			continue
		}
		out = append(out, pairMove{item.text, take(i, false)})
		if !p.left {
			continue
		}
		switch {
		case item.travels && p.fault == "a message repeated":
			out = append(out, pairMove{"twice: " + item.text, func(p *pair) error { p.left = false; return item.run(p, false) }})
		case item.travels && p.fault == "a message lost":
			out = append(out, pairMove{"lost: " + item.text, func(p *pair) error { p.left = false; p.items = slices.Delete(p.items, i, i+1); return nil }})
		case item.device && p.fault == "device fails", item.journal && p.fault == "journal fails":
			out = append(out, pairMove{"fails: " + item.text, take(i, true)})
		}
	}
	return append(out, p.faults(len(out) == 0)...)
}

// faults are those that concern no one message; stuck says that nothing else can happen.
func (p *pair) faults(stuck bool) []pairMove {
	var out []pairMove
	once := func(name string, do func(*pair) error) {
		out = append(out, pairMove{name, func(p *pair) error { p.left = false; return do(p) }})
	}
	open := !p.dec.Idle()
	switch {
	case stuck && (open || p.pre.Figures().Running > 0) && p.now < 20*pairLease:
		out = append(out, pairMove{"a lease passes", (*pair).pass})
	case !p.left || stuck:
	case p.fault == "lease out" && open:
		once("a lease passes", (*pair).pass)
	case p.fault == "KV stream lost":
		once("KV stream lost", func(p *pair) error {
			p.items = slices.DeleteFunc(p.items, func(i pairItem) bool { return i.kv })
			return p.decode(decode.StreamLost{})
		})
	case p.fault == "cancel":
		for x := range 2 {
			if p.asked[x] {
				once(fmt.Sprintf("cancel %d", x), func(p *pair) error {
					return p.decode(decode.CancelCame{From: pairRouter, M: kvtransfer.Cancel{Key: smallKey(x), Error: kvtransfer.Errorf(kvtransfer.Cancelled, "by its tenant")}})
				})
			}
		}
	}
	return out
}

func (p *pair) pass() error {
	p.now += pairLease
	if err := p.prefill(prefill.Tick{Now: p.now + 1}); err != nil {
		return err
	}
	return p.decode(decode.Tick{Now: p.now + 1})
}

// end checks a state in which nothing can happen any more.
func (p *pair) end(r *SmallResult) error {
	f := p.pre.Figures()
	clean := slices.Max(p.preBytes) == 0 && slices.Max(p.decBytes) == 0
	if !p.dec.Idle() || f.Running > 0 || f.Pages.Free != f.Pages.Total || !clean {
		return fmt.Errorf("%w: fault %q: not at rest, pages %v %v:\n%s\n%s", errSmall, p.fault, p.preBytes, p.decBytes, p.pre.Dump(), p.dec.Dump())
	}
	if p.ends != [2]int{1, 1} {
		return fmt.Errorf("%w: fault %q: ends %v", errSmall, p.fault, p.ends)
	}
	if p.served[0] && p.served[1] {
		r.Served++
	} else if (p.left || p.fault == "none") && p.now == 0 {
		return fmt.Errorf("%w: fault %q did not happen and a request was not served", errSmall, p.fault)
	}
	return nil
}

func (p *pair) reserve(x int) error {
	p.asked[x] = true
	return p.decode(decode.ReserveAsked{ID: uint64(x + 1), From: pairRouter, M: kvtransfer.Reserve{Key: smallKey(x), Tenant: "acme",
		Tokens: pairPrompt[x], Prompt: pairRows, MaxTokens: 1, Digest: seal.PromptDigest([32]byte{}, "acme", pairPrompt[x]), Router: pairRouter,
		RouterKey: seal.PublicKey([32]byte{9}), DeadlineLeft: 10 * pairLease, Sampling: kvtransfer.Sampling{Logprobs: -1}}})
}
