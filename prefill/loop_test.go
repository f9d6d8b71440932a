package prefill

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
	"quire/model"
	"quire/model/modeltest"
)

// world is everything around one loop: an engine with real pages, a stream that keeps what is stored, and effects that end in
// any order.
type world struct {
	t        *rapid.T
	engine   *modeltest.Engine
	loop     *Loop
	now      kvtransfer.Tick
	pending  []Effect // answered in an order that rapid draws
	jobs     map[kvtransfer.Key]Job
	asked    asked
	claims   map[kvtransfer.Key]kvtransfer.Claim
	stored   map[string][]byte // by message id
	ended    map[kvtransfer.Key]Ended
	drained  bool
	failures bool // steps, reads and zeroing may fail
	unlucky  int  // zeroings that failed in a row
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, jobs: map[kvtransfer.Key]Job{}, claims: map[kvtransfer.Key]kvtransfer.Claim{},
		stored: map[string][]byte{}, ended: map[kvtransfer.Key]Ended{}}
	w.engine = modeltest.NewEngine(modeltest.Options{Pages: 12, PageSize: rapid.IntRange(1, 7).Draw(t, "page size"), Fail: w.fail})
	cfg := testConfig()
	cfg.Info = w.engine.Info()
	cfg.Slots, cfg.Chunk = rapid.IntRange(1, 4).Draw(t, "slots"), rapid.IntRange(1, 9).Draw(t, "chunk")
	w.loop = New(cfg)
	return w
}

func (w *world) fail(op string) error {
	if op == "zero" && w.unlucky == zeroTries-1 {
		w.unlucky = 0 // once more would stop the process
		return nil
	}
	if w.failures && rapid.IntRange(0, 9).Draw(w.t, op+" fails") == 0 {
		if op == "zero" {
			w.unlucky++
		}
		return errors.New("modeltest: out of luck")
	}
	if op == "zero" {
		w.unlucky = 0
	}
	return nil
}

func (w *world) send(ev Event) {
	for _, fx := range w.loop.Handle(ev) {
		switch fx := fx.(type) {
		case PullJob:
			open := &w.asked.shared
			if fx.Direct {
				open = &w.asked.direct
			}
			if *open {
				w.t.Fatalf("a second job is asked for while one is open: direct %t", fx.Direct)
			}
			*open = true
		case SendClaim:
			if old, ok := w.claims[fx.Msg.Key]; ok && old != fx.Msg {
				w.t.Fatalf("%s is claimed twice: %+v, %+v", fx.Msg.Key, old, fx.Msg)
			}
			w.claims[fx.Msg.Key] = fx.Msg
		case Ended:
			if _, twice := w.ended[fx.Key]; twice {
				w.t.Fatalf("%s ended twice", fx.Key)
			}
			w.ended[fx.Key] = fx
		case Drained:
			w.drained = true
		case Halt:
			w.t.Fatalf("halt: %v", fx.Error)
		case Compute, SealAndSend, SendManifest, Zero:
			w.pending = append(w.pending, fx)
		}
	}
	if err := w.loop.Verify(); err != nil {
		w.t.Fatal(err)
	}
}

// answer performs one pending effect.
func (w *world) answer() {
	if len(w.pending) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.pending)-1).Draw(w.t, "effect")
	fx := w.pending[i]
	w.pending = append(w.pending[:i:i], w.pending[i+1:]...)
	switch fx := fx.(type) {
	case Compute:
		results, err := w.engine.Step(fx.Work)
		hidden := make([][]float32, len(results))
		for i, r := range results {
			hidden[i] = r.Hidden
		}
		w.send(ChunkDone{Step: fx.Step, Hidden: hidden, Err: err})
	case SealAndSend:
		w.sealAndSend(fx)
	case SendManifest:
		if rapid.IntRange(0, 5).Draw(w.t, "full") == 0 {
			w.send(ManifestFull{Key: fx.Msg.Key, Claim: fx.Msg.Claim})
			return
		}
		body, err := wire.Encode(&fx.Msg)
		if err != nil {
			w.t.Fatal(err)
		}
		w.store(fx.MsgID, body)
		w.send(ManifestStored{Key: fx.Msg.Key, Claim: fx.Msg.Claim})
	case Zero:
		w.send(Zeroed{Pages: fx.Pages, Err: w.engine.Zero(fx.Pages)})
	}
}

func (w *world) sealAndSend(fx SealAndSend) {
	h := fx.Header
	plain, err := w.engine.Read(fx.View, model.Range{LayerFrom: h.LayerFrom, LayerTo: h.LayerTo, RowFrom: h.RowFrom, RowTo: h.RowTo}, nil)
	if err != nil {
		w.send(FrameFailed{Frame: fx.Frame, Error: kvtransfer.Errorf(kvtransfer.DeviceFailed, "%v", err)})
		return
	}
	data, tag := SealFrame(fx, plain)
	w.send(FrameSealed{Frame: fx.Frame})
	// A store that timed out may have stored.
	lost := rapid.IntRange(0, 5).Draw(w.t, "outcome")
	if lost != 0 {
		w.store(fx.MsgID, data)
	}
	if lost > 1 {
		w.send(FrameStored{Frame: fx.Frame, Tag: tag})
	} else {
		w.send(FrameFull{Frame: fx.Frame})
	}
}

// store keeps a message under its id. The same id with other content is what a stream would drop in silence.
func (w *world) store(id string, data []byte) {
	if old, ok := w.stored[id]; ok && !bytes.Equal(old, data) {
		w.t.Fatalf("message id %s has two contents, of %d and %d bytes", id, len(old), len(data))
	}
	w.stored[id] = data
}

// job makes the reservation of decode d1 for a drawn prompt.
func (w *world) job(id byte) {
	if w.asked.n() == 0 {
		return
	}
	direct := w.asked.direct && (!w.asked.shared || rapid.Bool().Draw(w.t, "direct"))
	if direct {
		w.asked.direct = false
	} else {
		w.asked.shared = false
	}
	j := testJob(id, rapid.IntRange(1, 40).Draw(w.t, "tokens"), func(j *Job) { j.Reservation.Fingerprints = w.engine.Info().Fingerprints })
	j.Direct = direct
	w.jobs[j.Reservation.Key] = j
	w.send(j)
}

func (w *world) tick(ms int) {
	w.now += kvtransfer.Tick(ms) * kvtransfer.Millisecond
	w.send(DecodeHeartbeat{From: testDecode})
	w.send(Tick{Now: w.now})
}

// TestLoopAnyOrder lets jobs, answers, cancels, failures and full streams come in any order. Then everything heals and drains:
// each attempt has ended once, every page is free and zero, and each attempt that is done has sent exactly the rows, hidden
// vector and manifest of a straight computation of its prompt.
func TestLoopAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.failures = rapid.Bool().Draw(t, "failures")
		w.tick(0)
		id := byte(0)
		anyKey := func() (kvtransfer.Key, kvtransfer.ClaimID) {
			k := kvtransfer.Key{ID: kvtransfer.HandoffID{byte(rapid.IntRange(1, int(id)+1).Draw(t, "which"))}, Attempt: 1}
			return k, w.claims[k].Claim
		}
		for range rapid.IntRange(20, 150).Draw(t, "events") {
			switch rapid.IntRange(0, 11).Draw(t, "event") {
			case 0:
				if id++; id > 20 {
					id = 20
					break
				}
				w.job(id)
			case 1, 2:
				k, c := anyKey()
				w.send(Claimed{From: testDecode, Msg: kvtransfer.Claimed{Key: k, Claim: c, DeadlineLeft: 1000 * kvtransfer.Second}})
			case 3:
				w.tick(rapid.IntRange(0, 300).Draw(t, "ms"))
			case 4:
				if rapid.IntRange(0, 5).Draw(t, "end") == 0 {
					k, c := anyKey()
					w.send(Gone{From: testDecode, Msg: kvtransfer.Gone{Key: k, Claim: c}})
				}
			case 5:
				if rapid.IntRange(0, 5).Draw(t, "end") == 0 {
					k, _ := anyKey()
					w.send(Cancel{From: testDecode, Msg: kvtransfer.Cancel{Key: k}})
				}
			default:
				w.answer()
			}
		}
		w.failures = false
		w.heal()
		w.check()
	})
}

// heal answers everything until the loop has drained.
func (w *world) heal() {
	w.send(Drain{})
	for n := 0; !w.drained; n++ {
		for k, c := range w.claims {
			w.send(Claimed{From: testDecode, Msg: kvtransfer.Claimed{Key: k, Claim: c.Claim}})
		}
		for range len(w.pending) {
			w.answer()
		}
		w.tick(50)
		if n > 2000 {
			w.t.Fatalf("not drained:\n%s", w.loop.Dump())
		}
	}
}

func allPages(n int) []page.ID {
	ids := make([]page.ID, n)
	for i := range ids {
		ids[i] = page.ID(i)
	}
	return ids
}

// check compares what was sent with a straight computation.
func (w *world) check() {
	if c := w.loop.ledger.Counts(); c.Free != c.Total {
		w.t.Fatalf("pages: %+v", c)
	}
	if p := w.engine.NonZero(allPages(w.engine.Info().Pages)); p != -1 {
		w.t.Fatalf("page %d is free and not zero", p)
	}
	for k, j := range w.jobs {
		e, ok := w.ended[k]
		if !ok {
			w.t.Fatalf("%s has not ended", k)
		}
		if e.State == kvtransfer.OutboundDone {
			w.checkSent(k, j)
		}
	}
}

func (w *world) checkSent(k kvtransfer.Key, j Job) {
	claim := w.claims[k]
	m, err := wire.Decode[kvtransfer.Manifest](w.stored[fmt.Sprintf("%s/%s/m", k, claim.Claim)])
	if err != nil {
		w.t.Fatalf("%s is done, its manifest is not stored: %v", k, err)
	}
	key, err := seal.FrameKey([32]byte{k.ID[0], 0xdd}, claim.ClaimKey, j.Hash, claim.Claim)
	if err != nil {
		w.t.Fatal(err)
	}
	want := straight(w.t, w.engine.Info().Layers, j.Tokens)
	n := len(j.Tokens)
	tags := make([][16]byte, m.Frames)
	rows := 0
	for i := range m.Frames {
		f, err := wire.DecodeFrame(w.stored[fmt.Sprintf("%s/%s/%d", k, claim.Claim, i)])
		if err != nil {
			w.t.Fatalf("%s: frame %d of %d: %v", k, i, m.Frames, err)
		}
		plain, err := seal.OpenFrame(key, j.Hash, f.Header, f.Sealed, nil)
		if err != nil {
			w.t.Fatalf("%s: frame %d: %v", k, i, err)
		}
		if !bytes.Equal(plain, want.frame(f.Header)) {
			w.t.Fatalf("%s: frame %d of %d: other bytes than a straight computation of %d tokens gives", k, i, m.Frames, n)
		}
		rows += f.Header.RowTo - f.Header.RowFrom
		tags[i] = seal.Tag(f.Sealed)
	}
	if m.N != n || m.Sent != n || rows != n || m.Digest != seal.Digest(tags) || m.Reservation != j.Hash {
		w.t.Fatalf("%s: manifest %+v, tokens %d, rows sent %d", k, m, n, rows)
	}
}

// computed is a prompt computed in one step in a pool of its own.
type computed struct {
	engine *modeltest.Engine
	view   page.View
	hidden []float32
}

func straight(t rapid.TB, layers int, tokens []int32) computed {
	e := modeltest.NewEngine(modeltest.Options{Pages: 1, PageSize: 128, Pool: 9, Layers: layers})
	l := page.NewLedger(9, 1, 128)
	o := page.Owner{Attempt: 1}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := l.Reserve(o, len(tokens))
	must(err)
	view, err := l.Own(o)
	must(err)
	grant, err := l.Grant(o, 0, len(tokens))
	must(err)
	results, err := e.Step([]model.Work{{View: view, Grant: grant, Tokens: tokens, Hidden: true}})
	must(err)
	must(l.Settle(grant))
	view, err = l.Grow(o, len(tokens))
	must(err)
	return computed{engine: e, view: view, hidden: results[0].Hidden}
}

// frame is what a frame must hold.
func (c computed) frame(h kvtransfer.FrameHeader) []byte {
	b, err := c.engine.Read(c.view, model.Range{LayerFrom: h.LayerFrom, LayerTo: h.LayerTo, RowFrom: h.RowFrom, RowTo: h.RowTo}, nil)
	if err != nil {
		return nil
	}
	for _, f := range c.hidden[:h.Hidden] {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}
