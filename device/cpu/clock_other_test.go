//go:build !linux

package cpu

import "time"

var started = time.Now()

// threadSeconds is wall time where a thread's own is not to be had.
func threadSeconds() float64 { return time.Since(started).Seconds() }
