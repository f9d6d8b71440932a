package device

import "math"

// FromF16 widens an IEEE half.
func FromF16(h uint16) float32 {
	sign, exp, man := uint32(h>>15)<<31, uint32(h>>10)&31, uint32(h)&1023
	switch {
	case exp == 31:
		return math.Float32frombits(sign | 255<<23 | man<<13)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
	}
	f := float32(man) * (1.0 / (1 << 24)) // zero and subnormal: exact
	return math.Float32frombits(math.Float32bits(f) | sign)
}

// ToF16 rounds to the nearest half, ties to even. What is too large becomes the largest finite half, never infinity, so that a
// masked value stays harmless; NaN stays NaN.
func ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	abs := b & 0x7fffffff
	switch {
	case abs > 0x7f800000:
		return sign | 0x7e00
	case abs >= 0x477fe000: // 65504
		return sign | 0x7bff
	case abs < 0x38800000: // below the smallest normal half, 2^-14: round to a multiple of 2^-24
		m := math.Float32frombits(abs) * (1 << 24)
		return sign | uint16(math.RoundToEven(float64(m)))
	}
	abs += 0xfff + abs>>13&1
	return sign | uint16((abs-112<<23)>>13)
}

// FromBF16 widens a bfloat16.
func FromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
