package devicetest

import (
	"encoding/binary"

	"quire/device"
)

// decodeBits gives the numbers of one block of a type of five or six bits, or of a K type, number by number.
func decodeBits(t device.Type, b []byte) []float32 {
	switch t {
	case device.Q5_0, device.Q5_1:
		return decodeQ5(t, b)
	case device.Q6_K:
		return decodeQ6K(b)
	}
	return decodeQ45K(t, b)
}

func halfOf(b []byte) float32 { return device.FromF16(binary.LittleEndian.Uint16(b)) }

// decodeQ5: f16 scale, (f16 minimum,) u32 whose bit i is the fifth bit of number i, nibbles: low ones first.
func decodeQ5(t device.Type, b []byte) []float32 {
	d, low, less, at := halfOf(b), float32(0), 16, 2
	if t == device.Q5_1 {
		low, less, at = halfOf(b[2:]), 0, 4
	}
	fifth, q := binary.LittleEndian.Uint32(b[at:]), b[at+4:]
	out := make([]float32, 32)
	for i := range out {
		n := int(q[i%16]>>(i/16*4)&15) | int(fifth>>i&1)<<4
		out[i] = d*float32(n-less) + low
	}
	return out
}

// decodeQ45K: f16 factors of scales and of minima, 12 bytes that hold 8 scales and 8 minima of 6 bits, (32 bytes whose bit s is
// the fifth bit in run s,) 128 bytes of nibbles: 32 bytes for two runs of 32 numbers.
func decodeQ45K(t device.Type, b []byte) []float32 {
	d, low, packed := halfOf(b), halfOf(b[2:]), b[4:16]
	fifth, q := b[16:48], b[len(b)-128:]
	out := make([]float32, 256)
	for i := range out {
		s := i / 32
		var scale, minimum byte
		if s < 4 {
			scale, minimum = packed[s]&0x3f, packed[4+s]&0x3f
		} else {
			scale = packed[8+s-4]&0x0f | packed[s-4]&0xc0>>2
			minimum = packed[8+s-4]>>4 | packed[s]&0xc0>>2
		}
		n := int(q[s/2*32+i%32] >> (s % 2 * 4) & 15)
		if t == device.Q5_K {
			n += int(fifth[i%32]>>s&1) * 16
		}
		out[i] = d*float32(scale)*float32(n) - low*float32(minimum)
	}
	return out
}

// decodeQ6K: 128 bytes of nibbles, 64 bytes of pairs of high bits, 16 int8 scales, f16 factor. Each half of 128 numbers has 64
// bytes of nibbles (the low ones for numbers 0 to 63) and 32 of pairs (a pair for every 32 numbers).
func decodeQ6K(b []byte) []float32 {
	d := halfOf(b[208:])
	out := make([]float32, 256)
	for i := range out {
		half, j := i/128, i%128
		n := int(b[half*64+j%64] >> (j / 64 * 4) & 15)
		n |= int(b[128+half*32+j%32]>>(j/32*2)&3) << 4
		out[i] = d * float32(int8(b[192+i/16])) * float32(n-32)
	}
	return out
}
