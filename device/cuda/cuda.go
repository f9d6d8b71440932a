package cuda

import "errors"

// Version is of the kernels' arithmetic. It grows whenever the bits of a result can change.
const Version = 1

// ErrNotBuilt is the reason when the binary has no CUDA in it.
var ErrNotBuilt = errors.New("this binary was built without CUDA (go build -tags cuda, see docs/cuda.md)")

// Options choose a device.
type Options struct {
	Ordinal int // which of the machine's devices, from 0
}

// Found is one device of this machine.
type Found struct {
	Ordinal    int
	Name       string
	Capability string // "9.0"
	Memory     int64  // bytes in all
}

// Driver is the CUDA driver of this machine.
type Driver struct {
	Version int // 1000 * major + 10 * minor, of the CUDA that it speaks
	Devices []Found
}
