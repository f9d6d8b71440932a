package cpu

import (
	"fmt"
	"unsafe"

	"quire/device"
)

// kernels is one variant of the innermost loops. All variants share the layouts of panels, activations and pages; each keeps one
// order of summation for every number of rows, so a row's bits never depend on its neighbours. Between variants bits differ
// (fused multiply-adds), by bounds that the tests state; the integers of int8 products are equal.
type kernels struct {
	name string
	// group is how many panels a product of many rows takes at a time, so that they stay in the cache while the rows pass.
	group int
	// floatRows computes out = w * x for a.panels panels and so many rows, each output one chain over depth, ascending.
	floatRows func(a floatArgs, rows int)
	// int8Rows computes a.panels panels for so many rows of quantised activations; type t of the weights is quantised.
	int8Rows func(t device.Type, a int8Args, rows int)
	// halfRows is floatRows for panels of F16 or BF16 as they are, with the same bits; quicker for up to directRows rows. It may be nil.
	halfRows   func(t device.Type, a floatArgs, rows int)
	directRows int
	// brainRows is a product of BF16 weights with BF16 activations: a.x is [rows] rows of depth BF16. The sums are F32, with bits of their
	// own. It may be nil; toBrain then is too: it rounds so many F32, a multiple of 8.
	brainRows func(a floatArgs, rows int)
	toBrain   func(dst, src unsafe.Pointer, n int)
	// prefetch asks for so many lines of the cache from p on. It may be nil.
	prefetch func(p unsafe.Pointer, lines int)
	// dequant widens a panel of a type other than F32 to [depth][16] f32; len(dst) = depth*16.
	dequant func(t device.Type, dst []float32, src unsafe.Pointer)
	// quantise turns so many blocks of 32 f32 at src into blocks of actBlock bytes.
	quantise func(dst, src unsafe.Pointer, blocks int)
	// norm is RMSNorm of one row; all lengths are equal and multiples of 8, zero beyond a.n.
	norm func(dst, x, w []float32, a normArgs)
	// swiGLU is gate*sigmoid(gate)*up; all lengths are equal and multiples of 8. dst may be gate.
	swiGLU func(dst, gate, up []float32)
	// softmax takes one row's scores of a tile, of which n > 0 count, into its running state; s becomes the weights, zero from
	// n on, and out is scaled down to the new maximum. len(out) is a multiple of 8.
	softmax func(s *[tileRows]float32, n int, st *softState, out []float32)
	// turn rotates one head: pairs (2i, 2i+1) if interleaved, else (i, i+len(sin)).
	turn func(x, sin, cos []float32, interleaved bool)
	// times is dst = x*factor + 0, so that no zero is negative; the lengths are equal and multiples of 8.
	times func(dst, x []float32, factor float32)
	// toHalf rounds to F16, too large numbers to the largest.
	toHalf func(dst []uint16, src []float32)
	// widen turns so many vectors of 8 F16 at src into f32, stride bytes apart at dst.
	widen func(dst unsafe.Pointer, stride int, src unsafe.Pointer, vectors int)
	// widenGroups is widen for two groups of so many vectors, one after the other: vector i of both goes side by side. It may be nil.
	widenGroups func(dst unsafe.Pointer, stride int, src unsafe.Pointer, vectors int)
	// widenBlocks turns so many blocks of Q8_0 (f16 scale, 32 int8) at src into f32.
	widenBlocks func(dst, src unsafe.Pointer, blocks int)
	// widenKeys turns a group of 8 keys of Q8_0, [dims][8] int8 and [dims/32][8] f16 scales, into dims vectors of f32, stride bytes apart.
	widenKeys func(dst unsafe.Pointer, stride int, src unsafe.Pointer, dims int)
}

// floatArgs is a product of panels with F32 activations.
type floatArgs struct {
	w           unsafe.Pointer // [panels] of [depth] rows of 16 numbers; panels panelStride bytes apart, rows wStride
	x           unsafe.Pointer // [rows] rows of depth f32, xStride bytes apart
	out         unsafe.Pointer // [rows] rows of panels*16 f32, outStride bytes apart
	wStride     int
	xStride     int
	outStride   int
	depth       int
	add         bool // out += rather than out =
	panels      int
	panelStride int
}

// int8Args is a product of panels with int8 activations.
type int8Args struct {
	w         unsafe.Pointer // [panels] of quantised weights, one after another
	x         unsafe.Pointer // [rows] rows of blocks of actBlock bytes, xStride bytes apart
	out       unsafe.Pointer // [rows] rows of panels*16 f32, outStride bytes apart
	xStride   int
	outStride int
	blocks    int
	panels    int
	add       bool
}

type normArgs struct {
	n   int // numbers of a row
	eps float32
}

// softState is a query row's running softmax.
type softState struct {
	max float32 // of the scores so far
	sum float32 // of their exponentials, less max
}

// variants lists what can run here, the fastest first.
func variants() []*kernels { return append(fastKernels(), portable) }

// chooseKernels finds a variant by name, or the fastest for "".
func chooseKernels(name string) (*kernels, error) {
	all := variants()
	if name == "" {
		return all[0], nil
	}
	var names []string
	for _, k := range all {
		if k.name == name {
			return k, nil
		}
		names = append(names, k.name)
	}
	return nil, fmt.Errorf("device/cpu: variant %q does not run here, these do: %v", name, names)
}
