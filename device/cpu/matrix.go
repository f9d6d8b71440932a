package cpu

import (
	"encoding/binary"
	"fmt"
	"math"

	"quire/device"
)

// panelRows is how many output rows lie interleaved in a panel, one vector lane each (two vectors of 8).
const panelRows = 16

// matrix is weights packed in panels of 16 output rows, so that a product needs no sums across lanes. Rows beyond the last, and
// columns up to a multiple of 8, are zero.
//
// A panel, by type:
//
//	F32        [depth][16] f32
//	F16        [depth][16] u16
//	BF16       [depth/2][16][2] u16: two columns of a row side by side
//	quantised  see formats
type matrix struct {
	dev        *Device
	typ        device.Type
	rows, cols int
	depth      int // cols rounded up to a multiple of 8
	panels     int
	panelBytes int
	data       []byte // [panels][panelBytes]
}

func panelBytes(t device.Type, depth int) int {
	switch t {
	case device.F32:
		return depth * 64
	case device.F16, device.BF16:
		return depth * 32
	}
	f := formatOf(t)
	return depth / f.cols * f.bytes
}

// Matrix packs weights.
func (d *Device) Matrix(t device.Type, rows, cols int, src []byte) (device.Matrix, error) {
	rowBytes, err := t.RowBytes(cols)
	if err != nil {
		return nil, fmt.Errorf("device/cpu: matrix: %w", err)
	}
	if rows < 1 || rows > math.MaxInt32 || len(src) != rows*rowBytes {
		return nil, fmt.Errorf("device/cpu: matrix: %d x %d of type %s takes %d bytes, given %d", rows, cols, t, rows*rowBytes, len(src))
	}
	m := &matrix{dev: d, typ: t, rows: rows, cols: cols, depth: roundUp(cols, 8)}
	m.panels = (rows + panelRows - 1) / panelRows
	m.panelBytes = panelBytes(t, m.depth)
	if m.data, err = d.arena.alloc(m.panels * m.panelBytes); err != nil {
		return nil, err
	}
	m.packAll(src, rowBytes)
	return m, nil
}

func (d *Device) matrix(m device.Matrix) (*matrix, error) {
	mat, ok := m.(*matrix)
	if !ok || mat == nil || mat.dev != d {
		return nil, fmt.Errorf("device/cpu: matrix: not one of this device")
	}
	return mat, nil
}

// Type is how the weights are stored.
func (m *matrix) Type() device.Type { return m.typ }

// Rows is the number of outputs.
func (m *matrix) Rows() int { return m.rows }

// Cols is the number of inputs.
func (m *matrix) Cols() int { return m.cols }

// Bytes is the memory it takes.
func (m *matrix) Bytes() int { return len(m.data) }

func (m *matrix) panel(i int) []byte { return m.data[i*m.panelBytes : (i+1)*m.panelBytes] }

// pack puts one row, as it is in a file, into its lane.
func (m *matrix) pack(row int, src []byte) {
	dst, lane := m.panel(row/panelRows), row%panelRows
	switch m.typ {
	case device.F32:
		for c := range m.cols {
			putWord(dst[(c*panelRows+lane)*4:], word(src[c*4:]))
		}
	case device.F16:
		for c := range m.cols {
			binary.LittleEndian.PutUint16(dst[(c*panelRows+lane)*2:], binary.LittleEndian.Uint16(src[c*2:]))
		}
	case device.BF16:
		for c := range m.cols {
			binary.LittleEndian.PutUint16(dst[brainAt(c, lane)*2:], binary.LittleEndian.Uint16(src[c*2:]))
		}
	default:
		f := formatOf(m.typ)
		for b := range m.cols / f.cols {
			f.pack(dst[b*f.bytes:][:f.bytes], src[b*f.rowBytes:][:f.rowBytes], lane)
		}
	}
}

// brainAt is where column c of a lane is in a panel of BF16.
func brainAt(c, lane int) int { return (c/2*panelRows+lane)*2 + c%2 }

// unpack dequantises one row, [cols].
func (m *matrix) unpack(row int, dst []float32) {
	unpackLane(m.typ, dst, m.panel(row/panelRows), row%panelRows)
}

// unpackLane dequantises one row of a panel.
func unpackLane(t device.Type, dst []float32, src []byte, lane int) {
	switch t {
	case device.F32:
		for c := range dst {
			dst[c] = math.Float32frombits(binary.LittleEndian.Uint32(src[(c*panelRows+lane)*4:]))
		}
	case device.F16:
		for c := range dst {
			dst[c] = halfAt(src, c*panelRows+lane)
		}
	case device.BF16:
		for c := range dst {
			dst[c] = device.FromBF16(binary.LittleEndian.Uint16(src[brainAt(c, lane)*2:]))
		}
	default:
		f := formatOf(t)
		for b := range len(dst) / f.cols {
			f.unpack(dst[b*f.cols:][:f.cols], src[b*f.bytes:][:f.bytes], lane)
		}
	}
}
