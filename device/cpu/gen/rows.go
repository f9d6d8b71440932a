package main

import (
	"fmt"
	"math"
)

// exp2 constants and the polynomial are those of expGo in portable.go.
func expData(a *asm) {
	for _, c := range []struct {
		name  string
		value float32
	}{
		{"expLow", -87.33654}, {"expHigh", 88}, {"log2e", 1.44269504}, {"ln2Hi", 0.693359375}, {"ln2Lo", 2.12194440e-4},
		{"expP0", 1.9875691500e-4}, {"expP1", 1.3981999507e-3}, {"expP2", 8.3334519073e-3}, {"expP3", 4.1665795894e-2},
		{"expP4", 1.6666665459e-1}, {"expP5", 5.0000001201e-1}, {"one", 1}, {"maxHalf", 65504}, {"minHalf", -65504}, {"c127", 127},
	} {
		a.constant(c.name, math.Float32bits(c.value))
	}
	a.constant("bias127", 127)
	a.constant("signBit", 0x80000000)
	a.constant("absMask", 0x7fffffff)
}

// exp turns Yx into e to the Yx; Y12 to Y15 are lost. Below the range the result is 0.
func exp(a *asm, x int) {
	a.op("VCMPPS $13, expLow<>(SB), Y%d, Y15", x) // x >= low
	a.op("VMINPS expHigh<>(SB), Y%d, Y%d", x, x)
	a.op("VMULPS log2e<>(SB), Y%d, Y12", x)
	a.op("VROUNDPS $8, Y12, Y12")
	a.op("VFNMADD231PS ln2Hi<>(SB), Y12, Y%d", x)
	a.op("VFMADD231PS ln2Lo<>(SB), Y12, Y%d", x)
	a.op("VMOVUPS expP0<>(SB), Y13")
	for i := 1; i <= 5; i++ {
		a.op("VFMADD213PS expP%d<>(SB), Y%d, Y13", i, x)
	}
	a.op("VMULPS Y%d, Y%d, Y14", x, x)
	a.op("VFMADD213PS Y%d, Y14, Y13", x) // p*f*f + f
	a.op("VADDPS one<>(SB), Y13, Y13")
	a.op("VCVTPS2DQ Y12, Y12")
	a.op("VPADDD bias127<>(SB), Y12, Y12")
	a.op("VPSLLD $23, Y12, Y12")
	a.op("VMULPS Y12, Y13, Y13")
	a.op("VANDPS Y15, Y13, Y%d", x)
}

// fold sums the lanes of Yx into its lowest: (0+4)+(2+6) + (1+5)+(3+7). Yt is lost.
func fold(a *asm, x, t int) {
	a.op("VEXTRACTF128 $1, Y%d, X%d", x, t)
	a.op("VADDPS X%d, X%d, X%d", t, x, x)
	a.op("VPERMILPS $0x0e, X%d, X%d", x, t)
	a.op("VADDPS X%d, X%d, X%d", t, x, x)
	a.op("VMOVSHDUP X%d, X%d", x, t)
	a.op("VADDSS X%d, X%d, X%d", t, x, x)
}

// foldMax is fold with the maximum.
func foldMax(a *asm, x, t int) {
	a.op("VEXTRACTF128 $1, Y%d, X%d", x, t)
	a.op("VMAXPS X%d, X%d, X%d", t, x, x)
	a.op("VPERMILPS $0x0e, X%d, X%d", x, t)
	a.op("VMAXPS X%d, X%d, X%d", t, x, x)
	a.op("VMOVSHDUP X%d, X%d", x, t)
	a.op("VMAXSS X%d, X%d, X%d", t, x, x)
}

func rowKernels(a *asm) {
	expData(a)
	sumSquares(a)
	scaleRow(a)
	swiGLU(a)
	softmax(a)
	quantise(a)
	toHalf(a)
	widen(a)
	turnKernels(a)
	a.fn("asks for so many lines of the cache from p on", "fetchLines", "(p unsafe.Pointer, lines int)", 16)
	a.op("MOVQ p+0(FP), AX")
	a.op("MOVQ lines+8(FP), CX")
	a.label("loop")
	a.op("PREFETCHT0 (AX)")
	a.op("ADDQ $64, AX")
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.op("RET")
	a.fn("rests a spinning thread for n turns", "pause", "(n int)", 8)
	a.op("MOVQ n+0(FP), CX")
	a.label("loop")
	a.op("PAUSE")
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.op("RET")
}

func sumSquares(a *asm) {
	a.fn("sum of x*x over n numbers, n a multiple of 8: 8 lanes, then fold", "sumSquares", "(x *float32, n int) float32", 20)
	a.op("MOVQ x+0(FP), AX")
	a.op("MOVQ n+8(FP), CX")
	a.op("SHRQ $3, CX")
	a.op("VXORPS Y0, Y0, Y0")
	a.label("loop")
	a.op("VMOVUPS (AX), Y1")
	a.op("VFMADD231PS Y1, Y1, Y0")
	a.op("ADDQ $32, AX")
	a.op("DECQ CX")
	a.op("JNZ loop")
	fold(a, 0, 1)
	a.op("VMOVSS X0, ret+16(FP)")
	a.ret()
}

func scaleRow(a *asm) {
	a.fn("dst = x * scale * w over n numbers, n a multiple of 8", "scaleRow", "(dst, x, w *float32, scale float32, n int)", 40)
	a.op("MOVQ dst+0(FP), DI")
	a.op("MOVQ x+8(FP), AX")
	a.op("MOVQ w+16(FP), BX")
	a.op("VBROADCASTSS scale+24(FP), Y0")
	a.op("MOVQ n+32(FP), CX")
	a.op("SHRQ $3, CX")
	a.label("loop")
	a.op("VMULPS (AX), Y0, Y1")
	a.op("VMULPS (BX), Y1, Y1")
	a.op("VMOVUPS Y1, (DI)")
	a.op("ADDQ $32, AX")
	a.op("ADDQ $32, BX")
	a.op("ADDQ $32, DI")
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.ret()
}

func swiGLU(a *asm) {
	a.fn("dst = gate / (1 + exp(-gate)) * up over n numbers, n a multiple of 8", "swiGLURow", "(dst, gate, up *float32, n int)", 32)
	a.op("MOVQ dst+0(FP), DI")
	a.op("MOVQ gate+8(FP), AX")
	a.op("MOVQ up+16(FP), BX")
	a.op("MOVQ n+24(FP), CX")
	a.op("SHRQ $3, CX")
	a.label("loop")
	a.op("VMOVUPS (AX), Y0")
	a.op("VXORPS signBit<>(SB), Y0, Y1")
	exp(a, 1)
	a.op("VADDPS one<>(SB), Y1, Y1")
	a.op("VDIVPS Y1, Y0, Y0")
	a.op("VMULPS (BX), Y0, Y0")
	a.op("VMOVUPS Y0, (DI)")
	a.op("ADDQ $32, AX")
	a.op("ADDQ $32, BX")
	a.op("ADDQ $32, DI")
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.ret()
}

// softmax keeps the 8 vectors of a tile in Y0 to Y7; Y8 is the new maximum, Y9 the sum, Y10 the factor on what came before.
func softmax(a *asm) {
	a.fn("64 scores (minus infinity where masked) into weights and a running softmax; out *= factor, n a multiple of 8",
		"softmaxTile", "(s *float32, st *softState, out *float32, n int)", 32)
	a.op("MOVQ s+0(FP), AX")
	a.op("MOVQ st+8(FP), BX")
	a.op("MOVQ out+16(FP), DI")
	a.op("MOVQ n+24(FP), CX")
	a.op("SHRQ $3, CX")
	for i := range 8 {
		a.op("VMOVUPS %d(AX), Y%d", 32*i, i)
	}
	a.op("VBROADCASTSS (BX), Y10") // the maximum so far
	a.op("VMAXPS Y0, Y10, Y8")
	for i := 1; i < 8; i++ {
		a.op("VMAXPS Y%d, Y8, Y8", i)
	}
	foldMax(a, 8, 9)
	a.op("VBROADCASTSS X8, Y8")
	a.op("VMOVSS X8, (BX)")
	a.op("VXORPS Y9, Y9, Y9")
	for i := range 8 {
		a.op("VSUBPS Y8, Y%d, Y%d", i, i)
		exp(a, i)
		a.op("VMOVUPS Y%d, %d(AX)", i, 32*i)
		a.op("VADDPS Y%d, Y9, Y9", i)
	}
	a.op("VSUBPS Y8, Y10, Y10")
	exp(a, 10)
	fold(a, 9, 11)
	a.op("VMOVSS 4(BX), X11")
	a.op("VMULSS X10, X11, X11")
	a.op("VADDSS X9, X11, X11")
	a.op("VMOVSS X11, 4(BX)")
	a.label("loop")
	a.op("VMULPS (DI), Y10, Y0")
	a.op("VMOVUPS Y0, (DI)")
	a.op("ADDQ $32, DI")
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.ret()
}

func quantise(a *asm) {
	for i, v := range []int{0, 4, 1, 5, 2, 6, 3, 7} {
		fmt.Fprintf(&a.data, "DATA packOrder<>+%d(SB)/4, $%d\n", i*4, v)
	}
	fmt.Fprint(&a.data, "GLOBL packOrder<>(SB), RODATA|NOPTR, $32\n")
	a.fn("blocks of 32 F32 at src into blocks of int8, scale and sums, see actTail", "quantiseRow", "(dst, src unsafe.Pointer, blocks int)", 24)
	a.op("MOVQ dst+0(FP), DI")
	a.op("MOVQ src+8(FP), AX")
	a.op("MOVQ blocks+16(FP), CX")
	a.op("VMOVUPS absMask<>(SB), Y15")
	a.op("VMOVDQU packOrder<>(SB), Y14")
	a.op("VMOVSS c127<>(SB), X13")
	a.label("loop")
	for i := range 4 {
		a.op("VMOVUPS %d(AX), Y%d", 32*i, i)
		a.op("VANDPS Y15, Y%d, Y%d", i, 4+i)
	}
	a.op("VMAXPS Y4, Y5, Y4")
	a.op("VMAXPS Y6, Y7, Y6")
	a.op("VMAXPS Y4, Y6, Y4")
	foldMax(a, 4, 5)
	a.op("VDIVSS X13, X4, X5") // scale
	a.op("VXORPS X6, X6, X6")
	a.op("VUCOMISS X6, X4")
	a.op("JEQ zero")
	a.op("VDIVSS X4, X13, X6") // 127 / top
	a.label("zero")
	a.op("VBROADCASTSS X6, Y6")
	for i := range 4 {
		a.op("VMULPS Y6, Y%d, Y%d", i, i)
		a.op("VCVTPS2DQ Y%d, Y%d", i, i)
	}
	a.op("VPADDD Y0, Y1, Y7")
	a.op("VPADDD Y2, Y3, Y8")
	a.op("VPHADDD Y8, Y7, Y7")
	a.op("VEXTRACTI128 $1, Y7, X8")
	a.op("VPADDD X7, X8, X7")
	a.op("VPHADDD X7, X7, X9") // sum of the first 16, of the second
	a.op("VPHADDD X9, X9, X7") // of all
	a.op("VPACKSSDW Y1, Y0, Y0")
	a.op("VPACKSSDW Y3, Y2, Y2")
	a.op("VPACKSSWB Y2, Y0, Y0")
	a.op("VPERMD Y0, Y14, Y0")
	a.op("VMOVDQU Y0, (DI)")
	a.op("VMOVSS X5, %d(DI)", actScale)
	a.op("VMOVQ X9, %d(DI)", actHalf)
	a.op("VPXOR X8, X8, X8")
	a.op("VPSUBD X9, X8, X8")
	a.op("VPSLLD $5, X8, X8")
	a.op("VMOVQ X8, %d(DI)", actLess32)
	a.op("VCVTDQ2PS X7, X8")
	a.op("VMULSS X5, X8, X8")
	a.op("VMOVSS X8, %d(DI)", actSum)
	a.op("VPXOR X8, X8, X8")
	a.op("VPSUBD X7, X8, X7")
	a.op("VPSLLD $3, X7, X8")
	a.op("VMOVD X8, %d(DI)", actLess8)
	a.op("VPSLLD $7, X7, X8")
	a.op("VMOVD X8, %d(DI)", actLess128)
	a.op("ADDQ $128, AX")
	a.op("ADDQ $%d, DI", actBlock)
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.ret()
}

func toHalf(a *asm) {
	a.fn("n F32 rounded to F16, the largest where too large; n a multiple of 8", "toHalfRow", "(dst *uint16, src *float32, n int)", 24)
	a.op("MOVQ dst+0(FP), DI")
	a.op("MOVQ src+8(FP), AX")
	a.op("MOVQ n+16(FP), CX")
	a.op("SHRQ $3, CX")
	a.op("VMOVUPS maxHalf<>(SB), Y2")
	a.op("VMOVUPS minHalf<>(SB), Y3")
	a.label("loop")
	a.op("VMOVUPS (AX), Y0")
	a.op("VMINPS Y0, Y2, Y0") // NaN stays: the second source is taken
	a.op("VMAXPS Y0, Y3, Y0")
	a.op("VCVTPS2PH $0, Y0, (DI)")
	a.op("ADDQ $32, AX")
	a.op("ADDQ $16, DI")
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.ret()
}

func widen(a *asm) {
	a.fn("vectors of 8 F16 to F32, stride bytes apart", "widenRow", "(dst unsafe.Pointer, stride int, src unsafe.Pointer, vectors int)", 32)
	a.op("MOVQ dst+0(FP), DI")
	a.op("MOVQ stride+8(FP), SI")
	a.op("MOVQ src+16(FP), AX")
	a.op("MOVQ vectors+24(FP), CX")
	a.label("loop")
	a.op("VCVTPH2PS (AX), Y0")
	a.op("VMOVUPS Y0, (DI)")
	a.op("ADDQ $16, AX")
	a.op("ADDQ SI, DI")
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.ret()
}
