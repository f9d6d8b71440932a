package cpu

import (
	"fmt"
	"unsafe"

	"quire/device"
)

// itemsPerWorker is into how many items a product is cut for each worker: enough to share a late worker's work.
const itemsPerWorker = 8

// directRows is up to how many rows half-width weights are multiplied as they are rather than widened first.
const directRows = 4

// smallBatch is up to how many rows every worker quantises the activations for itself rather than wait for another.
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
	first, panels, quantised := len(p.parts), 0, false
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
		quantised = quantised || w.typ.Quantised()
	}
	useInt8 := quantised && p.dev.int8
	if useInt8 && rows > smallBatch {
		p.layQuantise(in, rows)
	}
	t := p.add(0, runMatMul)
	t.parts = p.parts[first:len(p.parts):len(p.parts)]
	t.in, t.rows, t.flag, t.int8, t.small = in, rows, o.Add, useInt8, rows <= smallBatch
	per := max(1, panels/(itemsPerWorker*len(p.dev.team.workers)))
	for i := range t.parts {
		pt := &t.parts[i]
		pt.panelsPerItem, pt.firstItem = per, t.items
		t.items += (pt.w.panels + per - 1) / per
	}
	return nil
}

// layQuantise adds the task that turns the input of a large batch to int8.
func (p *plan) layQuantise(in *buffer, rows int) {
	if need := rows * actBytes(in.cols); len(p.dev.acts) < need {
		p.dev.acts = alignedBytes(need + slack)
	}
	t := p.byRows(rows, runQuantise)
	t.in = in
}

func runQuantise(p *plan, t *task, _ *worker, item int) {
	from, to := t.span(item)
	for i := from; i < to; i++ {
		p.dev.kern.quantise(unsafe.Pointer(&p.dev.acts[i*actBytes(t.in.cols)]), t.in.ptr(i, 0), t.in.cols/32)
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
	_       [2]int32
}

func actBytes(cols int) int { return cols / 32 * actBlock }

// activations gives the int8 input of a product, quantised by the task before or, in a small batch, by this worker now.
func (t *task) activations(p *plan, w *worker) unsafe.Pointer {
	if !t.small {
		return unsafe.Pointer(&p.dev.acts[0])
	}
	n := actBytes(t.in.cols)
	if w.acted != t.index {
		if len(w.acts) < t.rows*n {
			w.acts = alignedBytes(t.rows*n + slack)
		}
		for i := range t.rows {
			p.dev.kern.quantise(unsafe.Pointer(&w.acts[i*n]), t.in.ptr(i, 0), t.in.cols/32)
		}
		w.acted = t.index
	}
	return unsafe.Pointer(&w.acts[0])
}

func runMatMul(p *plan, t *task, w *worker, item int) {
	i := len(t.parts) - 1
	for t.parts[i].firstItem > item {
		i--
	}
	pt := &t.parts[i]
	from := (item - pt.firstItem) * pt.panelsPerItem
	to := min(from+pt.panelsPerItem, pt.w.panels)
	if t.int8 && pt.w.typ.Quantised() {
		t.int8Panels(p, w, pt, from, to)
		return
	}
	t.floatPanels(p, w, pt, from, to)
}

// int8Panels computes panels [from, to) of a part for all rows with int8 activations.
func (t *task) int8Panels(p *plan, w *worker, pt *part, from, to int) {
	n := actBytes(t.in.cols)
	a := int8Args{
		x: t.activations(p, w), xStride: n, outStride: pt.out.stride * 4, blocks: t.in.cols / 32, panels: to - from, add: t.flag,
	}
	if t.rows > 1 {
		a.panels = 1 // a panel stays in the cache while all rows pass
	}
	for i := from; i < to; i += a.panels {
		a.w, a.out = unsafe.Pointer(&pt.w.panel(i)[0]), pt.out.ptr(0, i*panelRows)
		p.dev.kern.int8Rows(pt.w.typ, a, t.rows)
	}
}

// floatPanels computes panels [from, to) of a part for all rows with F32 activations, over the dequantised panel.
func (t *task) floatPanels(p *plan, w *worker, pt *part, from, to int) {
	m := pt.w
	a := floatArgs{
		x: t.in.ptr(0, 0), xStride: t.in.stride * 4, outStride: pt.out.stride * 4, wStride: panelRows * 4, depth: m.depth, add: t.flag,
	}
	direct := p.dev.kern.halfRows != nil && t.rows <= directRows && (m.typ == device.F16 || m.typ == device.BF16)
	for i := from; i < to; i++ {
		src := unsafe.Pointer(&m.panel(i)[0])
		a.w = src
		if direct {
			a.wStride, a.out = panelRows*2, pt.out.ptr(0, i*panelRows)
			p.dev.kern.halfRows(m.typ, a, t.rows)
			continue
		}
		if m.typ != device.F32 {
			wide := w.floats(m.depth * panelRows)
			p.dev.kern.dequant(m.typ, wide, src)
			a.w = unsafe.Pointer(&wide[0])
		}
		a.out = pt.out.ptr(0, i*panelRows)
		p.dev.kern.floatRows(a, t.rows)
	}
}
