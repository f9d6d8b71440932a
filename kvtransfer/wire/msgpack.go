package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// The few msgpack values that messages are made of (https://github.com/msgpack/msgpack/blob/master/spec.md): arrays, byte
// strings, texts, whole numbers, truth values and 32-bit floats. Lengths and numbers are written in their shortest form.

// appendLen opens a text, byte string or array: up to most it is one byte, short | n, if there is such a form; else the first
// byte of forms whose length has enough bytes, 0 for none.
func appendLen(b []byte, n int, short byte, most int, forms [3]byte) []byte {
	switch {
	case n <= most:
		return append(b, short|byte(n))
	case n <= math.MaxUint8 && forms[0] != 0:
		return append(b, forms[0], byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, forms[1]), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, forms[2]), uint32(n))
}

func appendArray(b []byte, n int) []byte {
	return appendLen(b, n, 0x90, 15, [3]byte{0, 0xdc, 0xdd})
}

func appendBytes(b, p []byte) []byte {
	return append(appendLen(b, len(p), 0, -1, [3]byte{0xc4, 0xc5, 0xc6}), p...)
}

func appendText(b []byte, s string) []byte {
	return append(appendLen(b, len(s), 0xa0, 31, [3]byte{0xd9, 0xda, 0xdb}), s...)
}

func appendUint(b []byte, n uint64) []byte {
	switch {
	case n <= math.MaxInt8:
		return append(b, byte(n))
	case n <= math.MaxUint8:
		return append(b, 0xcc, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcf), n)
}

func appendInt(b []byte, n int64) []byte {
	switch {
	case n >= 0:
		return appendUint(b, uint64(n))
	case n >= -32:
		return append(b, byte(n))
	case n >= math.MinInt8:
		return append(b, 0xd0, byte(n))
	case n >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(b, 0xd1), uint16(n))
	case n >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(b, 0xd2), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(n))
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 0xc3)
	}
	return append(b, 0xc2)
}

func appendFloat(b []byte, v float32) []byte {
	return binary.BigEndian.AppendUint32(append(b, 0xca), math.Float32bits(v))
}

var errCut = errors.New("the bytes end")

// values are the bytes of a body that are still to be read. A length longer than the shortest form is read as well: read
// compares the whole afterwards.
type values []byte

// take gives the next n bytes, which share memory.
func (v *values) take(n int) ([]byte, error) {
	if n < 0 || n > len(*v) {
		return nil, errCut
	}
	b := (*v)[:n:n]
	*v = (*v)[n:]
	return b, nil
}

// big reads a big-endian number of 1, 2, 4 or 8 bytes.
func (v *values) big(width int) (n uint64, err error) {
	b, err := v.take(width)
	for _, x := range b {
		n = n<<8 | uint64(x)
	}
	return n, err
}

func (v *values) first() (byte, error) {
	b, err := v.take(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// length reads what appendLen writes.
func (v *values) length(short, mask byte, forms [3]byte) (int, error) {
	c, err := v.first()
	if err != nil {
		return 0, err
	}
	if mask != 0 && c&^mask == short {
		return int(c & mask), nil
	}
	for i, form := range forms {
		if form != 0 && c == form {
			n, err := v.big(1 << i)
			return int(n), err
		}
	}
	return 0, fmt.Errorf("value %#x", c)
}

func (v *values) array() (int, error) { return v.length(0x90, 15, [3]byte{0, 0xdc, 0xdd}) }
func (v *values) bytes() (int, error) { return v.length(0, 0, [3]byte{0xc4, 0xc5, 0xc6}) }
func (v *values) text() (int, error)  { return v.length(0xa0, 31, [3]byte{0xd9, 0xda, 0xdb}) }

// whole reads a number; big says that it is one of 64 bits without sign above math.MaxInt64.
func (v *values) whole() (n int64, big bool, err error) {
	c, err := v.first()
	if err != nil {
		return 0, false, err
	}
	switch {
	case c <= 0x7f || c >= 0xe0:
		return int64(int8(c)), false, nil
	case c >= 0xcc && c <= 0xcf:
		u, err := v.big(1 << (c - 0xcc))
		return int64(u), u > math.MaxInt64, err
	case c >= 0xd0 && c <= 0xd3:
		u, err := v.big(1 << (c - 0xd0))
		shift := 64 - 8<<(c-0xd0) // the sign is the first bit of the form
		return int64(u<<shift) >> shift, false, err
	}
	return 0, false, fmt.Errorf("value %#x", c)
}

func (v *values) flag() (bool, error) {
	c, err := v.first()
	if err == nil && c != 0xc2 && c != 0xc3 {
		err = fmt.Errorf("value %#x", c)
	}
	return c == 0xc3, err
}

func (v *values) float() (float32, error) {
	c, err := v.first()
	if err == nil && c != 0xca {
		err = fmt.Errorf("value %#x", c)
	}
	if err != nil {
		return 0, err
	}
	n, err := v.big(4)
	return math.Float32frombits(uint32(n)), err
}
