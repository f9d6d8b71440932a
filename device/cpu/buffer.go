package cpu

import (
	"fmt"
	"unsafe"

	"quire/device"
)

// buffer is working memory. Rows are stride numbers apart.
//
// Invariant: the numbers from cols to stride of each row are zero, so kernels may run over whole vectors.
type buffer struct {
	dev                *Device
	data               []float32 // [rows][stride], 64-byte aligned
	rows, cols, stride int
}

// maxNumbers bounds a buffer: 16 GiB.
const maxNumbers = 1 << 32

// Buffer makes working memory, all zero.
func (d *Device) Buffer(rows, cols int) (device.Buffer, error) {
	if rows < 1 || cols < 1 || rows > maxNumbers/(cols+64) {
		return nil, fmt.Errorf("device/cpu: buffer: %d rows of %d", rows, cols)
	}
	stride := roundUp(cols, 32)
	if rows > 1 && stride*4%1024 == 0 {
		stride += 32 // rows a multiple of 1 KiB apart would fight for the same lines of the cache
	}
	return &buffer{dev: d, data: alignedFloats(rows * stride), rows: rows, cols: cols, stride: stride}, nil
}

// Upload writes whole rows.
func (d *Device) Upload(b device.Buffer, row int, src []float32) error {
	buf, err := d.buffer(b)
	if err != nil {
		return err
	}
	if row < 0 || len(src)%buf.cols != 0 || row+len(src)/buf.cols > buf.rows {
		return fmt.Errorf("device/cpu: upload: %d numbers at row %d, buffer of %d rows of %d", len(src), row, buf.rows, buf.cols)
	}
	for ; len(src) > 0; row, src = row+1, src[buf.cols:] {
		copy(buf.row(row), src[:buf.cols])
	}
	return nil
}

func (d *Device) buffer(b device.Buffer) (*buffer, error) {
	buf, ok := b.(*buffer)
	if !ok || buf == nil || buf.dev != d {
		return nil, fmt.Errorf("device/cpu: buffer: not one of this device")
	}
	return buf, nil
}

// Rows is how many rows it has.
func (b *buffer) Rows() int { return b.rows }

// Cols is how many numbers a row has.
func (b *buffer) Cols() int { return b.cols }

func (b *buffer) row(i int) []float32 { return b.data[i*b.stride : i*b.stride+b.cols] }

// wide is row i up to the next multiple of 8.
func (b *buffer) wide(i int) []float32 { return b.data[i*b.stride : i*b.stride+roundUp(b.cols, 8)] }

func (b *buffer) ptr(row, col int) unsafe.Pointer { return unsafe.Pointer(&b.data[row*b.stride+col]) }

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// alignedFloats makes n zeros at a multiple of 64 bytes.
func alignedFloats(n int) []float32 {
	b := make([]float32, n+16)
	skip := int(-uintptr(unsafe.Pointer(&b[0]))&63) / 4
	return b[skip : skip+n : skip+n]
}

// alignedBytes makes n zeros at a multiple of 64 bytes.
func alignedBytes(n int) []byte {
	b := make([]byte, n+64)
	skip := int(-uintptr(unsafe.Pointer(&b[0])) & 63)
	return b[skip : skip+n : skip+n]
}
