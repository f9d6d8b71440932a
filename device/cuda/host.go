//go:build cuda && linux

package cuda

// #include <cuda.h>
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// pinned is host memory that the device copies from and to beside other work. The bindings lack its allocation.
type pinned struct {
	at   unsafe.Pointer
	size int
}

// newPinned gives n bytes. The context is current.
func newPinned(n int) (*pinned, error) {
	p := &pinned{size: n}
	if rc := C.cuMemHostAlloc(&p.at, C.size_t(n), C.CU_MEMHOSTALLOC_PORTABLE); rc != 0 {
		return nil, failed(fmt.Sprintf("pinned memory: %d bytes", n), fmt.Errorf("error %d of the driver", int(rc)))
	}
	return p, nil
}

// bytes is the memory.
func (p *pinned) bytes() []byte { return unsafe.Slice((*byte)(p.at), p.size) }

func (p *pinned) free() error { return cu.MemFreeHost(p.at) }
