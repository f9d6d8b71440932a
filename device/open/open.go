// Package open opens the device that an operator names.
package open

import (
	"fmt"
	"strconv"
	"strings"

	"quire/device"
	"quire/device/cpu"
	"quire/device/cuda"
)

// Options name a device. Zero values are the defaults.
type Options struct {
	// Device is cpu, cuda (the first GPU), cuda:N (the N-th, from 0), or auto, which "" is too: the first GPU where there is one, else
	// the CPU.
	Device string
	CPU    cpu.Options // of the CPU
}

// Check says whether a device can be called so.
func Check(name string) error {
	_, _, err := parse(name)
	return err
}

// parse gives the backend, "" for auto, and which of its devices.
func parse(name string) (backend string, ordinal int, err error) {
	switch name {
	case "", "auto":
		return "", 0, nil
	case "cpu", "cuda":
		return name, 0, nil
	}
	if n, ok := strings.CutPrefix(name, "cuda:"); ok {
		if ordinal, err := strconv.Atoi(n); err == nil && ordinal >= 0 && ordinal < 1024 {
			return "cuda", ordinal, nil
		}
	}
	return "", 0, fmt.Errorf("device %q: auto, cpu, cuda and cuda:N are possible", name)
}

// Device opens it. note says why auto chose the CPU where the binary could have used a GPU; it is "" otherwise. A device that was
// named and cannot be opened is an error with the reason.
func Device(o Options) (d device.Device, note string, err error) {
	backend, ordinal, err := parse(o.Device)
	if err != nil {
		return nil, "", err
	}
	if backend == "cuda" || backend == "" && cuda.Built {
		d, err = cuda.New(cuda.Options{Ordinal: ordinal})
		if err == nil {
			return d, "", nil
		}
		if backend == "cuda" {
			return nil, "", fmt.Errorf("--device %s: %w", o.Device, err)
		}
		note = fmt.Sprintf("no GPU, computing on the CPU: %v", err)
	}
	d, err = cpu.New(o.CPU)
	return d, note, err
}
