// Package tensor names the element types that weights are stored in, and describes one stored tensor.
package tensor

import (
	"fmt"
	"math"
	"strings"
)

// Type is how the numbers of a tensor are stored.
type Type uint8

// The types that load. The quantised ones are GGUF's: blocks of 32 or 256 numbers along a row.
const (
	F32  Type = iota + 1
	F16       // IEEE half
	BF16      // upper half of an F32
	Q8_0      // F16 scale, 32 int8
	Q4_0      // F16 scale, 16 bytes of nibbles less 8
	Q4_1      // F16 scale, F16 minimum, 16 bytes of nibbles
	Q5_0      // F16 scale, 32 fifth bits, 16 bytes of nibbles; less 16
	Q5_1      // F16 scale, F16 minimum, 32 fifth bits, 16 bytes of nibbles
	Q4_K      // 256 numbers: two F16 factors, 8 scales and minima of 6 bits, 128 bytes of nibbles
	Q5_K      // 256 numbers: the same with 256 fifth bits
	Q6_K      // 256 numbers: 128 bytes of nibbles, 64 of pairs of high bits, 16 int8 scales, F16 factor; less 32
)

var types = [...]struct {
	name  string
	elems int // numbers of a block
	bytes int // bytes of a block
}{
	F32:  {"F32", 1, 4},
	F16:  {"F16", 1, 2},
	BF16: {"BF16", 1, 2},
	Q8_0: {"Q8_0", 32, 34},
	Q4_0: {"Q4_0", 32, 18},
	Q4_1: {"Q4_1", 32, 20},
	Q5_0: {"Q5_0", 32, 22},
	Q5_1: {"Q5_1", 32, 24},
	Q4_K: {"Q4_K", 256, 144},
	Q5_K: {"Q5_K", 256, 176},
	Q6_K: {"Q6_K", 256, 210},
}

// Valid says whether t is one of the types above.
func (t Type) Valid() bool { return t >= F32 && int(t) < len(types) }

// String gives the name as GGUF and safetensors spell it.
func (t Type) String() string {
	if !t.Valid() {
		return fmt.Sprintf("type(%d)", uint8(t))
	}
	return types[t].name
}

// Block is how many numbers a block holds and how many bytes it takes; (1, n) for plain types.
func (t Type) Block() (elems, bytes int) {
	if !t.Valid() {
		return 0, 0
	}
	return types[t].elems, types[t].bytes
}

// RowBytes is how many bytes a row of cols numbers takes, or an error when cols is no whole number of blocks.
func (t Type) RowBytes(cols int) (int, error) {
	elems, bytes := t.Block()
	if elems == 0 {
		return 0, fmt.Errorf("tensor: unknown type %d", uint8(t))
	}
	if cols < 0 || cols%elems != 0 {
		return 0, fmt.Errorf("tensor: row of %d numbers is no whole number of %s blocks of %d", cols, t, elems)
	}
	if cols/elems > math.MaxInt/bytes {
		return 0, fmt.Errorf("tensor: row of %d numbers is too long", cols)
	}
	return cols / elems * bytes, nil
}

// Supported lists the types for error messages.
func Supported() string {
	names := make([]string, 0, len(types))
	for t := F32; t.Valid(); t++ {
		names = append(names, t.String())
	}
	return strings.Join(names, ", ")
}

// Tensor is one stored tensor. Shape is outermost first, so a matrix is [rows, cols] with the numbers of a row next to each
// other; a matrix product maps cols inputs to rows outputs. Data is little endian and borrowed from the file's mapping.
type Tensor struct {
	Name  string
	Type  Type
	Shape []int
	Data  []byte // Invariant: len(Data) = Size(Type, Shape)
}

// Rows is the product of all dimensions but the last.
func (t Tensor) Rows() int {
	rows := 1
	for _, d := range t.Shape[:max(0, len(t.Shape)-1)] {
		rows *= d
	}
	return rows
}

// Cols is the last dimension, 0 for a tensor without any.
func (t Tensor) Cols() int {
	if len(t.Shape) == 0 {
		return 0
	}
	return t.Shape[len(t.Shape)-1]
}

// Size is how many bytes a tensor takes. It refuses zero and negative dimensions, more than four of them, and sizes that do
// not fit an int.
func Size(t Type, shape []int) (int, error) {
	if len(shape) == 0 || len(shape) > 4 {
		return 0, fmt.Errorf("tensor: %d dimensions, 1 to 4 are possible", len(shape))
	}
	size, err := t.RowBytes(shape[len(shape)-1])
	if err != nil {
		return 0, err
	}
	for i, d := range shape {
		if d <= 0 {
			return 0, fmt.Errorf("tensor: dimension %d of %v is not positive", i, shape)
		}
		if i == len(shape)-1 {
			break
		}
		if size > math.MaxInt/d {
			return 0, fmt.Errorf("tensor: shape %v takes more bytes than can be counted", shape)
		}
		size *= d
	}
	return size, nil
}
