package cpu

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"quire/device"
	"quire/kvtransfer/page"
)

// tileRows is how many absolute positions attention takes at a time, always starting at a multiple of it.
const tileRows = 64

// blockRows is about how many query rows (queries times the heads that share keys) go over a tile together.
const blockRows = 48

// attnItem is the queries [row, row+rows) of the batch, all of one sequence, with one key/value head.
type attnItem struct{ row, rows, head int }

// attnScratch is a worker's memory for one item.
type attnScratch struct {
	keys, values []float32 // [headDim][64], [64][wide]: a tile
	query, out   []float32 // [rows][headDim], [rows][wide]
	scores       []float32 // [rows][64]
	state        []softState
}

func (p *plan) layAttend(o device.Attend) error {
	if p.pool == nil {
		return fmt.Errorf("device/cpu: attend: the batch has no pool")
	}
	s, rows := &p.pool.spec, len(p.batch.Tokens)
	q, err1 := p.buffer(o.Q, rows, 0)
	out, err2 := p.buffer(o.Out, rows, 0)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if q.cols != out.cols || q.cols%(s.KVHeads*s.HeadDim) != 0 || o.Layer < 0 || o.Layer >= s.Layers {
		return fmt.Errorf("device/cpu: attend: layer %d of %d, queries of %d numbers, %d heads of %d", o.Layer, s.Layers, q.cols, s.KVHeads, s.HeadDim)
	}
	group := q.cols / (s.KVHeads * s.HeadDim)
	switch p.group {
	case 0:
		p.group = group
		p.splitQueries(max(1, blockRows/group))
	case group:
	default:
		return fmt.Errorf("device/cpu: attend: %d query heads to a key head, %d before in the same step", group, p.group)
	}
	t := p.add(len(p.attn), runAttend)
	t.in, t.out, t.layer, t.scale, t.dims = q, out, o.Layer, o.Scale, group
	return nil
}

// splitQueries makes the items of attention: blocks of queries times heads, long ones first so that workers end together.
func (p *plan) splitQueries(per int) {
	p.attn = p.attn[:0]
	for i := range p.batch.Seqs {
		s := &p.batch.Seqs[i]
		for from := (s.Rows - 1) / per * per; from >= 0; from -= per {
			for h := range p.pool.spec.KVHeads {
				p.attn = append(p.attn, attnItem{s.Row + from, min(per, s.Rows-from), h})
			}
		}
	}
}

func runAttend(p *plan, t *task, w *worker, item int) {
	it := p.attn[item]
	group, dim := t.dims, p.pool.spec.HeadDim
	wide := roundUp(dim, panelRows)
	rows := it.rows * group
	sc := &w.attn
	sc.fit(rows, dim, wide)
	for i := range it.rows {
		q := t.in.row(it.row + i)[it.head*group*dim:][:group*dim]
		p.dev.kern.times(sc.query[i*group*dim:][:group*dim], q, t.scale)
	}
	for r := range rows {
		sc.state[r] = softState{max: float32(math.Inf(-1))}
	}
	clear(sc.out[:rows*wide])

	sq := &p.batch.Seqs[p.seqOf[it.row]]
	first := sq.From + it.row - sq.Row // position of the first query
	for tile := 0; tile < first+it.rows; tile += tileRows {
		n := min(tileRows, first+it.rows-tile)
		p.loadTile(sc, sq.View, attnTile{t.layer, it.head, tile, n})
		p.tileProducts(sc, tileArgs{rows: rows, group: group, first: first - tile, n: n, dim: dim, wide: wide})
	}
	for i := range it.rows {
		o := t.out.row(it.row + i)[it.head*group*dim:][:group*dim]
		for g := range group {
			r := i*group + g
			p.dev.kern.times(o[g*dim:][:dim], sc.out[r*wide:][:dim], 1/sc.state[r].sum)
		}
	}
}

func (s *attnScratch) fit(rows, dim, wide int) {
	grow(&s.keys, dim*tileRows)
	grow(&s.values, wide*tileRows)
	grow(&s.query, rows*dim)
	grow(&s.out, rows*wide)
	grow(&s.scores, rows*tileRows)
	if len(s.state) < rows {
		s.state = make([]softState, rows)
	}
}

// grow gives room for n numbers; what was there is lost.
func grow(f *[]float32, n int) {
	if len(*f) < n {
		*f = alignedFloats(n)
	}
}

// tileArgs is a tile's share of an item: positions are relative to the tile's first.
type tileArgs struct {
	rows, group int
	first       int // position of the first query; negative if the tile begins after it
	n           int // positions of the tile that the last query sees
	dim, wide   int
}

// tileProducts takes a loaded tile into the state of all rows: scores, softmax, weighted sum of values.
func (p *plan) tileProducts(sc *attnScratch, a tileArgs) {
	k := p.dev.kern
	f := floatArgs{
		w: unsafe.Pointer(&sc.keys[0]), x: unsafe.Pointer(&sc.query[0]), out: unsafe.Pointer(&sc.scores[0]), xStride: a.dim * 4,
		wStride: tileRows * 4, outStride: tileRows * 4, depth: a.dim, panels: (a.n + panelRows - 1) / panelRows, panelStride: panelRows * 4,
	}
	k.floatRows(f, a.rows)
	for r := range a.rows {
		s := (*[tileRows]float32)(sc.scores[r*tileRows:])
		seen := min(tileRows, a.first+r/a.group+1)
		if seen <= 0 {
			clear(s[:])
			continue
		}
		k.softmax(s, seen, &sc.state[r], sc.out[r*a.wide:][:a.wide])
	}
	f = floatArgs{
		w: unsafe.Pointer(&sc.values[0]), x: unsafe.Pointer(&sc.scores[0]), out: unsafe.Pointer(&sc.out[0]), xStride: tileRows * 4,
		wStride: a.wide * 4, outStride: a.wide * 4, depth: a.n, add: true, panels: a.wide / panelRows, panelStride: panelRows * 4,
	}
	k.floatRows(f, a.rows)
}

// attnTile is positions [at, at+n) of one head of one layer.
type attnTile struct{ layer, head, at, n int }

// loadTile widens the keys and values of a tile to f32: keys [headDim][64], values [64][wide]. Lanes beyond n hold what the
// page holds, and are masked before they count; values beyond n are not touched.
func (p *plan) loadTile(sc *attnScratch, v page.View, t attnTile) {
	s := &p.pool.spec
	wide := roundUp(s.HeadDim, panelRows)
	for i := 0; i < t.n; {
		pos := t.at + i
		id, slot := v.Slot(pos/s.PageSize).Page, pos%s.PageSize
		n := min(t.n-i, s.PageSize-slot)
		p.pool.values(id, attnTile{t.layer, t.head, slot, n}, sc.values[i*wide:], p.dev.kern)
		if slot%8 == 0 && i%8 == 0 {
			n = min(roundUp(n, 8), tileRows-i) // whole groups; a page of no multiple of 8 ends in the middle of one
			p.pool.keyGroups(id, attnTile{t.layer, t.head, slot, n}, sc.keys[i:], p.dev.kern)
			n = min(n, t.n-i, s.PageSize-slot)
		} else {
			p.pool.keyLanes(id, attnTile{t.layer, t.head, slot, n}, sc.keys[i:])
		}
		i += n
	}
}

// values widens n slots of V from slot t.at on.
func (p *pool) values(id page.ID, t attnTile, dst []float32, k *kernels) {
	dim := p.spec.HeadDim
	wide := roundUp(dim, panelRows)
	src := p.value(id, t.layer, t.head)[t.at*p.head:]
	switch {
	case p.size == 1:
		k.widenBlocks(unsafe.Pointer(&dst[0]), unsafe.Pointer(&src[0]), t.n*dim/32)
	case p.size == 4:
		for i := range t.n {
			copy(words32(dst[i*wide:]), words(src[i*dim*4:], dim))
		}
	case wide == dim:
		k.widen(unsafe.Pointer(&dst[0]), 32, unsafe.Pointer(&src[0]), t.n*dim/8)
	default:
		for i := range t.n {
			k.widen(unsafe.Pointer(&dst[i*wide]), 32, unsafe.Pointer(&src[i*dim*2]), dim/8)
		}
	}
}

// keyGroups widens whole groups of 8 slots of K, t.at and t.n being multiples of 8.
func (p *pool) keyGroups(id page.ID, t attnTile, dst []float32, k *kernels) {
	dim := p.spec.HeadDim
	src := p.key(id, t.layer, t.head)[t.at*p.head:]
	for g := 0; g < t.n; g += 8 {
		switch p.size {
		case 1:
			k.widenKeys(unsafe.Pointer(&dst[g]), tileRows*4, unsafe.Pointer(&src[g*p.head]), dim)
			continue
		case 2:
			if k.widenGroups != nil && g+16 <= t.n {
				k.widenGroups(unsafe.Pointer(&dst[g]), tileRows*4, unsafe.Pointer(&src[g*dim*2]), dim)
				g += 8
				continue
			}
			k.widen(unsafe.Pointer(&dst[g]), tileRows*4, unsafe.Pointer(&src[g*dim*2]), dim)
			continue
		}
		for d := range dim {
			copy(words32(dst[d*tileRows+g:]), words(src[(g*dim+d*8)*4:], 8))
		}
	}
}

// keyLanes widens slots of K one by one, for pages whose size is no multiple of 8.
func (p *pool) keyLanes(id page.ID, t attnTile, dst []float32) {
	dim := p.spec.HeadDim
	src := p.key(id, t.layer, t.head)
	for i := range t.n {
		slot := t.at + i
		if p.size == 1 {
			group := src[slot/8*8*p.head:]
			for d := range dim {
				dst[d*tileRows+i] = keyAt(group, dim, d, slot%8)
			}
			continue
		}
		from := src[(slot/8*8*dim+slot%8)*p.size:]
		for d := range dim {
			if p.size == 2 {
				dst[d*tileRows+i] = device.FromF16(halves(from[d*16:], 1)[0])
			} else {
				dst[d*tileRows+i] = math.Float32frombits(words(from[d*32:], 1)[0])
			}
		}
	}
}

func words32(f []float32) []uint32 { return unsafe.Slice((*uint32)(unsafe.Pointer(&f[0])), len(f)) }
