//go:build unix && !linux

package procfile

import "syscall"

// endWithParent does nothing here: the processes of a supervisor that is killed with SIGKILL go on.
func endWithParent(*syscall.SysProcAttr) {}
