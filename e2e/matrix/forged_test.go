package matrix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"quire/bus"
	"quire/bus/jet"
	"quire/keys"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
)

// alone is one world on a server of its own.
func alone(t *testing.T) *world {
	t.Helper()
	ring, err := keys.Ensure(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	server, err := jet.Serve(jet.ServerOptions{Data: t.TempDir(), DontListen: true, MaxMemory: 1 << 40, MaxStore: 1 << 42})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	w, err := newWorld(t.Context(), server, ring, "quire")
	t.Cleanup(w.close)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// reasons are what the metrics say was turned away, by role and reason: "decode claim".
func (w *world) reasons() map[string]uint64 {
	var b strings.Builder
	w.router.WriteMetrics(&b)
	out := map[string]uint64{}
	for _, m := range refusedLine.FindAllStringSubmatch(b.String(), -1) {
		n, _ := strconv.ParseUint(m[3], 10, 64)
		out[m[1]+" "+m[2]] += n
	}
	return out
}

var refusedLine = regexp.MustCompile(`(?m)^quire_messages_refused_total\{role="(\w+)",id="[^"]*",reason="(\w+)"\} (\d+)$`)

// forgery is one message that should change nothing, and be counted by one reason at least: at decode and, where the
// sender is told of it, at prefill too.
type forgery struct {
	what    string
	reasons []string
	send    func(context.Context) error
}

// forger makes forgeries of one attempt.
type forger struct {
	t     *testing.T
	w     *world
	front bus.Bus
	key   kvtransfer.Key
	job   []byte // as sent
	all   []forgery
}

func (f *forger) signed(from kvtransfer.Peer, kind kvtransfer.Kind, m any) []byte {
	f.t.Helper()
	body, err := wire.Encode(m)
	if err != nil {
		f.t.Fatal(err)
	}
	signer, err := f.w.ring.Signer(from.Role)
	if err != nil {
		f.t.Fatal(err)
	}
	return seal.Sign(signer, from, kind, body)
}

func (f *forger) add(what string, send func(context.Context) error, reasons ...string) {
	f.all = append(f.all, forgery{what, reasons, send})
}

// stored adds a message for a stream.
func (f *forger) stored(what, subject string, data []byte, reasons ...string) {
	f.add(what, func(ctx context.Context) (err error) {
		waited := f.w.until("room in the stream", func() bool {
			err = enqueue(ctx, f.front, subject, data)
			return !errors.Is(err, bus.ErrFull)
		})
		return errors.Join(err, waited)
	}, reasons...)
}

// asked adds a request; whether it is answered does not matter, what it changes does. Without an inbox to answer to it is no request.
func (f *forger) asked(what, subject string, data []byte, reason string) {
	f.add(what, func(ctx context.Context) error {
		return f.front.Publish(subject, nil, data)
	}, unsignedD)
	f.add(what+" (with an inbox)", func(ctx context.Context) error {
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond) // what is not signed gets no answer
		defer cancel()
		if _, err := f.front.Request(short, subject, data); err != nil && short.Err() == nil {
			return err
		}
		return nil
	}, reason)
}

// Reasons: who turned it away, and why.
const (
	unsignedD, unsignedP, unsignedR = "decode unsigned", "prefill unsigned", "router unsigned"
	claimD, controlD, controlP      = "decode claim", "decode control", "prefill control"
	frameD, unopenedD, repeatedD    = "decode frame", "decode unopened", "decode repeated"
	manifestD, reserveD, resendD    = "decode manifest", "decode reserve", "decode resend"
)

// broken gives the ways in which a signed message can be wrong whatever it says.
func (f *forger) broken(good []byte) map[string][]byte {
	flipped := bytes.Clone(good)
	flipped[len(flipped)-1] ^= 1
	short := good[:len(good)/2]
	long := append(bytes.Clone(good), make([]byte, 3<<20)...)
	return map[string][]byte{
		"signature flipped": flipped, "cut short": short, "oversize": long, "empty": {}, "garbage": bytes.Repeat([]byte{0xc1}, 300),
		"deep nesting": bytes.Repeat([]byte{0x91}, 4096), "length that exhausts memory": {1, 0xdd, 0xff, 0xff, 0xff, 0xff},
	}
}

// control adds forgeries of the control messages, to decode and to prefill.
func (f *forger) control(d kvtransfer.Peer, owner kvtransfer.Peer, claimID kvtransfer.ClaimID) {
	n := f.w.net.names
	other := owner
	other.Epoch++
	foreign := f.key
	foreign.ID[0] ^= 1
	to := func(k kvtransfer.Key) string { return n.Control("decode", d.ID, d.Epoch, k.String()) }
	wrong := claimID
	wrong[0] ^= 1
	why := kvtransfer.Errorf(kvtransfer.PrefillFailed, "forged")
	for what, c := range map[string]struct {
		from kvtransfer.Peer
		kind kvtransfer.Kind
		m    any
		k    kvtransfer.Key
		why  []string
	}{
		"claim of another worker":        {other, kvtransfer.KindClaim, kvtransfer.Claim{Key: f.key, Claim: wrong, ClaimKey: seal.PublicKey([32]byte{9})}, f.key, []string{claimD}},
		"claim without a key":            {owner, kvtransfer.KindClaim, kvtransfer.Claim{Key: f.key, Claim: wrong}, f.key, []string{claimD, controlP}},
		"claim of an unknown hand-off":   {owner, kvtransfer.KindClaim, kvtransfer.Claim{Key: foreign, Claim: claimID, ClaimKey: seal.PublicKey([32]byte{9})}, foreign, []string{claimD, controlP}},
		"claim signed by a router":       {f.w.router.Peer(), kvtransfer.KindClaim, kvtransfer.Claim{Key: f.key, Claim: wrong, ClaimKey: seal.PublicKey([32]byte{9})}, f.key, []string{unsignedD}},
		"progress of another epoch":      {other, kvtransfer.KindProgress, kvtransfer.Progress{Key: f.key, Claim: claimID}, f.key, []string{controlD}},
		"progress of another claim":      {owner, kvtransfer.KindProgress, kvtransfer.Progress{Key: f.key, Claim: wrong}, f.key, []string{controlD}},
		"abort of another epoch":         {other, kvtransfer.KindAbort, kvtransfer.Abort{Key: f.key, Claim: claimID, Error: why}, f.key, []string{controlD}},
		"abort of another claim":         {owner, kvtransfer.KindAbort, kvtransfer.Abort{Key: f.key, Claim: wrong, Error: why}, f.key, []string{controlD}},
		"abort of an unknown hand-off":   {owner, kvtransfer.KindAbort, kvtransfer.Abort{Key: foreign, Claim: claimID, Error: why}, foreign, []string{controlD}},
		"cancel by a prefill":            {owner, kvtransfer.KindCancel, kvtransfer.Cancel{Key: f.key, Error: why}, f.key, []string{unsignedD}},
		"cancel by another router epoch": {kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: "r1", Epoch: 99}, kvtransfer.KindCancel, kvtransfer.Cancel{Key: f.key, Error: why}, f.key, []string{controlD}},
		"a manifest as control":          {owner, kvtransfer.KindManifest, kvtransfer.Manifest{Key: f.key, Claim: claimID}, f.key, []string{unsignedD}},
	} {
		f.stored(what, to(c.k), f.signed(c.from, c.kind, c.m), c.why...)
	}
	for what, b := range f.broken(f.signed(owner, kvtransfer.KindAbort, kvtransfer.Abort{Key: f.key, Claim: claimID, Error: why})) {
		f.stored("abort, "+what, to(f.key), b, unsignedD)
	}
	d2 := d
	d2.Epoch++
	back := n.Control("prefill", owner.ID, owner.Epoch, f.key.String())
	for what, c := range map[string]struct {
		from kvtransfer.Peer
		kind kvtransfer.Kind
		m    any
		why  string
	}{
		"gone by another epoch":      {d2, kvtransfer.KindGone, kvtransfer.Gone{Key: f.key, Claim: claimID, Error: why}, controlP},
		"gone for another claim":     {d, kvtransfer.KindGone, kvtransfer.Gone{Key: f.key, Claim: wrong, Error: why}, controlP},
		"gone by a prefill":          {owner, kvtransfer.KindGone, kvtransfer.Gone{Key: f.key, Claim: claimID, Error: why}, unsignedP},
		"cancel of an unknown":       {d, kvtransfer.KindCancel, kvtransfer.Cancel{Key: foreign, Error: why}, controlP},
		"cancel by another epoch":    {d2, kvtransfer.KindCancel, kvtransfer.Cancel{Key: f.key, Error: why}, controlP},
		"claimed for another claim":  {d, kvtransfer.KindClaimed, kvtransfer.Claimed{Key: f.key, Claim: wrong}, controlP},
		"claimed by another epoch":   {d2, kvtransfer.KindClaimed, kvtransfer.Claimed{Key: f.key, Claim: claimID}, controlP},
		"claimed signed by a router": {f.w.router.Peer(), kvtransfer.KindClaimed, kvtransfer.Claimed{Key: f.key, Claim: claimID}, unsignedP},
	} {
		f.stored("to prefill: "+what, back, f.signed(c.from, c.kind, c.m), c.why)
	}
	for what, b := range f.broken(f.signed(d, kvtransfer.KindGone, kvtransfer.Gone{Key: f.key, Claim: claimID, Error: why})) {
		f.stored("to prefill: gone, "+what, back, b, unsignedP)
	}
}

// content adds forgeries of frames and manifests.
func (f *forger) content(d, owner kvtransfer.Peer, good kvtransfer.Manifest, sent []byte) {
	n := f.w.net.names
	to := n.KV(d.ID, d.Epoch, f.key.String())
	other := owner
	other.Epoch++
	unknown := good
	unknown.Key.ID[0] ^= 1
	f.stored("manifest by another epoch", to, f.signed(other, kvtransfer.KindManifest, good), manifestD)
	f.stored("manifest of an unknown hand-off", to, f.signed(owner, kvtransfer.KindManifest, unknown), manifestD)
	f.stored("manifest signed by decode", to, f.signed(d, kvtransfer.KindManifest, good), unsignedD)
	f.stored("manifest signed by a router", to, f.signed(f.w.router.Peer(), kvtransfer.KindManifest, good), unsignedD)
	for what, b := range f.broken(f.signed(owner, kvtransfer.KindManifest, good)) {
		f.stored("manifest, "+what, to, b, unsignedD)
	}
	fr, err := wire.DecodeFrame(sent)
	if err != nil {
		f.t.Fatal(err)
	}
	for what, forge := range map[string]struct {
		why    string // what has the tag of a frame that has come is that frame again, whatever else it says
		change func(*kvtransfer.Frame)
	}{
		"of an unknown hand-off":    {frameD, func(c *kvtransfer.Frame) { c.Header.Key.ID[0] ^= 1 }},
		"of another attempt":        {frameD, func(c *kvtransfer.Frame) { c.Header.Key.Attempt++ }},
		"of another claim":          {frameD, func(c *kvtransfer.Frame) { c.Header.Claim[0] ^= 1 }},
		"under another index":       {unopenedD, func(c *kvtransfer.Frame) { c.Header.Index = 1 }},
		"with rows out of range":    {repeatedD, func(c *kvtransfer.Frame) { c.Header.RowFrom, c.Header.RowTo = 1<<20, 1<<20+promptLen }},
		"with layers out of range":  {repeatedD, func(c *kvtransfer.Frame) { c.Header.LayerFrom, c.Header.LayerTo = 7, 9 }},
		"with fewer rows":           {repeatedD, func(c *kvtransfer.Frame) { c.Header.RowTo-- }},
		"without its hidden vector": {repeatedD, func(c *kvtransfer.Frame) { c.Header.Hidden = 0 }},
		"with a byte flipped":       {repeatedD, func(c *kvtransfer.Frame) { c.Sealed[0] ^= 1 }},
		"cut short":                 {unopenedD, func(c *kvtransfer.Frame) { c.Sealed = c.Sealed[:len(c.Sealed)-1] }},
		"with its tag alone":        {repeatedD, func(c *kvtransfer.Frame) { c.Sealed = c.Sealed[len(c.Sealed)-16:] }},
	} {
		c := fr
		c.Sealed = bytes.Clone(fr.Sealed)
		forge.change(&c)
		f.stored("frame "+what, to, wire.EncodeFrame(c), forge.why)
	}
	f.stored("frame, header length that is a lie", to, append([]byte{0xff, 0xff, 0xff, 0xff}, sent...), unsignedD)
}

// requests adds forgeries of Reserve, Resend, jobs, replies and heartbeats.
func (f *forger) requests(d kvtransfer.Peer, good kvtransfer.Reserve) {
	n, r := f.w.net.names, f.w.router.Peer()
	prefill := kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: "p1", Epoch: 1}
	for what, change := range map[string]func(*kvtransfer.Reserve){
		"for another router":      func(m *kvtransfer.Reserve) { m.Router.Epoch++ },
		"of another length":       func(m *kvtransfer.Reserve) { m.Tokens = m.Tokens[1:] },
		"of another tenant":       func(m *kvtransfer.Reserve) { m.Key.ID[0], m.Tenant = 99, "bank" },
		"under another digest":    func(m *kvtransfer.Reserve) { m.Key.ID[0] = 99; m.Digest[0] ^= 1 },
		"of no tokens":            func(m *kvtransfer.Reserve) { m.Key.ID[0], m.Tokens, m.Prompt = 99, nil, 0 },
		"of too many tokens":      func(m *kvtransfer.Reserve) { m.Key.ID[0], m.MaxTokens = 99, 1<<31-1 },
		"of unknown tokens":       func(m *kvtransfer.Reserve) { m.Key.ID[0], m.Tokens = 99, slices.Repeat([]int32{1 << 30}, promptLen) },
		"of another fingerprint":  func(m *kvtransfer.Reserve) { m.Key.ID[0], m.Fingerprints.Model[0] = 99, m.Fingerprints.Model[0]^1 },
		"without an id":           func(m *kvtransfer.Reserve) { m.Key = kvtransfer.Key{} },
		"whose deadline is over":  func(m *kvtransfer.Reserve) { m.Key.ID[0], m.DeadlineLeft = 99, -1 },
		"more than the pool has":  func(m *kvtransfer.Reserve) { m.Key.ID[0] = 99 },
		"for the same, max other": func(m *kvtransfer.Reserve) { m.MaxTokens++ },
	} {
		m := good
		m.Tokens = slices.Clone(good.Tokens)
		change(&m)
		f.asked("reserve "+what, n.Reserve(d.ID, d.Epoch), f.signed(r, kvtransfer.KindReserve, m), reserveD)
	}
	self := good
	self.Router, self.Key.ID[0] = prefill, 99
	f.asked("reserve by a prefill for itself", n.Reserve(d.ID, d.Epoch), f.signed(prefill, kvtransfer.KindReserve, self), unsignedD)
	for what, b := range f.broken(f.signed(r, kvtransfer.KindReserve, good)) {
		f.add("reserve, "+what, func(context.Context) error { return f.front.Publish(n.Reserve(d.ID, d.Epoch), nil, b) }, unsignedD)
	}
	r2 := r
	r2.Epoch++
	f.asked("resend by another router, which gives the attempt up", n.Resend(d.ID, d.Epoch), f.signed(r2, kvtransfer.KindResend, kvtransfer.Resend{Key: f.key, Ack: true}), resendD)
	f.asked("resend by a prefill", n.Resend(d.ID, d.Epoch), f.signed(prefill, kvtransfer.KindResend, kvtransfer.Resend{Key: f.key, Ack: true}), unsignedD)
	job := n.Job("fake", f.w.d.engine.Info().Fingerprints.Pool(), f.key.String())
	for what, b := range f.broken(f.job) {
		if len(b) > 0 {
			f.stored("job, "+what, job, b, unsignedP)
		}
	}
	f.stored("job again", job, f.job, claimD) // its claim is refused, and prefill hears so
	reply := n.Reply(r.ID, r.Epoch, f.key.String())
	for number := range uint32(3) {
		b := wire.EncodeReply(kvtransfer.Reply{Header: kvtransfer.ReplyHeader{Key: f.key, Number: number}, Sealed: make([]byte, 64)})
		f.add(fmt.Sprintf("reply %d that does not open", number), func(context.Context) error { return f.front.Publish(reply, nil, b) }, "router late_reply")
	}
	hb := func(p kvtransfer.Peer) kvtransfer.Heartbeat { return kvtransfer.Heartbeat{Peer: p} }
	for what, b := range map[string][]byte{
		"of decode, signed by a prefill": f.signed(prefill, kvtransfer.KindHeartbeat, hb(d)),
		"of a router, signed by decode":  f.signed(d, kvtransfer.KindHeartbeat, hb(r2)),
		"of nobody":                      []byte("hello"),
	} {
		for to, heard := range map[string][]string{ // routers hear all, decodes hear routers, both prefills hear decodes
			n.Heartbeat("decode", d.ID): {unsignedR, unsignedP, unsignedP}, n.Heartbeat("router", r.ID): {unsignedR, unsignedD}, n.Heartbeat("prefill", "p1"): {unsignedR},
		} {
			f.add("heartbeat "+what, func(context.Context) error { return f.front.Publish(to, nil, b) }, heard...)
		}
	}
}

// TestForgedMessages sends forged messages of every type into an open hand-off. Each is refused and counted, none is noticed in the
// answer, and no page is lost.
func TestForgedMessages(t *testing.T) {
	t.Parallel()
	w := alone(t)
	seen := w.collect()
	var kept []byte // prefill's own manifest waits, however often it is delivered
	hold := w.net.hold(rule{match: func(m *message) bool {
		if m.step == manifest && kept == nil {
			kept = m.data
		}
		return m.step == manifest && bytes.Equal(m.data, kept)
	}})
	a, err := w.ask("acme")
	if err != nil {
		t.Fatal(err)
	}
	late, err := w.caught(hold)
	if err != nil {
		t.Fatal(err)
	}
	f := &forger{t: t, w: w, front: w.front.Bus, key: late.key, job: seen(job)}
	d := w.decode.Peer()
	e, err := wire.Open(late.data)
	if err != nil {
		t.Fatal(err)
	}
	owner := e.From
	good, err := wire.Decode[kvtransfer.Manifest](e.Body)
	if err != nil {
		t.Fatal(err)
	}
	e, err = wire.Open(seen(reserve))
	if err != nil {
		t.Fatal(err)
	}
	ask, err := wire.Decode[kvtransfer.Reserve](e.Body)
	if err != nil {
		t.Fatal(err)
	}
	f.control(d, owner, good.Claim)
	f.content(d, owner, good, seen(frame))
	f.requests(d, ask)

	// An attempt lives as long as its lease, so each forgery is sent while prefill's own word keeps it alive.
	alive := progress(w, d, f, owner, good.Claim)
	before := w.reasons()
	want := map[string]uint64{}
	for _, g := range f.all {
		if err := alive(); err != nil {
			t.Fatal(err)
		}
		if err := g.send(t.Context()); err != nil {
			t.Errorf("%s: not sent: %v", g.what, err)
		}
		if len(g.reasons) == 0 {
			t.Errorf("%s: counted by no reason", g.what)
		}
		for _, r := range g.reasons {
			want[r]++
		}
	}
	missing := func() string {
		var out []string
		now := w.reasons()
		for r := range now {
			if got := now[r] - before[r]; got != want[r] {
				out = append(out, fmt.Sprintf("%s: %d counted, want %d", r, got, want[r]))
			}
		}
		slices.Sort(out)
		return strings.Join(out, "\n")
	}
	if err := w.until("each forgery to be counted by its reason", func() bool { return missing() == "" || alive() != nil }); err != nil {
		t.Errorf("%s\n%v", missing(), err)
	}
	w.net.drop(hold)
	late.pass()
	if err := w.answered(a); err != nil {
		t.Error(err)
	}
	if s := w.router.Stats(); s.Corrupt > 0 || w.decode.Stats().Counters.GateRefused > 0 {
		t.Errorf("a forgery was taken for prefill's word\n%s", w.figures())
	}
	b, err := w.ask("bank")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.answered(b); err != nil {
		t.Error(err)
	}
	if err := w.clean(); err != nil {
		t.Error(err)
	}
	t.Logf("%d forgeries, %d reasons", len(f.all), len(want))
}

// progress gives a function that restarts the attempt's lease as prefill's progress does.
func progress(w *world, d kvtransfer.Peer, f *forger, owner kvtransfer.Peer, c kvtransfer.ClaimID) func() error {
	ping := f.signed(owner, kvtransfer.KindProgress, kvtransfer.Progress{Key: f.key, Claim: c, Rows: 1})
	to := w.net.names.Control("decode", d.ID, d.Epoch, f.key.String())
	return func() error { return enqueue(w.ctx, f.front, to, ping) }
}
