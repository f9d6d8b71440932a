package cpu

import (
	"fmt"
	"unsafe"

	"quire/device"
)

// itemsPerWorker is into how many items a product is cut for each worker: enough to share a late worker's work.
const itemsPerWorker = 8

// rowBlock is how many rows a product takes over an item's panels at a time: their activations and a group of panels fit the second
// cache together.
const rowBlock = 96

// smallBatch is up to how many rows every worker rounds the activations for itself rather than wait for another.
const smallBatch = 2

func (p *plan) layMatMul(o device.MatMul) error {
	rows, err := p.rows(o.Rows)
	if err != nil {
		return err
	}
	in, err := p.buffer(o.In, rows, 0)
	if err != nil {
		return err
	}
	if len(o.Parts) == 0 {
		return fmt.Errorf("device/cpu: matmul: no matrices")
	}
	first, panels := len(p.parts), 0
	var rounded [2]bool // whether a part needs activations of a rounding
	for _, pt := range o.Parts {
		w, err := p.dev.matrix(pt.W)
		if err != nil {
			return err
		}
		out, err := p.buffer(pt.Out, rows, w.rows)
		if err != nil {
			return err
		}
		if w.cols != in.cols || out == in {
			return fmt.Errorf("device/cpu: matmul: %d numbers in, matrix of %d x %d", in.cols, w.rows, w.cols)
		}
		p.parts = append(p.parts, part{w: w, out: out})
		panels += w.panels
		if r, ok := p.dev.rounding(w.typ); ok {
			rounded[r] = true
		}
	}
	for r := range rounding(2) {
		if rounded[r] && rows > smallBatch {
			p.layRound(r, in, rows)
		}
	}
	t := p.add(0, runMatMul)
	t.parts = p.parts[first:len(p.parts):len(p.parts)]
	t.in, t.rows, t.flag, t.small = in, rows, o.Add, rows <= smallBatch
	per := max(1, panels/(itemsPerWorker*len(p.dev.team.workers)))
	per = roundUp(per, p.dev.kern.group)
	for i := range t.parts {
		pt := &t.parts[i]
		pt.panelsPerItem, pt.firstItem = per, t.items
		t.items += (pt.w.panels + per - 1) / per
	}
	return nil
}

// rounding is what activations are rounded to for a product.
type rounding int

const (
	toInt8  rounding = iota // blocks of actBlock bytes, for quantised weights
	toBrain                 // BF16, for BF16 weights where the variant multiplies such pairs
)

// rounding says what activations are rounded to for weights of a type, if to anything.
func (d *Device) rounding(t device.Type) (r rounding, ok bool) {
	switch {
	case !d.int8:
		return 0, false
	case t.Quantised():
		return toInt8, true
	}
	return toBrain, t == device.BF16 && d.kern.brainRows != nil
}

// bytes is what a row of so many columns takes.
func (r rounding) bytes(cols int) int {
	if r == toInt8 {
		return actBytes(cols)
	}
	return roundUp(cols, 8) * 2
}

// round rounds row i of in.
func (k *kernels) round(r rounding, dst []byte, in *buffer, i int) {
	if r == toInt8 {
		k.quantise(unsafe.Pointer(&dst[0]), in.ptr(i, 0), in.cols/32)
		return
	}
	k.toBrain(unsafe.Pointer(&dst[0]), in.ptr(i, 0), roundUp(in.cols, 8))
}

// layRound adds the task that rounds the input of a large batch.
func (p *plan) layRound(r rounding, in *buffer, rows int) {
	if need := rows * r.bytes(in.cols); len(p.dev.acts[r]) < need {
		p.dev.acts[r] = alignedBytes(need + slack)
	}
	t := p.byRows(rows, runRound)
	t.in, t.rounding = in, r
}

func runRound(p *plan, t *task, _ *worker, item int) {
	from, to := t.span(item)
	for i := from; i < to; i++ {
		p.dev.kern.round(t.rounding, p.dev.acts[t.rounding][i*t.rounding.bytes(t.in.cols):], t.in, i)
	}
}

// actBlock is how many bytes 32 activations take as int8, a line of the cache: [32] int8, then actTail.
const actBlock = 64

// actTail is what products need of a block of 32 activations beside the integers. Sums are of the integers.
type actTail struct {
	scale   float32
	less8   int32    // -8 * sum: takes the offset of unsigned nibbles back
	sum     float32  // scale * sum: goes with minima
	less128 int32    // -128 * sum: takes the offset of unsigned bytes back
	half    [2]int32 // sums of 16
	less32  [2]int32 // -32 * half: takes the offset of unsigned weights of six bits back
}

func actBytes(cols int) int { return cols / 32 * actBlock }

// activations gives the rounded input of a product, made by the task before or, in a small batch, by this worker now.
func (t *task) activations(p *plan, w *worker, r rounding) unsafe.Pointer {
	if !t.small {
		return unsafe.Pointer(&p.dev.acts[r][0])
	}
	n := r.bytes(t.in.cols)
	if w.acted[r] != t.index {
		if len(w.acts[r]) < t.rows*n {
			w.acts[r] = alignedBytes(t.rows*n + slack)
		}
		for i := range t.rows {
			p.dev.kern.round(r, w.acts[r][i*n:], t.in, i)
		}
		w.acted[r] = t.index
	}
	return unsafe.Pointer(&w.acts[r][0])
}

// panels is what an item of a product computes: panels [from, to) of a part.
func (t *task) panels(item int) (pt *part, from, to int) {
	i := len(t.parts) - 1
	for t.parts[i].firstItem > item {
		i--
	}
	pt = &t.parts[i]
	from = (item - pt.firstItem) * pt.panelsPerItem
	return pt, from, min(from+pt.panelsPerItem, pt.w.panels)
}

// fetchBytes is how much of each panel of a group is fetched ahead of a product.
const fetchBytes = 2048

// fetchAhead brings the first weights of the worker's share of the next product into the cache while it waits for others. Many rows
// hide the wait by themselves.
func (t *task) fetchAhead(p *plan, w *worker) {
	k, next := p.dev.kern, t.ahead
	if k.prefetch == nil || next == nil || next.rows > 16 || next.lanes[w.id].first >= next.items {
		return
	}
	pt, from, to := next.panels(next.lanes[w.id].first)
	panels, bytes := k.group, fetchBytes
	if next.rows == 1 {
		panels, bytes = 1, 2*fetchBytes
	}
	for i := from; i < min(from+panels, to); i++ {
		k.prefetch(unsafe.Pointer(&pt.w.panel(i)[0]), min(bytes, pt.w.panelBytes)/64)
	}
}

func runMatMul(p *plan, t *task, w *worker, item int) {
	pt, from, to := t.panels(item)
	block, group := rowBlock, p.dev.kern.group
	switch {
	case p.dev.widens(pt.w.typ, t.rows):
		block = t.rows // panels are widened once
	case t.rows == 1:
		group = to - from
	}
	for row := 0; row < t.rows; row += block {
		c := cut{part: pt, row: row, rows: min(block, t.rows-row)}
		for c.panel = from; c.panel < to; c.panel += c.panels {
			c.panels = min(group, to-c.panel)
			t.multiply(p, w, c)
		}
	}
}

// cut is some rows of a product with some panels of a part.
type cut struct {
	*part
	row, rows     int
	panel, panels int
}

// multiply computes a cut, with the activations that its weights ask for.
func (t *task) multiply(p *plan, w *worker, c cut) {
	r, ok := p.dev.rounding(c.w.typ)
	if !ok {
		t.multiplyFloats(p, w, c)
		return
	}
	n := r.bytes(t.in.cols)
	weights, x, out := unsafe.Pointer(&c.w.panel(c.panel)[0]), unsafe.Add(t.activations(p, w, r), c.row*n), c.out.ptr(c.row, c.panel*panelRows)
	if r == toInt8 {
		p.dev.kern.int8Rows(c.w.typ, int8Args{
			w: weights, x: x, out: out, xStride: n, outStride: c.out.stride * 4, blocks: t.in.cols / 32, panels: c.panels, add: t.flag,
		}, c.rows)
		return
	}
	p.dev.kern.brainRows(floatArgs{
		w: weights, x: x, out: out, xStride: n, outStride: c.out.stride * 4, depth: c.w.depth, add: t.flag, panels: c.panels,
		panelStride: c.w.panelBytes,
	}, c.rows)
}

// widens says whether a product of so many rows widens weights of a type to F32 before it multiplies.
func (d *Device) widens(t device.Type, rows int) bool {
	if _, ok := d.rounding(t); ok || t == device.F32 {
		return false
	}
	return t.Quantised() || d.kern.halfRows == nil || rows > d.kern.directRows
}

// multiplyFloats computes a cut with F32 activations: with weights as they are, or widened to F32 first.
func (t *task) multiplyFloats(p *plan, w *worker, c cut) {
	m, k := c.w, p.dev.kern
	a := floatArgs{
		w: unsafe.Pointer(&m.panel(c.panel)[0]), x: t.in.ptr(c.row, 0), out: c.out.ptr(c.row, c.panel*panelRows),
		wStride: panelRows * 4, xStride: t.in.stride * 4, outStride: c.out.stride * 4, depth: m.depth, add: t.flag, panels: c.panels,
		panelStride: m.panelBytes,
	}
	switch {
	case m.typ == device.F32:
		k.floatRows(a, c.rows)
	case !p.dev.widens(m.typ, t.rows):
		a.wStride = panelRows * 2
		k.halfRows(m.typ, a, c.rows)
	default:
		a.panelStride = m.depth * panelRows * 4
		wide := w.floats(c.panels * m.depth * panelRows)
		for i := range c.panels {
			k.dequant(m.typ, wide[i*m.depth*panelRows:][:m.depth*panelRows], unsafe.Pointer(&m.panel(c.panel + i)[0]))
		}
		a.w = unsafe.Pointer(&wide[0])
		k.floatRows(a, c.rows)
	}
}
