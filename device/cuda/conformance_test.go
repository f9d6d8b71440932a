//go:build cuda && linux

package cuda

import (
	"testing"

	"quire/device"
	"quire/device/cuda/emulator"
	"quire/device/devicetest"
)

// emulate makes the emulator the driver of this test's process.
func emulate(t testing.TB) {
	t.Helper()
	lib, err := emulator.Build()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("QUIRE_LIBCUDA", lib)
}

// open makes a device on the emulator.
func open(t *testing.T) *Device {
	t.Helper()
	emulate(t)
	d, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d.(*Device)
}

// TestConformance runs the suite of all devices in each order of threads: a kernel that lacks a barrier fails in one of them.
func TestConformance(t *testing.T) {
	for _, order := range []string{"forward", "reverse", "random"} {
		t.Run(order, func(t *testing.T) {
			t.Setenv("QUIRE_EMULATOR_ORDER", order)
			devicetest.Run(t, func(t *testing.T) device.Device { return open(t) })
		})
	}
}
