//go:build cuda && linux

package bench_test

import (
	"testing"

	"quire/bench"
	"quire/device/cuda/emulator"
	"quire/device/open"
)

// TestRunDeviceCUDA measures every op of an emulated GPU once: the figures mean nothing, the tags' cost is there.
func TestRunDeviceCUDA(t *testing.T) {
	lib, err := emulator.Build()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("QUIRE_LIBCUDA", lib)
	r, err := bench.RunDevice(t.Context(), bench.DeviceOptions{Device: open.Options{Device: "cuda"}, Dim: 256, Group: 2, Context: 40, Batch: 3, Rows: 9,
		PageSize: 16, Repeat: 1})
	if err != nil || len(r.TagCost) != 2 || r.Machine.Backend != "cuda" {
		t.Errorf("%+v, %v", r, err)
	}
}
