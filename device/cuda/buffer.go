//go:build cuda && linux

package cuda

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"quire/device"
)

// buffer is working memory on the device, rows stride numbers apart.
//
// Invariant: the numbers from cols to stride of each row are zero, so products may run over whole chunks.
type buffer struct {
	dev                *Device
	at                 cu.DevicePtr // [rows][stride] f32
	rows, cols, stride int
}

// maxNumbers bounds a buffer: 16 GiB.
const maxNumbers = 1 << 32

// Buffer makes working memory, all zero. It lives until the device closes.
func (d *Device) Buffer(rows, cols int) (device.Buffer, error) {
	if rows < 1 || cols < 1 || rows > maxNumbers/(cols+32) {
		return nil, fmt.Errorf("device/cuda: buffer: %d rows of %d", rows, cols)
	}
	d.queue.Lock()
	defer d.queue.Unlock()
	leave, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	b := &buffer{dev: d, rows: rows, cols: cols, stride: roundUp(cols, 32)}
	if b.at, err = d.alloc(rows * b.stride * 4); err != nil {
		return nil, err
	}
	return b, nil
}

// Upload writes whole rows.
func (d *Device) Upload(b device.Buffer, row int, src []float32) error {
	buf, err := d.buffer(b)
	if err != nil {
		return err
	}
	if row < 0 || len(src)%buf.cols != 0 || row+len(src)/buf.cols > buf.rows {
		return fmt.Errorf("device/cuda: upload: %d numbers at row %d, buffer of %d rows of %d", len(src), row, buf.rows, buf.cols)
	}
	if len(src) == 0 {
		return nil
	}
	d.queue.Lock()
	defer d.queue.Unlock()
	leave, err := d.enter()
	if err != nil {
		return err
	}
	defer leave()
	n := len(src) / buf.cols
	wide := make([]float32, n*buf.stride)
	for i := range n {
		copy(wide[i*buf.stride:], src[i*buf.cols:(i+1)*buf.cols])
	}
	if err := toDevice(buf.row(row), unsafe.Pointer(&wide[0]), len(wide)*4); err != nil {
		return failed("upload", err)
	}
	return nil
}

func (d *Device) buffer(b device.Buffer) (*buffer, error) {
	buf, ok := b.(*buffer)
	if !ok || buf == nil || buf.dev != d {
		return nil, fmt.Errorf("device/cuda: buffer: not one of this device")
	}
	return buf, nil
}

// Rows is how many rows it has.
func (b *buffer) Rows() int { return b.rows }

// Cols is how many numbers a row has.
func (b *buffer) Cols() int { return b.cols }

// row is where a row begins on the device.
func (b *buffer) row(i int) cu.DevicePtr { return b.at + cu.DevicePtr(i*b.stride*4) }

func roundUp(n, to int) int { return (n + to - 1) / to * to }
