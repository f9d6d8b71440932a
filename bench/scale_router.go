package bench

import (
	"encoding/binary"
	"fmt"
	"time"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/router"
)

const (
	scaleAnswer = 16   // tokens of a whole request at the router, one in each reply
	scaleTenant = "t0" // whose requests are measured
)

// scaleFront drives a router's loop, and is everybody else for it: one prefill and one decode that answer at once.
type scaleFront struct {
	l      *router.Loop
	now    kvtransfer.Tick
	ref    uint64
	last   kvtransfer.Key
	seen   []router.Effect // of the last event
	decode kvtransfer.Heartbeat
	beats  []router.Event
}

func newScaleFront(requests int) *scaleFront {
	n := uint64(0)
	f := &scaleFront{}
	f.l = router.New(router.LoopConfig{
		Router: scaleRouter, Policy: router.Policy{Context: 4096, MaxQueue: requests + scaleBatch, MaxQueueTenant: requests + scaleBatch},
		Entropy: func(size int) []byte {
			n++
			return binary.LittleEndian.AppendUint64(make([]byte, 0, max(size, 8)), n)[:size:max(size, 8)]
		},
		Digest: func(string, []int32) [32]byte { return [32]byte{3} },
	})
	f.handle(router.BusChanged{Up: true, MaxPayload: 8 << 20})
	for _, p := range []kvtransfer.Peer{scalePrefill, scaleSelf} {
		hb := kvtransfer.Heartbeat{Peer: p, Model: "scale", ModelSlug: "scale", PageSize: scalePage, Slots: 1 << 20, SlotsFree: 1 << 20,
			Pages: page.Counts{Total: 1 << 30, Free: 1 << 30}}
		hb.Pool = hb.Fingerprints.Pool()
		f.decode, f.beats = hb, append(f.beats, router.Heard{Heartbeat: hb})
		f.handle(router.Heard{Heartbeat: hb})
	}
	return f
}

func (f *scaleFront) handle(ev router.Event) { f.seen = f.l.Handle(ev) }

// effect gives the one effect of a type that the last event had.
func effect[T router.Effect](f *scaleFront) (e T, err error) {
	for _, x := range f.seen {
		if e, ok := x.(T); ok {
			return e, nil
		}
	}
	return e, fmt.Errorf("router: no %T among %d effects: %v", e, len(f.seen), f.seen)
}

// begin submits a request and brings it to its first token.
func (f *scaleFront) begin(tenant string) error {
	f.ref++
	f.handle(router.Submitted{Ref: f.ref, Tenant: tenant, Tokens: make([]int32, scalePrompt), MaxTokens: scaleAnswer})
	r, err := effect[router.SendReserve](f)
	if err != nil {
		return err
	}
	f.last = r.Key
	pages := kvtransfer.PagesFor(scalePrompt+scaleAnswer, scalePage)
	f.handle(router.Reserved{Key: r.Key, Envelope: []byte{1}, Reservation: &kvtransfer.Reservation{
		Key: r.Key, Decode: f.decode.Peer, Router: scaleRouter, Tenant: tenant, N: scalePrompt, MaxTokens: scaleAnswer, Digest: r.Reserve.Digest,
		Pages: make([]page.Slot, pages), PageSize: scalePage, Fingerprints: f.decode.Fingerprints,
	}})
	if _, err := effect[router.StoreJob](f); err != nil {
		return err
	}
	f.handle(router.JobStored{Key: r.Key, Sequence: f.ref})
	f.handle(router.Replied{Key: r.Key, Body: kvtransfer.ReplyBody{Outcome: &kvtransfer.Outcome{OK: true, Prefill: scalePrefill}}})
	_, err = effect[router.Begin](f)
	return err
}

// end brings the last request's tokens and its end, and the decode forgets it.
func (f *scaleFront) end() error {
	for n := range uint32(scaleAnswer) {
		f.handle(router.Replied{Key: f.last, Number: n + 1, Body: kvtransfer.ReplyBody{Tokens: []kvtransfer.Token{{ID: 7}}}})
	}
	f.handle(router.Replied{Key: f.last, Number: scaleAnswer + 1, Body: kvtransfer.ReplyBody{
		End: &kvtransfer.End{Finish: kvtransfer.FinishLength, Output: scaleAnswer, Replies: scaleAnswer + 2}}})
	e, err := effect[router.Finish](f)
	if err == nil && !e.End.Error.IsZero() {
		err = e.End.Error
	}
	if err == nil {
		f.handle(router.Resent{Key: f.last, Known: true, Next: scaleAnswer + 2})
	}
	return err
}

// ScaleRouter is one cell: what a router's loop spends with so many requests that are being answered.
type ScaleRouter struct {
	Requests int     `json:"requests"`
	Request  Spread  `json:"request_seconds"` // of a whole request: admission, placing, job, tokens, end
	Tick     Spread  `json:"tick_seconds"`    // of a tick in which nothing is due
	Rate     float64 `json:"requests_per_second"`
}

// scaleRouterCell measures one cell.
func scaleRouterCell(requests, samples int) (ScaleRouter, error) {
	c := ScaleRouter{Requests: requests}
	f := newScaleFront(requests)
	for n := range requests {
		if err := f.begin(fmt.Sprintf("t%d", 1+n%100)); err != nil {
			return c, err
		}
	}
	var request, tick []float64
	for range samples {
		began := time.Now()
		if err := f.begin(scaleTenant); err != nil {
			return c, err
		}
		if err := f.end(); err != nil {
			return c, err
		}
		request = append(request, time.Since(began).Seconds())
		f.now += 100 // well below what anything waits for
		began = time.Now()
		f.handle(router.Tick{Now: f.now})
		tick = append(tick, time.Since(began).Seconds())
	}
	c.Request, c.Tick = SpreadOf(request), SpreadOf(tick)
	c.Rate = 1 / c.Request.Median
	return c, f.l.Verify()
}
