package bench

import (
	"cmp"
	"math"
	"runtime"
	"slices"

	"quire/device"
)

// Spread is a sample of one figure. Percentiles are values that were seen (nearest rank), never interpolated.
type Spread struct {
	N      int     `json:"n"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Mean   float64 `json:"mean"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

// SpreadOf sums up values; the zero Spread for none.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	v := slices.Sorted(slices.Values(values))
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return Spread{N: len(v), Min: v[0], Median: rank(v, 0.5), Mean: sum / float64(len(v)), P90: rank(v, 0.9), P99: rank(v, 0.99), Max: v[len(v)-1]}
}

// rank is the least value of sorted v that at least the share q of all does not exceed.
func rank[T cmp.Ordered](v []T, q float64) T {
	return v[min(len(v)-1, max(0, int(math.Ceil(q*float64(len(v))))-1))]
}

// Machine is what figures were measured on.
type Machine struct {
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	CPUs    int    `json:"cpus"` // that Go may use
	Go      string `json:"go"`
	Backend string `json:"backend,omitempty"`
	Variant string `json:"variant,omitempty"` // of the kernels
	Threads int    `json:"threads,omitempty"` // that compute
}

// machine describes this process, and the device where there is one.
func machine(d device.Device) Machine {
	m := Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.GOMAXPROCS(0), Go: runtime.Version()}
	if d != nil {
		i := d.Info()
		m.Backend, m.Variant, m.Threads = i.Backend, i.Variant, i.Threads
	}
	return m
}
