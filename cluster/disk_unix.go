//go:build linux || darwin

package cluster

import "golang.org/x/sys/unix"

// diskFree is how many bytes may still be written where dir is, 0 when that is unknown.
func diskFree(dir string) int64 {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0
	}
	return int64(s.Bavail) * int64(s.Bsize)
}
