package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"quire/device"
	"quire/kvtransfer/page"
)

// pool is page memory. Within a page, for each layer and head:
//
//	K  [groups][headDim][8]  a group is 8 slots: one vector holds one number of each
//	V  [groups*8][headDim]
//
// where groups = pageSize/8 rounded up. Attention runs over K with positions in the lanes and over V with numbers in the lanes,
// and needs no sum across lanes for either. With Q8_0 a group of K is [headDim][8] int8 and then the scales, [headDim/32][8] f16; V
// is blocks as in a frame.
type pool struct {
	dev       *Device
	spec      device.PoolSpec
	size      int // bytes of a number; 1 with Q8_0, beside the scales
	head      int // bytes of a head in a frame
	half      int // bytes of K, and of V, of one head of one layer of a page
	pageBytes int
	data      []byte // [pages][layers][kvHeads][K, V][half]
}

// Pool makes a pool of pages, all zero.
func (d *Device) Pool(s device.PoolSpec) (device.Pool, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	p := &pool{dev: d, spec: s, size: map[device.Type]int{device.F16: 2, device.F32: 4, device.Q8_0: 1}[s.Type]}
	p.head = s.RowBytes() / (2 * s.KVHeads)
	p.half = roundUp(s.PageSize, 8) * p.head
	p.pageBytes = s.Layers * s.KVHeads * 2 * p.half
	if p.pageBytes > math.MaxInt/2/s.Pages {
		return nil, fmt.Errorf("device/cpu: pool: %d pages of %d bytes", s.Pages, p.pageBytes)
	}
	var err error
	if p.data, err = mapMemory(s.Pages * p.pageBytes); err != nil {
		return nil, err
	}
	d.queue.Lock()
	defer d.queue.Unlock()
	d.pools = append(d.pools, p)
	return p, nil
}

// Spec describes the pool.
func (p *pool) Spec() device.PoolSpec { return p.spec }

// Free gives the memory back.
func (p *pool) Free() {
	p.dev.queue.Lock()
	defer p.dev.queue.Unlock()
	if p.data != nil {
		p.dev.pools = slices.DeleteFunc(p.dev.pools, func(q *pool) bool { return p == q })
		_ = p.free()
	}
}

func (p *pool) free() error {
	data := p.data
	p.data = nil
	return unmapMemory(data)
}

func (p *pool) page(id page.ID) []byte { return p.data[int(id)*p.pageBytes:][:p.pageBytes] }

// key is K of one head of one layer of a page, value its V.
func (p *pool) key(id page.ID, layer, head int) []byte {
	return p.page(id)[(layer*p.spec.KVHeads+head)*2*p.half:][:p.half]
}

func (p *pool) value(id page.ID, layer, head int) []byte {
	return p.page(id)[((layer*p.spec.KVHeads+head)*2+1)*p.half:][:p.half]
}

// Read copies rows out in the order of a frame.
func (p *pool) Read(v page.View, r device.Range, dst []byte) ([]byte, error) {
	if err := p.spec.CheckRange(r); err != nil {
		return dst, err
	}
	if err := p.spec.CheckView(v, r.RowTo); err != nil {
		return dst, err
	}
	n := p.spec.RowBytes()
	at := len(dst)
	dst = append(dst, make([]byte, (r.LayerTo-r.LayerFrom)*(r.RowTo-r.RowFrom)*n)...)
	for layer := r.LayerFrom; layer < r.LayerTo; layer++ {
		for row := r.RowFrom; row < r.RowTo; row++ {
			p.readRow(v.Slot(row/p.spec.PageSize).Page, layer, row%p.spec.PageSize, dst[at:at+n])
			at += n
		}
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
	for layer := r.LayerFrom; layer < r.LayerTo; layer++ {
		for row := r.RowFrom; row < r.RowTo; row++ {
			p.writeRow(g.Slot(row/p.spec.PageSize).Page, layer, row%p.spec.PageSize, src[:n])
			src = src[n:]
		}
	}
	return nil
}

// readRow copies one slot of one layer out: [2: K, V][kvHeads][headDim].
func (p *pool) readRow(id page.ID, layer, slot int, dst []byte) {
	n := p.head
	for h := range p.spec.KVHeads {
		group := p.key(id, layer, h)[slot/8*8*n:]
		switch from := group[slot%8*p.size:]; p.size {
		case 1:
			gatherBlocks(dst[h*n:][:n], group, slot%8)
		case 2:
			gather16(halves(dst[h*n:], p.spec.HeadDim), from)
		default:
			gather32(words(dst[h*n:], p.spec.HeadDim), from)
		}
		copy(dst[(p.spec.KVHeads+h)*n:][:n], p.value(id, layer, h)[slot*n:])
	}
}

// writeRow copies one slot of one layer in.
func (p *pool) writeRow(id page.ID, layer, slot int, src []byte) {
	n := p.head
	for h := range p.spec.KVHeads {
		group := p.key(id, layer, h)[slot/8*8*n:]
		switch to := group[slot%8*p.size:]; p.size {
		case 1:
			scatterBlocks(group, src[h*n:][:n], slot%8)
		case 2:
			scatter16(to, halves(src[h*n:], p.spec.HeadDim))
		default:
			scatter32(to, words(src[h*n:], p.spec.HeadDim))
		}
		copy(p.value(id, layer, h)[slot*n:][:n], src[(p.spec.KVHeads+h)*n:])
	}
}

func gather16(dst []uint16, from []byte) {
	for i := range dst {
		dst[i] = binary.LittleEndian.Uint16(from[i*16:])
	}
}

func gather32(dst []uint32, from []byte) {
	for i := range dst {
		dst[i] = binary.LittleEndian.Uint32(from[i*32:])
	}
}

func scatter16(to []byte, src []uint16) {
	for i, v := range src {
		binary.LittleEndian.PutUint16(to[i*16:], v)
	}
}

func scatter32(to []byte, src []uint32) {
	for i, v := range src {
		binary.LittleEndian.PutUint32(to[i*32:], v)
	}
}

// halves and words see bytes as numbers; any alignment will do on the processors that Quire builds for.
func halves(b []byte, n int) []uint16 {
	_ = b[n*2-1]
	return unsafe.Slice((*uint16)(unsafe.Pointer(&b[0])), n)
}

func words(b []byte, n int) []uint32 {
	_ = b[n*4-1]
	return unsafe.Slice((*uint32)(unsafe.Pointer(&b[0])), n)
}

// Zero clears whole pages.
func (p *pool) Zero(pages []page.ID) error {
	for _, id := range pages {
		if int64(id) >= int64(p.spec.Pages) {
			return fmt.Errorf("device: zero: page %d of a pool of %d", id, p.spec.Pages)
		}
	}
	for _, id := range pages {
		clear(p.page(id))
	}
	return nil
}

// NonZero is the first of these pages that holds anything but zeros, or -1. A page beyond the pool counts as such.
func (p *pool) NonZero(pages []page.ID) int {
	for _, id := range pages {
		if int64(id) >= int64(p.spec.Pages) {
			return int(id)
		}
		for _, w := range words(p.page(id), p.pageBytes/4) {
			if w != 0 {
				return int(id)
			}
		}
	}
	return -1
}
