package main

// turnKernels rotate heads and scale rows. They round every product as plain Go does, so that their bits are those of the portable
// variant.
func turnKernels(a *asm) {
	turnHalves(a)
	turnPairs(a)
	a.fn("dst = x * factor + 0 over n numbers, n a multiple of 8: no zero is negative", "timesRow", "(dst, x *float32, factor float32, n int)", 32)
	a.op("MOVQ dst+0(FP), DI")
	a.op("MOVQ x+8(FP), AX")
	a.op("VBROADCASTSS factor+16(FP), Y0")
	a.op("MOVQ n+24(FP), CX")
	a.op("SHRQ $3, CX")
	a.op("VXORPS Y2, Y2, Y2")
	a.label("loop")
	a.op("VMULPS (AX), Y0, Y1")
	a.op("VADDPS Y2, Y1, Y1")
	a.op("VMOVUPS Y1, (DI)")
	a.op("ADDQ $32, AX")
	a.op("ADDQ $32, DI")
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.ret()
}

func turnHead(a *asm, doc, name string) {
	a.fn(doc, name, "(x, sin, cos *float32, n int)", 32)
	a.op("MOVQ x+0(FP), DI")
	a.op("MOVQ sin+8(FP), AX")
	a.op("MOVQ cos+16(FP), BX")
	a.op("MOVQ n+24(FP), CX")
}

// turnHalves takes pairs (i, i+n).
func turnHalves(a *asm) {
	turnHead(a, "turns pairs (x[i], x[i+n]), n a multiple of 8", "turnHalves")
	a.op("LEAQ (DI)(CX*4), SI")
	a.op("SHRQ $3, CX")
	a.label("loop")
	a.op("VMOVUPS (DI), Y0")
	a.op("VMOVUPS (SI), Y1")
	a.op("VMOVUPS (AX), Y2") // sin
	a.op("VMOVUPS (BX), Y3") // cos
	a.op("VMULPS Y3, Y0, Y4")
	a.op("VMULPS Y2, Y1, Y5")
	a.op("VSUBPS Y5, Y4, Y4")
	a.op("VMULPS Y2, Y0, Y0")
	a.op("VMULPS Y3, Y1, Y1")
	a.op("VADDPS Y1, Y0, Y0")
	a.op("VMOVUPS Y4, (DI)")
	a.op("VMOVUPS Y0, (SI)")
	for _, r := range []string{"DI", "SI", "AX", "BX"} {
		a.op("ADDQ $32, %s", r)
	}
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.ret()
}

// turnPairs takes pairs (2i, 2i+1).
func turnPairs(a *asm) {
	turnHead(a, "turns pairs (x[2i], x[2i+1]), i < n, n a multiple of 4", "turnPairs")
	a.op("SHRQ $2, CX")
	a.label("loop")
	a.op("VMOVUPS (DI), Y0")
	a.op("VPMOVZXDQ (AX), Y2")
	a.op("VPMOVZXDQ (BX), Y3")
	a.op("VMOVSLDUP Y2, Y2") // each sine twice
	a.op("VMOVSLDUP Y3, Y3")
	a.op("VPERMILPS $0xb1, Y0, Y1") // pairs swapped
	a.op("VMULPS Y3, Y0, Y0")
	a.op("VMULPS Y2, Y1, Y1")
	a.op("VADDSUBPS Y1, Y0, Y0")
	a.op("VMOVUPS Y0, (DI)")
	a.op("ADDQ $32, DI")
	a.op("ADDQ $16, AX")
	a.op("ADDQ $16, BX")
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.ret()
}
