package device

import (
	"fmt"

	"quire/kvtransfer/page"
)

// Device computes. Its methods may be called from any goroutine.
type Device interface {
	// Info never changes during the life of the device.
	Info() Info
	// Buffer makes working memory of rows x cols float32, all zero.
	Buffer(rows, cols int) (Buffer, error)
	// Upload writes src into consecutive rows of b, from row on; len(src) is a multiple of the columns.
	Upload(b Buffer, row int, src []float32) error
	// Matrix packs weights: rows x cols numbers of type t, row after row, little endian, blocks along a row. src is not kept.
	Matrix(t Type, rows, cols int, src []byte) (Matrix, error)
	// Pool makes a pool of pages, all zero.
	Pool(s PoolSpec) (Pool, error)
	// Run checks the step, queues it, and returns when it has ended. After an error of the check nothing was written.
	Run(s *Step) error
	// Close waits for queued steps, stops the workers and frees all memory. Nothing made by the device may be used afterwards.
	Close() error
}

// Info describes a device.
type Info struct {
	Backend string // "cpu"
	Variant string // which kernels
	Version int    // of the kernels' arithmetic: grows when result bits change
	Arch    string // GOARCH
	// Activations is how activations enter a product with quantised weights: "f32" or "int8".
	Activations string
	Threads     int // 0: not a matter of threads
}

// Buffer is working memory: [Rows, Cols] float32.
type Buffer interface {
	Rows() int
	Cols() int
}

// Matrix is weights packed for the device. A product maps Cols inputs to Rows outputs.
type Matrix interface {
	Type() Type
	Rows() int
	Cols() int
	// Bytes is how much device memory it takes.
	Bytes() int
}

// Range is a run of layers and a run of rows, both half open.
type Range struct {
	LayerFrom, LayerTo int
	RowFrom, RowTo     int
}

// PoolSpec describes a pool of pages.
type PoolSpec struct {
	Number   uint64 // the ledger's; not zero
	Pages    int
	PageSize int // token slots of a page
	Layers   int
	KVHeads  int
	HeadDim  int  // a multiple of 8
	Type     Type // F16, F32 or, where HeadDim is a multiple of 32, Q8_0
}

// RowBytes is what one row of one layer takes in a frame: 2 * KVHeads * HeadDim numbers.
func (s PoolSpec) RowBytes() int {
	n, _ := s.Type.RowBytes(s.HeadDim)
	return 2 * s.KVHeads * n
}

// Check says whether a pool can be made so.
func (s PoolSpec) Check() error {
	switch {
	case s.Number == 0:
		return fmt.Errorf("device: pool: number 0 is nobody's")
	case s.Pages < 1 || s.PageSize < 1 || s.Layers < 1 || s.KVHeads < 1 || s.HeadDim < 1:
		return fmt.Errorf("device: pool: pages %d of %d rows, layers %d, heads %d of %d", s.Pages, s.PageSize, s.Layers, s.KVHeads, s.HeadDim)
	case s.HeadDim%8 != 0:
		return fmt.Errorf("device: pool: head size %d is no multiple of 8", s.HeadDim)
	case s.Type == Q8_0 && s.HeadDim%32 != 0:
		return fmt.Errorf("device: pool: keys and values of type Q8_0 need heads of a multiple of 32, these are of %d", s.HeadDim)
	case s.Type != F16 && s.Type != F32 && s.Type != Q8_0:
		return fmt.Errorf("device: pool: keys and values of type %s, F16, F32 and Q8_0 are possible", s.Type)
	}
	return nil
}

// Pool is page memory. Its methods copy at once, beside a running step: that nobody else uses the rows is what views, grants
// and the ledger's states are for.
type Pool interface {
	Spec() PoolSpec
	// Read appends the rows to dst in the order of a frame. The view must cover them.
	Read(v page.View, r Range, dst []byte) ([]byte, error)
	// Write copies the bytes of a frame into the rows. The grant must cover them.
	Write(g page.Grant, r Range, src []byte) error
	// Zero clears whole pages.
	Zero(pages []page.ID) error
	// NonZero is the first of these pages that holds anything but zeros, or -1.
	NonZero(pages []page.ID) int
	// Free gives the memory back. No step or call may use the pool any more.
	Free()
}

// Type is how numbers are stored.
type Type uint8

// The types of weights; F16, F32 and Q8_0 are also those of keys and values.
const (
	F32  Type = iota + 1
	F16       // IEEE half
	BF16      // upper half of an F32
	Q8_0      // blocks of 32: F16 scale, 32 int8
	Q4_0      // blocks of 32: F16 scale, 16 bytes of nibbles less 8 (low nibbles first, then high)
	Q4_1      // blocks of 32: F16 scale, F16 minimum, 16 bytes of nibbles
	Q5_0      // blocks of 32: F16 scale, 32 fifth bits, 16 bytes of nibbles; less 16
	Q5_1      // blocks of 32: F16 scale, F16 minimum, 32 fifth bits, 16 bytes of nibbles
	Q4_K      // blocks of 256: two F16 factors, 8 scales and minima of 6 bits, 128 bytes of nibbles
	Q5_K      // blocks of 256: the same with 256 fifth bits
	Q6_K      // blocks of 256: 128 bytes of nibbles, 256 pairs of high bits, 16 int8 scales, F16 factor; less 32
)

var types = [...]struct {
	name         string
	elems, bytes int
}{
	F32: {"F32", 1, 4}, F16: {"F16", 1, 2}, BF16: {"BF16", 1, 2}, Q8_0: {"Q8_0", 32, 34}, Q4_0: {"Q4_0", 32, 18}, Q4_1: {"Q4_1", 32, 20},
	Q5_0: {"Q5_0", 32, 22}, Q5_1: {"Q5_1", 32, 24}, Q4_K: {"Q4_K", 256, 144}, Q5_K: {"Q5_K", 256, 176}, Q6_K: {"Q6_K", 256, 210},
}

// Valid says whether t is one of the types above.
func (t Type) Valid() bool { return t >= F32 && int(t) < len(types) }

// Quantised says whether t stores blocks of small integers with scales.
func (t Type) Quantised() bool { return t >= Q8_0 }

// Block is how many numbers a block holds and how many bytes it takes; (1, n) for plain types, (0, 0) for an unknown one.
func (t Type) Block() (numbers, bytes int) {
	if !t.Valid() {
		return 0, 0
	}
	return types[t].elems, types[t].bytes
}

// String gives the name as GGUF spells it.
func (t Type) String() string {
	if !t.Valid() {
		return fmt.Sprintf("type(%d)", uint8(t))
	}
	return types[t].name
}

// RowBytes is how many bytes a row of cols numbers takes, or an error when cols is no whole number of blocks.
func (t Type) RowBytes(cols int) (int, error) {
	if !t.Valid() || cols < 1 || cols%types[t].elems != 0 {
		return 0, fmt.Errorf("device: a row of %d numbers of type %s", cols, t)
	}
	return cols / types[t].elems * types[t].bytes, nil
}

// Factors is where in a block of a quantised type the F16 factors are: the scale, or what scales it, then that of the minimum.
// Every other byte of a block may be anything.
func Factors(t Type) []int {
	switch t {
	case Q8_0, Q4_0, Q5_0:
		return []int{0}
	case Q4_1, Q5_1, Q4_K, Q5_K:
		return []int{0, 2}
	case Q6_K:
		return []int{208}
	}
	return nil
}

// KVType gives the type of keys and values by its name in flags: f16 ("" too), f32 or q8_0.
func KVType(name string) (Type, error) {
	switch name {
	case "", "f16":
		return F16, nil
	case "f32":
		return F32, nil
	case "q8_0":
		return Q8_0, nil
	}
	return 0, fmt.Errorf("device: keys and values of type %q: f16, f32 and q8_0 are possible", name)
}
