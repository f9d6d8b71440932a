package main

// writeKV writes the kernels of keys and values in Q8_0, see kv.go beside them.
func writeKV() {
	a := &asm{}
	a.fn("blocks of Q8_0 (f16 scale, 32 int8) to F32", "widenBlocksRow", "(dst, src unsafe.Pointer, blocks int)", 24)
	a.op("MOVQ dst+0(FP), DI")
	a.op("MOVQ src+8(FP), AX")
	a.op("MOVQ blocks+16(FP), CX")
	a.label("loop")
	a.op("VPBROADCASTW (AX), X0")
	a.op("VCVTPH2PS X0, Y0")
	for i := range 4 {
		a.op("VPMOVSXBD %d(AX), Y1", 2+8*i)
		a.op("VCVTDQ2PS Y1, Y1")
		a.op("VMULPS Y0, Y1, Y1")
		a.op("VMOVUPS Y1, %d(DI)", 32*i)
	}
	a.op("ADDQ $34, AX")
	a.op("ADDQ $128, DI")
	a.op("DECQ CX")
	a.op("JNZ loop")
	a.ret()
	a.fn("a group of 8 keys of Q8_0, [dims][8] int8 and [dims/32][8] f16 scales, to [dims][8] F32, vectors stride bytes apart",
		"widenKeysRow", "(dst unsafe.Pointer, stride int, src unsafe.Pointer, dims int)", 32)
	a.op("MOVQ dst+0(FP), DI")
	a.op("MOVQ stride+8(FP), SI")
	a.op("MOVQ src+16(FP), AX")
	a.op("MOVQ dims+24(FP), CX")
	a.op("LEAQ (AX)(CX*8), BX") // scales
	a.op("SHRQ $5, CX")
	a.label("block")
	a.op("VCVTPH2PS (BX), Y0")
	a.op("MOVQ $8, DX")
	a.label("loop")
	for i := range 4 {
		a.op("VPMOVSXBD %d(AX), Y1", 8*i)
		a.op("VCVTDQ2PS Y1, Y1")
		a.op("VMULPS Y0, Y1, Y1")
		a.op("VMOVUPS Y1, (DI)")
		a.op("ADDQ SI, DI")
	}
	a.op("ADDQ $32, AX")
	a.op("DECQ DX")
	a.op("JNZ loop")
	a.op("ADDQ $16, BX")
	a.op("DECQ CX")
	a.op("JNZ block")
	a.ret()
	a.write("avx2_kv", "Keys and values of Q8_0 widened to F32.")
}
