package decode

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quire/kvtransfer"
	"quire/model/modeltest"
)

// hostile is a world in which anything may come at any time: repeated, changed and foreign frames, wrong manifests, silence,
// failing steps, a failing journal, effects that take their time.
type hostile struct {
	*world
	t     *rapid.T
	asked []kvtransfer.Key
	lies  map[kvtransfer.Key]bool // attempts whose bytes are another prompt's
}

func (h *hostile) key() (kvtransfer.Key, bool) {
	if len(h.asked) == 0 {
		return kvtransfer.Key{}, false
	}
	return rapid.SampledFrom(h.asked).Draw(h.t, "handoff"), true
}

// claimed is an attempt that prefill has claimed.
func (h *hostile) claimed() (*job, bool) {
	k, ok := h.key()
	if !ok || h.jobs[k].frames == nil {
		return nil, false
	}
	if last := h.asked[len(h.asked)-1]; h.jobs[last].frames != nil && rapid.Bool().Draw(h.t, "the last") {
		k = last
	}
	return h.jobs[k], true
}

func (h *hostile) tokens(k kvtransfer.Key) []int32 { return prompt(int(k.ID[0])%9+1, int(k.ID[0])) }

// actions are what can happen, by name.
func (h *hostile) actions() map[string]func(*rapid.T) {
	all := h.prefillActs()
	maps.Copy(all, h.otherActs())
	return all
}

// prefillActs are what prefill, or somebody on the bus, sends.
func (h *hostile) prefillActs() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"claim": func(t *rapid.T) {
			open := slices.DeleteFunc(slices.Clone(h.asked), func(k kvtransfer.Key) bool { return h.jobs[k].frames != nil })
			if len(open) == 0 {
				return
			}
			k := open[len(open)-1]
			h.world.claim(k)
			h.lies[k] = len(h.tokens(k)) > 1 && rapid.IntRange(0, 3).Draw(t, "lie") == 0
			if h.lies[k] {
				foreign := prompt(len(h.tokens(k)), 40)
				foreign[len(foreign)-1] = h.tokens(k)[len(foreign)-1]
				if slices.Equal(foreign, h.tokens(k)) {
					foreign[0] = (foreign[0] + 1) % 50
				}
				h.jobs[k].cut(h.world, h.compute(foreign), 2)
			}
		},
		"frame": func(t *rapid.T) {
			if j, ok := h.claimed(); ok {
				h.frame(rapid.SampledFrom(j.frames).Draw(t, "frame"))
			}
		},
		"frames": func(t *rapid.T) {
			if j, ok := h.claimed(); ok {
				for _, i := range rapid.Permutation(indices(len(j.frames))).Draw(t, "order") {
					h.frame(j.frames[i])
				}
			}
		},
		"tampered": func(t *rapid.T) {
			if j, ok := h.claimed(); ok {
				f := rapid.SampledFrom(j.frames).Draw(t, "frame")
				f.Sealed = slices.Clone(f.Sealed)
				f.Sealed[rapid.IntRange(0, len(f.Sealed)-1).Draw(t, "byte")] ^= 1
				h.frame(f)
			}
		},
		"relabelled": func(t *rapid.T) {
			if j, ok := h.claimed(); ok {
				f := rapid.SampledFrom(j.frames).Draw(t, "frame")
				f.Header.RowTo += rapid.IntRange(-2, 2).Draw(t, "rows")
				f.Header.Hidden = rapid.SampledFrom([]int{0, 4, 1 << 30}).Draw(t, "hidden")
				if f.Header != j.frames[f.Header.Index].Header {
					h.frame(f)
				}
			}
		},
		"manifest": func(t *rapid.T) {
			if j, ok := h.claimed(); ok {
				h.world.manifest(j.res.Key)
			}
		},
		"wrong manifest": func(t *rapid.T) {
			if j, ok := h.claimed(); ok && rapid.IntRange(0, 3).Draw(t, "really") == 0 {
				m := h.statement(j.res.Key)
				m.Frames += rapid.IntRange(-1, 1).Draw(t, "frames")
				m.Digest[0] ^= byte(rapid.IntRange(0, 1).Draw(t, "digest"))
				h.send(ManifestCame{Delivery: h.deliver(), From: worker, M: m})
			}
		},
	}
}

// otherActs are what the router, time, the engine and the journal do.
func (h *hostile) otherActs() map[string]func(*rapid.T) {
	kinds := []string{"openframe", "copyframe", "journal", "witness", "step", "zero"}
	return map[string]func(*rapid.T){
		"reserve": func(t *rapid.T) {
			k := key(len(h.asked) + 1)
			if len(h.asked) > 12 {
				k = rapid.SampledFrom(h.asked).Draw(t, "again")
			}
			tokens := h.tokens(k)
			if h.reserve(k, tokens, int(k.ID[0])%4+1) && !slices.Contains(h.asked, k) {
				h.asked = append(h.asked, k)
			}
		},
		"control": func(t *rapid.T) {
			if j, ok := h.claimed(); ok {
				h.one(rapid.SampledFrom([]string{"progress", "progress", "claim-again", "abort", "cancel", "claim-other"}).Draw(t, "message") + arg(j))
			}
		},
		"router": func(t *rapid.T) {
			if k, ok := h.key(); ok {
				h.one(rapid.SampledFrom([]string{"router", "resend", "ack"}).Draw(t, "message") + arg(h.jobs[k]))
			}
		},
		"tick": func(t *rapid.T) {
			h.tick(kvtransfer.Tick(rapid.IntRange(1, 2000).Draw(t, "ms")) * kvtransfer.Millisecond)
			h.one("router")
		},
		"silence": func(t *rapid.T) {
			if rapid.IntRange(0, 5).Draw(t, "really") == 0 {
				h.tick(11 * kvtransfer.Second)
			}
		},
		"weather": func(t *rapid.T) {
			h.one(rapid.SampledFrom([]string{"engine down", "engine up", "engine up", "journal down", "journal up", "journal up", "stream-lost"}).Draw(t, "weather"))
		},
		"hold":    func(t *rapid.T) { h.hold[rapid.SampledFrom(kinds).Draw(t, "kind")] = true },
		"release": func(t *rapid.T) { h.release(rapid.SampledFrom(kinds).Draw(t, "kind")) },
		"clone":   func(*rapid.T) { h.l = h.l.Clone() },
	}
}

// weighted names the actions, those that get work done more often.
var weighted = []string{
	"reserve", "reserve", "reserve", "claim", "claim", "claim", "frames", "frames", "frames", "manifest", "manifest", "manifest", "manifest",
	"frame", "frame", "tampered", "relabelled", "wrong manifest", "control", "router", "tick", "silence", "weather", "hold", "release", "release", "clone",
}

func arg(j *job) string { return fmt.Sprintf(" k=%d", j.res.Key.ID[0]) }

func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// safe checks what must hold at any time: what left is right, and nothing follows an end.
func (h *hostile) safe() {
	if !h.stopped.IsZero() {
		h.t.Fatalf("stopped: %v\n%s", h.stopped, h.l.Dump())
	}
	for _, k := range h.asked {
		over, admitted := false, false
		for n, b := range h.replies[k] {
			if over {
				h.t.Fatalf("%s: reply %d after the end", short(k), n)
			}
			if (n == 0) != (b.Outcome != nil) {
				h.t.Fatalf("%s: reply %d has an outcome: %t", short(k), n, b.Outcome != nil)
			}
			admitted = admitted || b.Outcome != nil && b.Outcome.OK
			over = b.End != nil || b.Outcome != nil && !b.Outcome.OK
		}
		ids, end, _ := h.answer(k)
		max := int(k.ID[0])%4 + 1
		want := h.expected(h.tokens(k), max)
		if len(ids) > max || !slices.Equal(ids, want[:len(ids)]) {
			h.t.Fatalf("%s: answered %v, want %v", short(k), ids, want)
		}
		if end != nil && end.Error.IsZero() && len(ids) != max {
			h.t.Fatalf("%s: ended %s after %d of %d", short(k), end.Finish, len(ids), max)
		}
		if h.lies[k] && admitted {
			h.t.Fatalf("%s: another prompt's bytes were taken", short(k))
		}
	}
}

// Whatever comes in whatever order: no wrong token leaves, no page has two owners or old bytes; and once the world heals,
// everything ends, every attempt that began has exactly one end, and every page is free and clear.
func TestHostileWorld(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := &hostile{t: rt, lies: map[kvtransfer.Key]bool{}}
		h.world = newWorld(t, func(c *LoopConfig, o *modeltest.Options) {
			c.MaxBatch = rapid.IntRange(1, 4).Draw(rt, "batch")
			o.Pages = rapid.IntRange(4, 16).Draw(rt, "pages")
		})
		acts := h.actions()
		for range rapid.IntRange(1, 5).Draw(rt, "rounds") {
			for _, name := range rapid.Permutation(weighted).Draw(rt, "story") {
				acts[name](rt)
				h.safe()
			}
		}
		h.one("engine up")
		h.one("journal up")
		for _, kind := range []string{"openframe", "copyframe", "journal", "witness", "step", "zero"} {
			h.release(kind)
		}
		for range 20 {
			h.tick(9 * kvtransfer.Second)
			h.one("router")
		}
		h.safe()
		for _, k := range h.asked {
			ids, end, outcome := h.answer(k)
			if outcome == nil || outcome.OK && end == nil {
				rt.Errorf("%s has no end: outcome %+v, %d tokens", short(k), outcome, len(ids))
			}
		}
		if !h.l.Idle() {
			rt.Errorf("not idle: %s", h.l.Dump())
		}
		h.clean()
	})
}

// TestReserveThatNobodyMayMake: a role's key is no router's, whatever name it writes into the message.
func TestReserveThatNobodyMayMake(t *testing.T) {
	w := newWorld(t, nil)
	m := w.reserveMessage(key(1), "acme", prompt(6, 1), 2)
	m.Router = worker
	w.send(ReserveAsked{ID: 1, From: worker, M: m})
	if e := w.refusals[m.Key]; e.Code != kvtransfer.NotAllowed {
		t.Errorf("a prefill reserves: %v", e)
	}
	w.clean()
}

// TestPromiseTakesNothingOnFailure: a promise that cannot be written down gives its pages back, and one for an attempt whose pages
// are still being zeroed is refused.
func TestPromiseTakesNothingOnFailure(t *testing.T) {
	w := newWorld(t, nil)
	m := w.reserveMessage(key(1), strings.Repeat("a", 5000), prompt(6, 1), 2)
	if w.ask(m) || w.refusals[m.Key].Code != kvtransfer.InvalidRequest {
		t.Errorf("a tenant that fits no message: %v", w.refusals[m.Key])
	}
	w.clean()
	w = newWorld(t, nil)
	if !w.reserve(key(1), prompt(6, 1), 2) {
		t.Fatal(w.refusals)
	}
	w.hold["zero"] = true
	w.ack(key(1))
	if w.reserve(key(1), prompt(6, 1), 2) || w.refusals[key(1)].Code != kvtransfer.PoolExhausted {
		t.Errorf("the same attempt while its pages are zeroed: %v", w.refusals[key(1)])
	}
	w.release("zero")
	w.clean()
}

// FuzzHandle feeds one loop events made of bytes: kinds, ids, ranges, counts and times as they come. It never panics, keeps its
// invariants, and stops by itself for no message from outside.
func FuzzHandle(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	f.Add(bytes.Repeat([]byte{3, 0, 9, 255, 128, 1, 4}, 30))
	f.Fuzz(func(t *testing.T, in []byte) {
		w := newWorld(t, nil)
		next := func() int {
			if len(in) == 0 {
				return 0
			}
			b := in[0]
			in = in[1:]
			return int(b)
		}
		peers := []kvtransfer.Peer{router, worker, self, {Role: kvtransfer.RolePrefill, ID: "p2", Epoch: 1}, {}}
		peer := func() kvtransfer.Peer { return peers[next()%len(peers)] }
		attempt := func() kvtransfer.Key { return kvtransfer.Key{ID: key(next()%3 + 1).ID, Attempt: uint32(next() % 3)} }
		row := func() int { return (next() - 8) * (1 + next()*next()) }
		for steps := 0; len(in) > 0 && steps < 200; steps++ {
			k := attempt()
			j := w.jobs[k]
			claim := kvtransfer.ClaimID{0xc0, byte(next() % 4)}
			if j != nil && next()%4 > 0 {
				claim = j.claim.Claim
			}
			h := kvtransfer.FrameHeader{Key: k, Claim: claim, Index: uint32(next()), LayerFrom: row(), LayerTo: row(), RowFrom: row(), RowTo: row(), Hidden: row()}
			switch next() % 14 {
			case 0, 1:
				w.ask(w.reserveMessage(k, "acme", prompt(next()%12, next()), row()))
			case 2:
				if j != nil && j.hash != [32]byte{} && j.frames == nil && len(j.tokens) > 0 {
					w.claim(k)
				}
			case 3:
				w.send(ClaimCame{Delivery: w.deliver(), From: peer(), M: kvtransfer.Claim{Key: k, Claim: claim, ClaimKey: [32]byte{byte(next())}}})
			case 4:
				if j != nil && len(j.frames) > 0 {
					w.frame(j.frames[next()%len(j.frames)])
				}
			case 5:
				w.frame(kvtransfer.Frame{Header: h, Sealed: make([]byte, 16+next())})
			case 6:
				// Opened bytes whose header lies, as a claim's holder could seal them.
				if s, ok := w.l.State(k); ok && s == kvtransfer.InFilling {
					w.send(FrameOpened{Delivery: w.deliver(), Header: h, Tag: [16]byte{byte(next())}, Hash: j.hash, Opening: kvtransfer.Opening{OK: true, Bytes: next()}, Plain: make([]byte, next())})
				}
			case 7:
				if j != nil && j.frames != nil {
					m := w.statement(k)
					m.N, m.Sent, m.Frames = m.N+row()%2, m.Sent+row()%2, m.Frames+row()%2
					w.send(ManifestCame{Delivery: w.deliver(), From: peer(), M: m})
				}
			case 8:
				if j != nil && j.frames != nil {
					w.manifest(k)
				}
			case 9:
				w.send(AbortCame{Delivery: w.deliver(), From: peer(), M: kvtransfer.Abort{Key: k, Claim: claim, Error: kvtransfer.Error{Code: kvtransfer.Code(prompt(1, next())), Detail: "x"}}})
			case 10:
				w.send(CancelCame{Delivery: w.deliver(), From: peer(), M: kvtransfer.Cancel{Key: k}})
			case 11:
				w.asked++
				w.send(ResendAsked{ID: w.asked, From: peer(), M: kvtransfer.Resend{Key: k, From: uint32(next()), Ack: next()%2 == 0}})
			case 12:
				w.tick(kvtransfer.Tick(next()*next()) * kvtransfer.Millisecond)
			case 13:
				w.send(RouterAlive{Peer: peer()})
				w.send(ProgressCame{Delivery: w.deliver(), From: peer(), M: kvtransfer.Progress{Key: k, Claim: claim, Rows: row()}})
			}
			if !w.stopped.IsZero() {
				t.Fatalf("stopped: %v\n%s", w.stopped, w.l.Dump())
			}
		}
	})
}
