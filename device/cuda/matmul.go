//go:build cuda && linux

package cuda

import (
	"fmt"

	"quire/device"
)

// fewRows is up to how many rows a product reads the weights once for all of them and computes straight from them (matvec).
const fewRows = 8

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
		return fmt.Errorf("device/cuda: matmul: no matrices")
	}
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
			return fmt.Errorf("device/cuda: matmul: %d numbers in, matrix of %d x %d", in.cols, w.rows, w.cols)
		}
		if err := p.product(w, in, out, rows, o.Add); err != nil {
			return err
		}
	}
	return nil
}

// product appends the launch of one product. Which kernel it is does not change a bit of the result.
func (p *plan) product(w *matrix, in, out *buffer, rows int, add bool) error {
	name, gx, gy, block := "matmul_"+suffix(w.typ), (w.rows+63)/64, (rows+31)/32, 128
	if rows <= fewRows {
		at := 1
		for at < rows {
			at *= 2
		}
		if at == 2 {
			at = 4
		}
		name, gx, gy, block = fmt.Sprintf("matvec_%s_%d", suffix(w.typ), at), w.panels, 1, 256
	}
	if gy > maxGridY {
		return fmt.Errorf("device/cuda: matmul: %d rows", rows)
	}
	return p.add(name, gx, gy, block, w.at, w.panelBytes, in.at, out.at, w.rows, w.depth, rows, in.stride, out.stride, add)
}
