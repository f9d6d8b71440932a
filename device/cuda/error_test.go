//go:build cuda && linux

package cuda

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"quire/device"
	"quire/kvtransfer/page"
)

func copyFrame(l *lane, n int) error { return toDevice(l.frame, l.host.at, n) }

// failing demands an error of the device that holds a word.
func failing(t *testing.T, what string, err error, word string) {
	t.Helper()
	if err == nil || !errors.Is(err, device.ErrDevice) || !strings.Contains(err.Error(), word) {
		t.Errorf("%s: %v, want an error of the device with %q", what, err, word)
	}
}

// TestNoDevice: no device, and one that is not there, are errors with the numbers.
func TestNoDevice(t *testing.T) {
	planned(t)
	emulate(t)
	if _, err := New(Options{Ordinal: 3}); err == nil || !strings.Contains(err.Error(), "device 3: this machine has 1") {
		t.Errorf("device 3: %v", err)
	}
	t.Setenv("QUIRE_EMULATOR_DEVICES", "0")
	if _, err := New(Options{}); err == nil || !strings.Contains(err.Error(), "finds no device") {
		t.Errorf("no device: %v", err)
	}
}

// TestSeveralDevices: each ordinal is its own device.
func TestSeveralDevices(t *testing.T) {
	planned(t)
	emulate(t)
	t.Setenv("QUIRE_EMULATOR_DEVICES", "2")
	drv, err := Find()
	if err != nil || len(drv.Devices) != 2 || drv.Devices[1].Ordinal != 1 || drv.Devices[1].Memory != 4<<30 || drv.Version != 12020 {
		t.Fatalf("%+v, %v", drv, err)
	}
	var devs [2]device.Device
	for i := range devs {
		if devs[i], err = New(Options{Ordinal: i}); err != nil {
			t.Fatal(err)
		}
		defer devs[i].Close()
	}
	b, err := devs[0].Buffer(1, 8)
	if err != nil {
		t.Fatal(err)
	}
	if err := devs[1].Upload(b, 0, make([]float32, 8)); err == nil {
		t.Error("a buffer of one device was taken by another")
	}
}

// TestOutOfMemory: what does not fit is refused, and what is there goes on working.
func TestOutOfMemory(t *testing.T) {
	planned(t)
	r := newRig(t)
	o, v := r.seq(1, 40)
	t.Setenv("QUIRE_EMULATOR_FAIL", "cuMemAlloc_v2=2")
	_, err := r.dev.Buffer(10, 10)
	failing(t, "buffer", err, "memory: 1280 bytes")
	_, err = r.dev.Matrix(device.F32, 1, 8, make([]byte, 32))
	failing(t, "matrix", err, "memory")
	_, err = r.dev.Pool(device.PoolSpec{Number: 9, Pages: 4, PageSize: 4, Layers: 1, KVHeads: 1, HeadDim: 8, Type: device.F16})
	failing(t, "pool", err, "memory")
	if _, err := New(Options{}); !errors.Is(err, device.ErrDevice) {
		t.Errorf("a device without memory: %v", err)
	}
	t.Setenv("QUIRE_EMULATOR_FAIL", "")
	if err := r.step(o, v, 0, 20, nil); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestLaunchFailure: a launch that the driver refuses is an error of the step, and the next step works.
func TestLaunchFailure(t *testing.T) {
	planned(t)
	r := newRig(t)
	o, v := r.seq(1, 40)
	for _, what := range []string{"cuLaunchKernel=1@1", "cuLaunchKernel=701@3", "cuMemcpyHtoDAsync_v2=1@1", "cuMemcpyDtoHAsync_v2=1@1"} {
		q, k, x := r.buffer(20, 2*rigCols, 0), r.buffer(20, rigCols, 1), r.buffer(20, rigCols, 2)
		g, err := r.led.Grant(o, 0, 20)
		if err != nil {
			t.Fatal(err)
		}
		b := &device.Batch{Pool: r.pool, Tokens: make([]int32, 20), Seqs: []device.Seq{{Rows: 20, View: v, Grant: g}}}
		t.Setenv("QUIRE_EMULATOR_FAIL", what)
		err = r.dev.Run(&device.Step{Batch: b, Ops: []device.Op{
			device.Rotate{Q: q, K: k, V: x, Sin: r.sin, Cos: r.cos, Dims: 32}, device.Attend{Q: q, Out: q, Scale: 1}}})
		failing(t, what, err, "device/cuda")
		t.Setenv("QUIRE_EMULATOR_FAIL", "")
		if err := r.led.Settle(g); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.step(o, v, 0, 20, nil); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestLostDevice: once the driver says that the device is gone, every call fails, and none hangs or panics.
func TestLostDevice(t *testing.T) {
	planned(t)
	r := newRig(t)
	o, v := r.seq(1, 40)
	if err := r.step(o, v, 0, 20, nil); err != nil {
		t.Fatal(err)
	}
	v = r.grown(o, 20)
	g, err := r.led.Grant(o, 20, 21)
	if err != nil {
		t.Fatal(err)
	}
	b := &device.Batch{Pool: r.pool, Tokens: []int32{0}, Seqs: []device.Seq{{Rows: 1, From: 20, View: v, Grant: g}}}
	q := r.buffer(1, 2*rigCols, 0)
	step := &device.Step{Batch: b, Ops: []device.Op{device.Attend{Q: q, Out: q, Scale: 1}}}
	t.Setenv("QUIRE_EMULATOR_FAIL", "cuStreamSynchronize=719@1")
	failing(t, "the step that lost it", r.dev.Run(step), "")
	failing(t, "the next step", r.dev.Run(step), "")
	_, err = r.pool.Read(v, device.Range{LayerTo: 1, RowTo: 1}, nil)
	failing(t, "read", err, "")
	failing(t, "zero", r.pool.Zero([]page.ID{0}), "")
	if r.pool.NonZero([]page.ID{0}) != 0 {
		t.Error("a device that cannot be asked calls a page zero")
	}
	t.Setenv("QUIRE_EMULATOR_FAIL", "")
}

// TestWrongPTX: an image that is no PTX, and one without a kernel, are errors.
func TestWrongPTX(t *testing.T) {
	planned(t)
	emulate(t)
	defer func(was string) { ptx = was }(ptx)
	good := ptx
	ptx = "not a program"
	_, err := New(Options{})
	failing(t, "no PTX", err, "load kernels")
	ptx = strings.ReplaceAll(good, ".entry norm(", ".entry another(")
	d, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	x, err := d.Buffer(1, 8)
	if err != nil {
		t.Fatal(err)
	}
	b := &device.Batch{Tokens: []int32{0}, Seqs: []device.Seq{{Rows: 1}}}
	failing(t, "a kernel is missing", d.Run(&device.Step{Batch: b, Ops: []device.Op{device.Norm{Out: x, In: x, Weight: x, Eps: 1}}}), "kernel norm")
}

// TestNoAllocationAfterStart: steps, copies and zeroing ask the driver for no memory, on either side.
func TestNoAllocationAfterStart(t *testing.T) {
	planned(t)
	r := newRig(t)
	o, v := r.seq(1, 300)
	q, k, x := r.buffer(290, 2*rigCols, 0), r.buffer(290, rigCols, 1), r.buffer(290, rigCols, 2)
	out := [][]float32{make([]float32, 2*rigCols)}
	t.Setenv("QUIRE_EMULATOR_FAIL", "cuMemAlloc_v2=2,cuMemHostAlloc=2")
	for _, rows := range [][2]int{{0, 289}, {289, 290}} {
		g, err := r.led.Grant(o, rows[0], rows[1])
		if err != nil {
			t.Fatal(err)
		}
		n := rows[1] - rows[0]
		b := &device.Batch{Pool: r.pool, Tokens: make([]int32, n), Seqs: []device.Seq{{Rows: n, From: rows[0], View: v, Grant: g}}}
		if err := r.dev.Run(&device.Step{Batch: b, Ops: []device.Op{
			device.Rotate{Q: q, K: k, V: x, Sin: r.sin, Cos: r.cos, Dims: 32}, device.Attend{Q: q, Out: q, Scale: 1},
			device.Download{From: q, Rows: []int{0}, To: out}}}); err != nil {
			t.Fatal(err)
		}
		if err := r.led.Settle(g); err != nil {
			t.Fatal(err)
		}
		v = r.grown(o, rows[1])
	}
	if _, err := r.pool.Read(v, device.Range{LayerTo: 2, RowTo: 290}, nil); err != nil {
		t.Error(err)
	}
	if err := r.pool.Zero([]page.ID{0, 1, 2}); err != nil {
		t.Error(err)
	}
}

// TestProductsAgree: few rows and many, by different kernels, have the same bits, over several segments of columns.
func TestProductsAgree(t *testing.T) {
	r := newRig(t)
	const cols, outs, rows = 2304 + 256, 70, 40
	for typ := device.F32; typ.Valid(); typ++ {
		n, err := typ.RowBytes(cols)
		if err != nil {
			t.Fatal(err)
		}
		src := make([]byte, outs*n)
		for i := range src {
			src[i] = byte(i*i>>3 + i)
		}
		plain(typ, src)
		w, err := r.dev.Matrix(typ, outs, cols, src)
		if err != nil {
			t.Fatal(err)
		}
		all := r.product(w, rows)
		if !slices.ContainsFunc(all[rows-1], func(v float32) bool { return v != 0 }) {
			t.Fatalf("%s: a product is zero", typ)
		}
		for _, few := range []int{1, 2, 3, 4, 5, 8} {
			for i, row := range r.product(w, few) {
				for j, v := range row {
					if math.Float32bits(v) != math.Float32bits(all[i][j]) || v != v {
						t.Fatalf("%s: output %d of row %d: %g in a batch of %d, %g in one of %d", typ, j, i, v, few, all[i][j], rows)
					}
				}
			}
		}
	}
}

// plain makes sure that no number of the bytes is infinite or NaN.
func plain(typ device.Type, src []byte) {
	n, size := typ.Block()
	at := device.Factors(typ)
	if n == 1 {
		at = []int{size - 2}
	}
	for b := 0; b+size <= len(src); b += size {
		for _, i := range at {
			src[b+i+1] &= 0xbf // an exponent of at most half its range
		}
	}
}

// product multiplies the first rows of a fixed input.
func (r *rig) product(w device.Matrix, rows int) [][]float32 {
	r.Helper()
	in, out := r.buffer(rows, w.Cols(), 4), r.buffer(rows, w.Rows(), 5)
	to := make([][]float32, rows)
	at := make([]int, rows)
	for i := range to {
		to[i], at[i] = make([]float32, w.Rows()), i
	}
	b := &device.Batch{Tokens: make([]int32, rows), Seqs: []device.Seq{{Rows: rows}}}
	if err := r.dev.Run(&device.Step{Batch: b, Ops: []device.Op{
		device.MatMul{In: in, Parts: []device.Part{{W: w, Out: out}}}, device.Download{From: out, Rows: at, To: to}}}); err != nil {
		r.Fatal(err)
	}
	return to
}
