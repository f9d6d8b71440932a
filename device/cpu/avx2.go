//go:build amd64

package cpu

//go:generate go run ./gen

import (
	"math"
	"unsafe"

	"github.com/klauspost/cpuid/v2"

	"quire/device"
)

// fastKernels lists the assembly variants that this processor runs, the fastest first.
func fastKernels() []*kernels {
	var fast []*kernels
	for _, v := range []struct {
		k     *kernels
		needs []cpuid.FeatureID
	}{
		{avx2, []cpuid.FeatureID{cpuid.AVX2, cpuid.FMA3, cpuid.F16C}},
		{avx512, []cpuid.FeatureID{cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL}},
		{avx512vnni, []cpuid.FeatureID{cpuid.AVX512VNNI}},
		{avx512bf16, []cpuid.FeatureID{cpuid.AVX512BF16}},
	} {
		if !cpuid.CPU.Supports(v.needs...) {
			break // each builds on the one before
		}
		fast = append([]*kernels{v.k}, fast...)
	}
	return fast
}

// avx2 is vectors of 8 with fused multiply-adds.
var avx2 = &kernels{
	name:       "avx2",
	group:      1,
	floatRows:  floatRowsAVX2,
	int8Rows:   int8RowsAVX2,
	halfRows:   halfRowsAVX2,
	directRows: 4,
	dequant:    dequantAVX2,
	prefetch:   fetchLines,
	quantise:   quantiseRow,
	norm:       normAVX2,
	swiGLU:     func(dst, gate, up []float32) { swiGLURow(&dst[0], &gate[0], &up[0], len(gate)) },
	softmax:    softmaxAVX2,
	turn:       turnAVX2,
	times:      func(dst, x []float32, f float32) { timesRow(&dst[0], &x[0], f, len(x)) },
	toHalf:     toHalfAVX2,
	widen:      widenRow,

	widenBlocks: widenBlocksRow,
	widenKeys:   widenKeysRow,
}

func floatRowsAVX2(a floatArgs, rows int) {
	for ; a.panels > 0; a.panels-- {
		floatPanelAVX2(a, rows)
		a.w, a.out = unsafe.Add(a.w, a.panelStride), unsafe.Add(a.out, panelRows*4)
	}
}

func floatPanelAVX2(a floatArgs, rows int) {
	x, out := a.x, a.out
	for r := 0; r < rows; r += 6 {
		a.x, a.out = unsafe.Add(x, r*a.xStride), unsafe.Add(out, r*a.outStride)
		switch rows - r {
		case 1:
			floatTile1(&a)
		case 2:
			floatTile2(&a)
		case 3:
			floatTile3(&a)
		case 4:
			floatTile4(&a)
		case 5:
			floatTile5(&a)
		default:
			floatTile6(&a)
		}
	}
}

// halfRowsAVX2 widens F16 and BF16 weights as it goes, 1, 2 or 4 rows at a time.
func halfRowsAVX2(t device.Type, a floatArgs, rows int) {
	for ; a.panels > 0; a.panels-- {
		halfPanelAVX2(t, a, rows)
		a.w, a.out = unsafe.Add(a.w, a.panelStride), unsafe.Add(a.out, panelRows*4)
	}
}

func halfPanelAVX2(t device.Type, a floatArgs, rows int) {
	x, out := a.x, a.out
	for r := 0; r < rows; {
		n := tileHeight(rows - r)
		a.x, a.out = unsafe.Add(x, r*a.xStride), unsafe.Add(out, r*a.outStride)
		switch {
		case t == device.F16 && n == 4:
			halfTile4(&a)
		case t == device.F16 && n == 2:
			halfTile2(&a)
		case t == device.F16:
			halfTile1(&a)
		case n == 4:
			brainTile4(&a)
		case n == 2:
			brainTile2(&a)
		default:
			brainTile1(&a)
		}
		r += n
	}
}

func int8RowsAVX2(t device.Type, a int8Args, rows int) {
	x, out := a.x, a.out
	for r := 0; r < rows; {
		n := tileHeight(rows - r)
		a.x, a.out = unsafe.Add(x, r*a.xStride), unsafe.Add(out, r*a.outStride)
		switch t { // no table of functions: the arguments would have to live on the heap
		case device.Q8_0:
			q8Tile(&a, n)
		case device.Q4_0:
			q40Tile(&a, n)
		case device.Q4_1:
			q41Tile(&a, n)
		default:
			quantTile(t, &a, n)
		}
		r += n
	}
}

// tileHeight is that of the tallest tile for so many rows.
func tileHeight(rows int) int {
	if rows >= 4 {
		return 4
	}
	return min(rows, 2)
}

// q8Tile computes 1, 2 or 4 rows of Q8_0.
func q8Tile(a *int8Args, rows int) {
	switch rows {
	case 4:
		q8Tile4(a)
	case 2:
		q8Tile2(a)
	default:
		q8Tile1(a)
	}
}

// q40Tile computes 1, 2 or 4 rows of Q4_0.
func q40Tile(a *int8Args, rows int) {
	switch rows {
	case 4:
		q40Tile4(a)
	case 2:
		q40Tile2(a)
	default:
		q40Tile1(a)
	}
}

// q41Tile computes 1, 2 or 4 rows of Q4_1.
func q41Tile(a *int8Args, rows int) {
	switch rows {
	case 4:
		q41Tile4(a)
	case 2:
		q41Tile2(a)
	default:
		q41Tile1(a)
	}
}

func dequantAVX2(t device.Type, dst []float32, src unsafe.Pointer) {
	blocks := len(dst) / (32 * panelRows)
	switch t {
	case device.F16:
		widenRow(unsafe.Pointer(&dst[0]), 32, src, len(dst)/8)
	case device.BF16:
		dequantBrain(&dst[0], src, len(dst)/(2*panelRows))
	case device.Q8_0:
		dequantQ8(&dst[0], src, blocks)
	case device.Q4_0:
		dequantQ40(&dst[0], src, blocks)
	case device.Q4_1:
		dequantQ41(&dst[0], src, blocks)
	default:
		dequantQuant(t, &dst[0], src, blocks)
	}
}

func normAVX2(dst, x, w []float32, a normArgs) {
	scaleRow(&dst[0], &x[0], &w[0], rootScale(sumSquares(&x[0], len(x)), a), len(x))
}

func softmaxAVX2(s *[tileRows]float32, n int, st *softState, out []float32) {
	for i := n; i < tileRows; i++ {
		s[i] = float32(math.Inf(-1))
	}
	softmaxTile(&s[0], st, &out[0], len(out))
}

func turnAVX2(x, sin, cos []float32, interleaved bool) {
	switch n := len(sin); {
	case interleaved && n%4 == 0:
		turnPairs(&x[0], &sin[0], &cos[0], n)
	case !interleaved && n%8 == 0:
		turnHalves(&x[0], &sin[0], &cos[0], n)
	default:
		turnGo(x, sin, cos, interleaved)
	}
}

func toHalfAVX2(dst []uint16, src []float32) {
	n := len(src) &^ 7
	if n > 0 {
		toHalfRow(&dst[0], &src[0], n)
	}
	toHalfGo(dst[n:], src[n:])
}
