//go:build cuda && linux

package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"quire/device"
	"quire/device/cuda/libcuda"
)

// Built says whether CUDA is in this binary.
const Built = true

// Device computes on one GPU. Steps run one at a time on their own stream; frames are copied beside them.
type Device struct {
	info   device.Info
	memory int64 // bytes in all
	ctx    cu.CUContext
	module cu.Module

	queue   sync.Mutex // held by the caller whose step runs
	stream  cu.Stream  // of steps; guarded by queue
	plan    plan       // guarded by queue
	in, out *lane      // of frames: into pages, out of pages

	mu        sync.Mutex // guards what follows
	closed    bool
	blocks    []cu.DevicePtr // memory to free at Close
	functions map[string]cu.Function
	pools     []*pool
}

var _ device.Device = (*Device)(nil)

// Find opens the driver and lists the devices. An error says why there is none.
func Find() (Driver, error) {
	if err := libcuda.Open(); err != nil {
		return Driver{}, fmt.Errorf("device/cuda: %w", err)
	}
	d := Driver{Version: cu.Version()}
	n, err := cu.NumDevices()
	if err != nil {
		return d, failed("count devices", err)
	}
	for i := range n {
		f, err := find(i)
		if err != nil {
			return d, err
		}
		d.Devices = append(d.Devices, f)
	}
	if n == 0 {
		return d, errors.New("device/cuda: the CUDA driver finds no device")
	}
	return d, nil
}

func find(ordinal int) (Found, error) {
	dev := cu.Device(ordinal)
	name, err1 := dev.Name()
	memory, err2 := dev.TotalMem()
	major, minor, err3 := dev.ComputeCapability()
	if err := errors.Join(err1, err2, err3); err != nil {
		return Found{}, failed(fmt.Sprintf("device %d", ordinal), err)
	}
	return Found{Ordinal: ordinal, Name: name, Memory: memory, Capability: fmt.Sprintf("%d.%d", major, minor)}, nil
}

// leastCapability is that of the PTX: sm_80.
const leastCapability = "8.0"

// New starts a device.
func New(o Options) (device.Device, error) {
	drv, err := Find()
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(drv.Devices, func(f Found) bool { return f.Ordinal == o.Ordinal })
	if at < 0 {
		return nil, fmt.Errorf("device/cuda: device %d: this machine has %d", o.Ordinal, len(drv.Devices))
	}
	f := drv.Devices[at]
	if len(f.Capability) == len(leastCapability) && f.Capability < leastCapability {
		return nil, fmt.Errorf("device/cuda: device %d, %s: compute capability %s, the kernels need %s", o.Ordinal, f.Name, f.Capability, leastCapability)
	}
	d := &Device{info: device.Info{Backend: "cuda", Variant: ptxVariant(), Version: Version, Arch: runtime.GOARCH, Activations: "f32"}, memory: f.Memory}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if d.ctx, err = cu.Device(o.Ordinal).MakeContext(cu.SchedAuto); err != nil {
		return nil, failed("context", err)
	}
	if err := d.start(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// start loads the kernels and makes everything that steps and copies need.
func (d *Device) start() error {
	var err error
	if d.module, err = cu.LoadData(ptx); err != nil {
		return failed("load kernels", err)
	}
	if d.stream, err = cu.MakeStream(cu.NonBlocking); err != nil {
		return failed("stream", err)
	}
	if err := d.plan.start(d); err != nil {
		return err
	}
	if d.in, err = newLane(d); err != nil {
		return err
	}
	d.out, err = newLane(d)
	return err
}

// Info describes the device.
func (d *Device) Info() device.Info { return d.info }

// Memory is how many bytes of its own the device has.
func (d *Device) Memory() int64 { return d.memory }

// enter makes the device's context current for this goroutine; the function that it returns ends that.
func (d *Device) enter() (leave func(), err error) {
	runtime.LockOSThread()
	if d.isClosed() {
		runtime.UnlockOSThread()
		return nil, errors.New("device/cuda: the device is closed")
	}
	if err := cu.SetCurrentContext(d.ctx); err != nil {
		runtime.UnlockOSThread()
		return nil, failed("context", err)
	}
	return runtime.UnlockOSThread, nil
}

func (d *Device) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// Close waits for what runs and frees all memory.
func (d *Device) Close() error {
	d.queue.Lock()
	defer d.queue.Unlock()
	for _, l := range []*lane{d.in, d.out} {
		if l != nil {
			l.mu.Lock()
			defer l.mu.Unlock()
		}
	}
	leave, err := d.enter()
	if err != nil {
		return nil // closed before
	}
	defer leave()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	var errs []error
	for _, p := range d.blocks {
		errs = append(errs, cu.MemFree(p))
	}
	for _, h := range d.pinned() {
		errs = append(errs, h.free())
	}
	d.blocks, d.pools = nil, nil
	errs = append(errs, d.ctx.Destroy())
	if err := errors.Join(errs...); err != nil {
		return failed("close", err)
	}
	return nil
}

// alloc gives n bytes of device memory, all zero, that live until the device closes or release is called. The context is current.
func (d *Device) alloc(n int) (cu.DevicePtr, error) {
	p, err := cu.MemAlloc(int64(max(n, 16)))
	if err != nil {
		return 0, failed(fmt.Sprintf("memory: %d bytes", n), err)
	}
	d.mu.Lock()
	d.blocks = append(d.blocks, p)
	d.mu.Unlock()
	if err := cu.MemsetD8Async(p, 0, int64(max(n, 16)), d.stream); err != nil {
		return 0, failed("memory", err)
	}
	if err := d.stream.Synchronize(); err != nil {
		return 0, failed("memory", err)
	}
	return p, nil
}

// toDevice copies host memory to the device and waits until it is there: the driver's own copy from ordinary memory may return when
// it has read it, and streams of ours would not wait for the rest. The context is current.
func toDevice(at cu.DevicePtr, from unsafe.Pointer, n int) error {
	if err := cu.MemcpyHtoD(at, from, int64(n)); err != nil {
		return err
	}
	return cu.Synchronize()
}

// release frees device memory before the device closes. The context is current.
func (d *Device) release(p cu.DevicePtr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.blocks, p); i >= 0 {
		d.blocks = slices.Delete(d.blocks, i, i+1)
		_ = cu.MemFree(p) // an error here is one that the next step reports: the device is lost
	}
}

// failed wraps an error of the driver.
func failed(what string, err error) error {
	return fmt.Errorf("device/cuda: %s: %w: %w", what, device.ErrDevice, err)
}
