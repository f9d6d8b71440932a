package cpu

import (
	"fmt"
	"syscall"
)

const hugePage = 2 << 20

// mapMemory gives n zero bytes outside Go's heap, in huge pages if the system has any to give.
func mapMemory(n int) ([]byte, error) {
	b, err := syscall.Mmap(-1, 0, roundUp(n, hugePage), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("device/cpu: memory: %d bytes: %w", n, err)
	}
	_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE) // only advice: slower without
	return b, nil
}

func unmapMemory(b []byte) error { return syscall.Munmap(b) }
