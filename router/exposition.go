package router

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
)

// counter only grows. Any goroutine may add.
type counter struct{ n atomic.Uint64 }

// Inc adds one.
func (c *counter) Inc() { c.n.Add(1) }

// Add adds n, which is not negative.
func (c *counter) Add(n int) { c.n.Add(uint64(max(0, n))) }

// Get is what was counted so far.
func (c *counter) Get() uint64 { return c.n.Load() }

// histogram counts values in buckets. One goroutine observes, any may read.
type histogram struct {
	bounds []float64       // upper ends, ascending; never written
	counts []atomic.Uint64 // of each bucket alone; the last one is for what lies above all bounds
	sum    atomic.Uint64   // bits of a float64
}

func newHistogram(bounds []float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

// observe takes a value n times. A value on a bound belongs to the bucket below it.
func (h *histogram) observe(v float64, n int) {
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.counts[i].Add(uint64(n))
	h.sum.Store(math.Float64bits(math.Float64frombits(h.sum.Load()) + v*float64(n)))
}

// exposition writes metrics as Prometheus text: each family once, with HELP and TYPE before its samples.
type exposition struct{ w io.Writer }

// sample is one line of a family: labels as name and value in turn.
type sample struct {
	labels []string
	value  any
}

func (e exposition) head(name, kind, help string) {
	fmt.Fprintf(e.w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (e exposition) gauge(name, help string, v any) {
	e.family(name, "gauge", help, []sample{{value: v}})
}

func (e exposition) counter(name, help string, v uint64) {
	e.family(name, "counter", help, []sample{{value: v}})
}

// family writes a family with labels; one without samples still has its HELP and TYPE.
func (e exposition) family(name, kind, help string, samples []sample) {
	e.head(name, kind, help)
	for _, s := range samples {
		fmt.Fprintf(e.w, "%s%s %v\n", name, braces(s.labels), s.value)
	}
}

func (e exposition) histogram(name, help string, h *histogram) {
	e.head(name, "histogram", help)
	var below uint64
	for i := range h.counts {
		below += h.counts[i].Load()
		le := "+Inf"
		if i < len(h.bounds) {
			le = strconv.FormatFloat(h.bounds[i], 'g', -1, 64)
		}
		fmt.Fprintf(e.w, "%s_bucket%s %d\n", name, braces([]string{"le", le}), below)
	}
	fmt.Fprintf(e.w, "%s_sum %v\n%s_count %d\n", name, math.Float64frombits(h.sum.Load()), name, below)
}

// escape writes a label's value as the text format wants it.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func braces(labels []string) string {
	if len(labels) == 0 {
		return ""
	}
	parts := make([]string, 0, len(labels)/2)
	for i := 0; i+1 < len(labels); i += 2 {
		parts = append(parts, labels[i]+`="`+escape.Replace(labels[i+1])+`"`)
	}
	return "{" + strings.Join(parts, ",") + "}"
}
