//go:build cuda && linux

package cuda

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"gorgonia.org/cu"

	"quire/device"
	"quire/kvtransfer/page"
)

// pool is page memory on the device, [pages][layers][2: K, V][kvHeads][pageSize] heads as they are in a frame, with a tag for each page.
type pool struct {
	dev   *Device
	spec  device.PoolSpec
	head  int // bytes of a stored head
	words int // 32-bit words of a page
	data  cu.DevicePtr
	tags  cu.DevicePtr
	rec   cu.DevicePtr // poolRec
	freed bool         // guarded by dev.mu
}

// maxHeadDim is what attention has shared memory for.
const maxHeadDim = 512

// Pool makes a pool of pages, all zero and nobody's.
func (d *Device) Pool(s device.PoolSpec) (device.Pool, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	p := &pool{dev: d, spec: s, head: s.RowBytes() / (2 * s.KVHeads)}
	perPage := s.Layers * s.PageSize * s.RowBytes()
	if s.HeadDim > maxHeadDim || s.RowBytes() > laneBytes || perPage > math.MaxInt/2/s.Pages || s.Layers > maxGridY {
		return nil, fmt.Errorf("device/cuda: pool: %d pages of %d bytes, heads of %d", s.Pages, perPage, s.HeadDim)
	}
	p.words = perPage / 4
	d.queue.Lock()
	defer d.queue.Unlock()
	leave, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if p.data, err = d.alloc(s.Pages * perPage); err != nil {
		return nil, err
	}
	if p.tags, err = d.alloc(s.Pages * int(unsafe.Sizeof(tagRec{}))); err != nil {
		return nil, err
	}
	if p.rec, err = d.alloc(int(unsafe.Sizeof(poolRec{}))); err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.pools = append(d.pools, p)
	d.mu.Unlock()
	return p, p.describe(true)
}

// describe tells the kernels about the pool. check is false only to measure what comparing tags costs. The context is current.
func (p *pool) describe(check bool) error {
	s := p.spec
	rec := []poolRec{{
		data: uint64(p.data), tags: uint64(p.tags), pages: int32(s.Pages), pageSize: int32(s.PageSize), layers: int32(s.Layers),
		kvHeads: int32(s.KVHeads), headDim: int32(s.HeadDim), headBytes: int32(p.head), typ: int32(s.Type), check: int32(arg(check)),
	}}
	if err := toDevice(p.rec, unsafe.Pointer(&rec[0]), int(unsafe.Sizeof(rec[0]))); err != nil {
		return failed("pool", err)
	}
	return nil
}

// Spec describes the pool.
func (p *pool) Spec() device.PoolSpec { return p.spec }

// Free gives the memory back.
func (p *pool) Free() {
	d := p.dev
	d.queue.Lock()
	defer d.queue.Unlock()
	leave, err := d.enter()
	if err != nil {
		return // closed: it is gone
	}
	defer leave()
	d.mu.Lock()
	was := p.freed
	p.freed = true
	d.pools = slices.DeleteFunc(d.pools, func(q *pool) bool { return p == q })
	d.mu.Unlock()
	if !was {
		d.release(p.data)
		d.release(p.tags)
		d.release(p.rec)
	}
}

func (p *pool) isFreed() bool {
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	return p.freed
}

// Read copies rows out in the order of a frame.
func (p *pool) Read(v page.View, r device.Range, dst []byte) ([]byte, error) {
	if err := p.spec.CheckRange(r); err != nil {
		return dst, err
	}
	if err := p.spec.CheckView(v, r.RowTo); err != nil {
		return dst, err
	}
	at := len(dst)
	dst = append(dst, make([]byte, (r.LayerTo-r.LayerFrom)*(r.RowTo-r.RowFrom)*p.spec.RowBytes())...)
	err := p.dev.out.move(p, rights{v.Owner(), v.Slot}, r, false, dst[at:])
	if err != nil {
		return dst[:at], err
	}
	return dst, nil
}

// Write copies rows in.
func (p *pool) Write(g page.Grant, r device.Range, src []byte) error {
	if err := p.spec.CheckRange(r); err != nil {
		return err
	}
	if err := p.spec.CheckGrant(g, r.RowFrom, r.RowTo); err != nil {
		return err
	}
	n := p.spec.RowBytes()
	if want := (r.LayerTo - r.LayerFrom) * (r.RowTo - r.RowFrom) * n; len(src) != want {
		return fmt.Errorf("device: write: %d bytes, layers %d to %d of rows %d to %d take %d", len(src), r.LayerFrom, r.LayerTo, r.RowFrom, r.RowTo, want)
	}
	return p.dev.in.move(p, rights{g.Owner(), g.Slot}, r, true, src)
}

// Zero clears whole pages and their tags.
func (p *pool) Zero(pages []page.ID) error {
	if i := slices.IndexFunc(pages, p.beyond); i >= 0 {
		return fmt.Errorf("device: zero: page %d of a pool of %d", pages[i], p.spec.Pages)
	}
	_, err := p.dev.in.eachPage(p, pages, "zero_pages")
	return err
}

func (p *pool) beyond(id page.ID) bool { return int64(id) >= int64(p.spec.Pages) }

// NonZero is the first of these pages that holds anything but zeros, or -1. A page beyond the pool counts as such, and so does the
// first page when the device cannot be asked.
func (p *pool) NonZero(pages []page.ID) int {
	if i := slices.IndexFunc(pages, p.beyond); i >= 0 {
		return int(pages[i])
	}
	i, err := p.dev.out.eachPage(p, pages, "find_nonzero")
	switch {
	case len(pages) == 0 || err == nil && i < 0:
		return -1
	case err != nil:
		return int(pages[0])
	}
	return int(pages[i])
}

// CheckTags leaves the comparison of owner tags out, or puts it back: for measuring what it costs, never while others use the pool.
func (p *pool) CheckTags(on bool) error {
	p.dev.queue.Lock()
	defer p.dev.queue.Unlock()
	leave, err := p.dev.enter()
	if err != nil {
		return err
	}
	defer leave()
	return p.describe(on)
}
