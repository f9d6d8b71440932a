package main

import "fmt"

// blockShape is a type of weights with blocks of 32 columns: where things are in a block of a panel, and how groups of 4 columns
// become unsigned bytes.
type blockShape struct {
	name, typ string
	head      int    // bytes of scales (16 F16) and minima before the weights
	bytes     int    // of a block
	correct   int    // where a block of activations holds the i32 that takes the offset of unsigned weights back; 0: none
	mask      uint32 // what load needs in Z30
	steps     int
	// load brings the vectors of step j from a panel at base into registers z and up, and says which columns they are.
	load func(a *asm, base string, j, z int) (columns []int)
}

// minima says whether a block has them.
func (s *blockShape) minima() bool { return s.head == 64 }

var blockShapes = []*blockShape{
	{name: "q8", typ: "Q8_0", head: 32, bytes: 544, correct: actLess128, mask: 0x80808080, steps: 8, load: loadBytes},
	{name: "q40", typ: "Q4_0", head: 32, bytes: 288, correct: actLess8, mask: 0x0f0f0f0f, steps: 4, load: loadNibbles(32)},
	{name: "q41", typ: "Q4_1", head: 64, bytes: 320, mask: 0x0f0f0f0f, steps: 4, load: loadNibbles(64)},
}

// loadBytes makes signed bytes unsigned by adding 128.
func loadBytes(a *asm, base string, j, z int) []int {
	a.op("VPXORD %d(%s), Z30, Z%d", 32+64*j, base, z)
	return []int{4 * j}
}

func loadNibbles(head int) func(*asm, string, int, int) []int {
	return func(a *asm, base string, j, z int) []int {
		a.op("VMOVDQU32 %d(%s), Z%d", head+64*j, base, z)
		a.op("VPSRLW $4, Z%d, Z%d", z, z+1)
		a.op("VPANDD Z30, Z%d, Z%d", z, z)
		a.op("VPANDD Z30, Z%d, Z%d", z+1, z+1)
		return []int{4 * j, 16 + 4*j}
	}
}

// vnniTile is a product of int8 activations with VPDPBUSD: unsigned weights times signed activations, four at a time into 32 bits.
// Beside the sums, Z(sums+i) are integers of the block; Z24 to Z27 weights; Z28 and Z29 scales; Z31 an activation, broadcast.
func vnniTile(a *asm, s *blockShape, t tile) {
	a.fn(fmt.Sprintf("%s of %s, K in ascending blocks of 32", t.doc(), s.typ), t.name(s.name+"VNNI"), "(a *int8Args)", 8)
	a.op("MOVQ a+0(FP), R15")
	a.op("MOVQ 0(R15), AX")
	a.op("MOVQ 8(R15), R14")
	a.op("MOVQ 16(R15), DI")
	a.op("MOVQ 24(R15), CX")
	a.op("MOVQ 32(R15), SI")
	a.op("MOVQ 48(R15), R13")
	a.op("MOVL $%#x, DX", s.mask)
	a.op("VPBROADCASTD DX, Z30")
	a.label("panel")
	t.firstRows(a)
	a.op("MOVQ 40(R15), R9")
	if t.panels == 2 {
		a.op("IMUL3Q $%d, R9, R12", s.bytes)
		a.op("ADDQ AX, R12")
	}
	t.zero(a)
	a.label("loop")
	vnniBlock(a, s, t)
	a.op("ADDQ $%d, AX", s.bytes)
	if t.panels == 2 {
		a.op("ADDQ $%d, R12", s.bytes)
	}
	t.nextRows(a, actBlock)
	a.op("DECQ R9")
	a.op("JNZ loop")
	t.store(a, "56(R15)")
	if t.panels == 2 {
		a.op("MOVQ R12, AX")
	}
	a.op("ADDQ $%d, DI", 64*t.panels)
	a.op("SUBQ $%d, R13", t.panels)
	a.op("JNZ panel")
	a.ret()
}

// vnniBlock adds one block: integers, then scales, then minima.
func vnniBlock(a *asm, s *blockShape, t tile) {
	if t.rows == 1 {
		for p := range t.panels {
			for at := 0; at < s.bytes; at += 64 {
				a.op("PREFETCHT0 %d(%s)", prefetchAhead+at, weightBase(p))
			}
		}
	}
	ints := t.sums()
	for i := range t.sums() {
		if s.correct == 0 {
			a.op("VPXORD Z%d, Z%d, Z%d", ints+i, ints+i, ints+i)
		} else {
			a.op("VPBROADCASTD %s, Z%d", rowAt(i/t.panels, s.correct), ints+i)
		}
	}
	for j := range s.steps {
		var columns []int
		for p := range t.panels {
			columns = s.load(a, weightBase(p), j, 24+p*8/s.steps)
		}
		for v, column := range columns {
			for r := range t.rows {
				if t.panels == 1 {
					a.op("VPDPBUSD.BCST %s, Z%d, Z%d", rowAt(r, column), 24+v, ints+r)
					continue
				}
				a.op("VPBROADCASTD %s, Z31", rowAt(r, column))
				for p := range t.panels {
					a.op("VPDPBUSD Z31, Z%d, Z%d", 24+p*8/s.steps+v, ints+r*t.panels+p)
				}
			}
		}
	}
	scaleInts(a, s, t)
}

// scaleInts multiplies the integers by both scales and adds them to the sums; minima go with the sum of the activations.
func scaleInts(a *asm, s *blockShape, t tile) {
	for p := range t.panels {
		a.op("VCVTPH2PS (%s), Z%d", weightBase(p), 28+p)
		if s.minima() {
			a.op("VCVTPH2PS 32(%s), Z%d", weightBase(p), 26+p)
		}
	}
	for r := range t.rows {
		a.op("VBROADCASTSS %s, Z31", rowAt(r, actScale))
		for p := range t.panels {
			sum := r*t.panels + p
			a.op("VMULPS Z31, Z%d, Z24", 28+p)
			a.op("VCVTDQ2PS Z%d, Z%d", t.sums()+sum, t.sums()+sum)
			a.op("VFMADD231PS Z24, Z%d, Z%d", t.sums()+sum, sum)
		}
		if !s.minima() {
			continue
		}
		a.op("VBROADCASTSS %s, Z31", rowAt(r, actSum))
		for p := range t.panels {
			a.op("VFMADD231PS Z31, Z%d, Z%d", 26+p, r*t.panels+p)
		}
	}
}
