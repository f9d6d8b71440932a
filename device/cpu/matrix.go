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
//	F32        [cols][16] f32
//	F16, BF16  [cols][16] u16
//	Q8_0       per block of 32 columns: [16] f16 scale, [8][16][4] int8 (group of 4 columns, row, column)
//	Q4_0       per block: [16] f16 scale, [4][16][4] bytes: byte b of group g holds columns 4g+b (low nibble) and 16+4g+b (high)
//	Q4_1       per block: [16] f16 scale, [16] f16 minimum, nibbles as Q4_0
type matrix struct {
	dev        *Device
	typ        device.Type
	rows, cols int
	depth      int // cols rounded up to a multiple of 8
	panels     int
	panelBytes int
	data       []byte // [panels][panelBytes]
}

// blockBytes is what a block of 32 columns takes in a panel, for quantised types.
func blockBytes(t device.Type) int {
	switch t {
	case device.Q8_0:
		return 32 + 512
	case device.Q4_0:
		return 32 + 256
	case device.Q4_1:
		return 64 + 256
	}
	return 0
}

func panelBytes(t device.Type, depth int) int {
	switch t {
	case device.F32:
		return depth * 64
	case device.F16, device.BF16:
		return depth * 32
	}
	return depth / 32 * blockBytes(t)
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
	for r := range rows {
		m.pack(r, src[r*rowBytes:(r+1)*rowBytes])
	}
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
			copy(dst[(c*panelRows+lane)*4:][:4], src[c*4:])
		}
	case device.F16, device.BF16:
		for c := range m.cols {
			copy(dst[(c*panelRows+lane)*2:][:2], src[c*2:])
		}
	case device.Q8_0:
		m.packBlocks(dst, src, lane, 2, 8)
	case device.Q4_0:
		m.packBlocks(dst, src, lane, 2, 4)
	case device.Q4_1:
		m.packBlocks(dst, src, lane, 4, 4)
	}
}

// packBlocks interleaves the blocks of a row: head bytes of scale and minimum, then groups of 4 bytes.
func (m *matrix) packBlocks(dst, src []byte, lane, head, groups int) {
	in, out := head+groups*4, blockBytes(m.typ)
	for b := range m.cols / 32 {
		s, d := src[b*in:][:in], dst[b*out:][:out]
		copy(d[lane*2:][:2], s)
		if head == 4 {
			copy(d[32+lane*2:][:2], s[2:])
		}
		d = d[head*panelRows:]
		for g := range groups {
			copy(d[(g*panelRows+lane)*4:][:4], s[head+g*4:])
		}
	}
}

// unpack dequantises one row, [cols].
func (m *matrix) unpack(row int, dst []float32) {
	src, lane := m.panel(row/panelRows), row%panelRows
	switch m.typ {
	case device.F32:
		for c := range dst {
			dst[c] = math.Float32frombits(binary.LittleEndian.Uint32(src[(c*panelRows+lane)*4:]))
		}
	case device.F16:
		for c := range dst {
			dst[c] = device.FromF16(binary.LittleEndian.Uint16(src[(c*panelRows+lane)*2:]))
		}
	case device.BF16:
		for c := range dst {
			dst[c] = device.FromBF16(binary.LittleEndian.Uint16(src[(c*panelRows+lane)*2:]))
		}
	default:
		m.unpackBlocks(src, lane, dst)
	}
}

func (m *matrix) unpackBlocks(src []byte, lane int, dst []float32) {
	size := blockBytes(m.typ)
	for b := range len(dst) / 32 {
		s, d := src[b*size:][:size], dst[b*32:][:32]
		scale := device.FromF16(binary.LittleEndian.Uint16(s[lane*2:]))
		switch m.typ {
		case device.Q8_0:
			for c := range d {
				d[c] = scale * float32(int8(s[32+(c/4*panelRows+lane)*4+c%4]))
			}
		case device.Q4_0:
			for c := range d {
				d[c] = scale * float32(nibble(s[32:], lane, c)-8)
			}
		case device.Q4_1:
			low := device.FromF16(binary.LittleEndian.Uint16(s[32+lane*2:]))
			for c := range d {
				d[c] = float32(scale*float32(nibble(s[64:], lane, c))) + low
			}
		}
	}
}

// nibble is column c of a lane in a block of nibbles.
func nibble(s []byte, lane, c int) int {
	b := s[(c%16/4*panelRows+lane)*4+c%4]
	return int(b >> (c / 16 * 4) & 15)
}
