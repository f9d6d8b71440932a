package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"quire/device"
)

// TestKVBlocks: a head rounded to Q8_0 is within half a step of itself, comes out of a group as it went in, and every variant
// widens it to the same bits.
func TestKVBlocks(t *testing.T) {
	for _, k := range variants() {
		for _, dims := range []int{32, 64, 128} {
			t.Run(fmt.Sprintf("%s/%d", k.name, dims), func(t *testing.T) {
				r := rand.New(rand.NewPCG(17, 18))
				n := dims / 32 * blockQ8Bytes
				group, blocks := alignedBytes(8*n), alignedBytes(8*n)
				x := randomFloats(r, 8*dims)
				clear(x[3*dims : 3*dims+32])
				for lane := range 8 {
					k.storeBlocks(blocks[lane*n:][:n], x[lane*dims:][:dims], alignedBytes(dims/32*actBlock))
					scatterBlocks(group, blocks[lane*n:][:n], lane)
				}
				values, keys := alignedFloats(8*dims), alignedFloats(dims*tileRows)
				k.widenBlocks(unsafe.Pointer(&values[0]), unsafe.Pointer(&blocks[0]), 8*dims/32)
				k.widenKeys(unsafe.Pointer(&keys[0]), tileRows*4, unsafe.Pointer(&group[0]), dims)
				for lane := range 8 {
					back := make([]byte, n)
					gatherBlocks(back, group, lane)
					if string(back) != string(blocks[lane*n:][:n]) {
						t.Fatalf("key %d comes out of its group changed", lane)
					}
					for d := range dims {
						v := values[lane*dims+d]
						b := back[d/32*blockQ8Bytes:]
						step := device.FromF16(uint16(b[0]) | uint16(b[1])<<8)
						if want := step * float32(int8(b[2+d%32])); v != want || keys[d*tileRows+lane] != want || keyAt(group, dims, d, lane) != want {
							t.Fatalf("number %d of key %d: value %g, key %g, want %g", d, lane, v, keys[d*tileRows+lane], want)
						}
						if off := math.Abs(float64(v - x[lane*dims+d])); off > 0.57*float64(step) { // half a step, and the scale's own rounding
							t.Fatalf("number %d of key %d: %g became %g, the step is %g", d, lane, x[lane*dims+d], v, step)
						}
					}
				}
			})
		}
	}
}
