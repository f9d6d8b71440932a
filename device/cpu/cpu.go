// Package cpu is the default device: Go, and assembly where the processor has what it needs. Its portable variant is the oracle
// that the others are measured against.
package cpu

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"quire/device"
)

// Version is of the kernels' arithmetic. It grows whenever the bits of a result can change.
const Version = 1

// Options choose how a device computes. Zero values are the defaults.
type Options struct {
	Threads     int    // workers; 0: one per processor of the machine that Go may use
	Variant     string // "portable", "avx2", "avx512", "avx512vnni", "avx512bf16"; "": $QUIRE_CPU_VARIANT, else the fastest that runs here
	Activations string // "f32", or "int8": rounded to int8 for quantised weights, to BF16 for those (avx512bf16); "": $QUIRE_CPU_ACTIVATIONS, else int8
}

// Device computes on the processors of this machine. Steps run one at a time on its worker threads.
type Device struct {
	info  device.Info
	kern  *kernels
	int8  bool
	arena *arena
	team  *team

	queue sync.Mutex // held by the caller whose step runs
	plans []*plan    // guarded by queue: reusable once no worker is in them
	pools []*pool    // guarded by queue
	acts  [2][]byte  // guarded by queue: rounded activations of the running product, by rounding
}

var _ device.Device = (*Device)(nil)

// New starts a device. A process has one: its workers take whole processors while a step runs.
func New(o Options) (device.Device, error) {
	k, err := chooseKernels(first(o.Variant, os.Getenv("QUIRE_CPU_VARIANT")))
	if err != nil {
		return nil, err
	}
	acts := first(o.Activations, os.Getenv("QUIRE_CPU_ACTIVATIONS"), "int8")
	if acts != "f32" && acts != "int8" {
		return nil, fmt.Errorf("device/cpu: activations %q: f32 and int8 are possible", acts)
	}
	threads := o.Threads
	if threads <= 0 {
		threads = runtime.NumCPU()
		if n := runtime.GOMAXPROCS(0); os.Getenv("GOMAXPROCS") != "" || n < threads {
			threads = n
		}
	}
	// Workers hold a Go processor each for as long as a step runs: leave one for the rest of the process, which must answer
	// heartbeats and leases meanwhile. The system then shares the real processors out.
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) <= threads {
		runtime.GOMAXPROCS(threads + 1)
	}
	d := &Device{
		info: device.Info{
			Backend: "cpu", Variant: k.name, Version: Version, Arch: runtime.GOARCH, Activations: acts, Threads: threads,
		},
		kern: k, int8: acts == "int8", arena: &arena{},
	}
	d.team = startTeam(threads)
	return d, nil
}

func first(s ...string) string {
	for _, v := range s {
		if v != "" {
			return v
		}
	}
	return ""
}

// Info describes the device.
func (d *Device) Info() device.Info { return d.info }

// Close stops the workers and frees weights and pages.
func (d *Device) Close() error {
	d.queue.Lock()
	defer d.queue.Unlock()
	d.team.stop()
	err := d.arena.free()
	for _, p := range d.pools {
		err = errors.Join(err, p.free())
	}
	d.pools = nil
	return err
}

// Run queues a step and waits for its end.
func (d *Device) Run(s *device.Step) error {
	d.queue.Lock()
	defer d.queue.Unlock()
	if d.team.stopped {
		return fmt.Errorf("device/cpu: run: the device is closed")
	}
	p := d.freePlan()
	if err := p.compile(d, s); err != nil {
		return err
	}
	d.team.run(p)
	return nil
}

// freePlan takes a plan that no worker is in any more.
func (d *Device) freePlan() *plan {
	for _, p := range d.plans {
		if d.team.left(p) {
			return p
		}
	}
	p := &plan{}
	d.plans = append(d.plans, p)
	return p
}
