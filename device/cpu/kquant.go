package cpu

import (
	"encoding/binary"
	"unsafe"

	"quire/device"
)

// The types of five and six bits, and those whose scales come in two steps (the K types). In a panel, by type; nibbles as Q4_0:
//
//	Q5_0  32 columns: [16] f16 scale, fifth bits, nibbles
//	Q5_1  32 columns: [16] f16 scale, [16] f16 minimum, fifth bits, nibbles
//	Q4_K  256 columns: [16] f16 factor of scales, [16] f16 factor of minima,
//	      then 8 runs of 32 columns: [16] u8 scale, [16] u8 minimum, nibbles
//	Q5_K  the same, with fifth bits before the nibbles
//	Q6_K  256 columns: [16] f16 factor, then 8 runs: [16][2] int8 scale of columns 0 to 15 and 16 to 31, high bits, nibbles
//
// Fifth bits are [16][4] bytes: bit g of byte b belongs to column 4g+b, bit 4+g to column 16+4g+b. High bits are [2][16][4]
// bytes: bits 2g and 2g+1 of byte b of half h belong to column 16h+4g+b. Nothing is rounded: a panel holds what the file does.

// superCols is how many columns a block of a K type has.
const superCols = 256

// bitsShape is where the parts of a block are, in bytes.
type bitsShape struct {
	factors int // of two-step scales, before 8 runs of 32 columns; 0: one run, which has its scale in itself
	high    int // where a run's fifth or high bits begin
	nibbles int // where its nibbles begin
	run     int // bytes of a run of 32 columns
	bits    int // of a weight
	less    int // what is taken off a weight
	minimum bool
}

var (
	shapeQ50 = bitsShape{high: 32, nibbles: 96, run: 352, bits: 5, less: 16}
	shapeQ51 = bitsShape{high: 64, nibbles: 128, run: 384, bits: 5, minimum: true}
	shapeQ4K = bitsShape{factors: 64, high: 32, nibbles: 32, run: 288, bits: 4, minimum: true}
	shapeQ5K = bitsShape{factors: 64, high: 32, nibbles: 96, run: 352, bits: 5, minimum: true}
	shapeQ6K = bitsShape{factors: 32, high: 32, nibbles: 160, run: 416, bits: 6, less: 32}
)

// format is the entry of formats for a type of this shape.
func (s bitsShape) format(t device.Type) format {
	f := format{bytes: s.factors + s.runs()*s.run, unpack: s.unpack, product: s.product}
	f.cols, f.rowBytes = t.Block()
	switch {
	case s.factors == 0:
		f.pack = s.packQ5
	case s.bits == 6:
		f.pack = s.packQ6K
	default:
		f.pack = s.packQ45K
	}
	return f
}

// runs is how many runs of 32 columns a block has.
func (s bitsShape) runs() int {
	if s.factors > 0 {
		return 8
	}
	return 1
}

// of is run i of a block.
func (s bitsShape) of(block []byte, i int) []byte { return block[s.factors+i*s.run:][:s.run] }

const (
	lowNibbles = 0x0f0f0f0f
	lowBits    = 0x01010101
	lowPairs   = 0x03030303
)

func word(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }

func putWord(b []byte, w uint32) { binary.LittleEndian.PutUint32(b, w) }

// packQ5 places a block of Q5_0 or Q5_1: f16 scale, (f16 minimum,) u32 of fifth bits, 16 bytes of nibbles.
func (s bitsShape) packQ5(dst, src []byte, lane int) {
	copy(dst[lane*2:][:2], src)
	at := 2
	if s.minimum {
		copy(dst[32+lane*2:][:2], src[2:])
		at = 4
	}
	bits, fifth := word(src[at:]), uint32(0)
	for g := range 4 {
		fifth |= spread(bits>>(4*g)&15)<<g | spread(bits>>(16+4*g)&15)<<(4+g)
		putWord(dst[s.nibbles+(g*panelRows+lane)*4:], word(src[at+4+4*g:]))
	}
	putWord(dst[s.high+lane*4:], fifth)
}

// spread puts bit b of four into byte b.
func spread(x uint32) uint32 { return (x | x<<7 | x<<14 | x<<21) & lowBits }

// packQ45K places a block of Q4_K or Q5_K: f16 factor of scales, f16 factor of minima, 12 bytes of scales and minima, (32 bytes
// of fifth bits, bit i of byte c for column c of run i,) 128 bytes of nibbles: low ones for even runs, high ones for odd.
func (s bitsShape) packQ45K(dst, src []byte, lane int) {
	copy(dst[lane*2:][:2], src)
	copy(dst[32+lane*2:][:2], src[2:])
	fifths, q := src[16:], src[len(src)-128:]
	for i := range 8 {
		d := s.of(dst, i)
		d[lane], d[16+lane] = scaleMin(src[4:16], i)
		if s.bits == 5 {
			fifth := uint32(0)
			for g := range 4 {
				fifth |= (word(fifths[4*g:])>>i&lowBits)<<g | (word(fifths[16+4*g:])>>i&lowBits)<<(4+g)
			}
			putWord(d[s.high+lane*4:], fifth)
		}
		s.putNibbles(d, q[i/2*32:], lane, i%2*4)
	}
}

// putNibbles places the nibbles, 4 bits each at shift, of 32 columns.
func (s bitsShape) putNibbles(dst, src []byte, lane, shift int) {
	for g := range 4 {
		w := word(src[4*g:])>>shift&lowNibbles | word(src[16+4*g:])>>shift&lowNibbles<<4
		putWord(dst[s.nibbles+(g*panelRows+lane)*4:], w)
	}
}

// scaleMin gives scale and minimum b of 8, 6 bits each: the first four in whole bytes, the upper two bits of those bytes going
// to the other four.
func scaleMin(p []byte, b int) (scale, minimum byte) {
	if b < 4 {
		return p[b] & 63, p[b+4] & 63
	}
	return p[b+4]&15 | p[b-4]>>6<<4, p[b+4]>>4 | p[b]>>6<<4
}

// packQ6K places a block of Q6_K: 128 bytes of nibbles, 64 of high bits, 16 int8 scales, f16 factor.
func (s bitsShape) packQ6K(dst, src []byte, lane int) {
	copy(dst[lane*2:][:2], src[208:])
	for i := range 8 {
		d, half, part := s.of(dst, i), i/4, i%4
		high := src[128+half*32:]
		copy(d[lane*2:][:2], src[192+i*2:])
		for h := range 2 {
			pairs := uint32(0)
			for g := range 4 {
				pairs |= word(high[h*16+4*g:]) >> (2 * part) & lowPairs << (2 * g)
			}
			putWord(d[s.high+(h*panelRows+lane)*4:], pairs)
		}
		s.putNibbles(d, src[half*64+part%2*32:], lane, part/2*4)
	}
}

// weights is a run's weights, before less is taken off, one a byte: [group][lane] words of columns 4g to 4g+3 and of 16+4g to
// 16+4g+3.
type weights [4][panelRows][2]uint32

// widen spreads a run's weights to bytes.
func (s bitsShape) widen(w *weights, run []byte) {
	high := run[s.high:s.nibbles]
	for g := range w {
		q := run[s.nibbles+g*panelRows*4:][:panelRows*4]
		for lane := range w[g] {
			v := word(q[lane*4:])
			w[g][lane] = [2]uint32{v & lowNibbles, v >> 4 & lowNibbles}
		}
		switch s.bits {
		case 5:
			for lane := range w[g] {
				v := word(high[lane*4:]) >> g
				w[g][lane][0] |= v & lowBits << 4
				w[g][lane][1] |= v >> 4 & lowBits << 4
			}
		case 6:
			for lane := range w[g] {
				w[g][lane][0] |= word(high[lane*4:]) >> (2 * g) & lowPairs << 4
				w[g][lane][1] |= word(high[(panelRows+lane)*4:]) >> (2 * g) & lowPairs << 4
			}
		}
	}
}

// scales gives a lane's scale of each half of a run, and its minimum. All are exact: 11 bits times at most 7.
func (s bitsShape) scales(block, run []byte, lane int) (scale [2]float32, minimum float32) {
	d := halfAt(block, lane)
	switch {
	case s.factors == 0:
		scale = [2]float32{d, d}
		if s.minimum {
			minimum = halfAt(block, panelRows+lane)
		}
	case s.minimum:
		d *= float32(run[lane])
		scale = [2]float32{d, d}
		minimum = -halfAt(block, panelRows+lane) * float32(run[16+lane])
	default:
		scale = [2]float32{d * float32(int8(run[lane*2])), d * float32(int8(run[lane*2+1]))}
	}
	return scale, minimum
}

// unpack dequantises one row of a block.
func (s bitsShape) unpack(dst []float32, block []byte, lane int) {
	var w weights
	for i := range s.runs() {
		run, d := s.of(block, i), dst[i*32:][:32]
		s.widen(&w, run)
		scale, minimum := s.scales(block, run, lane)
		for c := range d {
			v := int(w[c%16/4][lane][c/16]>>(c%4*8)&255) - s.less
			d[c] = float32(scale[c/16] * float32(v))
			if s.minimum {
				d[c] += minimum
			}
		}
	}
}

// product adds one block to the chains of 16 rows, run by run: the sum of 32 integer products (in Q6_K each half times its whole
// scale) times what is left of both scales, then the minimum times the scaled sum of the activations.
func (s bitsShape) product(acc *[panelRows]float32, w, x unsafe.Pointer) {
	block := unsafe.Slice((*byte)(w), s.factors+s.runs()*s.run)
	var wide weights
	for i := range s.runs() {
		run, x := s.of(block, i), unsafe.Add(x, i*actBlock)
		act := tailOf(x)
		s.widen(&wide, run)
		sums := wide.times((*[2][4][4]int8)(x))
		for lane := range acc {
			scale, minimum := s.scales(block, run, lane)
			first, second := sums[lane][0]-int32(s.less)*act.half[0], sums[lane][1]-int32(s.less)*act.half[1]
			total, d := first+second, scale[0]
			if s.bits == 6 {
				total, d = first*int32(int8(run[lane*2]))+second*int32(int8(run[lane*2+1])), halfAt(block, lane)
			}
			acc[lane] += float32(float32(total) * float32(d*act.scale))
			if s.minimum {
				acc[lane] += float32(minimum * act.sum)
			}
		}
	}
}

// times gives each lane's sums of products over both halves of the columns.
func (w *weights) times(x *[2][4][4]int8) (sums [panelRows][2]int32) {
	for g := range w {
		for h := range 2 {
			x0, x1, x2, x3 := int32(x[h][g][0]), int32(x[h][g][1]), int32(x[h][g][2]), int32(x[h][g][3])
			for lane := range w[g] {
				v := w[g][lane][h]
				sums[lane][h] += int32(v&255)*x0 + int32(v>>8&255)*x1 + int32(v>>16&255)*x2 + int32(v>>24)*x3
			}
		}
	}
	return sums
}
