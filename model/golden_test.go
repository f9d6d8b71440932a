package model_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"quire/device"
	"quire/device/cpu"
	"quire/model"
)

// top8 is the eight largest logits of a step as [id, logit].
type top8 [][2]float64

// worst is the largest difference between the reference's logits and ours.
func (g top8) worst(logits []float32) float64 {
	var w float64
	for _, e := range g {
		w = math.Max(w, math.Abs(float64(logits[int(e[0])])-e[1]))
	}
	return w
}

func argmax(v []float32) int32 {
	best := 0
	for i := range v {
		if v[i] > v[best] {
			best = i
		}
	}
	return int32(best)
}

// reference is one prompt of a golden file: greedy ids, and for each step the eight largest logits of a float64 pass.
type reference struct {
	Name   string  `json:"name"`
	Prompt []int32 `json:"prompt_ids"`
	IDs    []int32 `json:"ids"`
	Top    []top8  `json:"top"`
}

// check runs prompt and answer through the engine in one go and compares, step by step, up to the first at which the two best
// logits of the reference are closer than gap: ids must be equal, logits within bound. It returns the largest difference.
func (g reference) check(t *testing.T, r *rig, gap, bound float64) float64 {
	t.Helper()
	all := append(slices.Clone(g.Prompt), g.IDs[:len(g.IDs)-1]...)
	s := r.seq(len(all))
	rows := s.logitsFrom(len(g.Prompt)-1, all)
	s.release()
	var worst float64
	for i, top := range g.Top {
		d := top.worst(rows[i])
		worst = math.Max(worst, d)
		if d > bound {
			t.Errorf("%s step %d: a logit differs by %g, at most %g is right", g.Name, i, d, bound)
			return worst
		}
		if top[0][1]-top[1][1] < gap {
			continue // the id may be either; the reference's goes on
		}
		if got := argmax(rows[i]); got != g.IDs[i] {
			t.Errorf("%s step %d: token %d, want %d", g.Name, i, got, g.IDs[i])
			return worst
		}
	}
	return worst
}

// modes are the two ways for activations to meet quantised weights, with what their results may be off by: an id counts only
// where the reference's two best logits are gap apart.
var modes = []struct {
	acts       string
	gap, bound float64
}{{"f32", 0.01, 5e-3}, {"int8", 0.5, 1}}

func TestGoldenEmbedded(t *testing.T) {
	var g struct {
		Cases []reference `json:"cases"`
	}
	readJSON(t, filepath.Join("..", "embedded", "golden", "greedy.json"), &g)
	src := open(t, "")
	for _, m := range modes {
		t.Run(m.acts, func(t *testing.T) {
			r := newRig(t, src, rigOptions{cpu.Options{Activations: m.acts}, model.EngineOptions{KVType: device.F32}})
			var worst float64
			for _, c := range g.Cases {
				worst = math.Max(worst, c.check(t, r, m.gap, m.bound))
			}
			t.Logf("largest difference of a logit: %.2g", worst)
		})
	}
}

func TestGoldenSmolLM2(t *testing.T) {
	var g struct {
		Prompts []struct {
			IDs    []int32 `json:"ids"`
			Greedy []int32 `json:"greedy_ids"`
			Top8   []top8  `json:"top8"`
		} `json:"prompts"`
	}
	readJSON(t, shared(t, "models", "golden", "smollm2_greedy.json"), &g)
	src := open(t, shared(t, "models", "smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"))
	for _, m := range modes {
		t.Run(m.acts, func(t *testing.T) {
			r := newRig(t, src, rigOptions{cpu.Options{Activations: m.acts}, model.EngineOptions{KVType: device.F32}})
			var worst float64
			for i, p := range g.Prompts {
				if len(p.IDs) > 500 && m.acts != "f32" {
					continue // one mode is enough of the long one
				}
				c := reference{fmt.Sprintf("prompt %d", i), p.IDs, p.Greedy, p.Top8}
				worst = math.Max(worst, c.check(t, r, m.gap, 3*m.bound))
			}
			t.Logf("largest difference of a logit: %.2g", worst)
		})
	}
}

func TestGoldenStories3M(t *testing.T) {
	var g struct {
		IDs  []int32 `json:"ids"`
		Top8 []top8  `json:"top8_logits"`
	}
	readJSON(t, shared(t, "models", "golden", "stories3M_golden.json"), &g)
	src := open(t, shared(t, "models", "stories3M", "stories3M-F16.gguf"))
	r := newRig(t, src, rigOptions{engine: model.EngineOptions{KVType: device.F32}})
	c := reference{"story", g.IDs[:1], g.IDs[1:], g.Top8[:len(g.IDs)-1]}
	// The reference's weights were not rounded to F16, the file's are.
	t.Logf("largest difference of a logit: %.2g", c.check(t, r, 0.04, 2e-2))
}

// TestGoldenLlamaCpp compares with what llama.cpp makes of the same quantised files, with int8 activations as it has them:
// both round activations or weights a little differently, so probabilities agree within 0.1, and ids where the two best are
// further apart than that.
func TestGoldenLlamaCpp(t *testing.T) {
	for _, name := range []string{"Q8_0", "Q4_0", "Q4_1"} {
		var g struct {
			Prompt []int32 `json:"prompt"`
			Out    []int32 `json:"out"`
			Probs  []top8  `json:"probs"`
		}
		readJSON(t, shared(t, "models", "golden", "llamacpp-3M-"+name+".json"), &g)
		src := open(t, shared(t, "models", "stories3M", "stories3M-"+name+".gguf"))
		for _, m := range modes {
			t.Run(name+"/"+m.acts, func(t *testing.T) {
				r := newRig(t, src, rigOptions{cpu.Options{Activations: m.acts}, model.EngineOptions{KVType: device.F32}})
				all := append(slices.Clone(g.Prompt), g.Out[:len(g.Out)-1]...)
				var worst float64
				for i, row := range r.seq(len(all)).logitsFrom(len(g.Prompt)-1, all) {
					probs := softmax(row)
					worst = math.Max(worst, g.Probs[i].worst(probs))
					if got := argmax(row); got != g.Out[i] && g.Probs[i][0][1]-g.Probs[i][1][1] > 0.1 {
						t.Errorf("step %d: token %d, want %d", i, got, g.Out[i])
					}
				}
				t.Logf("largest difference of a probability: %.2g", worst)
				if worst > 0.1 {
					t.Errorf("largest difference of a probability: %g, at most 0.1 is right", worst)
				}
			})
		}
	}
}

func softmax(logits []float32) []float32 {
	top, sum := float64(logits[argmax(logits)]), 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v) - top)
	}
	out := make([]float32, len(logits))
	for i, v := range logits {
		out[i] = float32(math.Exp(float64(v)-top) / sum)
	}
	return out
}

func TestGoldenTinyStories656K(t *testing.T) {
	b, err := os.ReadFile(shared(t, "models", "golden", "tinystories-656k_greedy.json"))
	if err != nil {
		t.Fatal(err)
	}
	var g map[string]struct {
		Prompt []int32 `json:"prompt_ids"`
		Out    []int32 `json:"out"`
	}
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{".", "tinystories-656k-f32.gguf"} {
		t.Run(path, func(t *testing.T) {
			r := newRig(t, open(t, shared(t, "models", "tinystories-656k", path)), rigOptions{engine: model.EngineOptions{KVType: device.F32}})
			for prompt, c := range g {
				s := r.seq(len(c.Prompt) + len(c.Out))
				if got := s.greedy(c.Prompt, 256, len(c.Out)); !slices.Equal(got, c.Out) {
					t.Errorf("%q:\ngot  %d\nwant %d", prompt, got, c.Out)
				}
				s.release()
			}
		})
	}
}

func TestGoldenStories260K(t *testing.T) {
	var g struct {
		IDs  []int32 `json:"ids"`
		Top8 []top8  `json:"top8_logits"`
	}
	readJSON(t, shared(t, "models", "golden", "stories260K_golden.json"), &g)
	src := open(t, shared(t, "models", "stories260K", "stories260K-f32.gguf"))
	for _, kv := range []device.Type{device.F32, device.F16} {
		t.Run(kv.String(), func(t *testing.T) {
			r := newRig(t, src, rigOptions{engine: model.EngineOptions{KVType: kv}})
			bound := 1e-3
			if kv == device.F16 {
				bound = 2e-2 // keys and values rounded to 11 bits
			}
			var worst float64
			for i, row := range r.seq(len(g.Top8)).logits(g.IDs[:len(g.Top8)]...) {
				worst = math.Max(worst, g.Top8[i].worst(row))
				if got := argmax(row); got != g.IDs[i+1] {
					t.Fatalf("step %d: token %d, want %d", i, got, g.IDs[i+1])
				}
			}
			t.Logf("largest difference of a logit: %.2g", worst)
			if worst > bound {
				t.Errorf("largest difference of a logit: %g, at most %g is right", worst, bound)
			}
			got := r.seq(len(g.IDs)).greedy(g.IDs[:1], 1, len(g.IDs)-1)
			for i := range got {
				if got[i] != g.IDs[i+1] {
					t.Fatalf("greedy step %d: token %d, want %d", i, got[i], g.IDs[i+1])
				}
			}
		})
	}
}
