package cpu

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"quire/device"
)

// TestManyCallers: steps from many goroutines, more workers than processors, each caller's results its own; nothing is left
// running after Close.
func TestManyCallers(t *testing.T) {
	defer goleak.VerifyNone(t)
	d, err := New(Options{Threads: 5})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	m, err := d.Matrix(device.Q8_0, 200, 64, randomWeights(r, device.Q8_0, 200, 64))
	if err != nil {
		t.Fatal(err)
	}
	product := func(x []float32, rows int) [][]float32 {
		in, _ := d.Buffer(rows, 64)
		out, _ := d.Buffer(rows, 200)
		dl := device.Download{From: out}
		for i := range rows {
			_ = d.Upload(in, i, x)
			dl.Rows, dl.To = append(dl.Rows, i), append(dl.To, make([]float32, 200))
		}
		b := &device.Batch{Tokens: make([]int32, rows), Seqs: []device.Seq{{Rows: rows}}}
		if err := d.Run(&device.Step{Batch: b, Ops: []device.Op{device.MatMul{In: in, Parts: []device.Part{{W: m, Out: out}}}, dl}}); err != nil {
			t.Error(err)
		}
		return dl.To
	}
	var wg sync.WaitGroup
	for caller := range 8 {
		x := randomFloats(r, 64)
		want := product(x, 1)[0]
		wg.Go(func() {
			for step := range 50 {
				for i, row := range product(x, 1+(caller+step)%5) {
					if fmt.Sprint(row) != fmt.Sprint(want) {
						t.Errorf("caller %d, step %d: row %d is another's", caller, step, i)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Run(&device.Step{Batch: &device.Batch{Tokens: make([]int32, 1), Seqs: []device.Seq{{Rows: 1}}}}); err == nil {
		t.Error("a closed device ran a step")
	}
}
