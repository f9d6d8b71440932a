package e2e

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"quire/decode"
	"quire/keys"
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
	"quire/model"
	"quire/model/modeltest"
	"quire/prefill"
)

// The road between prefill and decode in one thread: both loops, real keys and bytes, engines with real pages, and queues
// whose order a seed draws.

var (
	roadRouter  = kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: "r1", Epoch: 3}
	roadPrefill = kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: "p1", Epoch: 5}
	roadDecode  = kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 7}
)

const roadWindow = 3 // frames of all hand-offs that wait in decode's stream

type road struct {
	t    *testing.T
	rng  *rand.Rand
	ring *keys.Ring
	now  kvtransfer.Tick

	pre        *prefill.Loop
	dec        *decode.Loop
	preEngine  *modeltest.Engine
	decEngine  *modeltest.Engine
	preSigner  seal.Signer
	decSigner  seal.Signer
	routSigner seal.Signer

	jobs    [][]byte // signed
	pulls   int
	toDec   [][]byte          // control messages, in order
	toPre   [][]byte          // control messages, in order
	kv      []kvMessage       // frames and manifests, in any order
	seen    map[string][]byte // by message id
	pending []func()          // device and seal work, in any order

	handle   uint64
	tokens   map[kvtransfer.Key][]int32
	replies  map[kvtransfer.Key][]kvtransfer.ReplyBody
	verdicts map[kvtransfer.Key]int
	tamper   func(kvMessage) kvMessage
}

type kvMessage struct {
	id       string
	manifest bool
	data     []byte
}

func newRoad(t *testing.T, ring *keys.Ring, seed uint64) *road {
	r := &road{t: t, rng: rand.New(rand.NewPCG(seed, 1)), ring: ring, seen: map[string][]byte{},
		tokens: map[kvtransfer.Key][]int32{}, replies: map[kvtransfer.Key][]kvtransfer.ReplyBody{}, verdicts: map[kvtransfer.Key]int{}}
	for role, s := range map[kvtransfer.Role]*seal.Signer{kvtransfer.RolePrefill: &r.preSigner, kvtransfer.RoleDecode: &r.decSigner,
		kvtransfer.RoleRouter: &r.routSigner} {
		signer, err := ring.Signer(role)
		if err != nil {
			t.Fatal(err)
		}
		*s = signer
	}
	r.preEngine = modeltest.NewEngine(modeltest.Options{Pages: 20, PageSize: 3, Pool: 11})
	r.decEngine = modeltest.NewEngine(modeltest.Options{Pages: 30, PageSize: 4, Pool: 22})
	entropy := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.rng.Uint32())
		}
		return b
	}
	r.pre = prefill.New(prefill.LoopConfig{Peer: roadPrefill, Info: r.preEngine.Info(), Pool: 11, Slots: 3, Chunk: 5,
		MaxPayload: kvtransfer.CutOverhead + 100, PromptKey: ring.PromptKey(), Entropy: entropy})
	r.dec = decode.New(decode.LoopConfig{Self: roadDecode, Model: "fake", ModelSlug: "fake", Info: r.decEngine.Info(), Pool: 22,
		Entropy: entropy, PromptDigest: func(tenant string, tokens []int32) [32]byte {
			return seal.PromptDigest(ring.PromptKey(), tenant, tokens)
		}})
	r.tick(0)
	return r
}

func (r *road) encode(m any) []byte {
	b, err := wire.Encode(m)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

func (r *road) tick(by kvtransfer.Tick) {
	r.now += by
	r.toDecode(decode.Tick{Now: r.now})
	r.toPrefill(prefill.DecodeHeartbeat{From: roadDecode})
	r.toDecode(decode.RouterAlive{Peer: roadRouter})
	r.toPrefill(prefill.Tick{Now: r.now})
}

// ask reserves as the router and, if decode promises, sends the job.
func (r *road) ask(n byte, tokens []int32, maxTokens int) kvtransfer.Key {
	k := kvtransfer.Key{ID: kvtransfer.HandoffID{n}, Attempt: 1}
	r.tokens[k] = tokens
	r.handle++
	r.toDecode(decode.ReserveAsked{ID: r.handle, From: roadRouter, M: kvtransfer.Reserve{Key: k, Tenant: "acme", Tokens: tokens,
		Prompt: len(tokens), MaxTokens: maxTokens, Digest: seal.PromptDigest(r.ring.PromptKey(), "acme", tokens), Router: roadRouter,
		RouterKey: seal.PublicKey([32]byte{9}), DeadlineLeft: 600 * kvtransfer.Second, Fingerprints: r.decEngine.Info().Fingerprints,
		Sampling: kvtransfer.Sampling{Logprobs: -1}}})
	return k
}

// toPrefill hands prefill's loop an event and performs its effects.
func (r *road) toPrefill(ev prefill.Event) {
	for _, fx := range r.pre.Handle(ev) {
		switch fx := fx.(type) {
		case prefill.PullJob:
			if !fx.Direct { // jobs for this worker alone do not come here
				r.pulls++
			}
		case prefill.SendClaim:
			r.toDec = append(r.toDec, seal.Sign(r.preSigner, roadPrefill, kvtransfer.KindClaim, r.encode(&fx.Msg)))
		case prefill.SendProgress:
			r.toDec = append(r.toDec, seal.Sign(r.preSigner, roadPrefill, kvtransfer.KindProgress, r.encode(&fx.Msg)))
		case prefill.SendAbort:
			r.toDec = append(r.toDec, seal.Sign(r.preSigner, roadPrefill, kvtransfer.KindAbort, r.encode(&fx.Msg)))
		case prefill.Compute:
			r.pending = append(r.pending, func() { r.compute(fx) })
		case prefill.SealAndSend:
			r.pending = append(r.pending, func() { r.sendFrame(fx) })
		case prefill.SendManifest:
			r.pending = append(r.pending, func() {
				data := seal.Sign(r.preSigner, roadPrefill, kvtransfer.KindManifest, r.encode(&fx.Msg))
				if r.store(kvMessage{id: fx.MsgID, manifest: true, data: data}) {
					r.toPrefill(prefill.ManifestStored{Key: fx.Msg.Key, Claim: fx.Msg.Claim})
				} else {
					r.toPrefill(prefill.ManifestFull{Key: fx.Msg.Key, Claim: fx.Msg.Claim})
				}
			})
		case prefill.Zero:
			r.pending = append(r.pending, func() { r.toPrefill(prefill.Zeroed{Pages: fx.Pages, Err: r.preEngine.Zero(fx.Pages)}) })
		case prefill.Halt:
			r.t.Fatalf("prefill halts: %v", fx.Error)
		}
	}
	if err := r.pre.Verify(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *road) compute(fx prefill.Compute) {
	results, err := r.preEngine.Step(fx.Work)
	hidden := make([][]float32, len(results))
	for i, res := range results {
		hidden[i] = res.Hidden
	}
	r.toPrefill(prefill.ChunkDone{Step: fx.Step, Hidden: hidden, Err: err})
}

func (r *road) sendFrame(fx prefill.SealAndSend) {
	h := fx.Header
	plain, err := r.preEngine.Read(fx.View, model.Range{LayerFrom: h.LayerFrom, LayerTo: h.LayerTo, RowFrom: h.RowFrom, RowTo: h.RowTo}, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	data, tag := prefill.SealFrame(fx, plain)
	r.toPrefill(prefill.FrameSealed{Frame: fx.Frame})
	if r.store(kvMessage{id: fx.MsgID, data: data}) {
		r.toPrefill(prefill.FrameStored{Frame: fx.Frame, Tag: tag})
	} else {
		r.toPrefill(prefill.FrameFull{Frame: fx.Frame})
	}
}

// store is decode's stream: bounded, and a message id is stored once.
func (r *road) store(m kvMessage) bool {
	if old, ok := r.seen[m.id]; ok {
		if !slices.Equal(old, m.data) {
			r.t.Fatalf("message id %s has two contents", m.id)
		}
		return true
	}
	if len(r.kv) >= roadWindow {
		return false
	}
	r.seen[m.id] = m.data
	if r.tamper != nil {
		m = r.tamper(m)
	}
	r.kv = append(r.kv, m)
	if r.rng.IntN(8) == 0 {
		r.kv = append(r.kv, m) // delivered twice
	}
	return true
}

// toDecode hands decode's loop an event and performs its effects.
func (r *road) toDecode(ev decode.Event) {
	for _, fx := range r.dec.Handle(ev) {
		switch fx := fx.(type) {
		case decode.Reserved:
			signed := seal.Sign(r.decSigner, roadDecode, kvtransfer.KindReservation, fx.Body)
			job := r.encode(&kvtransfer.Job{Reservation: signed, Tokens: r.tokens[fx.M.Key]})
			r.jobs = append(r.jobs, seal.Sign(r.routSigner, roadRouter, kvtransfer.KindJob, job))
		case decode.Refused:
			r.t.Fatalf("refused: %v", fx.M.Error)
		case decode.Control:
			r.toPre = append(r.toPre, seal.Sign(r.decSigner, roadDecode, fx.Kind, r.encode(fx.M)))
		case decode.Journal:
			if fx.Fact.Kind == decode.FactVerdict {
				r.verdicts[fx.Fact.Key]++
			}
			if fx.Must {
				r.pending = append(r.pending, func() { r.toDecode(decode.Journaled{Key: fx.Fact.Key, Reservation: fx.Fact.Reservation}) })
			}
		case decode.SendReply:
			r.replies[fx.Header.Key] = append(r.replies[fx.Header.Key], fx.Body)
		case decode.OpenFrame, decode.CopyFrame, decode.Witness, decode.Step, decode.Zero:
			r.pending = append(r.pending, func() { r.decodeDevice(fx) })
		case decode.Stop:
			r.t.Fatalf("decode stops: %v", fx.Err)
		}
	}
	if err := r.dec.Verify(); err != nil {
		r.t.Fatal(err)
	}
}

func failed(err error) kvtransfer.Error {
	if err == nil {
		return kvtransfer.Error{}
	}
	return kvtransfer.Errorf(kvtransfer.DeviceFailed, "%v", err)
}

func (r *road) decodeDevice(fx decode.Effect) {
	switch fx := fx.(type) {
	case decode.OpenFrame:
		ev := decode.FrameOpened{Delivery: fx.Delivery, Header: fx.Header, Tag: fx.Tag, Hash: fx.Hash}
		if plain, err := seal.OpenFrame(fx.FrameKey, fx.Hash, fx.Header, fx.Sealed, nil); err == nil {
			ev.Opening = kvtransfer.Opening{OK: true, Bytes: len(plain)}
			ev.Plain = plain[:len(plain)-4*fx.Header.Hidden]
			for b := plain[len(ev.Plain):]; len(b) > 0; b = b[4:] {
				ev.Opening.Hidden = append(ev.Opening.Hidden, math.Float32frombits(binary.LittleEndian.Uint32(b)))
			}
		}
		r.toDecode(ev)
	case decode.CopyFrame:
		h := fx.Header
		err := r.decEngine.Write(fx.Grant, model.Range{LayerFrom: h.LayerFrom, LayerTo: h.LayerTo, RowFrom: h.RowFrom, RowTo: h.RowTo}, fx.Plain)
		r.toDecode(decode.FrameCopied{Delivery: fx.Delivery, Header: h, Grant: fx.Grant, Err: failed(err)})
	case decode.Witness:
		row, err := r.decEngine.WitnessRows(fx.View, fx.Tokens, fx.From)
		r.toDecode(decode.WitnessDone{Key: fx.Key, Row: row, Err: failed(err)})
	case decode.Step:
		r.decodeStep(fx)
	case decode.Zero:
		r.toDecode(decode.Zeroed{Pages: fx.Pages, Err: failed(r.decEngine.Zero(fx.Pages))})
	}
}

func (r *road) decodeStep(fx decode.Step) {
	work := make([]model.Work, len(fx.Work))
	for i, s := range fx.Work {
		work[i] = model.Work{View: s.View, Grant: s.Grant, Tokens: s.Tokens, From: s.From, Pick: &model.Picker{}, Witness: s.Witness, Want: s.Want}
	}
	results, err := r.decEngine.Step(work)
	done := decode.StepDone{Err: failed(err)}
	for i, res := range results {
		done.Results = append(done.Results, decode.SeqResult{Key: fx.Work[i].Key, Token: res.Token, Finish: res.Finish, Mismatch: res.Mismatch})
	}
	r.toDecode(done)
}

// move lets one thing happen that can happen now; false when there is none.
func (r *road) move() bool {
	var can []func()
	if r.pulls > 0 && len(r.jobs) > 0 {
		can = append(can, r.deliverJob)
	}
	if len(r.toDec) > 0 {
		can = append(can, r.deliverToDecode)
	}
	if len(r.toPre) > 0 {
		can = append(can, func() {
			data := r.toPre[0]
			r.toPre = r.toPre[1:]
			ev, err := prefill.OpenControl(r.ring, data)
			if err != nil {
				r.t.Fatal(err)
			}
			r.toPrefill(ev)
		})
	}
	if len(r.kv) > 0 {
		can = append(can, func() { r.deliverKV(take(&r.kv, r.rng.IntN(len(r.kv)))) })
	}
	if len(r.pending) > 0 {
		can = append(can, func() { take(&r.pending, r.rng.IntN(len(r.pending)))() })
	}
	if len(can) == 0 {
		return false
	}
	can[r.rng.IntN(len(can))]()
	return true
}

func take[T any](s *[]T, i int) T {
	v := (*s)[i]
	*s = append((*s)[:i:i], (*s)[i+1:]...)
	return v
}

func (r *road) deliverJob() {
	job, err := prefill.OpenJob(r.ring, take(&r.jobs, 0))
	if err != nil {
		r.t.Fatal(err)
	}
	r.pulls--
	r.handle++
	job.Delivery = r.handle
	r.toPrefill(job)
}

func (r *road) deliverToDecode() {
	e, err := seal.OpenEnvelope(r.ring, take(&r.toDec, 0))
	if err != nil {
		r.t.Fatal(err)
	}
	r.handle++
	switch e.Kind {
	case kvtransfer.KindClaim:
		r.toDecode(decode.ClaimCame{Delivery: r.handle, From: e.From, M: opened[kvtransfer.Claim](r.t, e)})
	case kvtransfer.KindProgress:
		r.toDecode(decode.ProgressCame{Delivery: r.handle, From: e.From, M: opened[kvtransfer.Progress](r.t, e)})
	case kvtransfer.KindAbort:
		r.toDecode(decode.AbortCame{Delivery: r.handle, From: e.From, M: opened[kvtransfer.Abort](r.t, e)})
	}
}

func opened[T any](t *testing.T, e wire.Envelope) T {
	m, err := wire.Decode[T](e.Body)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (r *road) deliverKV(m kvMessage) {
	r.handle++
	if m.manifest {
		e, err := seal.OpenEnvelope(r.ring, m.data)
		if err != nil {
			r.t.Fatal(err)
		}
		r.toDecode(decode.ManifestCame{Delivery: r.handle, From: e.From, M: opened[kvtransfer.Manifest](r.t, e)})
		return
	}
	f, err := wire.DecodeFrame(m.data)
	if err != nil {
		r.t.Fatal(err)
	}
	r.toDecode(decode.FrameCame{Delivery: r.handle, Header: f.Header, Tag: seal.Tag(f.Sealed), Sealed: f.Sealed})
}

// run goes on until every request has its end.
func (r *road) run() {
	for n := 0; ; n++ {
		if !r.move() || r.rng.IntN(20) == 0 {
			r.tick(10 * kvtransfer.Millisecond)
		}
		done := 0
		for k := range r.tokens {
			if _, end := r.answer(k); end != nil {
				done++
			}
		}
		if done == len(r.tokens) {
			return
		}
		if n > 100_000 {
			r.t.Fatalf("no end:\n%s\n%s", r.pre.Dump(), r.dec.Dump())
		}
	}
}

// answer is the output tokens that have left for a request, and its end.
func (r *road) answer(k kvtransfer.Key) (ids []int32, end *kvtransfer.End) {
	for _, b := range r.replies[k] {
		for _, t := range b.Tokens {
			ids = append(ids, t.ID)
		}
		switch {
		case b.End != nil:
			end = b.End
		case b.Outcome != nil && !b.Outcome.OK:
			end = &kvtransfer.End{Error: b.Outcome.Error}
		}
	}
	return ids, end
}

// clean acknowledges all ends and checks that both pools are free and zero.
func (r *road) clean() {
	for k := range r.tokens {
		r.handle++
		r.toDecode(decode.ResendAsked{ID: r.handle, From: roadRouter, M: kvtransfer.Resend{Key: k, Ack: true}})
	}
	for n := 0; n < 2000 && !(r.dec.Idle() && r.pre.Figures().Pages.Free == r.preEngine.Info().Pages); n++ {
		if !r.move() {
			r.tick(10 * kvtransfer.Millisecond)
		}
	}
	if c := r.pre.Figures().Pages; c.Free != c.Total || r.preEngine.NonZero(allPages(c.Total)) != -1 {
		r.t.Errorf("prefill's pages: %+v\n%s", c, r.pre.Dump())
	}
	if !r.dec.Idle() || r.decEngine.NonZero(allPages(r.decEngine.Info().Pages)) != -1 {
		r.t.Errorf("decode is not idle or its pages not zero:\n%s", r.dec.Dump())
	}
}

func allPages(n int) []page.ID {
	ids := make([]page.ID, n)
	for i := range ids {
		ids[i] = page.ID(i)
	}
	return ids
}
