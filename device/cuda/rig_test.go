//go:build cuda && linux

package cuda

import (
	"math"
	"testing"
	"unsafe"

	"gorgonia.org/cu"

	"quire/device"
	"quire/kvtransfer/page"
)

// rig is a device on the emulator with a small pool and its ledger.
type rig struct {
	*testing.T
	dev  *Device
	pool *pool
	led  *page.Ledger
	sin  device.Buffer
	cos  device.Buffer
}

// Shape of the pool: 2 layers, 2 heads of 32, pages of 16 rows.
const (
	rigPages = 24
	rigRows  = 16
	rigCols  = 2 * 32
)

func newRig(t *testing.T) *rig {
	r := &rig{T: t, dev: open(t), led: page.NewLedger(3, rigPages, rigRows)}
	t.Cleanup(func() {
		if err := r.dev.Close(); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	p, err := r.dev.Pool(device.PoolSpec{Number: 3, Pages: rigPages, PageSize: rigRows, Layers: 2, KVHeads: 2, HeadDim: 32, Type: device.F16})
	if err != nil {
		t.Fatal(err)
	}
	r.pool = p.(*pool)
	r.sin, r.cos = r.buffer(400, 16, 0), r.buffer(400, 16, 1)
	return r
}

// buffer makes a buffer of fixed numbers.
func (r *rig) buffer(rows, cols, salt int) device.Buffer {
	r.Helper()
	b, err := r.dev.Buffer(rows, cols)
	if err != nil {
		r.Fatal(err)
	}
	x := make([]float32, rows*cols)
	for i := range x {
		x[i] = float32(math.Sin(float64(i)*0.37 + float64(salt)))
	}
	if err := r.dev.Upload(b, 0, x); err != nil {
		r.Fatal(err)
	}
	return b
}

// seq is an owner with so many rows reserved and owned, none of them written.
func (r *rig) seq(n byte, rows int) (page.Owner, page.View) {
	r.Helper()
	o := page.Owner{Handoff: [16]byte{n}, Attempt: 1}
	if _, err := r.led.Reserve(o, rows); err != nil {
		r.Fatal(err)
	}
	v, err := r.led.Own(o)
	if err != nil {
		r.Fatal(err)
	}
	return o, v
}

// step computes rows [from, from+n) of an owner: stores and attention. out gets what attention gave.
func (r *rig) step(o page.Owner, v page.View, from, n int, out [][]float32) error {
	r.Helper()
	g, err := r.led.Grant(o, from, from+n)
	if err != nil {
		r.Fatal(err)
	}
	q := r.buffer(n, 2*rigCols, from)
	b := &device.Batch{Pool: r.pool, Tokens: make([]int32, n), Seqs: []device.Seq{{Rows: n, From: from, View: v, Grant: g}}}
	ops := []device.Op{
		device.Rotate{Q: q, K: r.buffer(n, rigCols, from+1), V: r.buffer(n, rigCols, from+2), Sin: r.sin, Cos: r.cos, Dims: 32},
		device.Attend{Q: q, Out: q, Scale: 0.2},
	}
	if out != nil {
		rows := make([]int, len(out))
		for i := range rows {
			rows[i] = i
		}
		ops = append(ops, device.Download{From: q, Rows: rows, To: out})
	}
	err = r.dev.Run(&device.Step{Batch: b, Ops: ops})
	if e := r.led.Settle(g); e != nil {
		r.Fatal(e)
	}
	return err
}

// grown is the owner's view after rows [0, to) were written.
func (r *rig) grown(o page.Owner, to int) page.View {
	r.Helper()
	v, err := r.led.Grow(o, to)
	if err != nil {
		r.Fatal(err)
	}
	return v
}

// tag reads a page's tag from the device.
func (r *rig) tag(id page.ID) device.Tag {
	r.Helper()
	leave, err := r.dev.enter()
	if err != nil {
		r.Fatal(err)
	}
	defer leave()
	var t [1]tagRec
	if err := cu.MemcpyDtoH(unsafe.Pointer(&t[0]), r.pool.tags+cu.DevicePtr(int(id)*int(unsafe.Sizeof(t[0]))), int64(unsafe.Sizeof(t[0]))); err != nil {
		r.Fatal(err)
	}
	return t[0].tag()
}

// plant gives a page another owner's tag, behind everybody's back.
func (r *rig) plant(id page.ID, o page.Owner, gen page.Gen) {
	r.Helper()
	leave, err := r.dev.enter()
	if err != nil {
		r.Fatal(err)
	}
	defer leave()
	var t [1]tagRec
	t[0].a, t[0].b, t[0].attempt = owner(o)
	t[0].gen = uint64(gen)
	if err := toDevice(r.pool.tags+cu.DevicePtr(int(id)*int(unsafe.Sizeof(t[0]))), unsafe.Pointer(&t[0]), int(unsafe.Sizeof(t[0]))); err != nil {
		r.Fatal(err)
	}
}
