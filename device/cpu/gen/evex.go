package main

import "fmt"

// tile is the shape of a product kernel of the AVX-512 variants: rows of activations x panels of 16 outputs.
//
// Registers of all of them: AX the first panel's weights, R12 the second's; BX, R8, R10 and R11 activation rows 0, 3, 6 and 9, CX
// their stride; DI output, SI its stride; R9 counts blocks or columns, R13 panels; R14 is the first activation row, R15 the
// arguments. Z(panels*t+p) is the sum of row t and panel p.
type tile struct{ rows, panels int }

// tiles is which products there are of floats, int8Tiles which of integers. Two panels at a time share the loads of activations; one is for
// what is left over.
var (
	tiles     = []tile{{12, 2}, {6, 2}, {4, 2}, {3, 2}, {2, 2}, {1, 2}, {4, 1}, {2, 1}, {1, 1}}
	int8Tiles = []tile{{6, 2}, {4, 2}, {3, 2}, {2, 2}, {1, 2}, {4, 1}, {2, 1}, {1, 1}}
)

func (t tile) name(prefix string) string { return fmt.Sprintf("%s%dx%d", prefix, t.rows, t.panels) }

func (t tile) doc() string { return fmt.Sprintf("%d rows x %d outputs", t.rows, 16*t.panels) }

// sums is how many vectors of sums there are.
func (t tile) sums() int { return t.rows * t.panels }

// weightBase is the register that holds the address of panel p.
func weightBase(p int) string { return [...]string{"AX", "R12"}[p] }

var rowBases = [...]string{"BX", "R8", "R10", "R11"}

// rowAt is the address of activation row t, disp bytes on.
func rowAt(t, disp int) string {
	base := rowBases[t/3]
	return fmt.Sprintf("%d(%s)%s", disp, base, [...]string{"", "(CX*1)", "(CX*2)"}[t%3])
}

// firstRows points the bases of rows at R14.
func (t tile) firstRows(a *asm) {
	a.op("MOVQ R14, BX")
	for i := 1; i < (t.rows+2)/3; i++ {
		a.op("LEAQ (%s)(CX*2), %s", rowBases[i-1], rowBases[i])
		a.op("ADDQ CX, %s", rowBases[i])
	}
}

// nextRows moves the bases of rows on.
func (t tile) nextRows(a *asm, bytes int) {
	for i := range (t.rows + 2) / 3 {
		a.op("ADDQ $%d, %s", bytes, rowBases[i])
	}
}

// zero clears the sums.
func (t tile) zero(a *asm) {
	for i := range t.sums() {
		a.op("VPXORD Z%d, Z%d, Z%d", i, i, i)
	}
}

// store writes the sums to DI, or adds them to what is there if the byte at add is set.
func (t tile) store(a *asm, add string) {
	a.op("CMPB %s, $0", add)
	a.op("JEQ store")
	t.eachOut(a, "VADDPS %[2]d(DX), Z%[1]d, Z%[1]d")
	a.label("store")
	t.eachOut(a, "VMOVUPS Z%d, %d(DX)")
}

// eachOut writes one instruction for every sum: its register and where it is from DX on.
func (t tile) eachOut(a *asm, format string) {
	a.op("MOVQ DI, DX")
	for r := range t.rows {
		for p := range t.panels {
			a.op(format, r*t.panels+p, 64*p)
		}
		if r < t.rows-1 {
			a.op("ADDQ SI, DX")
		}
	}
}

// dotBrain is VDPBF16PS: sum += pairs of weights * pairs of activations, which Go's assembler does not know.
// EVEX.512.F3.0F38.W0 52 /r, all operands registers Z0 to Z31.
func dotBrain(a *asm, sum, weights, pairs int) { evex(a, "VDPBF16PS", 0x52, sum, weights, pairs) }

// toBrain is VCVTNEPS2BF16: 16 F32 of src, rounded to 16 BF16 in dst's lower half. EVEX.512.F3.0F38.W0 72 /r.
func toBrain(a *asm, dst, src int) { evex(a, "VCVTNEPS2BF16", 0x72, dst, 0, src) }

// evex writes an instruction of map 0F38 with prefix F3 and 512 bits by its bytes.
func evex(a *asm, name string, opcode, dst, src, rm int) {
	not := func(n, bit int) int { return ^n >> bit & 1 }
	p0 := not(dst, 3)<<7 | not(rm, 4)<<6 | not(rm, 3)<<5 | not(dst, 4)<<4 | 2
	p1 := (^src&15)<<3 | 1<<2 | 2
	p2 := 2<<5 | not(src, 4)<<3
	modrm := 0xc0 | dst&7<<3 | rm&7
	a.op("BYTE $0x62; BYTE $%#02x; BYTE $%#02x; BYTE $%#02x; BYTE $%#02x; BYTE $%#02x // %s Z%d, Z%d, Z%d", p0, p1, p2, opcode, modrm, name, rm, src, dst)
}

// chooser writes the Go function that runs one of a kernel's tiles. A table of functions would force the arguments onto the heap.
func chooser(a *asm, name, args string, all []tile) {
	d := &a.decls
	fmt.Fprintf(d, "\n// %s runs the tile of so many rows and panels.\nfunc %s(a *%s, rows, panels int) {\n\tswitch {\n", name, name, args)
	for _, t := range all {
		fmt.Fprintf(d, "\tcase rows == %d && panels == %d:\n\t\t%s(a)\n", t.rows, t.panels, t.name(name))
	}
	fmt.Fprintf(d, "\tdefault:\n\t\tpanic(\"device/cpu: %s: no such tile\")\n\t}\n}\n", name)
}
