//go:build cuda && linux

package cuda

import (
	"errors"
	"fmt"

	"quire/device"
)

// lay turns an op into commands.
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
	case device.Compare:
		return p.layCompare(o)
	case device.Pick:
		return p.layPick(o)
	}
	return fmt.Errorf("device/cuda: run: op %T is unknown", op)
}

// rows is how many rows an op with the given limit computes.
func (p *plan) rows(limit int) (int, error) {
	n := len(p.batch.Tokens)
	if limit < 0 || limit > n {
		return 0, fmt.Errorf("device/cuda: run: %d rows of a batch of %d", limit, n)
	}
	if limit > 0 {
		n = limit
	}
	return n, nil
}

// buffer checks that it is the device's and has room for rows of cols; cols 0: any.
func (p *plan) buffer(b device.Buffer, rows, cols int) (*buffer, error) {
	buf, err := p.dev.buffer(b)
	if err != nil {
		return nil, err
	}
	if buf.rows < rows || (cols > 0 && buf.cols != cols) {
		return nil, fmt.Errorf("device/cuda: run: buffer of %d rows of %d, need %d of %d", buf.rows, buf.cols, rows, cols)
	}
	return buf, nil
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
			return fmt.Errorf("device/cuda: embed: token %d at row %d, the table has %d", tok, i, m.rows)
		}
	}
	return p.add("embed_"+suffix(m.typ), len(p.batch.Tokens), 1, 128, p.rec, m.at, m.panelBytes, out.at, m.cols, out.stride)
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
		return fmt.Errorf("device/cuda: norm: %d numbers in, weight %d, out %d", in.cols, weight.cols, out.cols)
	}
	return p.add("norm", rows, 1, 128, in.at, weight.at, out.at, in.cols, in.stride, out.stride, o.Eps)
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
		return fmt.Errorf("device/cuda: swiglu: gate %d, up %d, out %d", gate.cols, up.cols, out.cols)
	}
	if rows > maxGridY {
		return fmt.Errorf("device/cuda: swiglu: %d rows, at most %d", rows, maxGridY)
	}
	return p.add("swiglu", (gate.cols+255)/256, rows, 256, gate.at, up.at, out.at, gate.cols, gate.stride, up.stride, out.stride)
}

func (p *plan) layGather(o device.Gather) error {
	in, err1 := p.buffer(o.In, 1, 0)
	out, err2 := p.buffer(o.Out, len(o.Rows), 0)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := checkRows(o.Rows, in.rows); err != nil {
		return fmt.Errorf("device/cuda: gather: %w", err)
	}
	if in.cols != out.cols {
		return fmt.Errorf("device/cuda: gather: %d numbers to %d", in.cols, out.cols)
	}
	if in == out {
		return fmt.Errorf("device/cuda: gather: from a buffer into itself")
	}
	rows := make([]int32, len(o.Rows))
	for i, r := range o.Rows {
		rows[i] = int32(r)
	}
	return p.add("gather", len(rows), 1, 256, in.at, out.at, put(&p.room, rows), in.cols, in.stride, out.stride)
}

func (p *plan) layDownload(o device.Download) error {
	from, err := p.buffer(o.From, 1, 0)
	if err != nil {
		return err
	}
	if err := checkRows(o.Rows, from.rows); err != nil {
		return fmt.Errorf("device/cuda: download: %w", err)
	}
	if len(o.Rows) != len(o.To) {
		return fmt.Errorf("device/cuda: download: %d rows to %d", len(o.Rows), len(o.To))
	}
	for i, to := range o.To {
		if len(to) != from.cols {
			return fmt.Errorf("device/cuda: download: row %d of %d numbers to %d", i, from.cols, len(to))
		}
	}
	if from.stride*4 > hostBytes {
		return fmt.Errorf("device/cuda: download: a row of %d numbers", from.cols)
	}
	p.cmds = append(p.cmds, command{from: from, rows: o.Rows, to: o.To})
	return nil
}

// checkRows makes sure of at least one row, and that each is one of n.
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
