//go:build amd64

package cpu

import (
	"math"
	"unsafe"

	"quire/device"
)

// avx512 is vectors of 16 for floats; its int8 products are those of avx2, whose three instructions would gain little. Sums are
// those of avx2 in the same order.
var avx512 = &kernels{
	name:        "avx512",
	group:       2,
	floatRows:   floatRows512,
	int8Rows:    int8RowsAVX2,
	halfRows:    halfRows512,
	directRows:  16,
	dequant:     dequantAVX2,
	prefetch:    fetchLines,
	quantise:    quantiseRow,
	norm:        normAVX2,
	swiGLU:      func(dst, gate, up []float32) { swiGLURow512(&dst[0], &gate[0], &up[0], len(gate)) },
	softmax:     softmax512,
	turn:        avx2.turn,
	times:       avx2.times,
	toHalf:      toHalfAVX2,
	widen:       widen512,
	widenGroups: widenGroups512,

	widenBlocks: widenBlocksRow,
	widenKeys:   widenKeysRow,
}

// avx512vnni is avx512 with int8 products four at a time (VPDPBUSD).
var avx512vnni = avx512.with(func(k *kernels) { k.name, k.int8Rows = "avx512vnni", int8RowsVNNI })

// avx512bf16 is avx512vnni with products of BF16 pairs (VDPBF16PS): activations are rounded to BF16 where weights are.
var avx512bf16 = avx512vnni.with(func(k *kernels) {
	k.name, k.brainRows, k.toBrain = "avx512bf16", brainRows512, toBrainRow
})

// with is a variant that differs from k by a change.
func (k *kernels) with(change func(*kernels)) *kernels {
	c := *k
	change(&c)
	return &c
}

func floatRows512(a floatArgs, rows int) { floatTiles512(device.F32, a, rows) }

func halfRows512(t device.Type, a floatArgs, rows int) { floatTiles512(t, a, rows) }

// brainDots stands for the tiles of BF16 activations among types of weights.
const brainDots device.Type = 0

func brainRows512(a floatArgs, rows int) { floatTiles512(brainDots, a, rows) }

// floatTiles512 covers rows and panels with tiles: two panels at a time, then a last one; of one row, each alone.
func floatTiles512(t device.Type, a floatArgs, rows int) {
	w, x, out, panels := a.w, a.x, a.out, a.panels
	for p := 0; p < panels; p += a.panels {
		wide := panelsAtOnce(rows, panels-p)
		a.panels = (panels - p) / wide * wide
		for r := 0; r < rows; {
			n := floatHeight512(rows-r, wide)
			a.w = unsafe.Add(w, p*a.panelStride)
			a.x, a.out = unsafe.Add(x, r*a.xStride), unsafe.Add(out, r*a.outStride+p*panelRows*4)
			switch t {
			case brainDots:
				brainDot(&a, n, wide)
			case device.F32:
				floatTile(&a, n, wide)
			case device.F16:
				halfTile(&a, n, wide)
			default:
				brainTile(&a, n, wide)
			}
			r += n
		}
	}
}

// panelsAtOnce is how many of the panels that are left a tile takes. One row reads weights once, from memory: one stream of them is quicker
// than two by a fifth to a half.
func panelsAtOnce(rows, left int) int {
	if rows == 1 {
		return 1
	}
	return min(2, left)
}

// floatHeight512 is the rows of the next tile.
func floatHeight512(rows, panels int) int {
	if panels == 2 {
		for _, h := range [...]int{12, 6} {
			if rows >= h {
				return h
			}
		}
	}
	return smallHeight(rows, panels)
}

// smallHeight is the rows of the next tile among those of up to 4 rows.
func smallHeight(rows, panels int) int {
	switch {
	case rows == 5 && panels == 2:
		return 3
	case rows >= 4:
		return 4
	case rows == 3 && panels == 1:
		return 2
	}
	return rows
}

// int8RowsVNNI covers rows and panels with tiles, see floatTiles512.
func int8RowsVNNI(t device.Type, a int8Args, rows int) {
	w, x, out, panels := a.w, a.x, a.out, a.panels
	for p := 0; p < panels; p += a.panels {
		wide := panelsAtOnce(rows, panels-p)
		a.panels = (panels - p) / wide * wide
		a.w = unsafe.Add(w, p*panelBytes(t, a.blocks*32))
		for r := 0; r < rows; {
			n := int8Height512(rows-r, wide)
			a.x, a.out = unsafe.Add(x, r*a.xStride), unsafe.Add(out, r*a.outStride+p*panelRows*4)
			switch t {
			case device.Q8_0:
				q8VNNI(&a, n, wide)
			case device.Q4_0:
				q40VNNI(&a, n, wide)
			case device.Q4_1:
				q41VNNI(&a, n, wide)
			default:
				quantVNNI(t, &a, n, wide)
			}
			r += n
		}
	}
}

func int8Height512(rows, panels int) int {
	if panels == 2 && (rows == 6 || rows > 8) {
		return 6
	}
	return smallHeight(rows, panels)
}

func widen512(dst unsafe.Pointer, stride int, src unsafe.Pointer, vectors int) {
	if stride != 32 || vectors%2 != 0 {
		widenRow(dst, stride, src, vectors)
		return
	}
	widenRow512(dst, src, vectors/2)
}

func softmax512(s *[tileRows]float32, n int, st *softState, out []float32) {
	for i := n; i < tileRows; i++ {
		s[i] = float32(math.Inf(-1))
	}
	softmaxTile512(&s[0], st, &out[0], len(out))
}
