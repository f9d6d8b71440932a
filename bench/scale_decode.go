package bench

import (
	"encoding/binary"
	"fmt"
	"time"

	"quire/decode"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/model"
)

// Shapes of the requests in a scale run: a prompt of two pages and room for one more; those that step have room for every step.
const (
	scalePage   = 16
	scalePrompt = 32
	scaleOutput = 16
	scaleBatch  = 16  // sequences that step
	scaleSteps  = 200 // steps that are measured
)

// scaleInfo is a model of one narrow layer, which nobody computes.
func scaleInfo(pages int) model.Info {
	return model.Info{Layers: 1, KVHeads: 1, HeadDim: 4, Dim: 4, Vocab: 256, Context: 4096, BytesPerRow: 16, PageSize: scalePage, Pages: pages}
}

// scaleDecode drives decode's loop, and is the device, the bus, the journal, prefill and the router for it. The device is
// done at once, and a step ends when the run says so.
type scaleDecode struct {
	l        *decode.Loop
	info     model.Info
	now      kvtransfer.Tick
	asked    uint64
	events   []decode.Event
	promised kvtransfer.Reservation // the last
	hash     [32]byte               // and its hash
	refused  kvtransfer.Error
	step     *decode.Step  // that is out
	spent    time.Duration // in Handle, since it was last set to 0
	stopped  kvtransfer.Error
	tokens   []int32
	frame    []byte
	priv     [32]byte
	routerP  [32]byte
}

var (
	scaleSelf    = kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 1}
	scaleRouter  = kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: "r1", Epoch: 1}
	scalePrefill = kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: "p1", Epoch: 1}
)

func newScaleDecode(requests, pages int) *scaleDecode {
	d := &scaleDecode{info: scaleInfo(pages), tokens: make([]int32, scalePrompt), priv: [32]byte{1}, routerP: seal.PublicKey([32]byte{2})}
	d.frame = make([]byte, scalePrompt*d.info.BytesPerRow+4*d.info.Dim)
	n := uint64(0)
	d.l = decode.New(decode.LoopConfig{
		Self: scaleSelf, Model: "scale", ModelSlug: "scale", Info: d.info, Pool: 1, MaxOpen: requests + scaleBatch + 1, MaxBatch: scaleBatch,
		Entropy: func(size int) []byte {
			n++
			return binary.LittleEndian.AppendUint64(make([]byte, 0, size), n)[:size:size]
		},
		PromptDigest: func(string, []int32) [32]byte { return [32]byte{3} },
	})
	return d
}

func scaleKey(n uint64) kvtransfer.Key {
	k := kvtransfer.Key{Attempt: 1}
	binary.LittleEndian.PutUint64(k.ID[:], n)
	return k
}

// send handles an event and what its effects complete.
func (d *scaleDecode) send(ev decode.Event) error {
	d.events = append(d.events, ev)
	for len(d.events) > 0 && d.stopped.IsZero() {
		ev := d.events[0]
		d.events = d.events[1:]
		began := time.Now()
		out := d.l.Handle(ev)
		d.spent += time.Since(began)
		for _, e := range out {
			d.perform(e)
		}
	}
	if !d.stopped.IsZero() {
		return d.stopped
	}
	return nil
}

func (d *scaleDecode) perform(e decode.Effect) {
	switch e := e.(type) {
	case decode.Reserved:
		d.promised, d.hash = e.M, seal.HashReservation(e.Body)
	case decode.Refused:
		d.refused = e.M.Error
	case decode.OpenFrame:
		d.events = append(d.events, decode.OpenSealed(e))
	case decode.CopyFrame:
		d.events = append(d.events, decode.FrameCopied{Delivery: e.Delivery, Header: e.Header, Grant: e.Grant})
	case decode.Journal:
		if e.Must {
			d.events = append(d.events, decode.Journaled{Key: e.Fact.Key, Reservation: e.Fact.Reservation})
		}
	case decode.Witness:
		d.events = append(d.events, decode.WitnessDone{Key: e.Key, Row: -1})
	case decode.Step:
		d.step = &e
	case decode.Zero:
		d.events = append(d.events, decode.Zeroed{Pages: e.Pages})
	case decode.Stop:
		d.stopped = e.Err
	}
}

// reserve admits request n.
func (d *scaleDecode) reserve(n uint64, maxTokens int) error {
	d.asked++
	d.refused = kvtransfer.Error{}
	err := d.send(decode.ReserveAsked{ID: d.asked, From: scaleRouter, M: kvtransfer.Reserve{
		Key: scaleKey(n), Tenant: "scale", Tokens: d.tokens, Prompt: len(d.tokens), MaxTokens: maxTokens, Digest: [32]byte{3}, Router: scaleRouter,
		RouterKey: d.routerP, DeadlineLeft: 3600 * kvtransfer.Second, Fingerprints: d.info.Fingerprints,
	}})
	if err == nil && !d.refused.IsZero() {
		err = d.refused
	}
	return err
}

// fill claims the last reservation and sends all its rows in one frame.
func (d *scaleDecode) fill() (kvtransfer.Manifest, error) {
	res := d.promised
	claim := kvtransfer.Claim{Key: res.Key, Claim: kvtransfer.ClaimID{1}, ClaimKey: seal.PublicKey(d.priv), Reservation: d.hash}
	key, err := seal.FrameKey(d.priv, res.DecodeKey, d.hash, claim.Claim)
	if err != nil {
		return kvtransfer.Manifest{}, err
	}
	h := kvtransfer.FrameHeader{Key: res.Key, Claim: claim.Claim, LayerTo: 1, RowTo: res.N, Hidden: d.info.Dim}
	sealed := seal.SealFrame(key, d.hash, h, d.frame)
	tag := seal.Tag(sealed)
	if err := d.send(decode.ClaimCame{From: scalePrefill, M: claim}); err != nil {
		return kvtransfer.Manifest{}, err
	}
	m := kvtransfer.Manifest{Key: res.Key, Claim: claim.Claim, Reservation: d.hash, Tenant: res.Tenant, N: res.N, Sent: res.N,
		Pages: kvtransfer.PagesFor(res.N, scalePage), Frames: 1, Digest: seal.Digest([][16]byte{tag})}
	return m, d.send(decode.FrameCame{Header: h, Tag: tag, Sealed: sealed})
}

// judge sends the manifest: the gate, the verdict's journaling and the witness follow.
func (d *scaleDecode) judge(m kvtransfer.Manifest) error {
	return d.send(decode.ManifestCame{From: scalePrefill, M: m})
}

// finishStep ends the step that is out with one token for each sequence.
func (d *scaleDecode) finishStep() error {
	done := decode.StepDone{Results: make([]decode.SeqResult, len(d.step.Work))}
	for i, w := range d.step.Work {
		done.Results[i] = decode.SeqResult{Key: w.Key, Token: kvtransfer.Token{ID: 7}}
	}
	d.step = nil
	return d.send(done)
}

// drop ends a request as its router does.
func (d *scaleDecode) drop(n uint64) error {
	k := scaleKey(n)
	if err := d.send(decode.CancelCame{From: scaleRouter, M: kvtransfer.Cancel{Key: k, Error: kvtransfer.Errorf(kvtransfer.Cancelled, "bench")}}); err != nil {
		return err
	}
	d.asked++
	return d.send(decode.ResendAsked{ID: d.asked, From: scaleRouter, M: kvtransfer.Resend{Key: k, Ack: true}})
}

// timed runs fn and gives the seconds that the loop spent in it.
func (d *scaleDecode) timed(fn func() error) (float64, error) {
	d.spent = 0
	err := fn()
	return d.spent.Seconds(), err
}

// ScaleDecode is one cell: what decode's loop spends with so many requests that wait, a batch that steps, and a pool.
type ScaleDecode struct {
	Requests int    `json:"requests"`
	Pages    int    `json:"pages"`
	Admit    Spread `json:"admit_seconds"` // of one Reserve, key agreement included
	Gate     Spread `json:"gate_seconds"`  // manifest to witness
	Step     Spread `json:"step_seconds"`  // of a step's results and the next step, the device's time not included
	Tick     Spread `json:"tick_seconds"`  // of a tick in which nothing is due
}

// fillUp brings waiting requests and a batch that steps.
func (d *scaleDecode) fillUp(requests int) error {
	for n := range uint64(requests) {
		if err := d.reserve(n+1, scaleOutput); err != nil {
			return fmt.Errorf("request %d of %d: %w", n+1, requests, err)
		}
	}
	for n := range uint64(scaleBatch) {
		if err := d.reserve(1<<40+n, scaleSteps+scaleOutput); err != nil {
			return fmt.Errorf("sequence %d of the batch: %w", n+1, err)
		}
		m, err := d.fill()
		if err != nil {
			return err
		}
		if err := d.judge(m); err != nil {
			return err
		}
	}
	for range 3 { // until every sequence is past its witness
		if err := d.finishStep(); err != nil {
			return err
		}
	}
	if len(d.step.Work) != scaleBatch {
		return fmt.Errorf("%d sequences step of %d", len(d.step.Work), scaleBatch)
	}
	return nil
}

// scaleDecodeCell measures one cell.
func scaleDecodeCell(requests, pages, samples int) (ScaleDecode, error) {
	c := ScaleDecode{Requests: requests, Pages: pages}
	d := newScaleDecode(requests, pages)
	if err := d.fillUp(requests); err != nil {
		return c, err
	}
	var admit, gate, step, tick []float64
	keep := func(list *[]float64, fn func() error) error {
		s, err := d.timed(fn)
		*list = append(*list, s)
		return err
	}
	for i := range samples {
		n := uint64(1)<<50 + uint64(i)
		if err := keep(&admit, func() error { return d.reserve(n, scaleOutput) }); err != nil {
			return c, err
		}
		m, err := d.fill()
		if err != nil {
			return c, err
		}
		if err := keep(&gate, func() error { return d.judge(m) }); err != nil {
			return c, err
		}
		if err := d.drop(n); err != nil {
			return c, err
		}
		d.now += kvtransfer.Millisecond
		if err := keep(&tick, func() error { return d.send(decode.Tick{Now: d.now}) }); err != nil {
			return c, err
		}
	}
	for range min(samples, scaleSteps) {
		if err := keep(&step, d.finishStep); err != nil {
			return c, err
		}
	}
	c.Admit, c.Gate, c.Step, c.Tick = SpreadOf(admit), SpreadOf(gate), SpreadOf(step), SpreadOf(tick)
	return c, d.l.Verify()
}
