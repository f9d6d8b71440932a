//go:build cuda && linux

package cuda

import (
	"bytes"
	"errors"
	"testing"

	"quire/device"
	"quire/kvtransfer/page"
)

// fault demands a device.Fault of an error.
func (r *rig) fault(what string, err error) *device.Fault {
	r.Helper()
	var f *device.Fault
	if !errors.As(err, &f) {
		r.Fatalf("%s: %v, want a fault of the device", what, err)
	}
	return f
}

// TestForeignPage: a page of another owner, or of the same one in another generation, is found by every kernel that reads pages,
// in the split path of decode and in that of prefill, and the sequence's other pages do not matter.
func TestForeignPage(t *testing.T) {
	r := newRig(t)
	const rows = 300 // two splits
	o, v := r.seq(1, rows+40)
	if err := r.step(o, v, 0, rows, nil); err != nil {
		t.Fatal(err)
	}
	v = r.grown(o, rows)
	stranger := page.Owner{Handoff: [16]byte{9}, Attempt: 1}
	for _, index := range []int{0, 7, 16, 18} {
		s := v.Slot(index)
		for what, plant := range map[string]device.Tag{
			"another hand-off":   {Owner: stranger, Gen: s.Gen},
			"another attempt":    {Owner: page.Owner{Handoff: o.Handoff, Attempt: 2}, Gen: s.Gen},
			"another generation": {Owner: o, Gen: s.Gen + 1},
			"nobody":             {},
		} {
			r.plant(s.Page, plant.Owner, plant.Gen)
			for _, n := range []int{1, 40} { // one row: by splits; forty: one block for all splits
				if index == 18 && what == "nobody" {
					continue // the page that the step writes: it would become the owner's
				}
				f := r.fault(what, r.step(o, v, rows, n, nil))
				if f.Page != s.Page || f.Index != index || f.Found != plant || f.Wanted != (device.Tag{Owner: o, Gen: s.Gen}) || f.Write != (index == 18) {
					t.Errorf("page %d, %s, %d rows: %v", index, what, n, f)
				}
			}
			dst := []byte("kept")
			got, err := r.pool.Read(v, device.Range{LayerTo: 2, RowTo: rows}, dst)
			if f := r.fault(what, err); f.Page != s.Page || f.Write || !bytes.Equal(got, dst) {
				t.Errorf("read of page %d, %s: %v, %d bytes", index, what, f, len(got))
			}
		}
		r.plant(s.Page, o, s.Gen)
	}
	if err := r.step(o, v, rows, 1, nil); err != nil {
		t.Errorf("with its own pages again: %v", err)
	}
}

// TestForeignPageInBatch: the fault names the sequence, and a step with one does not write a single page.
func TestForeignPageInBatch(t *testing.T) {
	r := newRig(t)
	var owners [2]page.Owner
	var views [2]page.View
	b := &device.Batch{Pool: r.pool, Tokens: make([]int32, 2)}
	for i := range owners {
		owners[i], views[i] = r.seq(byte(i+1), 40)
		if err := r.step(owners[i], views[i], 0, 20, nil); err != nil {
			t.Fatal(err)
		}
		views[i] = r.grown(owners[i], 20)
		g, err := r.led.Grant(owners[i], 20, 21)
		if err != nil {
			t.Fatal(err)
		}
		b.Seqs = append(b.Seqs, device.Seq{Row: i, Rows: 1, From: 20, View: views[i], Grant: g})
	}
	whole := device.Range{LayerTo: 2, RowTo: 20}
	before, err := r.pool.Read(views[0], whole, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := views[1].Slot(1) // written by the step
	r.plant(s.Page, owners[0], s.Gen)
	q := r.buffer(2, 2*rigCols, 0)
	err = r.dev.Run(&device.Step{Batch: b, Ops: []device.Op{
		device.Rotate{Q: q, K: r.buffer(2, rigCols, 1), V: r.buffer(2, rigCols, 2), Sin: r.sin, Cos: r.cos, Dims: 32}}})
	if f := r.fault("write", err); f.Seq != 1 || !f.Write || f.Index != 1 {
		t.Errorf("%v", f)
	}
	after, err := r.pool.Read(views[0], whole, nil)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("rows of the other sequence changed, %v", err)
	}
	// Row 20 of the other sequence was not written either: its slot holds zeros, as the page came.
	if err := r.led.Settle(b.Seqs[0].Grant); err != nil {
		t.Fatal(err)
	}
	got, err := r.pool.Read(r.grown(owners[0], 21), device.Range{LayerTo: 2, RowFrom: 20, RowTo: 21}, nil)
	if err != nil || !bytes.Equal(got, make([]byte, len(got))) {
		t.Errorf("a step with a fault wrote a row, %v", err)
	}
}

// TestFramesAndOwners: a frame gives its pages their tags; another owner gets the pages only after they were zeroed.
func TestFramesAndOwners(t *testing.T) {
	r := newRig(t)
	o := page.Owner{Handoff: [16]byte{1}, Attempt: 1}
	slots, err := r.led.Reserve(o, 20)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.led.Fill(o); err != nil {
		t.Fatal(err)
	}
	g, err := r.led.Grant(o, 0, 20)
	if err != nil {
		t.Fatal(err)
	}
	frame := bytes.Repeat([]byte{1, 2, 3, 4}, 2*20*r.pool.spec.RowBytes()/4)
	if err := r.pool.Write(g, device.Range{LayerTo: 2, RowTo: 20}, frame); err != nil {
		t.Fatal(err)
	}
	for _, s := range slots {
		if got := r.tag(s.Page); got != (device.Tag{Owner: o, Gen: s.Gen}) {
			t.Errorf("page %d has the tag %v", s.Page, got)
		}
	}
	// A stale ledger gives the same pages to another owner without zeroing.
	stale := page.NewLedger(3, rigPages, rigRows)
	other := page.Owner{Handoff: [16]byte{2}, Attempt: 1}
	if _, err := stale.Reserve(other, 20); err != nil {
		t.Fatal(err)
	}
	if err := stale.Fill(other); err != nil {
		t.Fatal(err)
	}
	og, err := stale.Grant(other, 0, 20)
	if err != nil {
		t.Fatal(err)
	}
	if f := r.fault("stale", r.pool.Write(og, device.Range{LayerTo: 2, RowTo: 20}, make([]byte, len(frame)))); !f.Write || f.Found.Owner != o || f.Wanted.Owner != other {
		t.Errorf("%v", f)
	}
	ids := []page.ID{slots[0].Page, slots[1].Page}
	if got := r.pool.NonZero(ids); got != int(ids[0]) {
		t.Errorf("the refused frame was written: page %d is the first that is not zero", got)
	}
	if err := r.pool.Zero(ids); err != nil {
		t.Fatal(err)
	}
	if got := r.tag(ids[0]); got != (device.Tag{}) || r.pool.NonZero(ids) != -1 {
		t.Errorf("a zeroed page has the tag %v", got)
	}
	if err := r.pool.Write(og, device.Range{LayerTo: 2, RowTo: 20}, frame); err != nil {
		t.Errorf("after zeroing: %v", err)
	}
}

// TestDigest: the device's digest of a frame is the host's, and one changed word changes it.
func TestDigest(t *testing.T) {
	r := newRig(t)
	l := r.dev.in
	leave, err := l.enter(r.pool)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	b := make([]byte, 40_000)
	for i := range b {
		b[i] = byte(i * i / 7)
	}
	copy(l.host.bytes(), b)
	if err := copyFrame(l, len(b)); err != nil {
		t.Fatal(err)
	}
	if err := l.landed(b); err != nil {
		t.Error(err)
	}
	b[1234]++
	if err := l.landed(b); err == nil {
		t.Error("another word has the same digest")
	}
	b[1234]--
	b[0], b[4] = b[4]+1, b[0]
	if err := l.landed(b); err == nil {
		t.Error("swapped words have the same digest")
	}
}
