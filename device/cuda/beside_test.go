//go:build cuda && linux

package cuda

import (
	"bytes"
	"math"
	"sync"
	"testing"

	"quire/device"
	"quire/kvtransfer/page"
)

// TestCopiesBesideSteps: frames go in and out and pages are zeroed while steps of another sequence run; nobody disturbs anybody.
func TestCopiesBesideSteps(t *testing.T) {
	r := newRig(t)
	o, v := r.seq(1, 100)
	alone := r.outputs(o, v, 60)
	ids := make([]page.ID, v.Pages())
	for i := range ids {
		ids[i] = v.Slot(i).Page
	}
	if err := r.pool.Zero(ids); err != nil {
		t.Fatal(err)
	}
	again := &rig{T: t, dev: r.dev, pool: r.pool, led: page.NewLedger(3, rigPages, rigRows), sin: r.sin, cos: r.cos}
	o, v = again.seq(1, 100)
	other := page.Owner{Handoff: [16]byte{2}, Attempt: 1}
	slots, err := again.led.Reserve(other, 40)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.led.Fill(other); err != nil {
		t.Fatal(err)
	}
	g, err := again.led.Grant(other, 0, 40)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.led.Settle(g); err != nil {
		t.Fatal(err)
	}
	view, err := again.led.Admit(other, 40)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := byte(1); ; n++ {
			frame := bytes.Repeat([]byte{n, 1, n, 2}, 2*40*r.pool.spec.RowBytes()/4)
			err := r.pool.Write(g, device.Range{LayerTo: 2, RowTo: 40}, frame)
			if err != nil {
				t.Error(err)
			}
			got, err := r.pool.Read(view, device.Range{LayerTo: 2, RowTo: 40}, nil)
			if err != nil || !bytes.Equal(got, frame) {
				t.Errorf("round %d: what was read is not what was written, %v", n, err)
			}
			theirs := []page.ID{slots[0].Page, slots[1].Page, slots[2].Page}
			if err := r.pool.Zero(theirs); err != nil || r.pool.NonZero(theirs) != -1 {
				t.Errorf("round %d: not zeroed, %v", n, err)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	beside := again.outputs(o, v, 60)
	close(stop)
	wg.Wait()
	for i := range alone {
		for j, x := range alone[i] {
			if math.Float32bits(x) != math.Float32bits(beside[i][j]) {
				t.Fatalf("row %d: number %d is %g alone, %g beside copies", i, j, x, beside[i][j])
			}
		}
	}
}

// outputs computes rows one by one, after a chunk, and gives what attention made of each.
func (r *rig) outputs(o page.Owner, v page.View, rows int) [][]float32 {
	r.Helper()
	if err := r.step(o, v, 0, rows-10, nil); err != nil {
		r.Fatal(err)
	}
	v = r.grown(o, rows-10)
	var out [][]float32
	for row := rows - 10; row < rows; row++ {
		x := [][]float32{make([]float32, 2*rigCols)}
		if err := r.step(o, v, row, 1, x); err != nil {
			r.Fatal(err)
		}
		v = r.grown(o, row+1)
		out = append(out, x[0])
	}
	return out
}
