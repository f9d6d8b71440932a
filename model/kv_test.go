package model_test

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"quire/device"
	"quire/device/cpu"
	"quire/model"
)

// kvBounds is what keys and values rounded to a type may change: a logit by bound, and the greedy token only where the reference's
// two best logits are closer than gap.
var kvBounds = map[device.Type]struct{ gap, bound float64 }{device.F16: {0.05, 0.05}, device.Q8_0: {1, 1.5}}

// TestKVTypes: against the float64 reference, with F32 activations, F16 and Q8_0 keys and values stay within their bounds.
func TestKVTypes(t *testing.T) {
	var g struct {
		Cases []reference `json:"cases"`
	}
	readJSON(t, filepath.Join("..", "embedded", "golden", "greedy.json"), &g)
	checkKV(t, open(t, ""), g.Cases)
}

func TestKVTypesSmolLM2(t *testing.T) {
	var g struct {
		Prompts []struct {
			IDs    []int32 `json:"ids"`
			Greedy []int32 `json:"greedy_ids"`
			Top8   []top8  `json:"top8"`
		} `json:"prompts"`
	}
	readJSON(t, shared(t, "models", "golden", "smollm2_greedy.json"), &g)
	var cases []reference
	for i, p := range g.Prompts {
		if len(p.IDs) < 500 && len(cases) < 4 {
			cases = append(cases, reference{fmt.Sprintf("prompt %d", i), p.IDs, p.Greedy, p.Top8})
		}
	}
	checkKV(t, open(t, shared(t, "models", "smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")), cases)
}

func checkKV(t *testing.T, src *model.Source, cases []reference) {
	t.Helper()
	for kv, b := range kvBounds {
		t.Run(kv.String(), func(t *testing.T) {
			r := newRig(t, src, rigOptions{cpu.Options{Activations: "f32"}, model.EngineOptions{KVType: kv}})
			var worst float64
			for _, c := range cases {
				worst = math.Max(worst, c.check(t, r, b.gap, b.bound))
			}
			t.Logf("largest difference of a logit: %.2g", worst)
		})
	}
}
