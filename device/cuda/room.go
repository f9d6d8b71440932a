//go:build cuda && linux

package cuda

import (
	"unsafe"

	"gorgonia.org/cu"
)

// room is memory for the records of a step or a copy: filled on the host, copied to the device in one piece.
type room struct {
	host *pinned
	at   cu.DevicePtr
	used int // bytes; beyond the size: what there was no room for
}

// newRoom makes a room of so many bytes. The context is current.
func newRoom(d *Device, size int) (room, error) {
	host, err := newPinned(size)
	if err != nil {
		return room{}, err
	}
	at, err := d.alloc(size)
	if err != nil {
		_ = host.free() // nothing is in it
		return room{}, err
	}
	return room{host: host, at: at}, nil
}

// full says whether something did not fit.
func (r *room) full() bool { return r.used > r.host.size }

// put copies records in and says where they will be on the device.
func put[T any](r *room, s []T) cu.DevicePtr {
	b := raw(s)
	at := r.take(len(b))
	if !r.full() {
		copy(r.host.bytes()[at:], b)
	}
	return r.at + cu.DevicePtr(at)
}

// take makes place for n bytes and gives their offset.
func (r *room) take(n int) int {
	at := roundUp(r.used, 16)
	r.used = at + n
	return at
}

// place is the host's address of an offset.
func (r *room) place(at int) unsafe.Pointer { return unsafe.Add(r.host.at, at) }

// send queues the copy to the device.
func (r *room) send(s cu.Stream) error {
	if r.used == 0 {
		return nil
	}
	return cu.MemcpyHtoDAsync(r.at, r.host.at, int64(r.used), s)
}

// grow makes the room as large as what did not fit, and half as much again. The context is current.
func (r *room) grow(d *Device) error {
	bigger, err := newRoom(d, r.used+r.used/2)
	if err != nil {
		return err
	}
	d.release(r.at)
	err = r.host.free()
	*r = bigger
	return err
}

// fetchFault queues the copy of a fault record that is in the room, back to its place on the host.
func (r *room) fetchFault(at cu.DevicePtr, s cu.Stream) error {
	return cu.MemcpyDtoHAsync(r.place(int(at-r.at)), at, int64(unsafe.Sizeof(faultRec{})), s)
}

// fault reads the record that fetchFault brought.
func (r *room) fault(at cu.DevicePtr) error { return as[faultRec](r.host.bytes()[at-r.at:]).err() }
