package main

// rowKernels512 are kernels along a row with vectors of 16. Sums keep the 8 lanes of device's order of summation: the upper half of
// a vector is added after the lower one.
func rowKernels512(a *asm) {
	expData(a)
	swiGLU512(a)
	softmax512(a)
	brainRow(a)
	widen512(a)
}

// widen512 are the ways in which tiles of keys and values become F32.
func widen512(a *asm) {
	a.fn("pairs of vectors of 8 F16 to F32, all one after another", "widenRow512", "(dst, src unsafe.Pointer, pairs int)", 24)
	a.op("MOVQ dst+0(FP), DI")
	a.op("MOVQ src+8(FP), AX")
	a.op("MOVQ pairs+16(FP), CX")
	a.label("loop")
	a.op("VCVTPH2PS (AX), Z0")
	a.op("VMOVUPS Z0, (DI)")
	a.op("ADDQ $32, AX")
	a.op("ADDQ $64, DI")
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.ret()
	a.fn("two groups of so many vectors of 8 F16 side by side: vector i of both to 16 F32, stride bytes apart", "widenGroups512",
		"(dst unsafe.Pointer, stride int, src unsafe.Pointer, vectors int)", 32)
	a.op("MOVQ dst+0(FP), DI")
	a.op("MOVQ stride+8(FP), SI")
	a.op("MOVQ src+16(FP), AX")
	a.op("MOVQ vectors+24(FP), CX")
	a.op("MOVQ CX, BX")
	a.op("SHLQ $4, BX")
	a.label("loop")
	a.op("VMOVDQU (AX), X0")
	a.op("VINSERTI128 $1, (AX)(BX*1), Y0, Y0")
	a.op("VCVTPH2PS Y0, Z0")
	a.op("VMOVUPS Z0, (DI)")
	a.op("ADDQ $16, AX")
	a.op("ADDQ SI, DI")
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.ret()
}

// exp512 is exp for Zx; Z28 to Z30 and K1 are lost. Constants come from memory, repeated by the load.
func exp512(a *asm, x int) {
	a.op("VCMPPS.BCST $13, expLow<>(SB), Z%d, K1", x) // x >= low
	a.op("VMINPS.BCST expHigh<>(SB), Z%d, Z%d", x, x)
	a.op("VMULPS.BCST log2e<>(SB), Z%d, Z28", x)
	a.op("VRNDSCALEPS $8, Z28, Z28")
	a.op("VFNMADD231PS.BCST ln2Hi<>(SB), Z28, Z%d", x)
	a.op("VFMADD231PS.BCST ln2Lo<>(SB), Z28, Z%d", x)
	a.op("VBROADCASTSS expP0<>(SB), Z29")
	for i := 1; i <= 5; i++ {
		a.op("VFMADD213PS.BCST expP%d<>(SB), Z%d, Z29", i, x)
	}
	a.op("VMULPS Z%d, Z%d, Z30", x, x)
	a.op("VFMADD213PS Z%d, Z30, Z29", x) // p*f*f + f
	a.op("VADDPS.BCST one<>(SB), Z29, Z29")
	a.op("VSCALEFPS.Z Z28, Z29, K1, Z%d", x)
}

// swiGLU512 needs rows that may be read and written up to a multiple of 16.
func swiGLU512(a *asm) {
	a.fn("dst = gate / (1 + exp(-gate)) * up over n numbers, n a multiple of 8", "swiGLURow512", "(dst, gate, up *float32, n int)", 32)
	a.op("MOVQ dst+0(FP), DI")
	a.op("MOVQ gate+8(FP), AX")
	a.op("MOVQ up+16(FP), BX")
	a.op("MOVQ n+24(FP), CX")
	a.op("SHRQ $3, CX")
	a.op("KXNORW K2, K2, K2")
	a.label("loop")
	a.op("CMPQ CX, $1")
	a.op("JNE whole")
	a.op("KSHIFTRW $8, K2, K2") // the last vector is half
	a.label("whole")
	a.op("VMOVUPS.Z (AX), K2, Z0")
	a.op("VMOVUPS.Z (BX), K2, Z2")
	a.op("VPXORD.BCST signBit<>(SB), Z0, Z1")
	exp512(a, 1)
	a.op("VADDPS.BCST one<>(SB), Z1, Z1")
	a.op("VDIVPS Z1, Z0, Z0")
	a.op("VMULPS Z2, Z0, Z0")
	a.op("VMOVUPS Z0, K2, (DI)")
	a.op("ADDQ $64, AX")
	a.op("ADDQ $64, BX")
	a.op("ADDQ $64, DI")
	a.op("SUBQ $2, CX")
	a.op("JGT loop")
	a.ret()
}

// softmax512 keeps the 4 vectors of a tile in Z0 to Z3; Z8 is the new maximum, Y9 the sum, Z10 the factor on what came before.
func softmax512(a *asm) {
	a.fn("64 scores (minus infinity where masked) into weights and a running softmax; out *= factor, n a multiple of 16",
		"softmaxTile512", "(s *float32, st *softState, out *float32, n int)", 32)
	a.op("MOVQ s+0(FP), AX")
	a.op("MOVQ st+8(FP), BX")
	a.op("MOVQ out+16(FP), DI")
	a.op("MOVQ n+24(FP), CX")
	a.op("SHRQ $4, CX")
	for i := range 4 {
		a.op("VMOVUPS %d(AX), Z%d", 64*i, i)
	}
	a.op("VBROADCASTSS (BX), Z10") // the maximum so far
	a.op("VMAXPS Z0, Z1, Z8")
	a.op("VMAXPS Z2, Z3, Z9")
	a.op("VMAXPS Z8, Z9, Z8")
	a.op("VMAXPS Z8, Z10, Z8")
	a.op("VEXTRACTF64X4 $1, Z8, Y9")
	a.op("VMAXPS Y9, Y8, Y8")
	foldMax(a, 8, 9)
	a.op("VMOVSS X8, (BX)")
	a.op("VBROADCASTSS X8, Z8")
	a.op("VXORPS Y9, Y9, Y9")
	for i := range 4 {
		a.op("VSUBPS Z8, Z%d, Z%d", i, i)
		exp512(a, i)
		a.op("VMOVUPS Z%d, %d(AX)", i, 64*i)
		a.op("VADDPS Y%d, Y9, Y9", i)
		a.op("VEXTRACTF64X4 $1, Z%d, Y%d", i, i)
		a.op("VADDPS Y%d, Y9, Y9", i)
	}
	a.op("VSUBPS Z8, Z10, Z10")
	exp512(a, 10)
	fold(a, 9, 11)
	a.op("VMOVSS 4(BX), X11")
	a.op("VMULSS X10, X11, X11")
	a.op("VADDSS X9, X11, X11")
	a.op("VMOVSS X11, 4(BX)")
	a.label("loop")
	a.op("VMULPS (DI), Z10, Z0")
	a.op("VMOVUPS Z0, (DI)")
	a.op("ADDQ $64, DI")
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.ret()
}

// brainRow rounds activations to BF16.
func brainRow(a *asm) {
	a.fn("n F32 rounded to BF16, denormals to zero; n a multiple of 8", "toBrainRow", "(dst, src unsafe.Pointer, n int)", 24)
	a.op("MOVQ dst+0(FP), DI")
	a.op("MOVQ src+8(FP), AX")
	a.op("MOVQ n+16(FP), CX")
	a.op("SHRQ $3, CX")
	a.label("loop")
	a.op("VMOVUPS (AX), Y0")
	toBrain(a, 1, 0)
	a.op("VMOVUPS X1, (DI)")
	a.op("ADDQ $32, AX")
	a.op("ADDQ $16, DI")
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.ret()
}
