package bench_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"quire/bench"
	"quire/device/cpu"
)

// The parts of every round add up to its TTFT: what a table shows leaves nothing out.
func TestHandoff(t *testing.T) {
	defer goleak.VerifyNone(t)
	o := bench.HandoffOptions{Dir: t.TempDir(), Device: cpu.Options{Threads: 1}, PageSize: 16, Prompt: 40, Chunk: 16, Repeat: 1}
	r, err := bench.RunHandoff(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, p := range r.Parts {
		if p.MS.N != 1 || p.MS.Min < 0 {
			t.Errorf("%s: %+v", p.Name, p.MS)
		}
		sum += p.MS.Median
	}
	if math.Abs(sum-r.TTFT.Median) > 1e-3 {
		t.Errorf("the parts add up to %g ms, TTFT is %g ms", sum, r.TTFT.Median)
	}
	if r.Alone.Median <= 0 || r.Witness.Median <= 0 || r.Witness.Median >= 1 || math.Abs(r.Ratio.Median*r.Alone.Median-r.TTFT.Median) > 1e-3 {
		t.Errorf("%+v", r)
	}
	for _, p := range r.Beside[:3] {
		if p.Count < 1 {
			t.Errorf("%s was not seen", p.Name)
		}
	}
	var table strings.Builder
	if err := r.Print(&table); err != nil || !strings.Contains(table.String(), "witness (a)") {
		t.Errorf("table: %v\n%s", err, table.String())
	}
}

func TestHandoffRefuses(t *testing.T) {
	defer goleak.VerifyNone(t)
	o := bench.HandoffOptions{Dir: t.TempDir(), PageSize: 16, Prompt: 4096, Chunk: 256, Repeat: 1}
	if _, err := bench.RunHandoff(context.Background(), o); err == nil || !strings.Contains(err.Error(), "a prompt of 4096 tokens") {
		t.Errorf("a prompt beyond the context: %v", err)
	}
}
