//go:build cuda && linux

// Package libcuda stands between the bindings (gorgonia.org/cu) and the driver library: it defines every function that they
// call and forwards to libcuda.so.1 once that was opened. So a binary needs no NVIDIA file to be built, linked or started.
package libcuda

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "driver.h"
*/
import "C"

import (
	"fmt"
	"os"
	"sync"
	"unsafe"
)

// Name is the driver library's, as the system's loader finds it.
const Name = "libcuda.so.1"

var state struct {
	sync.Mutex
	open bool
}

// Open opens the driver library and initialises the driver: $QUIRE_LIBCUDA where it is set, else Name. The first success counts
// for the life of the process; after an error it may be tried again.
func Open() error {
	state.Lock()
	defer state.Unlock()
	if state.open {
		return nil
	}
	name := os.Getenv("QUIRE_LIBCUDA")
	if name == "" {
		name = Name
	}
	path := C.CString(name)
	defer C.free(unsafe.Pointer(path))
	const size = 512
	why := (*C.char)(C.calloc(1, size))
	defer C.free(unsafe.Pointer(why))
	switch rc := C.quire_libcuda_open(path, why, size); {
	case rc < 0:
		return fmt.Errorf("no CUDA driver: %s", C.GoString(why))
	case rc > 0:
		return fmt.Errorf("the CUDA driver does not start: %s", meaning(int(rc)))
	}
	state.open = true
	return nil
}

// meaning explains the errors that starting a driver gives.
func meaning(rc int) string {
	switch rc {
	case 34:
		return "the library is a stub for linking, not a driver (34)"
	case 100:
		return "no device (100)"
	case 803:
		return "driver library and kernel module are of different versions (803)"
	}
	return fmt.Sprintf("error %d", rc)
}
