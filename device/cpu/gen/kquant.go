package main

import "fmt"

// quant is a type of five or six bits, or a K type: see kquant.go beside the kernels. All are computed in runs of 32 columns.
type quant struct {
	name    string // of its kernels
	typ     string
	bits    int
	factors int // bytes of factors before 8 runs; 0: none
	high    int // where in a run the fifth or high bits begin
	run     int // bytes of a run
	minimum bool
}

var quants = []quant{
	{"q50", "Q5_0", 5, 0, 32, 352, false},
	{"q51", "Q5_1", 5, 0, 64, 384, true},
	{"q4K", "Q4_K", 4, 64, 32, 288, true},
	{"q5K", "Q5_K", 5, 64, 32, 352, true},
	{"q6K", "Q6_K", 6, 32, 32, 416, false},
}

// nibbles is where the nibbles begin.
func (q quant) nibbles() int { return q.run - 256 }

func kquantData(a *asm) {
	a.constant("ones16", 0x00010001)
	a.constant("low4", 0x0f0f0f0f)
	a.constant("bit4", 0x10101010)
	a.constant("pair4", 0x30303030)
	a.constant("less32", 0x20202020)
}

// quantTile is rows x 16 outputs of a type, K in ascending runs of 32, the arithmetic of each run being that of product in
// kquant.go. Registers as in int8Head and int8Panels; R11: factors, R10: runs left of a block.
func quantTile(a *asm, q quant, rows int) {
	int8Head(a, fmt.Sprintf("%d rows x 16 outputs of %s, K in ascending runs of 32", rows, q.typ), fmt.Sprintf("%sTile%d", q.name, rows))
	a.label("panel")
	a.op("MOVQ R14, BX")
	a.op("LEAQ (BX)(CX*2), R8")
	a.op("ADDQ CX, R8")
	a.op("MOVQ 40(R15), R9")
	for i := range 2 * rows {
		a.op("VXORPS Y%d, Y%d, Y%d", i, i, i)
	}
	if q.factors > 0 {
		a.op("SHRQ $3, R9")
		a.label("block")
		a.op("MOVQ AX, R11")
		a.op("ADDQ $%d, AX", q.factors)
		a.op("MOVQ $8, R10")
	}
	a.label("run")
	prefetch(a, rows, q.run)
	for half := range 2 {
		if q.bits == 6 {
			sixBits(a, q, rows, half)
		} else {
			fiveBits(a, q, rows, half)
		}
		finishRun(a, q, rows, half)
	}
	a.op("ADDQ $%d, AX", q.run)
	a.op("ADDQ $%d, BX", actBlock)
	a.op("ADDQ $%d, R8", actBlock)
	if q.factors > 0 {
		a.op("DECQ R10")
		a.op("JNZ run")
	}
	a.op("DECQ R9")
	if q.factors > 0 {
		a.op("JNZ block")
	} else {
		a.op("JNZ run")
	}
	storePanel(a, rows)
}

// storePanel writes or adds the sums of a panel and goes on to the next one.
func storePanel(a *asm, rows int) {
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

// fiveBits sums a run of unsigned weights of four or five bits times activations into Y8 to Y11. Pairs fit 16 bits; all of a run
// do with four bits (8*2*15*127 = 30480), two pairs with five (2*2*31*127 = 15748).
// Y12: columns 4g to 4g+3 of 8 outputs; Y13: columns 16+4g on; Y14, Y15: temporary.
func fiveBits(a *asm, q quant, rows, half int) {
	for g := range 4 {
		a.op("VMOVDQU %d(AX), Y12", q.nibbles()+64*g+32*half)
		a.op("VPSRLW $4, Y12, Y13")
		a.op("VPAND low4<>(SB), Y12, Y12")
		a.op("VPAND low4<>(SB), Y13, Y13")
		if q.bits == 5 {
			a.op("VMOVDQU %d(AX), Y15", q.high+32*half)
			a.op("VPSLLW $%d, Y15, Y14", 4-g)
			a.op("VPAND bit4<>(SB), Y14, Y14")
			a.op("VPOR Y14, Y12, Y12")
			if g > 0 {
				a.op("VPSRLW $%d, Y15, Y15", g)
			}
			a.op("VPAND bit4<>(SB), Y15, Y15")
			a.op("VPOR Y15, Y13, Y13")
		}
		for t := range rows {
			a.op("VPBROADCASTD %s, Y14", rowAddr(t, 4*g))
			a.op("VPBROADCASTD %s, Y15", rowAddr(t, 4*g+16))
			a.op("VPMADDUBSW Y14, Y12, Y14")
			a.op("VPMADDUBSW Y15, Y13, Y15")
			switch {
			case g == 0 && q.bits == 4:
				a.op("VPADDW Y14, Y15, Y%d", 8+t)
			case q.bits == 4:
				a.op("VPADDW Y14, Y15, Y14")
				a.op("VPADDW Y14, Y%d, Y%d", 8+t, 8+t)
			case g == 0:
				a.op("VPADDW Y14, Y15, Y14")
				a.op("VPMADDWD ones16<>(SB), Y14, Y%d", 8+t)
			default:
				a.op("VPADDW Y14, Y15, Y14")
				a.op("VPMADDWD ones16<>(SB), Y14, Y14")
				a.op("VPADDD Y14, Y%d, Y%d", 8+t, 8+t)
			}
		}
	}
	if q.bits == 4 {
		for t := range rows {
			a.op("VPMADDWD ones16<>(SB), Y%d, Y%d", 8+t, 8+t)
		}
	}
}

// sixBits sums a run of Q6_K, weights less 32 times activations times the whole scale of their half, into Y8 to Y11. The scale
// takes the place of the ones that would add the pairs (at most 2*32*127 = 8128 each); a run's sum is below 2^24.
// Y12: weights, Y15: their absolute values, Y13: the half's scales as 16 bits, twice for each output; Y14: temporary.
func sixBits(a *asm, q quant, rows, half int) {
	for h := range 2 {
		a.op("VPMOVSXBW %d(AX), Y13", 16*half)
		a.op("VPSHUFLW $%#x, Y13, Y13", []int{0xa0, 0xf5}[h])
		a.op("VPSHUFHW $%#x, Y13, Y13", []int{0xa0, 0xf5}[h])
		for g := range 4 {
			a.op("VMOVDQU %d(AX), Y12", q.nibbles()+64*g+32*half)
			if h == 1 {
				a.op("VPSRLW $4, Y12, Y12")
			}
			a.op("VPAND low4<>(SB), Y12, Y12")
			a.op("VMOVDQU %d(AX), Y15", q.high+64*h+32*half)
			if g < 2 {
				a.op("VPSLLW $%d, Y15, Y15", 4-2*g)
			} else if g > 2 {
				a.op("VPSRLW $%d, Y15, Y15", 2*g-4)
			}
			a.op("VPAND pair4<>(SB), Y15, Y15")
			a.op("VPOR Y15, Y12, Y12")
			a.op("VPSUBB less32<>(SB), Y12, Y12")
			a.op("VPABSB Y12, Y15")
			for t := range rows {
				a.op("VPBROADCASTD %s, Y14", rowAddr(t, 4*g+16*h))
				a.op("VPSIGNB Y12, Y14, Y14")
				a.op("VPMADDUBSW Y14, Y15, Y14")
				if g == 0 && h == 0 {
					a.op("VPMADDWD Y13, Y14, Y%d", 8+t)
					continue
				}
				a.op("VPMADDWD Y13, Y14, Y14")
				a.op("VPADDD Y14, Y%d, Y%d", 8+t, 8+t)
			}
		}
	}
}

// finishRun adds the integer sums of a run, times both scales, and the minima to the outputs' chains.
func finishRun(a *asm, q quant, rows, half int) {
	switch {
	case q.factors == 0:
		a.op("VCVTPH2PS %d(AX), Y12", 16*half)
		if q.minimum {
			a.op("VCVTPH2PS %d(AX), Y13", 32+16*half)
		}
	case q.minimum:
		for i := range 2 {
			a.op("VPMOVZXBD %d(AX), Y14", 16*i+8*half)
			a.op("VCVTDQ2PS Y14, Y14")
			a.op("VCVTPH2PS %d(R11), Y%d", 32*i+16*half, 12+i)
			a.op("VMULPS Y14, Y%d, Y%d", 12+i, 12+i)
		}
	default:
		a.op("VCVTPH2PS %d(R11), Y12", 16*half)
	}
	for t := range rows {
		if q.typ == "Q5_0" {
			a.op("VPBROADCASTD %s, Y14", rowAddr(t, actLess8))
			a.op("VPADDD Y14, Y14, Y14") // less 16
			a.op("VPADDD Y14, Y%d, Y%d", 8+t, 8+t)
		}
		scaleBlock(a, t, half, 8+t)
		if q.minimum {
			a.op("VBROADCASTSS %s, Y14", rowAddr(t, actSum))
			if q.factors > 0 {
				a.op("VFNMADD231PS Y14, Y13, Y%d", 2*t+half)
			} else {
				a.op("VFMADD231PS Y14, Y13, Y%d", 2*t+half)
			}
		}
	}
}

func dequantQuantData(a *asm) {
	a.constant("nibbleMask", 15)
	a.constant("fifthMask", 16)
	a.constant("pairMask", 48)
	a.constant("sixteen", 16)
	a.constant("thirtyTwo", 32)
}

// dequantQuant widens a panel of a type to [K][16] F32.
// Y0: 8 outputs x 4 columns of nibbles; Y1, Y2: temporary; Y12, Y13: scales of the columns' halves; Y14: minima.
func dequantQuant(a *asm, q quant) {
	a.fn("runs of 32 columns of a panel of "+q.typ+" to [32][16] F32 each", "dequant"+q.typ[:2]+q.typ[3:], "(dst *float32, src unsafe.Pointer, runs int)", 24)
	a.op("MOVQ dst+0(FP), DI")
	a.op("MOVQ src+8(FP), AX")
	a.op("MOVQ runs+16(FP), R9")
	if q.factors > 0 {
		a.op("SHRQ $3, R9")
		a.label("block")
		a.op("MOVQ AX, R11")
		a.op("ADDQ $%d, AX", q.factors)
		a.op("MOVQ $8, R10")
	}
	a.label("run")
	for half := range 2 {
		dequantScales(a, q, half)
		for g := range 4 {
			a.op("VMOVDQU %d(AX), Y0", q.nibbles()+64*g+32*half)
			for b := range 4 {
				for h := range 2 {
					dequantColumns(a, q, half, [3]int{g, b, h})
				}
			}
		}
	}
	a.op("ADDQ $%d, AX", q.run)
	a.op("ADDQ $2048, DI")
	if q.factors > 0 {
		a.op("DECQ R10")
		a.op("JNZ run")
		a.op("DECQ R9")
		a.op("JNZ block")
	} else {
		a.op("DECQ R9")
		a.op("JNZ run")
	}
	a.ret()
}

func dequantScales(a *asm, q quant, half int) {
	switch {
	case q.factors == 0:
		a.op("VCVTPH2PS %d(AX), Y12", 16*half)
		if q.minimum {
			a.op("VCVTPH2PS %d(AX), Y14", 32+16*half)
		}
	case q.minimum:
		for i, reg := range []int{12, 14} {
			a.op("VPMOVZXBD %d(AX), Y1", 16*i+8*half)
			a.op("VCVTDQ2PS Y1, Y1")
			a.op("VCVTPH2PS %d(R11), Y%d", 32*i+16*half, reg)
			a.op("VMULPS Y1, Y%d, Y%d", reg, reg)
		}
	default:
		a.op("VCVTPH2PS %d(R11), Y2", 16*half)
		a.op("VPMOVSXBW %d(AX), Y1", 16*half)
		a.op("VPSLLD $16, Y1, Y12")
		for h, from := range []int{12, 1} {
			a.op("VPSRAD $16, Y%d, Y%d", from, 12+h)
			a.op("VCVTDQ2PS Y%d, Y%d", 12+h, 12+h)
			a.op("VMULPS Y2, Y%d, Y%d", 12+h, 12+h)
		}
	}
}

// dequantColumns widens column 16h+4g+b of 8 outputs, c being {g, b, h}.
func dequantColumns(a *asm, q quant, half int, c [3]int) {
	g, b, h := c[0], c[1], c[2]
	scale := 12
	a.op("VPSRLD $%d, Y0, Y1", 8*b+4*h)
	a.op("VPAND nibbleMask<>(SB), Y1, Y1")
	switch q.bits {
	case 5:
		a.op("VMOVDQU %d(AX), Y2", q.high+32*half)
		shiftTo4(a, 8*b+4*h+g)
		a.op("VPAND fifthMask<>(SB), Y2, Y2")
		a.op("VPOR Y2, Y1, Y1")
	case 6:
		a.op("VMOVDQU %d(AX), Y2", q.high+64*h+32*half)
		shiftTo4(a, 8*b+2*g)
		a.op("VPAND pairMask<>(SB), Y2, Y2")
		a.op("VPOR Y2, Y1, Y1")
		a.op("VPSUBD thirtyTwo<>(SB), Y1, Y1")
		scale = 12 + h
	}
	if q.typ == "Q5_0" {
		a.op("VPSUBD sixteen<>(SB), Y1, Y1")
	}
	a.op("VCVTDQ2PS Y1, Y1")
	a.op("VMULPS Y%d, Y1, Y1", scale)
	if q.minimum && q.factors > 0 {
		a.op("VSUBPS Y14, Y1, Y1")
	} else if q.minimum {
		a.op("VADDPS Y14, Y1, Y1")
	}
	a.op("VMOVUPS Y1, %d(DI)", (16*h+4*g+b)*64+32*half)
}

// shiftTo4 brings bit n of each word of Y2 to bit 4.
func shiftTo4(a *asm, n int) {
	switch {
	case n < 4:
		a.op("VPSLLD $%d, Y2, Y2", 4-n)
	case n > 4:
		a.op("VPSRLD $%d, Y2, Y2", n-4)
	}
}

// writeQuants writes the files of this file's kernels.
func writeQuants() {
	ints, wide := &asm{}, &asm{}
	kquantData(ints)
	dequantQuantData(wide)
	for _, q := range quants {
		for _, t := range []int{1, 2, 4} {
			quantTile(ints, q, t)
		}
		dequantQuant(wide, q)
	}
	ints.write("avx2_quants", "Products of panels of five and six bits and of K types with int8 activations.")
	wide.write("avx2_quants_dequant", "Panels of five and six bits and of K types widened to F32.")
}
