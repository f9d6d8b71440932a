package main

import "fmt"

// dequantKernels widen panels to [K][16] F32.
func dequantKernels(a *asm) {
	a.constant("nibbleMask", 15)
	a.constant("eight", 8)
	a.fn("pairs of columns of a panel of BF16 to [2][16] F32 each", "dequantBrain", "(dst *float32, src unsafe.Pointer, pairs int)", 24)
	a.op("MOVQ dst+0(FP), DI")
	a.op("MOVQ src+8(FP), AX")
	a.op("MOVQ pairs+16(FP), CX")
	a.op("VPCMPEQD Y15, Y15, Y15")
	a.op("VPSLLD $16, Y15, Y15")
	a.label("loop")
	for half := range 2 {
		a.op("VMOVDQU %d(AX), Y0", 32*half)
		a.op("VPAND Y0, Y15, Y1")
		a.op("VPSLLD $16, Y0, Y0")
		a.op("VMOVDQU Y0, %d(DI)", 32*half)
		a.op("VMOVDQU Y1, %d(DI)", 64+32*half)
	}
	a.op("ADDQ $64, AX")
	a.op("ADDQ $128, DI")
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.ret()
	dequantBlocks(a, "dequantQ8", "Q8_0", 32, 512)
	dequantBlocks(a, "dequantQ40", "Q4_0", 32, 256)
	dequantBlocks(a, "dequantQ41", "Q4_1", 64, 256)
}

// dequantBlocks unpacks blocks: head bytes of scales (and minima), then groups of [16 outputs][4 bytes].
func dequantBlocks(a *asm, name, typ string, head, body int) {
	a.fn("blocks of a panel of "+typ+" to [32][16] F32 each", name, "(dst *float32, src unsafe.Pointer, blocks int)", 24)
	a.op("MOVQ dst+0(FP), DI")
	a.op("MOVQ src+8(FP), AX")
	a.op("MOVQ blocks+16(FP), CX")
	a.label("loop")
	for half := range 2 {
		a.op("VCVTPH2PS %d(AX), Y15", 16*half)
		if head == 64 {
			a.op("VCVTPH2PS %d(AX), Y14", 32+16*half)
		}
		for g := range body / 64 {
			a.op("VMOVDQU %d(AX), Y0", head+64*g+32*half)
			for b := range 4 {
				if body == 512 {
					a.op("VPSLLD $%d, Y0, Y1", 24-8*b)
					a.op("VPSRAD $24, Y1, Y1")
					dequantStore(a, typ, (4*g+b)*64+32*half)
					continue
				}
				for high := range 2 {
					a.op("VPSRLD $%d, Y0, Y1", 8*b+4*high)
					a.op("VPAND nibbleMask<>(SB), Y1, Y1")
					dequantStore(a, typ, (16*high+4*g+b)*64+32*half)
				}
			}
		}
	}
	a.op("ADDQ $%d, AX", head+body)
	a.op("ADDQ $2048, DI")
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.ret()
}

// dequantStore scales the integers in Y1 and stores them.
func dequantStore(a *asm, typ string, at int) {
	if typ == "Q4_0" {
		a.op("VPSUBD eight<>(SB), Y1, Y1")
	}
	a.op("VCVTDQ2PS Y1, Y1")
	a.op("VMULPS Y15, Y1, Y1")
	if typ == "Q4_1" {
		a.op("VADDPS Y14, Y1, Y1")
	}
	a.op("%s", fmt.Sprintf("VMOVUPS Y1, %d(DI)", at))
}
