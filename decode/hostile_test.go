package decode

import (
	"fmt"
	"maps"
	"slices"
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
