//go:build !unix

package bench

// cpuSeconds is the processor time of this process so far; 0 where it is not to be had, as here.
func cpuSeconds() float64 { return 0 }
