//go:build cuda && linux

package model

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"quire/device"
	"quire/device/cuda"
	"quire/device/cuda/emulator"
	"quire/kvtransfer"
)

// TestCUDASamplerChoosesAlike: for the same logits the device chooses what the Picker chooses, for every way of sampling, bad logits
// included. It may leave the choice to the host only where very many tokens count.
func TestCUDASamplerChoosesAlike(t *testing.T) {
	if os.Getenv("QUIRE_TEST_GPU") == "" {
		lib, err := emulator.Build()
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("QUIRE_LIBCUDA", lib)
	}
	dev, err := cuda.New(cuda.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	r := rand.New(rand.NewPCG(3, 4))
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	rows := [][]float32{draws(r, 700, 3), draws(r, 700, 0.3), draws(r, 300, 20), {nan, nan}, {nan, 1, 2}, {-inf, -inf}, {inf, 1}, {1, inf, nan, -inf}, {0}, {5, 5, 5, 5}}
	left := 0
	for _, logits := range rows {
		left += chooseAlike(t, dev, logits)
	}
	if left > 60 {
		t.Errorf("%d choices were left to the host", left)
	}
}

func draws(r *rand.Rand, n int, spread float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.Round(r.NormFloat64()*spread*16) / 16) // so that some are equal
	}
	return x
}

// chooseAlike samples one row of logits in many ways, all in one step, and counts what was left to the host.
func chooseAlike(t *testing.T, dev device.Device, logits []float32) (left int) {
	t.Helper()
	var ways []kvtransfer.Sampling
	for seed := range uint64(4) {
		ways = append(ways, kvtransfer.Sampling{Seed: seed}, kvtransfer.Sampling{Temperature: 1, Seed: seed},
			kvtransfer.Sampling{Temperature: 0.7, MinP: 0.1, Seed: seed}, kvtransfer.Sampling{Temperature: 1.3, TopK: 40, MinP: 0.05, Seed: seed},
			kvtransfer.Sampling{Temperature: 0.9, TopP: 0.8, Seed: seed}, kvtransfer.Sampling{Temperature: 0.9, TopK: 100, TopP: 0.8, Seed: seed},
			kvtransfer.Sampling{Temperature: 0.2, TopP: 0.99, Seed: seed}, kvtransfer.Sampling{Temperature: 2, TopK: 1, Seed: seed},
			kvtransfer.Sampling{Temperature: 1e-6, TopK: 3, Seed: seed}, kvtransfer.Sampling{Temperature: 1, TopK: 2000, TopP: 0.5, Seed: seed})
	}
	buf, err := dev.Buffer(len(ways), len(logits))
	if err != nil {
		t.Fatal(err)
	}
	pick := device.Pick{Logits: buf, To: make([]int32, len(ways))}
	for i, s := range ways {
		if err := dev.Upload(buf, i, logits); err != nil {
			t.Fatal(err)
		}
		s.Logprobs = -1
		how, ok := (&Picker{s: s}).plain()
		if !ok {
			t.Fatalf("%+v is not plain", s)
		}
		pick.How = append(pick.How, how)
	}
	b := &device.Batch{Tokens: make([]int32, len(ways)), Seqs: []device.Seq{{Rows: len(ways)}}}
	if err := dev.Run(&device.Step{Batch: b, Ops: []device.Op{pick}}); err != nil {
		t.Fatal(err)
	}
	for i, s := range ways {
		want := (&Picker{s: s}).choose(logits)
		switch {
		case pick.To[i] == -1:
			left++
		case pick.To[i] != want:
			t.Errorf("%d logits, %+v: the device chooses %d, the host %d", len(logits), s, pick.To[i], want)
		}
	}
	return left
}
