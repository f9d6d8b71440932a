package procfile

import "syscall"

// endWithParent makes the kernel send SIGTERM to a process when the thread that started it ends, as it does when the supervisor is
// killed: the caller keeps that thread as long as the process lives.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGTERM }
