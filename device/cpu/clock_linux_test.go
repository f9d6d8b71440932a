package cpu

import "golang.org/x/sys/unix"

// threadSeconds is the processor time of this thread.
func threadSeconds() float64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return float64(t.Sec) + float64(t.Nsec)/1e9
}
