package bench_test

import (
	"bytes"
	"strings"
	"testing"

	"quire/bench"
	"quire/device/cpu"
	"quire/device/open"
)

// TestRunDevice measures every op of the CPU once, on small shapes, and prints the table.
func TestRunDevice(t *testing.T) {
	o := bench.DeviceOptions{Device: open.Options{Device: "cpu", CPU: cpu.Options{Threads: 1}}, Dim: 256, Group: 2, Context: 40, Batch: 3, Rows: 9,
		PageSize: 16, Repeat: 1}
	r, err := bench.RunDevice(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range r.Tests {
		if test.Seconds.N != 1 || test.Bytes <= 0 || test.GBs <= 0 {
			t.Errorf("%+v", test)
		}
	}
	var out bytes.Buffer
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"copy (gather)", "product Q4_K, prefill", "attention, decode", "frame out of pages"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line %q:\n%s", want, out.String())
		}
	}
	if r.TagCost != nil {
		t.Errorf("the CPU has no tags, their cost is %v", r.TagCost)
	}
}
