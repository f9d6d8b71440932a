package main

import "fmt"

// Bytes of a block of 32 activations and of its parts, see actBlock and actTail in matmul.go.
const (
	actBlock   = 64
	actScale   = 32 // f32
	actLess8   = 36 // i32: -8 * sum
	actSum     = 40 // f32: scale * sum
	actLess128 = 44 // i32: -128 * sum
	actHalf    = 48 // [2] i32: sums of 16
)

// prefetchAhead is how far before its use a weight is fetched, in bytes.
const prefetchAhead = 512

func int8Data(a *asm) {
	a.constant("ones16", 0x00010001)
	a.constant("low4", 0x0f0f0f0f)
}

// int8Head loads the arguments of a product. R13 counts panels, R14 holds the first row of activations.
func int8Head(a *asm, doc, name string) {
	a.fn(doc, name, "(a *int8Args)", 8)
	a.op("MOVQ a+0(FP), R15")
	a.op("MOVQ 0(R15), AX")
	a.op("MOVQ 8(R15), R14")
	a.op("MOVQ 16(R15), DI")
	a.op("MOVQ 24(R15), CX")
	a.op("MOVQ 32(R15), SI")
	a.op("MOVQ 48(R15), R13")
}

// int8Panels wraps body, which does one block at AX of all rows and both halves, in the loops over blocks and panels.
// Y(2t+h) is the sum of row t, outputs 8h to 8h+7.
func int8Panels(a *asm, rows, blockBytes int, body func()) {
	a.label("panel")
	a.op("MOVQ R14, BX")
	a.op("LEAQ (BX)(CX*2), R8")
	a.op("ADDQ CX, R8")
	a.op("MOVQ 40(R15), R9")
	for i := range 2 * rows {
		a.op("VXORPS Y%d, Y%d, Y%d", i, i, i)
	}
	a.label("loop")
	body()
	a.op("ADDQ $%d, AX", blockBytes)
	a.op("ADDQ $%d, BX", actBlock)
	a.op("ADDQ $%d, R8", actBlock)
	a.op("DECQ R9")
	a.op("JNZ loop")
	a.op("CMPB 56(R15), $0")
	a.op("JEQ store")
	a.op("MOVQ DI, R12")
	for t := range rows {
		a.op("VADDPS (R12), Y%d, Y%d", 2*t, 2*t)
		a.op("VADDPS 32(R12), Y%d, Y%d", 2*t+1, 2*t+1)
		a.op("ADDQ SI, R12")
	}
	a.label("store")
	a.op("MOVQ DI, R12")
	for t := range rows {
		a.op("VMOVUPS Y%d, (R12)", 2*t)
		a.op("VMOVUPS Y%d, 32(R12)", 2*t+1)
		a.op("ADDQ SI, R12")
	}
	a.op("ADDQ $64, DI")
	a.op("DECQ R13")
	a.op("JNZ panel")
	a.ret()
}

func prefetch(a *asm, rows, bytes int) {
	if rows > 1 {
		return // the panel is read again for the next rows and stays in the cache
	}
	for at := 0; at < bytes; at += 64 {
		a.op("PREFETCHT0 %d(AX)", prefetchAhead+at)
	}
}

// q8Tile is rows x 16 outputs of Q8_0. For each vector of 8 outputs x 4 columns: |w| as unsigned times x with w's sign, summed
// to 16 bits in pairs (at most 2*128*127 = 32512: no saturation), then to 32 bits.
// Y8 to Y11: integer sums of the rows; Y12: w; Y13: |w|; Y14: activations; Y15: ones.
func q8Tile(a *asm, rows int) {
	int8Head(a, fmt.Sprintf("%d rows x 16 outputs of Q8_0, K in ascending blocks of 32", rows), fmt.Sprintf("q8Tile%d", rows))
	a.op("VMOVDQU ones16<>(SB), Y15")
	int8Panels(a, rows, 544, func() {
		prefetch(a, rows, 544)
		for half := range 2 {
			for g := range 8 {
				a.op("VMOVDQU %d(AX), Y12", 32+64*g+32*half)
				a.op("VPABSB Y12, Y13")
				for t := range rows {
					a.op("VPBROADCASTD %s, Y14", rowAddr(t, 4*g))
					a.op("VPSIGNB Y12, Y14, Y14")
					a.op("VPMADDUBSW Y14, Y13, Y14")
					if g == 0 {
						a.op("VPMADDWD Y15, Y14, Y%d", 8+t)
						continue
					}
					a.op("VPMADDWD Y15, Y14, Y14")
					a.op("VPADDD Y14, Y%d, Y%d", 8+t, 8+t)
				}
			}
			a.op("VCVTPH2PS %d(AX), Y12", 16*half)
			for t := range rows {
				scaleBlock(a, t, half, 8+t)
			}
		}
	})
}

// scaleBlock adds an integer sum, times both scales, to the sum of row t: Y12 holds the weights' scales.
func scaleBlock(a *asm, t, half, sum int) {
	a.op("VBROADCASTSS %s, Y14", rowAddr(t, actScale))
	a.op("VMULPS Y12, Y14, Y14")
	a.op("VCVTDQ2PS Y%d, Y%d", sum, sum)
	a.op("VFMADD231PS Y14, Y%d, Y%d", sum, 2*t+half)
}

// q4Tile is rows x 16 outputs of Q4_0, or of Q4_1 with a minimum. Nibbles are unsigned, so pairs need no sign, and eight sums of
// two fit 16 bits (at most 8*2*15*127 = 30480).
// Y8 to Y11: 16-bit sums of the rows; Y12: low nibbles; Y13: high nibbles; Y14: activations; Y15: mask.
func q4Tile(a *asm, rows int, minimum bool) {
	typ, head := "Q4_0", 32
	name := fmt.Sprintf("q40Tile%d", rows)
	if minimum {
		typ, head, name = "Q4_1", 64, fmt.Sprintf("q41Tile%d", rows)
	}
	int8Head(a, fmt.Sprintf("%d rows x 16 outputs of %s, K in ascending blocks of 32", rows, typ), name)
	a.op("VMOVDQU low4<>(SB), Y15")
	int8Panels(a, rows, head+256, func() {
		prefetch(a, rows, head+256)
		for half := range 2 {
			for g := range 4 {
				a.op("VMOVDQU %d(AX), Y12", head+64*g+32*half)
				a.op("VPSRLW $4, Y12, Y13")
				a.op("VPAND Y15, Y12, Y12")
				a.op("VPAND Y15, Y13, Y13")
				for t := range rows {
					for high := range 2 {
						a.op("VPBROADCASTD %s, Y14", rowAddr(t, 4*g+16*high))
						if g == 0 && high == 0 {
							a.op("VPMADDUBSW Y14, Y12, Y%d", 8+t)
							continue
						}
						a.op("VPMADDUBSW Y14, Y%d, Y14", 12+high)
						a.op("VPADDW Y14, Y%d, Y%d", 8+t, 8+t)
					}
				}
			}
			a.op("VCVTPH2PS %d(AX), Y12", 16*half)
			if minimum {
				a.op("VCVTPH2PS %d(AX), Y13", 32+16*half)
			}
			for t := range rows {
				a.op("VPMADDWD ones16<>(SB), Y%d, Y%d", 8+t, 8+t)
				if !minimum {
					a.op("VPBROADCASTD %s, Y14", rowAddr(t, actLess8))
					a.op("VPADDD Y14, Y%d, Y%d", 8+t, 8+t)
				}
				scaleBlock(a, t, half, 8+t)
				if minimum {
					a.op("VBROADCASTSS %s, Y14", rowAddr(t, actSum))
					a.op("VFMADD231PS Y14, Y13, Y%d", 2*t+half)
				}
			}
		}
	})
}
