package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Limits on what a header may hold, far above what models have.
const (
	maxPairs    = 1 << 16
	maxTensors  = 1 << 16
	maxString   = 16 << 20 // bytes
	maxElements = 1 << 23  // of all arrays together
	maxDepth    = 2        // arrays within arrays
)

// cursor reads the header. After the first error every read gives zero.
type cursor struct {
	b        []byte
	at       int
	elements int // of arrays, so far
	err      error
}

func (c *cursor) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

func (c *cursor) left() int { return len(c.b) - c.at }

func (c *cursor) take(n int, what string) []byte {
	if c.err != nil {
		return nil
	}
	if n < 0 || n > c.left() {
		c.fail("%s at byte %d takes %d bytes, the file has %d left", what, c.at, n, c.left())
		return nil
	}
	b := c.b[c.at : c.at+n]
	c.at += n
	return b
}

func (c *cursor) u32(what string) uint32 {
	if b := c.take(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64(what string) uint64 {
	if b := c.take(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// count reads a u64 that says how many things of at least size bytes follow, at most limit.
func (c *cursor) count(what string, size, limit int) int {
	n := c.u64(what)
	if c.err != nil {
		return 0
	}
	if n > uint64(limit) {
		c.fail("%s: %d, at most %d are possible", what, n, limit)
		return 0
	}
	if n > uint64(c.left()/size) {
		c.fail("%s: %d of at least %d bytes each, the file has %d bytes left", what, n, size, c.left())
		return 0
	}
	return int(n)
}

func (c *cursor) str(what string) string {
	n := c.count(what+" length", 1, maxString)
	return string(c.take(n, what))
}

// The value types of GGUF.
const (
	typeU8 = iota
	typeI8
	typeU16
	typeI16
	typeU32
	typeI32
	typeF32
	typeBool
	typeString
	typeArray
	typeU64
	typeI64
	typeF64
)

var sizes = map[uint32]int{
	typeU8: 1, typeI8: 1, typeU16: 2, typeI16: 2, typeU32: 4, typeI32: 4, typeF32: 4, typeBool: 1,
	typeString: 8, typeArray: 12, typeU64: 8, typeI64: 8, typeF64: 8,
}

// value reads one value: int64, uint64 (above the largest int64 only), float64, bool, string, or an array of these.
func (c *cursor) value(key string, t uint32, depth int) any {
	switch t {
	case typeString:
		return c.str(key)
	case typeArray:
		return c.array(key, depth)
	}
	size, ok := sizes[t]
	if !ok {
		c.fail("%s: unknown value type %d at byte %d, 0 to 12 are possible", key, t, c.at)
		return nil
	}
	return scalar(t, c.take(size, key))
}

func scalar(t uint32, b []byte) any {
	if b == nil {
		return nil
	}
	le := binary.LittleEndian
	switch t {
	case typeU8:
		return int64(b[0])
	case typeI8:
		return int64(int8(b[0]))
	case typeU16:
		return int64(le.Uint16(b))
	case typeI16:
		return int64(int16(le.Uint16(b)))
	case typeU32:
		return int64(le.Uint32(b))
	case typeI32:
		return int64(int32(le.Uint32(b)))
	case typeF32:
		return float64(math.Float32frombits(le.Uint32(b)))
	case typeBool:
		return b[0] != 0
	case typeU64:
		if n := le.Uint64(b); n > math.MaxInt64 {
			return n
		}
		return int64(le.Uint64(b))
	case typeI64:
		return int64(le.Uint64(b))
	default:
		return math.Float64frombits(le.Uint64(b))
	}
}

// array reads []string, []int64, []float64, []bool, or []any of arrays.
func (c *cursor) array(key string, depth int) any {
	t := c.u32(key)
	size, ok := sizes[t]
	if c.err == nil && !ok {
		c.fail("%s: unknown element type %d at byte %d", key, t, c.at)
	}
	if c.err == nil && t == typeArray && depth+1 >= maxDepth {
		c.fail("%s: arrays nested deeper than %d", key, maxDepth)
	}
	n := c.count(key+" length", max(1, size), maxElements-c.elements)
	if c.err != nil {
		return nil
	}
	c.elements += n
	switch t {
	case typeString:
		return collect[string](c, key, t, n, depth)
	case typeF32, typeF64:
		return collect[float64](c, key, t, n, depth)
	case typeBool:
		return collect[bool](c, key, t, n, depth)
	case typeArray:
		return collect[any](c, key, t, n, depth)
	}
	return collect[int64](c, key, t, n, depth)
}

func collect[T any](c *cursor, key string, t uint32, n, depth int) []T {
	out := make([]T, 0, n)
	for range n {
		v, ok := c.value(key, t, depth+1).(T)
		if c.err != nil {
			return nil
		}
		if !ok {
			c.fail("%s: element %d does not fit", key, len(out))
			return nil
		}
		out = append(out, v)
	}
	return out
}
