package model_test

import "golang.org/x/sys/unix"

// processSeconds is the processor time of this process.
func processSeconds() float64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return float64(t.Sec) + float64(t.Nsec)/1e9
}
