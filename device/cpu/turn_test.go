package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
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
