package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// TestVariantsTurn: heads turn and rows are scaled to the bits of plain Go, whatever their size.
func TestVariantsTurn(t *testing.T) {
	forVariants(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(23, 24))
		for _, n := range []int{1, 3, 4, 8, 12, 16, 32, 64} {
			sin, cos := randomFloats(r, n), randomFloats(r, n)
			for _, interleaved := range []bool{false, true} {
				got := randomFloats(r, 2*n)
				want := slices.Clone(got)
				k.turn(got, sin, cos, interleaved)
				portable.turn(want, sin, cos, interleaved)
				compare(t, "turned head", got, want, 0)
			}
		}
		x := randomFloats(r, 72)
		x[5], x[70] = float32(math.Copysign(0, -1)), 0
		got, want := make([]float32, 72), make([]float32, 72)
		k.times(got, x, -1.25)
		portable.times(want, x, -1.25)
		for i := range want {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) || math.Float32bits(got[i]) == 1<<31 {
				t.Fatalf("number %d times -1.25 is %g (%08x), want %g", i, got[i], math.Float32bits(got[i]), want[i])
			}
		}
	})
}

// TestVariantsWidenGroups: two groups of keys at a time give what each alone does.
func TestVariantsWidenGroups(t *testing.T) {
	forVariants(t, func(t *testing.T, k *kernels) {
		if k.widenGroups == nil {
			t.Skip("the variant widens one group at a time")
		}
		const dims = 40
		r := rand.New(rand.NewPCG(25, 26))
		src := make([]uint16, 2*8*dims)
		portable.toHalf(src, randomFloats(r, len(src)))
		got, want := make([]float32, dims*tileRows), make([]float32, dims*tileRows)
		k.widenGroups(unsafe.Pointer(&got[0]), tileRows*4, unsafe.Pointer(&src[0]), dims)
		for g := range 2 {
			portable.widen(unsafe.Pointer(&want[8*g]), tileRows*4, unsafe.Pointer(&src[8*dims*g]), dims)
		}
		compare(t, "widened groups", got, want, 0)
	})
}
