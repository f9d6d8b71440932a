//go:build !linux

package model_test

import "time"

var started = time.Now()

// processSeconds is wall time where the process's own is not to be had.
func processSeconds() float64 { return time.Since(started).Seconds() }
