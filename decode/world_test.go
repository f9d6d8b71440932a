package decode

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/kvtransfer/seal"
	"quire/model"
	"quire/model/modeltest"
)

// world runs one loop over a fake engine, performing effects at once and in order, except those of a kind that is held. It is
// prefill and router too.
type world struct {
	t    testing.TB
	l    *Loop
	eng  *modeltest.Engine
	o    modeltest.Options
	hold map[string]bool // kinds of effect that wait for release
	held []Effect

	events   []Event // completions not handled yet
	delivery uint64
	open     map[uint64]bool // deliveries not answered
	asked    uint64
	entropy  byte
	now      kvtransfer.Tick

	log      []string // effects, one line each
	jobs     map[kvtransfer.Key]*job
	replies  map[kvtransfer.Key][]kvtransfer.ReplyBody
	refusals map[kvtransfer.Key]kvtransfer.Error
	facts    []Fact // but for those that pages are free
	zeroed   []Fact
	beats    []kvtransfer.Heartbeat
	control  []Control
	resent   []Resent
	stopped  kvtransfer.Error
	journal  kvtransfer.Error // what the journal answers
	stepErr  kvtransfer.Error // what the engine answers to steps
}

// job is what prefill has of one attempt.
type job struct {
	res    kvtransfer.Reservation
	hash   [32]byte
	tokens []int32
	claim  kvtransfer.Claim
	from   kvtransfer.Peer
	key    [32]byte
	frames []kvtransfer.Frame
	tags   [][16]byte
}

var (
	self    = kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 7}
	router  = kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: "r1", Epoch: 3}
	worker  = kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: "p1", Epoch: 5}
	cluster = [32]byte{42}
	privR   = [32]byte{1, 1}
	privP   = [32]byte{2, 2}
)

func newWorld(t testing.TB, change func(*LoopConfig, *modeltest.Options)) *world {
	w := &world{
		t: t, hold: map[string]bool{}, open: map[uint64]bool{}, jobs: map[kvtransfer.Key]*job{},
		replies: map[kvtransfer.Key][]kvtransfer.ReplyBody{}, refusals: map[kvtransfer.Key]kvtransfer.Error{},
		o: modeltest.Options{Pages: 8, PageSize: 4, Vocab: 50},
	}
	cfg := LoopConfig{
		Self: self, Model: "fake", ModelSlug: "fake", Pool: 1, MaxOpen: 4, MaxKept: 4,
		Entropy: func(n int) []byte { w.entropy++; return bytes.Repeat([]byte{w.entropy}, n) },
		PromptDigest: func(tenant string, tokens []int32) [32]byte {
			return seal.PromptDigest(cluster, tenant, tokens)
		},
	}
	if change != nil {
		change(&cfg, &w.o)
	}
	w.eng = modeltest.NewEngine(w.o)
	cfg.Info = w.eng.Info()
	w.l = New(cfg)
	return w
}

func key(n int) kvtransfer.Key {
	return kvtransfer.Key{ID: kvtransfer.HandoffID{byte(n), byte(n)}, Attempt: 1}
}

// prompt is a prompt of n tokens that differs with salt.
func prompt(n, salt int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32((i*7 + salt*13 + 3) % 50)
	}
	return out
}

// send hands the loop an event, performs the effects, and goes on with what they complete.
func (w *world) send(ev Event) {
	w.t.Helper()
	w.events = append(w.events, ev)
	for len(w.events) > 0 {
		ev := w.events[0]
		w.events = w.events[1:]
		for _, e := range w.l.Handle(ev) {
			w.perform(e)
		}
		if err := w.l.Verify(); err != nil && w.stopped.IsZero() {
			w.t.Fatalf("after %T: %v\n%s", ev, err, w.l.Dump())
		}
	}
}

// release performs what was held of a kind, in order.
func (w *world) release(kind string) {
	w.t.Helper()
	w.hold[kind] = false
	held := w.held
	w.held = nil
	for _, e := range held {
		if kindOf(e) == kind {
			w.run(e)
		} else {
			w.held = append(w.held, e)
		}
	}
	if len(w.events) > 0 {
		ev := w.events[0]
		w.events = w.events[1:]
		w.send(ev)
	}
}

func kindOf(e Effect) string {
	return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", e), "decode."))
}

func (w *world) perform(e Effect) {
	w.log = append(w.log, w.describe(e))
	if w.hold[kindOf(e)] {
		w.held = append(w.held, e)
		return
	}
	w.run(e)
}

func (w *world) run(e Effect) {
	switch e := e.(type) {
	case OpenFrame, CopyFrame, Witness, Step, Zero:
		w.engine(e)
	case Reserved:
		w.promised(e.M)
		if j, hash := w.jobs[e.M.Key], seal.HashReservation(e.Body); j.hash != hash {
			*j = job{res: e.M, hash: hash, tokens: j.tokens, from: worker} // a new promise: what was before is forgotten
			delete(w.replies, e.M.Key)
		}
	case Refused:
		w.refusals[e.M.Key] = e.M.Error
	case Resent:
		w.resent = append(w.resent, e)
	case Control:
		w.control = append(w.control, e)
	case Journal:
		if e.Fact.Kind == FactZeroed {
			w.zeroed = append(w.zeroed, e.Fact)
			return
		}
		w.facts = append(w.facts, e.Fact)
		if e.Must {
			w.events = append(w.events, Journaled{Key: e.Fact.Key, Reservation: e.Fact.Reservation, Err: w.journal})
		}
	case SendReply:
		if int(e.Header.Number) != len(w.replies[e.Header.Key]) {
			w.t.Fatalf("reply %d after %d", e.Header.Number, len(w.replies[e.Header.Key]))
		}
		w.replies[e.Header.Key] = append(w.replies[e.Header.Key], e.Body)
	case Ack:
		w.answered(e.Delivery)
	case Term:
		w.answered(e.Delivery)
	case Beat:
		w.beats = append(w.beats, e.M)
	case Stop:
		w.stopped = e.Err
	}
}

func (w *world) answered(d uint64) {
	if !w.open[d] {
		w.t.Fatalf("delivery %d answered twice, or never made", d)
	}
	delete(w.open, d)
}

func (w *world) engine(e Effect) {
	switch e := e.(type) {
	case OpenFrame:
		ev := FrameOpened{Delivery: e.Delivery, Header: e.Header, Tag: e.Tag, Hash: e.Hash}
		plain, err := seal.OpenFrame(e.FrameKey, e.Hash, e.Header, e.Sealed, nil)
		if err == nil {
			ev.Opening, ev.Plain = SplitHidden(e.Header, plain)
		}
		w.events = append(w.events, ev)
	case CopyFrame:
		h := e.Header
		r := model.Range{LayerFrom: h.LayerFrom, LayerTo: h.LayerTo, RowFrom: h.RowFrom, RowTo: h.RowTo}
		w.events = append(w.events, FrameCopied{
			Delivery: e.Delivery, Header: h, Grant: e.Grant, Err: failed(w.eng.Write(e.Grant, r, e.Plain)),
		})
	case Witness:
		row, err := w.eng.WitnessRows(e.View, e.Tokens, e.From)
		w.events = append(w.events, WitnessDone{Key: e.Key, Row: row, Err: failed(err)})
	case Step:
		w.events = append(w.events, w.step(e))
	case Zero:
		err := w.eng.Zero(e.Pages)
		if n := w.eng.NonZero(e.Pages); err == nil && n >= 0 {
			w.t.Fatalf("page %d holds bytes after Zero", n)
		}
		w.events = append(w.events, Zeroed{Pages: e.Pages, Err: failed(err)})
	}
}

func (w *world) step(e Step) StepDone {
	if !w.stepErr.IsZero() {
		return StepDone{Err: w.stepErr}
	}
	work := make([]model.Work, len(e.Work))
	for i, s := range e.Work {
		work[i] = model.Work{
			View: s.View, Grant: s.Grant, Tokens: s.Tokens, From: s.From, Pick: &model.Picker{}, Witness: s.Witness, Want: s.Want,
		}
	}
	res, err := w.eng.Step(work)
	if err != nil {
		return StepDone{Err: failed(err)}
	}
	done := StepDone{}
	for i, r := range res {
		done.Results = append(done.Results, SeqResult{
			Key: e.Work[i].Key, Token: r.Token, Finish: r.Finish, Stop: r.Stop, Held: r.Held, Mismatch: r.Mismatch,
		})
	}
	return done
}

func failed(err error) kvtransfer.Error {
	if err == nil {
		return kvtransfer.Error{}
	}
	return kvtransfer.Errorf(kvtransfer.DeviceFailed, "%v", err)
}

// deliver makes a delivery's handle; the loop must answer it once.
func (w *world) deliver() uint64 {
	w.delivery++
	w.open[w.delivery] = true
	return w.delivery
}

func (w *world) reserveMessage(k kvtransfer.Key, tenant string, tokens []int32, max int) kvtransfer.Reserve {
	return kvtransfer.Reserve{
		Key: k, Tenant: tenant, Tokens: tokens, Prompt: len(tokens), MaxTokens: max,
		Digest: seal.PromptDigest(cluster, tenant, tokens), Router: router, RouterKey: seal.PublicKey(privR),
		DeadlineLeft: 60 * kvtransfer.Second, Fingerprints: w.eng.Info().Fingerprints, Sampling: kvtransfer.Sampling{Logprobs: -1},
	}
}

// reserve asks for pages as the router; it says whether they were promised.
func (w *world) reserve(k kvtransfer.Key, tokens []int32, max int) bool {
	w.t.Helper()
	return w.ask(w.reserveMessage(k, "acme", tokens, max))
}

func (w *world) ask(m kvtransfer.Reserve) bool {
	w.t.Helper()
	delete(w.refusals, m.Key)
	if w.jobs[m.Key] == nil {
		w.jobs[m.Key] = &job{tokens: m.Tokens, from: worker}
	}
	w.asked++
	w.send(ReserveAsked{ID: w.asked, From: router, M: m})
	_, refused := w.refusals[m.Key]
	return !refused
}

// claim takes the job as prefill and computes its frames.
func (w *world) claim(k kvtransfer.Key) {
	w.t.Helper()
	j := w.jobs[k]
	j.claim = kvtransfer.Claim{Key: k, Claim: kvtransfer.ClaimID{0xc0, k.ID[0]}, ClaimKey: seal.PublicKey(privP), Reservation: j.hash}
	fk, err := seal.FrameKey(privP, j.res.DecodeKey, j.hash, j.claim.Claim)
	if err != nil {
		w.t.Fatal(err)
	}
	j.key = fk
	j.cut(w, w.compute(j.tokens), 2)
	w.send(ClaimCame{Delivery: w.deliver(), From: j.from, M: j.claim})
}

// computed is a prompt's rows in an engine of prefill's.
type computed struct {
	eng    *modeltest.Engine
	view   page.View
	hidden []float32
}

// compute runs a prompt through an engine of another page size.
func (w *world) compute(tokens []int32) computed {
	o := w.o
	o.Pool, o.PageSize, o.Pages, o.Fail = 9, 3, 40, nil
	eng := modeltest.NewEngine(o)
	led := page.NewLedger(9, 40, 3)
	owner := page.Owner{Attempt: 1}
	if _, err := led.Reserve(owner, len(tokens)); err != nil {
		w.t.Fatal(err)
	}
	v, err := led.Own(owner)
	if err != nil {
		w.t.Fatal(err)
	}
	g, err := led.Grant(owner, 0, len(tokens))
	if err != nil {
		w.t.Fatal(err)
	}
	res, err := eng.Step([]model.Work{{View: v, Grant: g, Tokens: tokens, Hidden: true}})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := led.Settle(g); err != nil {
		w.t.Fatal(err)
	}
	v, err = led.Grow(owner, len(tokens))
	if err != nil {
		w.t.Fatal(err)
	}
	return computed{eng: eng, view: v, hidden: res[0].Hidden}
}

// cut seals the rows as frames of at most rows rows each, one layer a frame.
func (j *job) cut(w *world, c computed, rows int) {
	j.frames, j.tags = nil, nil
	n, layers := len(j.tokens), c.eng.Info().Layers
	for from := 0; from < n; from += rows {
		for l := range layers {
			h := kvtransfer.FrameHeader{
				Key: j.res.Key, Claim: j.claim.Claim, Index: uint32(len(j.frames)),
				LayerFrom: l, LayerTo: l + 1, RowFrom: from, RowTo: min(from+rows, n),
			}
			plain, err := c.eng.Read(c.view, model.Range{LayerFrom: l, LayerTo: l + 1, RowFrom: h.RowFrom, RowTo: h.RowTo}, nil)
			if err != nil {
				w.t.Fatal(err)
			}
			if l == layers-1 && h.RowTo == n {
				h.Hidden = len(c.hidden)
				plain, _ = binary.Append(plain, binary.LittleEndian, c.hidden)
			}
			j.add(h, plain)
		}
	}
}

func (j *job) add(h kvtransfer.FrameHeader, plain []byte) {
	sealed := seal.SealFrame(j.key, j.hash, h, plain)
	j.frames = append(j.frames, kvtransfer.Frame{Header: h, Sealed: sealed})
	j.tags = append(j.tags, seal.Tag(sealed))
}

func (w *world) frame(f kvtransfer.Frame) {
	w.t.Helper()
	w.send(FrameCame{Delivery: w.deliver(), Header: f.Header, Tag: seal.Tag(f.Sealed), Sealed: f.Sealed})
}

func (w *world) frames(k kvtransfer.Key) {
	w.t.Helper()
	for _, f := range w.jobs[k].frames {
		w.frame(f)
	}
}

// statement is the manifest that prefill would sign.
func (w *world) statement(k kvtransfer.Key) kvtransfer.Manifest {
	j := w.jobs[k]
	return kvtransfer.Manifest{
		Key: k, Claim: j.claim.Claim, Reservation: j.hash, Tenant: j.res.Tenant, N: j.res.N, Sent: j.res.N,
		Pages: kvtransfer.PagesFor(j.res.N, j.res.PageSize), Frames: len(j.frames), Digest: seal.Digest(j.tags),
	}
}

func (w *world) manifest(k kvtransfer.Key) {
	w.t.Helper()
	w.send(ManifestCame{Delivery: w.deliver(), From: w.jobs[k].from, M: w.statement(k)})
}

// handoff runs a request to its end or to where held effects leave it.
func (w *world) handoff(k kvtransfer.Key, tokens []int32, max int) {
	w.t.Helper()
	if !w.reserve(k, tokens, max) {
		w.t.Fatalf("refused: %v", w.refusals[k])
	}
	w.claim(k)
	w.frames(k)
	w.manifest(k)
}

func (w *world) tick(by kvtransfer.Tick) {
	w.t.Helper()
	w.now += by
	w.send(Tick{Now: w.now})
}

func (w *world) ack(k kvtransfer.Key) {
	w.t.Helper()
	w.asked++
	w.send(ResendAsked{ID: w.asked, From: router, M: kvtransfer.Resend{Key: k, Ack: true}})
}

// answer is the tokens that left, and the end.
func (w *world) answer(k kvtransfer.Key) (ids []int32, end *kvtransfer.End, outcome *kvtransfer.Outcome) {
	for _, b := range w.replies[k] {
		if b.Outcome != nil {
			outcome = b.Outcome
		}
		for _, t := range b.Tokens {
			ids = append(ids, t.ID)
		}
		if b.End != nil {
			end = b.End
		}
	}
	return ids, end, outcome
}

// expected is what a fresh single process answers.
func (w *world) expected(tokens []int32, max int) []int32 {
	tokens = slices.Clone(tokens)
	var out []int32
	for range max {
		t := modeltest.Token(w.o, tokens)
		tokens, out = append(tokens, t.ID), append(out, t.ID)
		if w.o.EOS != 0 && t.ID == w.o.EOS {
			break
		}
	}
	return out
}

// clean checks that nothing is left: no delivery without answer, no page in use, every page zero.
func (w *world) clean() {
	w.t.Helper()
	if len(w.open) > 0 {
		w.t.Errorf("%d deliveries were never answered", len(w.open))
	}
	if !w.stopped.IsZero() {
		w.t.Errorf("stopped: %v", w.stopped)
	}
	c := w.l.ledger.Counts()
	if c.Free != c.Total {
		w.t.Errorf("pages left: %s", w.l.Dump())
	}
	all := make([]page.ID, c.Total)
	for i := range all {
		all[i] = page.ID(i)
	}
	if n := w.eng.NonZero(all); n >= 0 {
		w.t.Errorf("page %d holds bytes", n)
	}
}

// promised checks that pages hold nothing when they are promised.
func (w *world) promised(r kvtransfer.Reservation) {
	w.t.Helper()
	ids := make([]page.ID, len(r.Pages))
	for i, s := range r.Pages {
		ids[i] = s.Page
	}
	if n := w.eng.NonZero(ids); n >= 0 {
		w.t.Fatalf("page %d was promised and holds bytes", n)
	}
}
