package sim

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// Small worlds: the hand-off's core (Outbound, Inbound, Ledger) with two requests of two pages each and one fault of one kind,
// in every order in which things can happen. Each state is visited once.

// SmallFaults are the kinds of fault, one of which may happen once.
var SmallFaults = []string{"none", "a message repeated", "a message lost", "a byte changed", "cancel", "lease out", "decode crashes", "prefill crashes",
	"journal fails", "copy fails", "device fails", "another worker claims", "abort", "a lie in the manifest", "a lie in the bytes", "two frames of one index"}

// SmallResult is what a search found.
type SmallResult struct {
	States, Moves, Ends int
	Served              int // ends in which both requests were served
	Err                 error
}

const (
	smallRows   = 3 // of a prompt: two pages of two rows; the token that is made takes the fourth
	smallSize   = 2
	smallLease  = 1000
	smallFrames = 2
)

// smallMsg is something on its way: a message, or the report of something that was begun.
type smallMsg struct {
	to    string // decode, prefill, or what is being done
	kind  string
	x     int // request
	index int // of a frame
	grant page.Grant
	pages []page.ID
	life  int  // of the process that it is for
	bad   bool // a byte of it was changed
	text  string
}

func (m smallMsg) String() string {
	return fmt.Sprintf("%s %s %d.%d life %d bad %t %v %d-%d", m.to, m.kind, m.x, m.index, m.life, m.bad, m.pages, m.grant.From(), m.grant.To())
}

// small is one state.
type small struct {
	fault  string
	left   bool // the fault has not happened yet
	now    kvtransfer.Tick
	ledger *page.Ledger
	bytes  [][smallSize]int // by page and slot: 1 + the request whose row it is; 0 = zeros, -1 = others
	in     [2]*kvtransfer.Inbound
	out    [2]*kvtransfer.Outbound
	asked  [2]bool
	lost   [2]bool // decode crashed with it
	served [2]bool
	steps  [2]bool // a step or a witness is out
	way    []smallMsg
	lives  [2]int // of decode and of prefill
}

func newSmall(fault string, pages int) *small {
	return &small{fault: fault, left: fault != "none", ledger: page.NewLedger(1, pages, smallSize), bytes: make([][smallSize]int, pages)}
}

func (s *small) clone() *small {
	c := *s
	c.ledger = s.ledger.Clone()
	c.bytes, c.way = slices.Clone(s.bytes), slices.Clone(s.way)
	for x := range 2 {
		if s.in[x] != nil {
			c.in[x] = s.in[x].Clone()
		}
		if s.out[x] != nil {
			c.out[x] = s.out[x].Clone()
		}
	}
	return &c
}

// hash names the state: equal ones have equal names.
func (s *small) hash() [32]byte {
	var b strings.Builder
	fmt.Fprintln(&b, s.left, s.now, s.bytes, s.asked, s.lost, s.served, s.steps, s.lives, s.ledger.Dump())
	for x := range 2 {
		if s.in[x] != nil {
			fmt.Fprintln(&b, s.in[x].Dump(), s.in[x].RowsAgree())
		}
		if s.out[x] != nil {
			fmt.Fprintln(&b, s.out[x].Dump())
		}
	}
	for _, m := range s.way { // in order of text
		b.WriteString(m.text)
		b.WriteByte('\n')
	}
	return sha256.Sum256([]byte(b.String()))
}

func (s *small) send(m smallMsg) {
	m.text = m.String()
	at, _ := slices.BinarySearchFunc(s.way, m, func(a, b smallMsg) int { return cmp.Compare(a.text, b.text) })
	s.way = slices.Insert(s.way, at, m)
}

func smallKey(x int) kvtransfer.Key {
	return kvtransfer.Key{ID: kvtransfer.HandoffID{byte(x + 1)}, Attempt: 1}
}

var (
	smallDecode = kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 1}
	smallWorker = kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: "p1", Epoch: 1}
	smallOther  = kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: "p2", Epoch: 1}
	smallShape  = kvtransfer.CutShape{Layers: 1, RowBytes: kvtransfer.CutMin / 2, Dim: 1}
	errSmall    = errors.New("sim: small world")
)

func smallTag(x, index int) [16]byte { return [16]byte{byte(x + 1), byte(index + 1)} }

// Search visits every state that one fault of a kind can lead to, in a pool of so many pages.
func Search(fault string, pages int) SmallResult {
	var r SmallResult
	start := newSmall(fault, pages)
	seen := map[[32]byte]bool{start.hash(): true}
	todo := []*small{start}
	for len(todo) > 0 && r.Err == nil {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		r.States++
		moves := s.moves()
		if len(moves) == 0 {
			r.Ends++
			r.Err = s.end(&r)
			continue
		}
		for i := range moves {
			c := s.clone()
			if err := moves[i].do(c); err != nil {
				r.Err = fmt.Errorf("%w: fault %q, %d pages: %s: %w in\n%s", errSmall, fault, pages, moves[i].name, err, s.text())
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

// text prints a state.
func (s *small) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "now %d, bytes %v\n%s", s.now, s.bytes, s.ledger.Dump())
	for x := range 2 {
		if s.in[x] != nil {
			fmt.Fprintf(&b, "decode %s\n", s.in[x].Dump())
		}
		if s.out[x] != nil {
			fmt.Fprintf(&b, "prefill %s\n", s.out[x].Dump())
		}
	}
	fmt.Fprintln(&b, s.way)
	return b.String()
}

// end checks a state in which nothing can happen any more: everything is over, every page is free and clean.
func (s *small) end(r *SmallResult) error {
	if c := s.ledger.Counts(); c.Free != c.Total {
		return fmt.Errorf("%w: fault %q: pages are left:\n%s", errSmall, s.fault, s.text())
	}
	for id, slots := range s.bytes {
		if slots != [smallSize]int{} {
			return fmt.Errorf("%w: fault %q: page %d is not clean:\n%s", errSmall, s.fault, id, s.text())
		}
	}
	both := true
	for x := range 2 {
		if s.in[x] != nil && !s.in[x].State.Over() || s.out[x] != nil && !s.out[x].State().Ended() {
			return fmt.Errorf("%w: fault %q: request %d is not over:\n%s", errSmall, s.fault, x, s.text())
		}
		if s.in[x] != nil && s.served[x] != s.in[x].Err.IsZero() {
			return fmt.Errorf("%w: fault %q: request %d served %t:\n%s", errSmall, s.fault, x, s.served[x], s.text())
		}
		both = both && s.served[x]
	}
	if both {
		r.Served++
	}
	if !both && (s.left || s.fault == "none") && s.now == 0 {
		return fmt.Errorf("%w: fault %q did not happen and a request was not served:\n%s", errSmall, s.fault, s.text())
	}
	return nil
}
