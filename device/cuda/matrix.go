//go:build cuda && linux

package cuda

import (
	"fmt"
	"math"
	"strings"
	"unsafe"

	"gorgonia.org/cu"

	"quire/device"
)

// panelRows is how many output rows lie interleaved in a panel: one for each lane of a warp.
const panelRows = 32

// matrix is weights in panels, as kernel/weights.cuh describes them. Rows beyond the last and columns up to depth are zero.
type matrix struct {
	dev               *Device
	typ               device.Type
	rows, cols, depth int
	panels            int
	panelBytes        int
	at                cu.DevicePtr
}

// blockBytes is what a row's block takes in a panel: as in a file, rounded up to whole words.
func blockBytes(t device.Type) int {
	_, n := t.Block()
	if t == device.Q8_0 || t == device.Q4_0 {
		return n // scales and integers lie apart, and need no rounding
	}
	return roundUp(n, 4)
}

// panelSize is what a panel of so many columns takes.
func panelSize(t device.Type, depth int) int {
	n, _ := t.Block()
	if n == 1 {
		_, size := t.Block()
		return depth * panelRows * size
	}
	return depth / n * panelRows * blockBytes(t)
}

// Matrix packs weights.
func (d *Device) Matrix(t device.Type, rows, cols int, src []byte) (device.Matrix, error) {
	rowBytes, err := t.RowBytes(cols)
	if err != nil {
		return nil, fmt.Errorf("device/cuda: matrix: %w", err)
	}
	if rows < 1 || rows > math.MaxInt32 || len(src) != rows*rowBytes {
		return nil, fmt.Errorf("device/cuda: matrix: %d x %d of type %s takes %d bytes, given %d", rows, cols, t, rows*rowBytes, len(src))
	}
	m := &matrix{dev: d, typ: t, rows: rows, cols: cols, depth: roundUp(cols, 8)}
	m.panels = (rows + panelRows - 1) / panelRows
	m.panelBytes = panelSize(t, m.depth)
	packed := make([]byte, m.panels*m.panelBytes)
	for r := range rows {
		m.pack(packed[r/panelRows*m.panelBytes:][:m.panelBytes], r%panelRows, src[r*rowBytes:(r+1)*rowBytes])
	}
	d.queue.Lock()
	defer d.queue.Unlock()
	leave, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if m.at, err = d.alloc(len(packed)); err != nil {
		return nil, err
	}
	if err := toDevice(m.at, unsafe.Pointer(&packed[0]), len(packed)); err != nil {
		return nil, failed("matrix", err)
	}
	return m, nil
}

// pack puts one row into its lane of a panel.
func (m *matrix) pack(panel []byte, lane int, row []byte) {
	switch m.typ {
	case device.F32, device.F16, device.BF16:
		// Pieces of 16 bytes, one for each lane in turn.
		for i := 0; len(row) > 0; i++ {
			n := copy(panel[(i*panelRows+lane)*16:][:16], row)
			row = row[n:]
		}
	case device.Q8_0:
		for ; len(row) > 0; row, panel = row[34:], panel[34*panelRows:] {
			copy(panel[lane*2:], row[:2])
			copy(panel[2*panelRows+lane*16:], row[2:18])
			copy(panel[2*panelRows+(panelRows+lane)*16:], row[18:34])
		}
	case device.Q4_0:
		for ; len(row) > 0; row, panel = row[18:], panel[18*panelRows:] {
			copy(panel[lane*2:], row[:2])
			copy(panel[2*panelRows+lane*16:], row[2:18])
		}
	case device.Q4_1:
		for ; len(row) > 0; row, panel = row[20:], panel[20*panelRows:] {
			copy(panel[lane*2:], row[:2])
			copy(panel[2*panelRows+lane*2:], row[2:4])
			copy(panel[4*panelRows+lane*16:], row[4:20])
		}
	default:
		m.packWords(panel, lane, row)
	}
}

// packWords spreads the words of a row's blocks: those of other lanes lie between them.
func (m *matrix) packWords(panel []byte, lane int, row []byte) {
	_, n := m.typ.Block()
	size := blockBytes(m.typ)
	block := make([]byte, size)
	for ; len(row) > 0; row, panel = row[n:], panel[size*panelRows:] {
		if m.typ == device.Q5_0 {
			copy(block, row[:2])
			copy(block[4:], row[2:n])
		} else {
			copy(block, row[:n])
		}
		for i := 0; i < size; i += 4 {
			copy(panel[(i/4*panelRows+lane)*4:], block[i:i+4])
		}
	}
}

func (d *Device) matrix(m device.Matrix) (*matrix, error) {
	mat, ok := m.(*matrix)
	if !ok || mat == nil || mat.dev != d {
		return nil, fmt.Errorf("device/cuda: matrix: not one of this device")
	}
	return mat, nil
}

// Type is how the weights are stored.
func (m *matrix) Type() device.Type { return m.typ }

// Rows is the number of outputs.
func (m *matrix) Rows() int { return m.rows }

// Cols is the number of inputs.
func (m *matrix) Cols() int { return m.cols }

// Bytes is the device memory that the matrix takes.
func (m *matrix) Bytes() int { return m.panels * m.panelBytes }

// suffix names the kernels for a type.
func suffix(t device.Type) string { return strings.ToLower(t.String()) }
