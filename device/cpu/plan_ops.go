package cpu

import (
	"errors"
	"fmt"

	"quire/device"
)

// lay turns an op into tasks.
func (p *plan) lay(op device.Op) error {
	switch o := op.(type) {
	case device.Embed:
		return p.layEmbed(o)
	case device.Norm:
		return p.layNorm(o)
	case device.MatMul:
		return p.layMatMul(o)
	case device.Rotate:
		return p.layRotate(o)
	case device.Attend:
		return p.layAttend(o)
	case device.SwiGLU:
		return p.laySwiGLU(o)
	case device.Gather:
		return p.layGather(o)
	case device.Download:
		return p.layDownload(o)
	}
	if o, ok := op.(device.Compare); ok {
		return p.layCompare(o)
	}
	return fmt.Errorf("device/cpu: run: op %T is unknown", op)
}

// byRows adds a task over rows, a few to an item.
func (p *plan) byRows(rows int, run func(*plan, *task, *worker, int)) *task {
	per := max(1, rows/(4*len(p.dev.team.workers)))
	t := p.add((rows+per-1)/per, run)
	t.rows, t.rowsPerItem = rows, per
	return t
}

// span is the rows of an item: [from, to).
func (t *task) span(item int) (from, to int) {
	from = item * t.rowsPerItem
	return from, min(from+t.rowsPerItem, t.rows)
}

func (p *plan) layEmbed(o device.Embed) error {
	m, err := p.dev.matrix(o.Table)
	if err != nil {
		return err
	}
	out, err := p.buffer(o.Out, len(p.batch.Tokens), m.cols)
	if err != nil {
		return err
	}
	for i, tok := range p.batch.Tokens {
		if tok < 0 || int(tok) >= m.rows {
			return fmt.Errorf("device/cpu: embed: token %d at row %d, the table has %d", tok, i, m.rows)
		}
	}
	t := p.byRows(len(p.batch.Tokens), runEmbed)
	t.out, t.table = out, m
	return nil
}

func runEmbed(p *plan, t *task, _ *worker, item int) {
	from, to := t.span(item)
	for i := from; i < to; i++ {
		t.table.unpack(int(p.batch.Tokens[i]), t.out.row(i))
	}
}

func (p *plan) layNorm(o device.Norm) error {
	rows, err := p.rows(o.Rows)
	if err != nil {
		return err
	}
	in, err1 := p.buffer(o.In, rows, 0)
	weight, err2 := p.buffer(o.Weight, 1, 0)
	out, err3 := p.buffer(o.Out, rows, 0)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if in.cols != weight.cols || in.cols != out.cols {
		return fmt.Errorf("device/cpu: norm: %d numbers in, weight %d, out %d", in.cols, weight.cols, out.cols)
	}
	t := p.byRows(rows, runNorm)
	t.in, t.aux, t.out, t.scale = in, weight, out, o.Eps
	return nil
}

func runNorm(p *plan, t *task, _ *worker, item int) {
	from, to := t.span(item)
	for i := from; i < to; i++ {
		p.dev.kern.norm(t.out.wide(i), t.in.wide(i), t.aux.wide(0), normArgs{n: t.in.cols, eps: t.scale})
	}
}

func (p *plan) laySwiGLU(o device.SwiGLU) error {
	rows := len(p.batch.Tokens)
	gate, err1 := p.buffer(o.Gate, rows, 0)
	up, err2 := p.buffer(o.Up, rows, 0)
	out, err3 := p.buffer(o.Out, rows, 0)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if gate.cols != up.cols || gate.cols != out.cols {
		return fmt.Errorf("device/cpu: swiglu: gate %d, up %d, out %d", gate.cols, up.cols, out.cols)
	}
	wide := roundUp(gate.cols, 8)
	cuts := 1
	if rows < len(p.dev.team.workers) {
		cuts = (wide + swiGLUCols - 1) / swiGLUCols // too few rows for all workers: they share a row
	}
	t := p.byRows(rows, runSwiGLU)
	t.items *= cuts
	t.dims = roundUp((wide+cuts-1)/cuts, 8)
	t.in, t.aux, t.out = gate, up, out
	return nil
}

// swiGLUCols is about how many numbers of a row are worth an item of their own.
const swiGLUCols = 256

func runSwiGLU(p *plan, t *task, _ *worker, item int) {
	wide := roundUp(t.in.cols, 8)
	cuts := (wide + t.dims - 1) / t.dims
	a, z := item%cuts*t.dims, min((item%cuts+1)*t.dims, wide)
	from, to := t.span(item / cuts)
	for i := from; i < to; i++ {
		p.dev.kern.swiGLU(t.out.wide(i)[a:z], t.in.wide(i)[a:z], t.aux.wide(i)[a:z])
	}
}

func (p *plan) layGather(o device.Gather) error {
	in, err1 := p.buffer(o.In, 1, 0)
	out, err2 := p.buffer(o.Out, len(o.Rows), 0)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := checkRows(o.Rows, in.rows); err != nil {
		return fmt.Errorf("device/cpu: gather: %w", err)
	}
	if in.cols != out.cols {
		return fmt.Errorf("device/cpu: gather: %d numbers to %d", in.cols, out.cols)
	}
	if in == out {
		return fmt.Errorf("device/cpu: gather: from a buffer into itself")
	}
	t := p.byRows(len(o.Rows), runGather)
	t.in, t.out, t.chosen = in, out, o.Rows
	return nil
}

func runGather(_ *plan, t *task, _ *worker, item int) {
	from, to := t.span(item)
	for i := from; i < to; i++ {
		copy(t.out.row(i), t.in.row(t.chosen[i]))
	}
}

func (p *plan) layDownload(o device.Download) error {
	from, err := p.buffer(o.From, 1, 0)
	if err != nil {
		return err
	}
	if err := checkRows(o.Rows, from.rows); err != nil {
		return fmt.Errorf("device/cpu: download: %w", err)
	}
	if len(o.Rows) != len(o.To) {
		return fmt.Errorf("device/cpu: download: %d rows to %d", len(o.Rows), len(o.To))
	}
	for i, to := range o.To {
		if len(to) != from.cols {
			return fmt.Errorf("device/cpu: download: row %d of %d numbers to %d", i, from.cols, len(to))
		}
	}
	t := p.byRows(len(o.Rows), runDownload)
	t.in, t.chosen, t.to = from, o.Rows, o.To
	return nil
}

func runDownload(_ *plan, t *task, _ *worker, item int) {
	from, to := t.span(item)
	for i := from; i < to; i++ {
		copy(t.to[i], t.in.row(t.chosen[i]))
	}
}

// checkRows makes sure of at least one row: a task without items would never be waited for.
func checkRows(rows []int, n int) error {
	if len(rows) == 0 {
		return errors.New("no rows")
	}
	for i, r := range rows {
		if r < 0 || r >= n {
			return fmt.Errorf("row %d is %d of %d", i, r, n)
		}
	}
	return nil
}
