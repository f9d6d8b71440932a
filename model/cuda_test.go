//go:build cuda && linux

package model_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"quire/device"
	"quire/device/cpu"
	"quire/device/cuda"
	"quire/device/cuda/emulator"
	"quire/kvtransfer"
	"quire/model"
)

// onCUDA makes the rigs of a test compute on the CUDA emulator, or with QUIRE_TEST_GPU on the machine's GPU (make gpu-check).
func onCUDA(t *testing.T) {
	t.Helper()
	if os.Getenv("QUIRE_TEST_GPU") == "" {
		lib, err := emulator.Build()
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("QUIRE_LIBCUDA", lib)
	}
	was := openDevice
	openDevice = func(cpu.Options) (device.Device, error) { return cuda.New(cuda.Options{}) }
	t.Cleanup(func() { openDevice = was })
}

// TestCUDAGolden runs the whole forward pass against the float64 reference of the embedded model, within the bounds that the CPU
// with f32 activations has to keep.
func TestCUDAGolden(t *testing.T) {
	onCUDA(t)
	var g struct {
		Cases []reference `json:"cases"`
	}
	readJSON(t, filepath.Join("..", "embedded", "golden", "greedy.json"), &g)
	src := open(t, "")
	for _, kv := range []device.Type{device.F32, device.F16} {
		r := newRig(t, src, rigOptions{engine: model.EngineOptions{KVType: kv}})
		gap, bound := 0.01, 5e-3
		if kv == device.F16 {
			gap, bound = 0.05, 5e-2
		}
		var worst float64
		for _, c := range g.Cases {
			worst = math.Max(worst, c.check(t, r, gap, bound))
		}
		t.Logf("%s: largest difference of a logit: %.2g", kv, worst)
	}
}

// TestCUDARowsDependOnNothingElse: the same bits in every chunk, page size and batch.
func TestCUDARowsDependOnNothingElse(t *testing.T) {
	onCUDA(t)
	testRows(t, open(t, ""), cpu.Options{}, device.F16, 50)
}

// TestCUDAWitness: the witness, whose comparison runs on the device, admits what was computed and shows one changed byte anywhere.
func TestCUDAWitness(t *testing.T) {
	onCUDA(t)
	for _, kv := range []device.Type{device.F16, device.Q8_0} {
		t.Run(kv.String(), func(t *testing.T) { testWitness(t, open(t, ""), kv) })
	}
}

// TestCUDAPicks: answers whose tokens the device chooses are those that the host chooses from the same logits, greedy and sampled,
// alone and beside one that the host has to choose (it wants log probabilities).
func TestCUDAPicks(t *testing.T) {
	onCUDA(t)
	src := open(t, "")
	r := newRig(t, src, rigOptions{})
	prompt := story(20, src.Config.Vocab, 3)
	answer := func(s kvtransfer.Sampling, beside bool) []int32 {
		t.Helper()
		one := r.seq(60)
		defer one.release()
		p := model.NewPicker(s, src.Tokenizer, prompt, nil)
		other, op := r.seq(60), model.NewPicker(kvtransfer.Sampling{Temperature: 1, Seed: 8, Logprobs: 2}, src.Tokenizer, prompt, nil)
		defer other.release()
		next, otherNext := prompt, prompt
		var out []int32
		for range 12 {
			w := one.work(next...)
			w.Pick = p
			works := []model.Work{w}
			if beside {
				o := other.work(otherNext...)
				o.Pick = op
				works = append(works, o)
			}
			res, err := r.eng.Step(works)
			if err != nil {
				t.Fatal(err)
			}
			one.done(w)
			if beside {
				other.done(works[1])
				otherNext = []int32{res[1].Token.ID}
				if len(res[1].Token.Top) != 2 {
					t.Errorf("the neighbour got %d alternatives", len(res[1].Token.Top))
				}
			}
			out = append(out, res[0].Token.ID)
			next = []int32{res[0].Token.ID}
		}
		return out
	}
	for _, s := range []kvtransfer.Sampling{{Logprobs: -1}, {Temperature: 1, Seed: 5, Logprobs: -1}, {Temperature: 0.8, TopP: 0.9, Seed: 6, Logprobs: -1},
		{Temperature: 3, TopP: 0.999, Seed: 7, Logprobs: -1}} {
		host := s
		host.Logprobs = 0 // the host chooses
		want := answer(host, false)
		for _, beside := range []bool{false, true} {
			if got := answer(s, beside); !slices.Equal(got, want) {
				t.Errorf("%+v, beside another %t: the device chose %v, the host %v", s, beside, got, want)
			}
		}
	}
}
