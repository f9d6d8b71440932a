//go:build cuda && linux

package cuda

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"quire/device"
	"quire/kvtransfer/page"
)

// lane copies frames into pages, or out of them, on a stream of its own, beside the steps. One copy runs at a time.
type lane struct {
	dev    *Device
	mu     sync.Mutex // held by the caller whose copy runs
	stream cu.Stream
	room   room
	host   *pinned      // [laneBytes] of frame
	frame  cu.DevicePtr // [laneBytes], the same on the device
}

// laneBytes is how much of a frame is copied at a time: a whole one, as a rule.
const laneBytes = 1 << 20

// laneRecords is room for the records of a copy: 1 MiB of rows of a few bytes take the most pages.
const laneRecords = 1 << 20

// newLane makes a lane. The context is current.
func newLane(d *Device) (*lane, error) {
	l := &lane{dev: d}
	var err error
	if l.stream, err = cu.MakeStream(cu.NonBlocking); err != nil {
		return nil, failed("stream", err)
	}
	if l.room, err = newRoom(d, laneRecords); err != nil {
		return nil, err
	}
	if l.host, err = newPinned(laneBytes); err != nil {
		return nil, err
	}
	l.frame, err = d.alloc(laneBytes)
	return l, err
}

// rights is what a view and a grant have in common: whose pages, and which.
type rights struct {
	owner page.Owner
	slot  func(i int) page.Slot
}

// enter takes the lane and the context; the function that it returns gives both back.
func (l *lane) enter(p *pool) (leave func(), err error) {
	l.mu.Lock()
	out, err := l.dev.enter()
	if err == nil && p.isFreed() {
		out()
		err = errors.New("device/cuda: pool: it was freed")
	}
	if err != nil {
		l.mu.Unlock()
		return nil, err
	}
	l.room.used = 0
	return func() { out(); l.mu.Unlock() }, nil
}

// move copies rows between pages and b, in pieces of what the lane has room for.
func (l *lane) move(p *pool, who rights, r device.Range, in bool, b []byte) error {
	n := p.spec.RowBytes()
	rows := r.RowTo - r.RowFrom
	if len(b) <= laneBytes && (rows/p.spec.PageSize+2)*int(unsafe.Sizeof(slotRec{})+unsafe.Sizeof(markRec{})) < laneRecords-1024 {
		return l.piece(p, who, r, in, b)
	}
	per := min(rows, laneBytes/n, laneRecords/64)
	for layer := r.LayerFrom; layer < r.LayerTo; layer++ {
		for row := r.RowFrom; row < r.RowTo; row += per {
			part := device.Range{LayerFrom: layer, LayerTo: layer + 1, RowFrom: row, RowTo: min(row+per, r.RowTo)}
			bytes := (part.RowTo - part.RowFrom) * n
			if err := l.piece(p, who, part, in, b[:bytes]); err != nil {
				return err
			}
			b = b[bytes:]
		}
	}
	return nil
}

// piece copies rows that fit the lane. It returns when they have landed.
func (l *lane) piece(p *pool, who rights, r device.Range, in bool, b []byte) error {
	leave, err := l.enter(p)
	if err != nil {
		return err
	}
	defer leave()
	if in {
		copy(l.host.bytes(), b)
	}
	batch, fault, marks := l.describe(p, who, r)
	if err := l.queue(p, r, in, len(b), [2]cu.DevicePtr{batch, marks}, fault); err != nil {
		_ = l.stream.Synchronize() // the first error says what is wrong
		return err
	}
	if err := l.stream.Synchronize(); err != nil {
		return failed("copy", err)
	}
	if err := l.room.fault(fault); err != nil {
		return err
	}
	if !in {
		copy(b, l.host.bytes())
	}
	if invariants {
		return l.landed(b)
	}
	return nil
}

// describe puts the records of a copy into the room: a batch of one sequence.
func (l *lane) describe(p *pool, who rights, r device.Range) (batch, fault, marks cu.DevicePtr) {
	first, last := r.RowFrom/p.spec.PageSize, (r.RowTo-1)/p.spec.PageSize
	slots := make([]slotRec, 0, last-first+1)
	mark := make([]markRec, 0, last-first+1)
	for i := first; i <= last; i++ {
		s := who.slot(i)
		slots = append(slots, slotRec{gen: uint64(s.Gen), page: uint32(s.Page)})
		mark = append(mark, markRec{slot: int32(i)})
	}
	seq := seqRec{rows: int32(r.RowTo - r.RowFrom), from: int32(r.RowFrom), slots: int32(-first), granted: 1}
	seq.a, seq.b, seq.attempt = owner(who.owner)
	fault = put(&l.room, []faultRec{{}})
	rec := batchRec{seqs: uint64(put(&l.room, []seqRec{seq})), slots: uint64(put(&l.room, slots)), fault: uint64(fault)}
	return put(&l.room, []batchRec{rec}), fault, put(&l.room, mark)
}

// queue puts the copy's parts on the stream. rec is the batch and the marks of its pages.
func (l *lane) queue(p *pool, r device.Range, in bool, bytes int, rec [2]cu.DevicePtr, fault cu.DevicePtr) error {
	if err := l.room.send(l.stream); err != nil {
		return failed("copy", err)
	}
	rows, layers := r.RowTo-r.RowFrom, r.LayerTo-r.LayerFrom
	if in {
		pages := (r.RowTo-1)/p.spec.PageSize - r.RowFrom/p.spec.PageSize + 1
		if err := cu.MemcpyHtoDAsync(l.frame, l.host.at, int64(bytes), l.stream); err != nil {
			return failed("copy", err)
		}
		if err := l.run("tag_pages", (pages+127)/128, 1, 128, rec[0], p.rec, rec[1], pages); err != nil {
			return err
		}
		if err := l.run("page_in", rows, layers, 128, rec[0], p.rec, l.frame, r.LayerFrom); err != nil {
			return err
		}
		return l.room.fetchFault(fault, l.stream)
	}
	if err := l.run("page_out", rows, layers, 128, rec[0], p.rec, l.frame, r.LayerFrom); err != nil {
		return err
	}
	if err := cu.MemcpyDtoHAsync(l.host.at, l.frame, int64(bytes), l.stream); err != nil {
		return failed("copy", err)
	}
	return l.room.fetchFault(fault, l.stream)
}

func (l *lane) run(name string, gx, gy, block int, args ...any) error {
	k, err := l.dev.launch(name, gx, gy, block, args...)
	if err != nil {
		return err
	}
	return k.on(l.stream)
}

// pagesAtOnce is how many page numbers go to the device at a time.
const pagesAtOnce = 1 << 16

// eachPage runs a kernel over whole pages: zero_pages, or find_nonzero, which gives the index of the first page that is not zero,
// or -1.
func (l *lane) eachPage(p *pool, pages []page.ID, name string) (int, error) {
	for from := 0; from < len(pages); from += pagesAtOnce {
		i, err := l.somePages(p, pages[from:min(from+pagesAtOnce, len(pages))], name)
		if err != nil || i >= 0 {
			return from + i, err
		}
	}
	return -1, nil
}

func (l *lane) somePages(p *pool, pages []page.ID, name string) (int, error) {
	leave, err := l.enter(p)
	if err != nil {
		return -1, err
	}
	defer leave()
	first := put(&l.room, []int32{math.MaxInt32})
	ids := put(&l.room, pages)
	if l.room.full() {
		return -1, fmt.Errorf("device/cuda: %s: no room for %d pages", name, len(pages))
	}
	slices := min(max(1, p.words/4096), 64)
	args := []any{p.rec, ids, uint64(p.words), first}
	if name == "zero_pages" {
		args = args[:3]
	}
	err = l.room.send(l.stream)
	if err == nil {
		err = l.run(name, len(pages), slices, 256, args...)
	}
	if err == nil {
		err = cu.MemcpyDtoHAsync(l.room.host.at, first, 4, l.stream)
	}
	if err = errors.Join(err, l.stream.Synchronize()); err != nil {
		return -1, failed(name, err)
	}
	if i := as[int32](l.room.host.bytes()); i != math.MaxInt32 {
		return int(i), nil
	}
	return -1, nil
}
