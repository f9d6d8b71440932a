package prefill

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
	"quire/model"
)

// The worker of the scripts: pages of 4 rows, frames of 2 rows.
var (
	testPrints = kvtransfer.Fingerprints{Model: [32]byte{1}, Layout: [32]byte{2}, Compute: [32]byte{3}}
	testInfo   = model.Info{Layers: 2, KVHeads: 1, HeadDim: 4, Dim: 4, Vocab: 100, Context: 64, BytesPerRow: 32, PageSize: 4, Pages: 8,
		Fingerprints: testPrints}
	testPeer   = kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: "p1", Epoch: 3}
	testDecode = kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 7}
	testPrompt = [32]byte{'k'}
)

const (
	testPayload = kvtransfer.CutOverhead + 2*32 + 16
	testLease   = 10 * kvtransfer.Second
)

// counting is an entropy source: 1, 2, 3 ... in big-endian at the front.
func counting() func(int) []byte {
	n := uint16(0)
	return func(size int) []byte {
		b := make([]byte, size)
		n++
		binary.BigEndian.PutUint16(b, n)
		return b
	}
}

func testConfig() LoopConfig {
	return LoopConfig{Peer: testPeer, Info: testInfo, Pool: 1, Slots: 2, Chunk: 4, InFlight: 3, MaxPayload: testPayload,
		PromptKey: testPrompt, Entropy: counting()}
}

// testJob is a job of n tokens and its reservation, as the router and decode d1 would make them.
func testJob(id byte, n int, change func(*Job)) Job {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32((int(id) + 7*i) % testInfo.Vocab)
	}
	priv := [32]byte{id, 0xdd}
	j := Job{Delivery: uint64(id), Tokens: tokens, Reservation: kvtransfer.Reservation{
		Key: kvtransfer.Key{ID: kvtransfer.HandoffID{id}, Attempt: 1}, Decode: testDecode,
		Router: kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: "r1", Epoch: 1}, Tenant: "acme", N: n, MaxTokens: 4,
		Digest: seal.PromptDigest(testPrompt, "acme", tokens), Pages: make([]page.Slot, (n+4+3)/4), PageSize: 4,
		Fingerprints: testPrints, Lease: testLease, DecodeKey: seal.PublicKey(priv)}}
	if change != nil {
		change(&j)
	}
	body, err := wire.Encode(&j.Reservation)
	if err != nil {
		panic(err)
	}
	j.Hash = seal.HashReservation(body)
	return j
}

// wrongs are the ways in which a job may not fit its reservation or this worker.
var wrongs = map[string]func(*Job){
	"one token":    func(j *Job) { j.Tokens = j.Tokens[:1] },
	"other prompt": func(j *Job) { j.Tokens = append([]int32{99}, j.Tokens[1:]...) },
	"tenant":       func(j *Job) { j.Reservation.Tenant = "other" },
	"model":        func(j *Job) { j.Reservation.Fingerprints.Model[0]++ },
	"layout":       func(j *Job) { j.Reservation.Fingerprints.Layout[0]++ },
	"compute":      func(j *Job) { j.Reservation.Fingerprints.Compute[0]++ },
	"pages":        func(j *Job) { j.Reservation.Pages = nil },
	"all cached":   func(j *Job) { j.Reservation.C = j.Reservation.N },
	"old decode":   func(j *Job) { j.Reservation.Decode.Epoch = 6 },
	"no decode":    func(j *Job) { j.Reservation.Decode.Role = kvtransfer.RoleRouter },
	"no lease":     func(j *Job) { j.Reservation.Lease = 0 },
	"decode's key": func(j *Job) { j.Reservation.DecodeKey = [32]byte{} },
	"unknown token": func(j *Job) {
		j.Tokens[2] = 100
		j.Reservation.Digest = seal.PromptDigest(testPrompt, "acme", j.Tokens)
	},
}

// script drives one loop and remembers what is out.
type script struct {
	loop     *Loop
	now      kvtransfer.Tick
	claims   map[kvtransfer.Key]kvtransfer.ClaimID
	step     *Compute
	frames   []SealAndSend
	sealed   map[FrameID]bool
	manifest *SendManifest
	zero     []Zero
}

func newScript() *script {
	return &script{loop: New(testConfig()), claims: map[kvtransfer.Key]kvtransfer.ClaimID{}, sealed: map[FrameID]bool{}}
}

// send handles one event and prints its effects.
func (s *script) send(ev Event) string {
	var b strings.Builder
	for _, fx := range s.loop.Handle(ev) {
		b.WriteString(s.note(fx) + "\n")
	}
	return b.String()
}

// note remembers an effect and prints it.
func (s *script) note(fx Effect) string {
	switch fx := fx.(type) {
	case SendClaim:
		s.claims[fx.Msg.Key] = fx.Msg.Claim
		return fmt.Sprintf("-> %s claim %x", fx.To, fx.Msg.Claim[:2])
	case SendAbort:
		return fmt.Sprintf("-> %s abort %x %s %q", fx.To, fx.Msg.Claim[:2], fx.Msg.Error.Code, fx.Msg.Error.Detail)
	case SendProgress:
		return fmt.Sprintf("-> %s progress %x rows %d", fx.To, fx.Msg.Claim[:2], fx.Msg.Rows)
	case AckJob:
		return fmt.Sprintf("ack job %d", fx.Delivery)
	case Compute:
		s.step = &fx
		out := fmt.Sprintf("compute step %d:", fx.Step)
		for _, w := range fx.Work {
			id := w.Grant.Owner().Handoff
			out += fmt.Sprintf(" %x[%d,%d) hidden=%t", id[:1], w.From, w.From+len(w.Tokens), w.Hidden)
		}
		return out
	case SealAndSend:
		s.frames = append(s.frames, fx)
		h := fx.Header
		return fmt.Sprintf("frame %d of %x: layers [%d,%d) rows [%d,%d) hidden %d", h.Index, h.Key.ID[:1], h.LayerFrom, h.LayerTo, h.RowFrom, h.RowTo, h.Hidden)
	case SendManifest:
		s.manifest = &fx
		m := fx.Msg
		return fmt.Sprintf("manifest of %x: N=%d C=%d sent=%d pages=%d frames=%d", m.Key.ID[:1], m.N, m.C, m.Sent, m.Pages, m.Frames)
	case Zero:
		s.zero = append(s.zero, fx)
		return fmt.Sprintf("zero %v", fx.Pages)
	case Ended:
		return fmt.Sprintf("ended %x: %s %s rows=%d/%d pages=%d", fx.Key.ID[:1], fx.State, fx.Error.Code, fx.Rows, fx.N, len(fx.Pages))
	case Freed:
		return fmt.Sprintf("freed %v", fx.Pages)
	case Halt:
		return fmt.Sprintf("halt: %s %q", fx.Error.Code, fx.Error.Detail)
	default:
		return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", fx), "prefill."))
	}
}

func (s *script) key(t *testing.T, d *datadriven.TestData) (kvtransfer.Key, kvtransfer.ClaimID) {
	var id int
	d.ScanArgs(t, "id", &id)
	k := kvtransfer.Key{ID: kvtransfer.HandoffID{byte(id)}, Attempt: 1}
	return k, s.claims[k]
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	var n, ms, epoch int
	switch d.Cmd {
	case "tick":
		d.ScanArgs(t, "ms", &ms)
		s.now += kvtransfer.Tick(ms) * kvtransfer.Millisecond
		return s.send(Tick{Now: s.now})
	case "job":
		k, _ := s.key(t, d)
		d.ScanArgs(t, "n", &n)
		return s.send(testJob(k.ID[0], n, wrongs[strings.TrimSpace(d.Input)]))
	case "restart":
		*s = *newScript()
		return s.send(Tick{})
	case "unsigned":
		return s.send(JobRefused{})
	case "claimed":
		k, c := s.key(t, d)
		return s.send(Claimed{From: testDecode, Msg: kvtransfer.Claimed{Key: k, Claim: c, LeaseLeft: testLease, DeadlineLeft: 60 * kvtransfer.Second}})
	case "gone":
		k, c := s.key(t, d)
		return s.send(Gone{From: testDecode, Msg: kvtransfer.Gone{Key: k, Claim: c, Error: kvtransfer.Errorf(kvtransfer.LeaseExpired, "lease ended")}})
	case "cancel":
		k, _ := s.key(t, d)
		from := testDecode
		if d.HasArg("epoch") {
			d.ScanArgs(t, "epoch", &epoch)
			from.Epoch = uint64(epoch)
		}
		return s.send(Cancel{From: from, Msg: kvtransfer.Cancel{Key: k, Error: kvtransfer.Errorf(kvtransfer.ClientGone, "client gone")}})
	case "beat":
		d.ScanArgs(t, "epoch", &epoch)
		return s.send(DecodeHeartbeat{From: kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: uint64(epoch)}})
	case "drain":
		return s.send(Drain{})
	case "abandon":
		return s.send(Abandon{})
	case "state":
		if err := s.loop.Verify(); err != nil {
			return err.Error()
		}
		return s.loop.Dump()
	}
	return s.answer(t, d)
}

// answer completes what is out.
func (s *script) answer(t *testing.T, d *datadriven.TestData) string {
	fail := d.HasArg("fail")
	switch d.Cmd {
	case "step":
		ev := ChunkDone{Step: s.step.Step, Hidden: make([][]float32, len(s.step.Work))}
		for i, w := range s.step.Work {
			if w.Hidden {
				ev.Hidden[i] = []float32{1, 2, 3, 4}
			}
		}
		if fail {
			ev = ChunkDone{Step: s.step.Step, Err: errors.New("device: out of luck")}
		}
		s.step = nil
		return s.send(ev)
	case "sealed", "stored", "full", "broken":
		fx, out := s.frames[0], ""
		if !s.sealed[fx.Frame] && d.Cmd != "broken" {
			s.sealed[fx.Frame] = true
			out = s.send(FrameSealed{Frame: fx.Frame})
		}
		if d.Cmd == "sealed" {
			return out
		}
		s.frames = s.frames[1:]
		sealed := s.sealed[fx.Frame]
		delete(s.sealed, fx.Frame)
		switch d.Cmd {
		case "stored":
			return out + s.send(FrameStored{Frame: fx.Frame, Tag: [16]byte{byte(fx.Frame.Index)}})
		case "full":
			return out + s.send(FrameFull{Frame: fx.Frame})
		}
		return s.send(FrameFailed{Frame: fx.Frame, Sealed: sealed, Error: kvtransfer.Errorf(kvtransfer.DeviceFailed, "read failed")})
	case "manifest":
		m := s.manifest.Msg
		if fail {
			return s.send(ManifestFull{Key: m.Key, Claim: m.Claim})
		}
		return s.send(ManifestStored{Key: m.Key, Claim: m.Claim})
	case "zeroed":
		z := s.zero[0]
		s.zero = s.zero[1:]
		if fail {
			return s.send(Zeroed{Pages: z.Pages, Err: errors.New("device: out of luck")})
		}
		return s.send(Zeroed{Pages: z.Pages})
	}
	t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	return ""
}

// TestScripts plays the scripts of testdata: in testdata/scripts: each line is an event, below it stand the effects; "state" prints everything.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := newScript()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.run(t, d)
			if err := s.loop.Verify(); err != nil {
				t.Fatalf("%s: %v", d.Pos, err)
			}
			if c := s.loop.Clone(); c.Dump() != s.loop.Dump() {
				t.Fatalf("%s: the clone differs", d.Pos)
			}
			if out == "" {
				return "ok\n"
			}
			return out
		})
	})
}
