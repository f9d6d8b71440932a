package main

import "fmt"

// rowAddr is the address of activation row t, disp bytes on: BX holds row 0, R8 row 3, CX the stride.
func rowAddr(t, disp int) string {
	base := "BX"
	if t >= 3 {
		base, t = "R8", t-3
	}
	switch t {
	case 0:
		return fmt.Sprintf("%d(%s)", disp, base)
	case 1:
		return fmt.Sprintf("%d(%s)(CX*1)", disp, base)
	}
	return fmt.Sprintf("%d(%s)(CX*2)", disp, base)
}

// loadWeights brings the 16 weights of column u into Y12 and Y13 as F32 and moves AX on. Odd columns of BF16 lie beside the even
// ones before them; Y11 masks them.
func loadWeights(a *asm, typ string, u int) {
	switch {
	case typ == "F32":
		a.op("VMOVUPS (AX), Y12")
		a.op("VMOVUPS 32(AX), Y13")
	case typ == "F16":
		a.op("VCVTPH2PS (AX), Y12")
		a.op("VCVTPH2PS 16(AX), Y13")
	case u%2 == 0:
		a.op("VMOVDQU (AX), Y12")
		a.op("VMOVDQU 32(AX), Y13")
		a.op("VPSLLD $16, Y12, Y12")
		a.op("VPSLLD $16, Y13, Y13")
		return
	default:
		a.op("VANDPS (AX), Y11, Y12")
		a.op("VANDPS 32(AX), Y11, Y13")
		a.op("ADDQ DX, AX")
	}
	a.op("ADDQ DX, AX")
}

// floatTile is rows x 16 outputs, one chain of fused multiply-adds each, over depth ascending: the same chain for every type.
// Y0 to Y11: accumulators (row t: Y2t, Y2t+1); Y12, Y13: weights; Y14, Y15: one activation, broadcast.
func floatTile(a *asm, name, typ string, rows int) {
	a.fn(fmt.Sprintf("%d rows x 16 outputs of %s, K ascending in one chain per output", rows, typ),
		fmt.Sprintf("%s%d", name, rows), "(a *floatArgs)", 8)
	a.op("MOVQ a+0(FP), R15")
	a.op("MOVQ 0(R15), AX")
	a.op("MOVQ 8(R15), BX")
	a.op("MOVQ 16(R15), DI")
	a.op("MOVQ 24(R15), DX") // weight stride
	a.op("MOVQ 32(R15), CX")
	a.op("MOVQ 40(R15), SI")
	a.op("MOVQ 48(R15), R9")
	a.op("LEAQ (BX)(CX*2), R8")
	a.op("ADDQ CX, R8")
	for i := range 2 * rows {
		a.op("VXORPS Y%d, Y%d, Y%d", i, i, i)
	}
	if typ == "BF16" {
		a.op("VPCMPEQD Y11, Y11, Y11")
		a.op("VPSLLD $16, Y11, Y11")
	}
	step := func(u int) {
		loadWeights(a, typ, u)
		for t := range rows {
			x := 14 + t%2
			a.op("VBROADCASTSS %s, Y%d", rowAddr(t, 4*u), x)
			a.op("VFMADD231PS Y12, Y%d, Y%d", x, 2*t)
			a.op("VFMADD231PS Y13, Y%d, Y%d", x, 2*t+1)
		}
	}
	a.op("MOVQ R9, R10")
	a.op("SHRQ $2, R10")
	a.op("JZ tail")
	a.label("loop")
	if rows == 1 {
		a.op("PREFETCHT0 %d(AX)", prefetchAhead)
		if typ == "F32" {
			for line := 1; line < 4; line++ {
				a.op("PREFETCHT0 %d(AX)", prefetchAhead+64*line)
			}
		} else {
			a.op("PREFETCHT0 %d(AX)", prefetchAhead+64)
		}
	}
	for u := range 4 {
		step(u)
	}
	a.op("ADDQ $16, BX")
	a.op("ADDQ $16, R8")
	a.op("DECQ R10")
	a.op("JNZ loop")
	a.label("tail")
	if typ == "BF16" { // whose depth is a multiple of 4
		storeTile(a, rows, "56(R15)")
		return
	}
	a.op("ANDQ $3, R9")
	a.op("JZ done")
	a.label("single")
	step(0)
	a.op("ADDQ $4, BX")
	a.op("ADDQ $4, R8")
	a.op("DECQ R9")
	a.op("JNZ single")
	a.label("done")
	storeTile(a, rows, "56(R15)")
}

// storeTile writes rows of two vectors each from Y0 on, or adds them to what is there, and returns.
func storeTile(a *asm, rows int, add string) {
	a.op("CMPB %s, $0", add)
	a.op("JEQ store")
	a.op("MOVQ DI, R12")
	for t := range rows {
		a.op("VADDPS (R12), Y%d, Y%d", 2*t, 2*t)
		a.op("VADDPS 32(R12), Y%d, Y%d", 2*t+1, 2*t+1)
		if t < rows-1 {
			a.op("ADDQ SI, R12")
		}
	}
	a.label("store")
	a.op("MOVQ DI, R12")
	for t := range rows {
		a.op("VMOVUPS Y%d, (R12)", 2*t)
		a.op("VMOVUPS Y%d, 32(R12)", 2*t+1)
		if t < rows-1 {
			a.op("ADDQ SI, R12")
		}
	}
	a.ret()
}
