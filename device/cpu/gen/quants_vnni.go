package main

import "fmt"

// actLess32 is where a block of activations holds [2] i32, -32 times the sums of 16: see actTail in matmul.go.
const actLess32 = 56

// vnniQuant is vnniTile for a type of kquant.go: the integers of a run of 32 columns with VPDPBUSD, then both scales, then minima. In
// Q6_K, whose scales change in the middle, each half of a run is scaled by itself.
// R10 counts the runs of a block, R11 holds the first panel's factors, DX how far the second panel's are from them.
func vnniQuant(a *asm, q quant, t tile) {
	a.fn(fmt.Sprintf("%s of %s, K in ascending runs of 32", t.doc(), q.typ), t.name(q.name+"VNNI"), "(a *int8Args)", 8)
	a.op("MOVQ a+0(FP), R15")
	a.op("MOVQ 0(R15), AX")
	a.op("MOVQ 8(R15), R14")
	a.op("MOVQ 16(R15), DI")
	a.op("MOVQ 24(R15), CX")
	a.op("MOVQ 32(R15), SI")
	a.op("MOVQ 48(R15), R13")
	a.op("VPBROADCASTD low4<>(SB), Z30")
	a.label("panel")
	t.firstRows(a)
	a.op("MOVQ 40(R15), R9")
	block := q.run
	if q.factors > 0 {
		a.op("SHRQ $3, R9")
		block = q.factors + 8*q.run
	}
	if t.panels == 2 {
		a.op("IMUL3Q $%d, R9, DX", block)
		a.op("LEAQ (AX)(DX*1), R12")
	}
	t.zero(a)
	if q.factors > 0 {
		a.label("block")
		a.op("MOVQ AX, R11")
		nextWeights(a, t, q.factors)
		a.op("MOVQ $8, R10")
	}
	a.label("run")
	vnniRun(a, q, t)
	nextWeights(a, t, q.run)
	t.nextRows(a, actBlock)
	if q.factors > 0 {
		a.op("DECQ R10")
		a.op("JNZ run")
		a.op("DECQ R9")
		a.op("JNZ block")
	} else {
		a.op("DECQ R9")
		a.op("JNZ run")
	}
	t.store(a, "56(R15)")
	if t.panels == 2 {
		a.op("MOVQ R12, AX")
	}
	a.op("ADDQ $%d, DI", 64*t.panels)
	a.op("SUBQ $%d, R13", t.panels)
	a.op("JNZ panel")
	a.ret()
}

// nextWeights moves the addresses of the panels on.
func nextWeights(a *asm, t tile, bytes int) {
	for p := range t.panels {
		a.op("ADDQ $%d, %s", bytes, weightBase(p))
	}
}

// factorsAt is the address of a panel's factors, disp bytes on.
func factorsAt(p, disp int) string {
	if p == 0 {
		return fmt.Sprintf("%d(R11)", disp)
	}
	return fmt.Sprintf("%d(R11)(DX*1)", disp)
}

func vnniRun(a *asm, q quant, t tile) {
	if t.rows == 1 {
		for p := range t.panels {
			for at := 0; at < q.run; at += 64 {
				a.op("PREFETCHT0 %d(%s)", prefetchAhead+at, weightBase(p))
			}
		}
	}
	if q.bits == 6 {
		for h := range 2 {
			startInts(a, q, t, h)
			for g := range 4 {
				for p := range t.panels {
					sixBits512(a, q, p, [2]int{g, h})
				}
				multiplyInts(a, t, 1, 4*g+16*h)
			}
			scaleQuant(a, q, t, h)
		}
		return
	}
	startInts(a, q, t, 0)
	for g := range 4 {
		for p := range t.panels {
			fiveBits512(a, q, p, g)
		}
		multiplyInts(a, t, 2, 4*g)
	}
	scaleQuant(a, q, t, 0)
}

// startInts sets the integers to what takes the offset of unsigned weights back.
func startInts(a *asm, q quant, t tile, h int) {
	for i := range t.sums() {
		z := t.sums() + i
		switch q.typ {
		case "Q6_K":
			a.op("VPBROADCASTD %s, Z%d", rowAt(i/t.panels, actLess32+4*h), z)
		case "Q5_0":
			a.op("VPBROADCASTD %s, Z%d", rowAt(i/t.panels, actLess8), z)
			a.op("VPADDD Z%d, Z%d, Z%d", z, z, z) // less 16
		default:
			a.op("VPXORD Z%d, Z%d, Z%d", z, z, z)
		}
	}
}

// multiplyInts adds the products of panel p's weights in Z(24+2p) and up with the activations of columns column, column+16.
func multiplyInts(a *asm, t tile, vectors, column int) {
	ints := t.sums()
	for v := range vectors {
		for r := range t.rows {
			if t.panels == 1 {
				a.op("VPDPBUSD.BCST %s, Z%d, Z%d", rowAt(r, column+16*v), 24+v, ints+r)
				continue
			}
			a.op("VPBROADCASTD %s, Z31", rowAt(r, column+16*v))
			for p := range t.panels {
				a.op("VPDPBUSD Z31, Z%d, Z%d", 24+2*p+v, ints+r*t.panels+p)
			}
		}
	}
}

// fiveBits512 brings the weights of group g into Z(24+2p), low nibbles, and Z(25+2p), high nibbles. Z28 is lost.
func fiveBits512(a *asm, q quant, p, g int) {
	base, z := weightBase(p), 24+2*p
	a.op("VMOVDQU32 %d(%s), Z%d", q.nibbles()+64*g, base, z)
	a.op("VPSRLW $4, Z%d, Z%d", z, z+1)
	a.op("VPANDD Z30, Z%d, Z%d", z, z)
	a.op("VPANDD Z30, Z%d, Z%d", z+1, z+1)
	if q.bits == 5 {
		orBits(a, fmt.Sprintf("%d(%s)", q.high, base), "bit4", 4-g, z)
		orBits(a, fmt.Sprintf("%d(%s)", q.high, base), "bit4", -g, z+1)
	}
}

// sixBits512 brings the weights of group g of half h into Z(24+2p), c being {g, h}. Z28 is lost.
func sixBits512(a *asm, q quant, p int, c [2]int) {
	base, z := weightBase(p), 24+2*p
	g, h := c[0], c[1]
	if h == 0 {
		a.op("VPANDD %d(%s), Z30, Z%d", q.nibbles()+64*g, base, z)
	} else {
		a.op("VPSRLW $4, %d(%s), Z%d", q.nibbles()+64*g, base, z)
		a.op("VPANDD Z30, Z%d, Z%d", z, z)
	}
	orBits(a, fmt.Sprintf("%d(%s)", q.high+64*h, base), "pair4", 4-2*g, z)
}

// orBits puts bits of a vector at from, shifted to the left and masked, into Zz. Z28 is lost.
func orBits(a *asm, from, mask string, left, z int) {
	switch {
	case left > 0:
		a.op("VPSLLW $%d, %s, Z28", left, from)
	case left < 0:
		a.op("VPSRLW $%d, %s, Z28", -left, from)
	default:
		a.op("VMOVDQU32 %s, Z28", from)
	}
	a.op("VPTERNLOGD.BCST $0xf8, %s<>(SB), Z28, Z%d", mask, z) // z | Z28 & mask
}

// scaleQuant multiplies the integers by both scales and adds them to the sums; minima go with the sum of the activations.
func scaleQuant(a *asm, q quant, t tile, h int) {
	for p := range t.panels {
		quantScales(a, q, p, h)
	}
	for r := range t.rows {
		a.op("VBROADCASTSS %s, Z31", rowAt(r, actScale))
		for p := range t.panels {
			sum := r*t.panels + p
			a.op("VMULPS Z31, Z%d, Z24", 28+p)
			a.op("VCVTDQ2PS Z%d, Z%d", t.sums()+sum, t.sums()+sum)
			a.op("VFMADD231PS Z24, Z%d, Z%d", t.sums()+sum, sum)
		}
		if !q.minimum {
			continue
		}
		a.op("VBROADCASTSS %s, Z31", rowAt(r, actSum))
		for p := range t.panels {
			if q.factors > 0 {
				a.op("VFNMADD231PS Z31, Z%d, Z%d", 26+p, r*t.panels+p)
			} else {
				a.op("VFMADD231PS Z31, Z%d, Z%d", 26+p, r*t.panels+p)
			}
		}
	}
}

// quantScales brings a panel's scales into Z(28+p), and minima into Z(26+p). Z31 is lost.
func quantScales(a *asm, q quant, p, h int) {
	base := weightBase(p)
	switch {
	case q.factors == 0:
		a.op("VCVTPH2PS (%s), Z%d", base, 28+p)
		if q.minimum {
			a.op("VCVTPH2PS 32(%s), Z%d", base, 26+p)
		}
	case q.minimum:
		for i, z := range []int{28 + p, 26 + p} {
			a.op("VPMOVZXBD %d(%s), Z31", 16*i, base)
			a.op("VCVTDQ2PS Z31, Z31")
			a.op("VCVTPH2PS %s, Z%d", factorsAt(p, 32*i), z)
			a.op("VMULPS Z31, Z%d, Z%d", z, z)
		}
	default:
		a.op("VPMOVSXBW (%s), Z31", base)
		if h == 0 {
			a.op("VPSLLD $16, Z31, Z31")
		}
		a.op("VPSRAD $16, Z31, Z31")
		a.op("VCVTDQ2PS Z31, Z31")
		a.op("VCVTPH2PS %s, Z%d", factorsAt(p, 0), 28+p)
		a.op("VMULPS Z31, Z%d, Z%d", 28+p, 28+p)
	}
}

// writeQuants512 writes the files of this file's kernels.
func writeQuants512() {
	for _, q := range quants {
		a := &asm{}
		a.constant("low4", 0x0f0f0f0f)
		a.constant("bit4", 0x10101010)
		a.constant("pair4", 0x30303030)
		for _, t := range int8Tiles {
			vnniQuant(a, q, t)
		}
		chooser(a, q.name+"VNNI", "int8Args", int8Tiles)
		a.write("avx512_"+q.name+"_vnni", "Products of panels of 16 outputs of "+q.typ+" with int8 activations.")
	}
}
