package cluster

import "golang.org/x/sys/unix"

// memory is how many bytes this machine has, 0 when it does not say.
func memory() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}
