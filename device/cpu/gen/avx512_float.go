package main

import "fmt"

// floatTile512 is a product of F32 activations with weights of a plain type: one chain of fused multiply-adds for each output, over
// depth ascending, the same for every type and tile. Z24 and up are weights (BF16: even columns, then odd ones), Z30 an
// activation, broadcast, Z31 a mask.
func floatTile512(a *asm, name, typ string, t tile) {
	a.fn(fmt.Sprintf("%s of %s, K ascending in one chain per output; a.w is lost", t.doc(), typ), t.name(name), "(a *floatArgs)", 8)
	floatHead(a, t)
	if typ == "BF16" {
		a.op("MOVL $0xffff0000, R9")
		a.op("VPBROADCASTD R9, Z31")
	}
	a.op("MOVQ 48(R15), R9")
	a.op("SHRQ $2, R9")
	a.op("JZ tail")
	a.label("loop")
	t.prefetchColumns(a, map[string]int{"F32": 64, "F16": 32, "BF16": 32}[typ]*4)
	for u := range 4 {
		t.floatColumn(a, typ, u)
	}
	t.nextRows(a, 16)
	a.op("DECQ R9")
	a.op("JNZ loop")
	a.label("tail")
	if typ != "BF16" { // whose depth is a multiple of 4
		a.op("MOVQ 48(R15), R9")
		a.op("ANDQ $3, R9")
		a.op("JZ done")
		a.label("single")
		t.floatColumn(a, typ, 0)
		t.nextRows(a, 4)
		a.op("DECQ R9")
		a.op("JNZ single")
		a.label("done")
	}
	floatFoot(a, t)
}

// floatHead loads the arguments and begins the loop over panels: DX is the stride of columns.
func floatHead(a *asm, t tile) {
	a.op("MOVQ a+0(FP), R15")
	a.op("MOVQ 8(R15), R14")
	a.op("MOVQ 16(R15), DI")
	a.op("MOVQ 32(R15), CX")
	a.op("MOVQ 40(R15), SI")
	a.op("MOVQ 64(R15), R13")
	a.label("panel")
	a.op("MOVQ 0(R15), AX")
	a.op("MOVQ 24(R15), DX")
	if t.panels == 2 {
		a.op("MOVQ AX, R12")
		a.op("ADDQ 72(R15), R12")
	}
	t.firstRows(a)
	t.zero(a)
}

// floatFoot stores the sums and goes on to the next panels.
func floatFoot(a *asm, t tile) {
	t.store(a, "56(R15)")
	a.op("MOVQ 72(R15), DX")
	if t.panels == 2 {
		a.op("ADDQ DX, DX")
	}
	a.op("ADDQ DX, 0(R15)")
	a.op("ADDQ $%d, DI", 64*t.panels)
	a.op("SUBQ $%d, R13", t.panels)
	a.op("JNZ panel")
	a.ret()
}

// prefetchColumns fetches so many bytes of each panel ahead, where a panel is read once.
func (t tile) prefetchColumns(a *asm, bytes int) {
	if t.rows > 1 {
		return
	}
	for p := range t.panels {
		for at := 0; at < bytes; at += 64 {
			a.op("PREFETCHT0 %d(%s)", prefetchAhead+at, weightBase(p))
		}
	}
}

// floatColumn multiplies column u of the four at the row bases.
func (t tile) floatColumn(a *asm, typ string, u int) {
	odd := typ == "BF16" && u%2 == 1
	for p := range t.panels {
		switch w := weightBase(p); {
		case typ == "F32":
			a.op("VMOVUPS (%s), Z%d", w, 24+p)
		case typ == "F16":
			a.op("VCVTPH2PS (%s), Z%d", w, 24+p)
		case odd:
			a.op("VPANDD (%s), Z31, Z%d", w, 24+p)
		default:
			a.op("VPSLLD $16, (%s), Z%d", w, 24+p)
		}
	}
	if typ != "BF16" || odd {
		t.nextColumns(a, odd)
	}
	for r := range t.rows {
		if t.panels == 1 {
			a.op("VFMADD231PS.BCST %s, Z24, Z%d", rowAt(r, 4*u), r)
			continue
		}
		a.op("VBROADCASTSS %s, Z30", rowAt(r, 4*u))
		for p := range t.panels {
			a.op("VFMADD231PS Z30, Z%d, Z%d", 24+p, r*t.panels+p)
		}
	}
}

// nextColumns moves the bases of weights one column on, or two.
func (t tile) nextColumns(a *asm, two bool) {
	for p := range t.panels {
		if two {
			a.op("LEAQ (%[1]s)(DX*2), %[1]s", weightBase(p))
		} else {
			a.op("ADDQ DX, %s", weightBase(p))
		}
	}
}

// brainTile512 is a product of BF16 with BF16 activations: pairs of columns into F32 with VDPBF16PS, K ascending. Z24 and Z25 are
// weights, Z30 a pair of activations, broadcast.
func brainTile512(a *asm, t tile) {
	a.fn(fmt.Sprintf("%s of BF16 with BF16 activations, pairs of K ascending; a.w is lost", t.doc()), t.name("brainDot"), "(a *floatArgs)", 8)
	floatHead(a, t)
	a.op("MOVQ 48(R15), R9")
	a.op("SHRQ $3, R9")
	a.label("loop")
	t.prefetchColumns(a, 256)
	for u := range 4 {
		for p := range t.panels {
			a.op("VMOVDQU32 %d(%s), Z%d", 64*u, weightBase(p), 24+p)
		}
		for r := range t.rows {
			a.op("VPBROADCASTD %s, Z30", rowAt(r, 4*u))
			for p := range t.panels {
				dotBrain(a, r*t.panels+p, 24+p, 30)
			}
		}
	}
	for p := range t.panels {
		a.op("ADDQ $256, %s", weightBase(p))
	}
	t.nextRows(a, 16)
	a.op("DECQ R9")
	a.op("JNZ loop")
	floatFoot(a, t)
}
