package cpu

import "sync"

// arena gives out memory for weights and pages that lives until the device closes: outside Go's heap where the system allows,
// in huge pages where it has them (a product that streams weights from memory runs up to twice as fast with them).
type arena struct {
	mu     sync.Mutex
	chunks [][]byte
	rest   []byte // of the last chunk
}

// chunkBytes is how much is asked of the system at a time.
const chunkBytes = 64 << 20

// slack follows every piece: kernels prefetch beyond the end.
const slack = 8 << 10

// alloc gives n zero bytes at a multiple of 64.
func (a *arena) alloc(n int) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	need := roundUp(n+slack, 64)
	if need > len(a.rest) {
		chunk, err := mapMemory(max(chunkBytes, need))
		if err != nil {
			return nil, err
		}
		a.chunks = append(a.chunks, chunk)
		a.rest = chunk
	}
	piece := a.rest[:n:n]
	a.rest = a.rest[need:]
	return piece, nil
}

func (a *arena) free() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var first error
	for _, c := range a.chunks {
		if err := unmapMemory(c); err != nil && first == nil {
			first = err
		}
	}
	a.chunks, a.rest = nil, nil
	return first
}
