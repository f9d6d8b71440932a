package cpu

import (
	"encoding/binary"
	"unsafe"

	"quire/device"
)

// format is how a quantised type of weights lies in a panel: blocks of 16 rows x cols columns, one after another.
//
// A new type is an entry of formats. All variants compute it then, by product and unpack, without assembly; a case in a
// variant's int8Rows and dequant makes it fast.
type format struct {
	cols     int // columns of a block: a multiple of 32
	rowBytes int // of one row of a block, in a file
	bytes    int // of a block in a panel
	// pack puts one row of a block, as it is in a file, into its lane of a panel's block: [rowBytes] to [bytes].
	pack func(dst, src []byte, lane int)
	// unpack dequantises one row of a panel's block: [bytes] to [cols].
	unpack func(dst []float32, src []byte, lane int)
	// product adds one block times activations, [cols/32] blocks of actBlock bytes, to the chains of 16 rows.
	product func(acc *[panelRows]float32, w, x unsafe.Pointer)
}

// formats are the panels of quantised types:
//
//	Q8_0  [16] f16 scale, [8][16][4] int8 (group of 4 columns, row, column)
//	Q4_0  [16] f16 scale, [4][16][4] bytes: byte b of group g holds columns 4g+b (low nibble) and 16+4g+b (high)
//	Q4_1  [16] f16 scale, [16] f16 minimum, nibbles as Q4_0
//	Q5_0, Q5_1, Q4_K, Q5_K, Q6_K: see kquant.go
var formats = [...]format{
	device.Q8_0: {cols: 32, rowBytes: 34, bytes: 32 + 512, pack: packScaled, unpack: unpackQ8, product: blockQ8},
	device.Q4_0: {cols: 32, rowBytes: 18, bytes: 32 + 256, pack: packScaled, unpack: unpackQ40, product: blockQ40},
	device.Q4_1: {cols: 32, rowBytes: 20, bytes: 64 + 256, pack: packLow, unpack: unpackQ41, product: blockQ41},
	device.Q5_0: shapeQ50.format(device.Q5_0),
	device.Q5_1: shapeQ51.format(device.Q5_1),
	device.Q4_K: shapeQ4K.format(device.Q4_K),
	device.Q5_K: shapeQ5K.format(device.Q5_K),
	device.Q6_K: shapeQ6K.format(device.Q6_K),
}

// formatOf is the format of a quantised type.
func formatOf(t device.Type) *format { return &formats[t] }

// packScaled packs a block that is a scale and groups of 4 bytes.
func packScaled(dst, src []byte, lane int) {
	copy(dst[lane*2:][:2], src)
	packGroups(dst[2*panelRows:], src[2:], lane)
}

// packLow packs a block that is a scale, a minimum and groups of 4 bytes.
func packLow(dst, src []byte, lane int) {
	copy(dst[lane*2:][:2], src)
	copy(dst[2*panelRows+lane*2:][:2], src[2:])
	packGroups(dst[4*panelRows:], src[4:], lane)
}

// packGroups spreads groups of 4 bytes to their lane: dst is [groups][16][4].
func packGroups(dst, src []byte, lane int) {
	for g := range len(src) / 4 {
		putWord(dst[(g*panelRows+lane)*4:], word(src[g*4:]))
	}
}

// halfAt reads the i-th F16.
func halfAt(s []byte, i int) float32 { return device.FromF16(binary.LittleEndian.Uint16(s[i*2:])) }

func unpackQ8(dst []float32, src []byte, lane int) {
	scale := halfAt(src, lane)
	for c := range dst {
		dst[c] = scale * float32(int8(src[32+(c/4*panelRows+lane)*4+c%4]))
	}
}

func unpackQ40(dst []float32, src []byte, lane int) {
	scale := halfAt(src, lane)
	for c := range dst {
		dst[c] = scale * float32(nibble(src[32:], lane, c)-8)
	}
}

func unpackQ41(dst []float32, src []byte, lane int) {
	scale, low := halfAt(src, lane), halfAt(src, panelRows+lane)
	for c := range dst {
		dst[c] = float32(scale*float32(nibble(src[64:], lane, c))) + low
	}
}

// nibble is column c of a lane in a block of nibbles.
func nibble(s []byte, lane, c int) int {
	b := s[(c%16/4*panelRows+lane)*4+c%4]
	return int(b >> (c / 16 * 4) & 15)
}
