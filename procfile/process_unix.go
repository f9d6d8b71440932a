//go:build unix

package procfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// once runs a command from start to death and returns when its whole process group is gone.
func (s *Supervisor) once(ctx context.Context, i int, e Entry) *Died {
	runtime.LockOSThread() // for endWithParent
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/bin/sh", "-c", e.Command)
	cmd.Dir, cmd.Env = s.o.Dir, s.env(i, e)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(cmd.SysProcAttr)
	r, w, err := os.Pipe()
	if err != nil {
		return &Died{Name: e.Name, State: err.Error(), Code: 1}
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		return &Died{Name: e.Name, State: errors.Join(err, r.Close(), w.Close()).Error(), Code: 1}
	}
	closed := w.Close() // the child has its own
	s.out.line(-1, "quire", fmt.Sprintf("%s started, pid %d, PORT %d", e.Name, cmd.Process.Pid, s.o.BasePort+100*i))

	read := make(chan struct{})
	go func() { defer close(read); s.out.copyLines(i, e.Name, r) }()
	dead := make(chan error, 1)
	go func() { dead <- cmd.Wait() }()

	state := s.await(ctx, cmd.Process.Pid, dead)
	s.endGroup(cmd.Process.Pid)
	drain(r, read)
	if err := errors.Join(state, closed); err != nil && cmd.ProcessState == nil {
		return &Died{Name: e.Name, State: err.Error(), Code: 1}
	}
	return &Died{Name: e.Name, State: cmd.ProcessState.String(), Code: code(cmd.ProcessState)}
}

// await waits for the command's death. Once ctx ended it asks the group to stop, and after the grace, or at Kill, ends it.
func (s *Supervisor) await(ctx context.Context, pid int, dead <-chan error) error {
	select {
	case err := <-dead:
		return err
	case <-ctx.Done():
		signalGroup(pid, syscall.SIGTERM)
	case <-s.kill:
		signalGroup(pid, syscall.SIGKILL)
	}
	select {
	case err := <-dead:
		s.awaitGroup(pid)
		return err
	case <-s.kill:
	case <-time.After(s.o.Grace):
	}
	signalGroup(pid, syscall.SIGKILL)
	return <-dead
}

// awaitGroup gives what a dead shell left running the rest of a grace to end by itself.
func (s *Supervisor) awaitGroup(pid int) {
	grace := time.After(s.o.Grace)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for syscall.Kill(-pid, 0) == nil {
		select {
		case <-tick.C:
		case <-grace:
			return
		case <-s.kill:
			return
		}
	}
}

// endGroup leaves nothing of the group behind.
func (s *Supervisor) endGroup(pid int) { signalGroup(pid, syscall.SIGKILL) }

// signalGroup signals a group; one that is gone already is what was wanted.
func signalGroup(pid int, sig syscall.Signal) { _ = syscall.Kill(-pid, sig) }

// drain waits for the end of the output. A process that left its group may hold the pipe open: then the pipe is closed here.
func drain(r io.Closer, read <-chan struct{}) {
	select {
	case <-read:
	case <-time.After(time.Second):
	}
	_ = r.Close() // only reading: nothing can be lost that anybody still waits for
	<-read
}

func code(p *os.ProcessState) int {
	if ws, ok := p.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	if c := p.ExitCode(); c > 0 {
		return c
	}
	return 1
}
