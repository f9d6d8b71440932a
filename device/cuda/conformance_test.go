//go:build cuda && linux

package cuda

import (
	"os"
	"testing"

	"quire/device"
	"quire/device/cuda/emulator"
	"quire/device/devicetest"
)

// onHardware says that the tests run against the machine's own driver (make gpu-check).
func onHardware() bool { return os.Getenv("QUIRE_TEST_GPU") != "" }

// planned leaves a test out that needs the emulator's planned failures.
func planned(t *testing.T) {
	t.Helper()
	if onHardware() {
		t.Skip("needs the emulator")
	}
}

// emulate makes the emulator the driver of this test's process, but on hardware.
func emulate(t testing.TB) {
	t.Helper()
	if onHardware() {
		return
	}
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
	orders := []string{"forward", "reverse", "random"}
	if onHardware() {
		orders = orders[:1]
	}
	for _, order := range orders {
		t.Run(order, func(t *testing.T) {
			t.Setenv("QUIRE_EMULATOR_ORDER", order)
			devicetest.Run(t, func(t *testing.T) device.Device { return open(t) })
		})
	}
}
