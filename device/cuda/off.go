//go:build !cuda || !linux

package cuda

import "quire/device"

// Built says whether CUDA is in this binary.
const Built = false

// Find says that the binary has no CUDA.
func Find() (Driver, error) { return Driver{}, ErrNotBuilt }

// New says that the binary has no CUDA.
func New(Options) (device.Device, error) { return nil, ErrNotBuilt }
