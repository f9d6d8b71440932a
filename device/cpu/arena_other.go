//go:build !linux

package cpu

// mapMemory gives n zero bytes.
func mapMemory(n int) ([]byte, error) { return alignedBytes(n), nil }

func unmapMemory([]byte) error { return nil }
