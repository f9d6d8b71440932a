//go:build cuda && linux

package cuda

import (
	"math"
	"unsafe"

	"gorgonia.org/cu"
)

// most is how many parameters a kernel takes at most.
const most = 12

// launch is a kernel with its arguments, each in 8 bytes, as the bindings copy them.
type launch struct {
	fn     cu.Function
	gx, gy int
	block  int // threads
	shared int // bytes of dynamic shared memory
	n      int
	args   [most]uint64
}

// maxGridY is how many blocks a grid has in its second direction at most.
const maxGridY = 65535

// arg turns an argument into 8 bytes.
func arg(v any) uint64 {
	switch v := v.(type) {
	case cu.DevicePtr:
		return uint64(v)
	case int:
		return uint64(v)
	case int32:
		return uint64(v)
	case uint64:
		return v
	case float32:
		return uint64(math.Float32bits(v))
	case bool:
		if v {
			return 1
		}
		return 0
	}
	panic("device/cuda: an argument of a type that kernels do not take")
}

// kernel finds a kernel of the module.
func (d *Device) kernel(name string) (cu.Function, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f, ok := d.functions[name]; ok {
		return f, nil
	}
	f, err := d.module.Function(name)
	if err != nil {
		return f, failed("kernel "+name, err)
	}
	if d.functions == nil {
		d.functions = map[string]cu.Function{}
	}
	d.functions[name] = f
	return f, nil
}

// launch prepares a launch.
func (d *Device) launch(name string, gx, gy, block int, args ...any) (launch, error) {
	f, err := d.kernel(name)
	if err != nil {
		return launch{}, err
	}
	l := launch{fn: f, gx: gx, gy: gy, block: block, n: len(args)}
	for i, a := range args {
		l.args[i] = arg(a)
	}
	return l, nil
}

// on queues the launch.
func (l *launch) on(s cu.Stream) error {
	var at [most]unsafe.Pointer
	for i := range l.n {
		at[i] = unsafe.Pointer(&l.args[i])
	}
	if err := l.fn.Launch(l.gx, l.gy, 1, l.block, 1, 1, l.shared, s, at[:l.n]); err != nil {
		return failed("launch", err)
	}
	return nil
}
