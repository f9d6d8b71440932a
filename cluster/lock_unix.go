//go:build unix

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lock is a data directory in use by this process. The kernel gives it up when the process ends, however it ends.
type lock struct{ f *os.File }

// lockDir makes the directory and takes it for this process: two servers in one store would destroy it.
func lockDir(dir string) (*lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cluster: data directory: %w", err)
	}
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cluster: data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(inUse(dir, path, err), f.Close())
	}
	if err := errors.Join(f.Truncate(0), write(f, strconv.Itoa(os.Getpid())+"\n")); err != nil {
		return nil, errors.Join(fmt.Errorf("cluster: data directory: %w", err), f.Close())
	}
	return &lock{f}, nil
}

func write(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

func inUse(dir, path string, err error) error {
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("cluster: data directory %s cannot be locked: %w", dir, err)
	}
	by := "another process"
	if b, err := os.ReadFile(path); err == nil && len(b) > 0 {
		by = "process " + strings.TrimSpace(string(b))
	}
	return fmt.Errorf("cluster: data directory %s is in use by %s: use its server with --nats-url, or another directory with --data DIR", dir, by)
}

// release gives the directory up.
func (l *lock) release() error { return l.f.Close() }
