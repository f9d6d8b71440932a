package bench_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"quire/bench"
	"quire/device/cpu"
	"quire/device/open"
	_ "quire/embedded"
)

func TestSpread(t *testing.T) {
	var v []float64
	for i := 100; i > 0; i-- {
		v = append(v, float64(i))
	}
	got := bench.SpreadOf(v)
	want := bench.Spread{N: 100, Min: 1, Median: 50, Mean: 50.5, P90: 90, P99: 99, Max: 100}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := bench.SpreadOf(nil); got != (bench.Spread{}) {
		t.Errorf("of nothing: %+v", got)
	}
	if got := bench.SpreadOf([]float64{7}); got.Median != 7 || got.P99 != 7 || got.Min != 7 {
		t.Errorf("of one: %+v", got)
	}
}

func TestModel(t *testing.T) {
	o := bench.ModelOptions{Device: open.Options{Device: "cpu", CPU: cpu.Options{Threads: 1}}, PageSize: 16, Prompt: 40, Generate: 5, Batch: 3, Depth: 9, Chunk: 16, Repeat: 2}
	r, err := bench.RunModel(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Tests) != 2 || r.Tests[0].Name != "prefill" || r.Tests[1].Name != "decode" {
		t.Fatalf("tests: %+v", r.Tests)
	}
	for _, x := range r.Tests {
		if x.Rate.N != 2 || x.Rate.Min <= 0 || x.Rate.Min > x.Rate.Median || x.Rate.Median > x.Rate.Max || len(x.Wall) != 2 {
			t.Errorf("%s: %+v", x.Name, x)
		}
	}
	var table, lines strings.Builder
	if err := r.Print(&table); err != nil || !strings.Contains(table.String(), "decode n5x3@9") {
		t.Errorf("table: %v\n%s", err, table.String())
	}
	if err := r.PrintBench(&lines); err != nil || strings.Count(lines.String(), "BenchmarkPrefill/p40-1 1 ") != 2 {
		t.Errorf("benchmark lines: %v\n%s", err, lines.String())
	}
	if b, err := json.Marshal(r); err != nil || !strings.Contains(string(b), `"tokens_per_second"`) {
		t.Errorf("JSON: %v\n%s", err, b)
	}
}

func TestModelRefuses(t *testing.T) {
	o := bench.ModelOptions{PageSize: 16, Prompt: 1 << 20, Batch: 1, Chunk: 16, Repeat: 1}
	if _, err := bench.RunModel(context.Background(), o); err == nil || !strings.Contains(err.Error(), "1048576 tokens") {
		t.Errorf("a prompt beyond the context: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	o.Prompt = 8
	if _, err := bench.RunModel(ctx, o); err == nil {
		t.Error("a cancelled run gave a report")
	}
}
