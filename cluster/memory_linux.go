package cluster

import "golang.org/x/sys/unix"

// memory is how many bytes this machine has, 0 when it does not say.
func memory() int64 {
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) != nil {
		return 0
	}
	return int64(s.Totalram) * int64(s.Unit)
}
