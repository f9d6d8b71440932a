package replay

import (
	"context"
	"crypto/ed25519"
	"testing"
	"time"

	"quire/journal"
	"quire/kvtransfer"
)

// ring is a cluster's keys, made of the roles' names.
type ring struct{}

func (ring) key(role kvtransfer.Role) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	copy(seed, role)
	return ed25519.NewKeyFromSeed(seed)
}

func (r ring) Verify(role kvtransfer.Role, msg, sig []byte) bool {
	return ed25519.Verify(r.key(role).Public().(ed25519.PublicKey), msg, sig)
}

// signer signs as one role.
type signer struct{ role kvtransfer.Role }

func (s signer) Sign(msg []byte) []byte { return ed25519.Sign(ring{}.key(s.role), msg) }

// world writes a journal as the services would.
type world struct {
	t      *testing.T
	items  []Item
	chains map[kvtransfer.Peer]journal.Chain
	now    time.Time
	gen    map[uint64]uint64
	free   []uint64
}

var (
	d1 = kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 5}
	r1 = kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: "r1", Epoch: 2}
	p1 = kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: "p1", Epoch: 3}
)

const pageSize = 4

func newWorld(t *testing.T) *world {
	w := &world{t: t, chains: map[kvtransfer.Peer]journal.Chain{}, now: time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC), gen: map[uint64]uint64{}}
	for i := range uint64(16) {
		w.free = append(w.free, 15-i)
	}
	for _, p := range []kvtransfer.Peer{r1, p1, d1} {
		w.put(p, journal.Record{Facts: journal.Started{Version: "0.1.0", Pages: 16, PageSize: pageSize, Layers: 2}})
	}
	return w
}

// Items implements Source.
func (w *world) Items(_ context.Context, fn func(Item) error) (Extent, error) {
	for _, it := range w.items {
		if err := fn(it); err != nil {
			return Extent{}, err
		}
	}
	first, last := w.items[0].Sequence, w.items[len(w.items)-1].Sequence
	return Extent{Name: "QUIRE_JOURNAL", First: first, Last: last, Messages: uint64(len(w.items))}, nil
}

func (w *world) put(p kvtransfer.Peer, r journal.Record) {
	c, ok := w.chains[p]
	if !ok {
		c = journal.NewChain(p)
	}
	w.now = w.now.Add(time.Millisecond)
	r.At = kvtransfer.Tick(w.now.UnixMicro() % 1e9)
	b, next, err := c.Next(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.chains[p] = next
	got, err := journal.Decode(b)
	if err != nil {
		w.t.Fatal(err)
	}
	it := Item{Sequence: uint64(len(w.items) + 1), Time: w.now, Subject: "quire.journal." + string(got.Kind) + "." + got.Service, Data: b}
	if journal.Signs(got.Kind) {
		it.Signature = journal.Sign(signer{p.Role}, b)
	}
	w.items = append(w.items, it)
}

// plan is one request of a test.
type plan struct {
	id, tenant string
	n, max     int
	written    journal.Spans // [0, n) when nil
	sent       int           // n when 0
	ok         bool          // the gate's verdict
	witness    string        // "" = agreed
	output     int
	code       string // with which it ends
	keep       bool   // it goes on: no end is recorded
	unrecorded bool   // no verdict is recorded
}

func (p plan) key() kvtransfer.Key {
	var k kvtransfer.Key
	copy(k.ID[:], p.id)
	k.Attempt = 1
	return k
}

// take gives pages with their new generations, last freed first.
func (w *world) take(rows int) (out journal.Pages) {
	for range kvtransfer.PagesFor(rows, pageSize) {
		id := w.free[len(w.free)-1]
		w.free = w.free[:len(w.free)-1]
		w.gen[id]++
		out = append(out, journal.Slot{id, w.gen[id]})
	}
	return out
}

// play records a whole request and gives its pages.
func (w *world) play(p plan) journal.Pages {
	k := p.key()
	rec := func(peer kvtransfer.Peer, f journal.Facts) {
		w.put(peer, journal.Record{Key: k, Tenant: p.tenant, Facts: f})
	}
	if p.written == nil {
		p.written = journal.Spans{{0, p.n}}
	}
	if p.sent == 0 {
		p.sent = p.n
	}
	pages := w.take(p.n + p.max)
	claim, hash := journal.ID{1}, journal.Hash{2}
	rec(d1, journal.Reserved{Reservation: hash, Router: r1.String(), N: p.n, MaxTokens: p.max, PageSize: pageSize, Pages: pages, LeaseMicros: 1e7})
	rec(r1, journal.Job{Decode: d1.String(), Prompt: p.n, MaxTokens: p.max, Limit: 64, LimitBy: "model context", Sequence: 1})
	rec(d1, journal.Claimed{Claim: claim, Prefill: p1.String()})
	code := p.code
	if p.ok {
		code = ""
	}
	if !p.unrecorded {
		now := w.now.UnixMicro()%1e9 + 500
		rec(d1, journal.Verdict{FirstMicros: now, ManifestMicros: now, Path: "received", OK: p.ok, Code: code, Detail: code, Reservation: hash, Claim: claim, N: p.n, Sent: p.sent, Frames: 2, Pages: pages, Written: p.written})
	}
	rec(p1, journal.Sent{State: "done", Claim: claim, N: p.n, Rows: p.sent, Frames: 2})
	if p.ok {
		w := journal.Witness{Result: "agreed", Read: p.n, Written: p.written, FirstToken: p.witness == ""}
		if p.witness != "" {
			w.Result = p.witness
		}
		rec(d1, w)
	}
	if p.keep {
		return pages
	}
	f := journal.Finished{Finish: "stop", Code: p.code, Prompt: p.n, Output: p.output, Pages: len(pages), Written: p.written}
	if p.code != "" {
		f.Finish, f.Quarantined = "", true
	}
	if p.ok {
		f.Read, f.Rows, f.Witness = p.n+max(0, p.output-1), p.n+max(0, p.output-1), "agreed"
	}
	rec(d1, f)
	var spans journal.Spans
	for i := range pages {
		id := pages[len(pages)-1-i][0]
		spans = spans.Add(int(id), int(id)+1)
		w.free = append(w.free, id)
		if p.code != "" {
			w.gen[id]++
		}
	}
	w.put(d1, journal.Record{Facts: journal.Zeroed{Pages: spans}})
	rec(r1, journal.Finished{Finish: f.Finish, Code: f.Code, Prompt: p.n, Output: p.output, Attempts: 1, Decode: d1.String()})
	return pages
}

// stop ends every life in order.
func (w *world) stop() {
	for _, p := range []kvtransfer.Peer{d1, p1, r1} {
		w.put(p, journal.Record{Facts: journal.Stopped{}})
	}
}

func (w *world) read() *Past {
	w.t.Helper()
	p, err := Read(w.t.Context(), w, ring{})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}
