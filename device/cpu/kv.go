package cpu

import (
	"encoding/binary"
	"unsafe"

	"quire/device"
)

// Keys and values in Q8_0: a head is blocks of 32 numbers, f16 scale and 32 int8, as kernels round activations.

// blockQ8Bytes is a block of Q8_0 in a frame.
const blockQ8Bytes = 34

// storeBlocks rounds x to blocks of Q8_0. tmp holds len(x)/32 blocks of activations.
func (k *kernels) storeBlocks(dst []byte, x []float32, tmp []byte) {
	blocks := len(x) / 32
	k.quantise(unsafe.Pointer(&tmp[0]), unsafe.Pointer(&x[0]), blocks)
	for b := range blocks {
		a, d := unsafe.Pointer(&tmp[b*actBlock]), dst[b*blockQ8Bytes:][:blockQ8Bytes]
		binary.LittleEndian.PutUint16(d, device.ToF16(tailOf(a).scale))
		copy(d[2:], tmp[b*actBlock:][:32])
	}
}

// scatterBlocks puts one key into its lane of a group of 8.
func scatterBlocks(group, src []byte, lane int) {
	dims := len(src) / blockQ8Bytes * 32
	scales := group[8*dims:]
	for b := range dims / 32 {
		s := src[b*blockQ8Bytes:][:blockQ8Bytes]
		copy(scales[(b*8+lane)*2:][:2], s)
		to := group[b*256+lane:]
		for i, q := range s[2:] {
			to[i*8] = q
		}
	}
}

// gatherBlocks takes one key out of its lane of a group of 8.
func gatherBlocks(dst, group []byte, lane int) {
	dims := len(dst) / blockQ8Bytes * 32
	scales := group[8*dims:]
	for b := range dims / 32 {
		d := dst[b*blockQ8Bytes:][:blockQ8Bytes]
		copy(d[:2], scales[(b*8+lane)*2:])
		from, q := group[b*256+lane:], d[2:]
		for i := range q {
			q[i] = from[i*8]
		}
	}
}

// keyAt is number d of a key of a group of 8.
func keyAt(group []byte, dims, d, lane int) float32 {
	return halfAt(group[8*dims:], d/32*8+lane) * float32(int8(group[d*8+lane]))
}

func widenBlocksGo(dst, src unsafe.Pointer, blocks int) {
	for b := range blocks {
		s := unsafe.Slice((*byte)(unsafe.Add(src, b*blockQ8Bytes)), blockQ8Bytes)
		d := (*[32]float32)(unsafe.Add(dst, b*128))
		scale := halfAt(s, 0)
		for i := range d {
			d[i] = scale * float32(int8(s[2+i]))
		}
	}
}

func widenKeysGo(dst unsafe.Pointer, stride int, src unsafe.Pointer, dims int) {
	group := unsafe.Slice((*byte)(src), 8*(dims+dims/16))
	var scales [8]float32
	for d := range dims {
		if d%32 == 0 {
			for lane := range scales {
				scales[lane] = halfAt(group[8*dims:], d/32*8+lane)
			}
		}
		v, q := (*[8]float32)(unsafe.Add(dst, d*stride)), group[d*8:][:8]
		for lane, s := range scales {
			v[lane] = s * float32(int8(q[lane]))
		}
	}
}
