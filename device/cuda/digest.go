//go:build cuda && linux

package cuda

import (
	"encoding/binary"
	"fmt"

	"gorgonia.org/cu"
)

// digest is the sum that kernel/digest.cu makes of a frame: each 32-bit word mixed with its place, added modulo 2^64.
func digest(b []byte) uint64 {
	var sum uint64
	for i := uint64(0); i*4+4 <= uint64(len(b)); i++ {
		w := uint64(binary.LittleEndian.Uint32(b[i*4:])) | i<<32
		sum += mix(w + 0x9e3779b97f4a7c15*(i+1))
	}
	return sum
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// landed makes sure that the device's copy of a frame is b, whose length is a multiple of 4. The lane and the context are held.
func (l *lane) landed(b []byte) error {
	sum := put(&l.room, []uint64{0})
	if l.room.full() {
		return fmt.Errorf("device/cuda: digest: no room")
	}
	words := len(b) / 4
	at := int(sum - l.room.at)
	if err := l.room.send(l.stream); err != nil {
		return failed("digest", err)
	}
	if err := l.run("digest", min((words+255)/256, 256), 1, 256, l.frame, words, sum); err != nil {
		return err
	}
	if err := cu.MemcpyDtoHAsync(l.room.place(at), sum, 8, l.stream); err != nil {
		return failed("digest", err)
	}
	if err := l.stream.Synchronize(); err != nil {
		return failed("digest", err)
	}
	if got, want := as[uint64](l.room.host.bytes()[at:]), digest(b); got != want {
		return fmt.Errorf("device/cuda: copy: %d bytes arrived as others: digest %016x, sent %016x", len(b), got, want)
	}
	return nil
}
