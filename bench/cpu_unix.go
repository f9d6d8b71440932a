//go:build unix

package bench

import "golang.org/x/sys/unix"

// cpuSeconds is the processor time of this process so far, user and system; 0 where it is not to be had.
func cpuSeconds() float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
