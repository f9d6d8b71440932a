package cpu

import (
	"math/rand/v2"
	"testing"

	"quire/device"
)

// TestSteadyStateAllocates makes sure that a step like the one before it costs next to no garbage.
func TestSteadyStateAllocates(t *testing.T) {
	d := newDevice(t, Options{Threads: 2})
	r := rand.New(rand.NewPCG(1, 1))
	var ops []device.Op
	for i := range 18 {
		typ := types[i%len(types)]
		cols := blockCols(typ, 64)
		m, err := d.Matrix(typ, 64, cols, randomWeights(r, typ, 64, cols))
		if err != nil {
			t.Fatal(err)
		}
		in, _ := d.Buffer(8, cols)
		out, _ := d.Buffer(8, 64)
		ops = append(ops, device.MatMul{In: in, Parts: []device.Part{{W: m, Out: out}}}, device.SwiGLU{Out: out, Gate: out, Up: out})
	}
	s := &device.Step{Batch: &device.Batch{Tokens: make([]int32, 8), Seqs: []device.Seq{{Rows: 8}}}, Ops: ops}
	run := func() {
		if err := d.Run(s); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		run()
	}
	if n := testing.AllocsPerRun(50, run); n > 4 {
		t.Errorf("a step of %d ops allocates %g times", len(ops), n)
	}
}
