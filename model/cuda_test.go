//go:build cuda && linux

package model_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"quire/device"
	"quire/device/cpu"
	"quire/device/cuda"
	"quire/device/cuda/emulator"
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
