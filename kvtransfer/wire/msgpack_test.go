package wire

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// TestMsgpack compares what is written with what the library writes of it, and reads it back.
func TestMsgpack(t *testing.T) {
	same := func(name string, ours []byte, encode func(*msgpack.Encoder) error) {
		t.Helper()
		var b bytes.Buffer
		e := msgpack.NewEncoder(&b)
		e.UseCompactInts(true)
		if err := encode(e); err != nil || !bytes.Equal(ours, b.Bytes()) {
			t.Errorf("%s: %x, the library writes %x, %v", name, ours[:min(len(ours), 20)], b.Bytes()[:min(b.Len(), 20)], err)
		}
	}
	read := func(name string, ours []byte, want any, one func(*values) (any, error)) {
		t.Helper()
		v := values(ours)
		if got, err := one(&v); err != nil || got != want || len(v) != 0 {
			t.Errorf("%s: reads %v, want %v, %d bytes left, %v", name, got, want, len(v), err)
		}
		for n := range min(len(ours), 9) {
			v := values(ours[:n])
			if got, err := one(&v); err == nil && n < len(ours) {
				t.Errorf("%s: reads %v of the first %d bytes", name, got, n)
			}
		}
	}
	for _, n := range []int64{0, 1, 127, 128, 255, 256, 65535, 65536, 1<<32 - 1, 1 << 32, math.MaxInt64, -1, -32, -33, -128, -129, -32768, -32769,
		math.MinInt32, math.MinInt32 - 1, math.MinInt64} {
		same("int", appendInt(nil, n), func(e *msgpack.Encoder) error { return e.EncodeInt(n) })
		read("int", appendInt(nil, n), n, func(v *values) (any, error) { n, _, err := v.whole(); return n, err })
		same("uint", appendUint(nil, uint64(n)), func(e *msgpack.Encoder) error { return e.EncodeUint(uint64(n)) })
		read("uint", appendUint(nil, uint64(n)), uint64(n), func(v *values) (any, error) {
			got, big, err := v.whole()
			if err == nil && big != (n < 0) {
				t.Errorf("uint %d: big %t", uint64(n), big)
			}
			return uint64(got), err
		})
	}
	for _, n := range []int{0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536} {
		same("array", appendArray(nil, n), func(e *msgpack.Encoder) error { return e.EncodeArrayLen(n) })
		read("array", appendArray(nil, n), n, func(v *values) (any, error) { return v.array() })
		text := strings.Repeat("x", n)
		same("bytes", appendBytes(nil, []byte(text)), func(e *msgpack.Encoder) error { return e.EncodeBytes([]byte(text)) })
		same("text", appendText(nil, text), func(e *msgpack.Encoder) error { return e.EncodeString(text) })
		run := func(length func(*values) (int, error)) func(*values) (any, error) {
			return func(v *values) (any, error) {
				n, err := length(v)
				if err != nil {
					return "", err
				}
				b, err := v.take(n)
				return string(b), err
			}
		}
		read("bytes", appendBytes(nil, []byte(text)), text, run((*values).bytes))
		read("text", appendText(nil, text), text, run((*values).text))
	}
	for _, f := range []float32{0, float32(math.Copysign(0, -1)), 1.5, -math.MaxFloat32, float32(math.Inf(1))} {
		same("float", appendFloat(nil, f), func(e *msgpack.Encoder) error { return e.EncodeFloat32(f) })
		read("float", appendFloat(nil, f), f, func(v *values) (any, error) { return v.float() })
	}
	for _, b := range []bool{true, false} {
		same("bool", appendBool(nil, b), func(e *msgpack.Encoder) error { return e.EncodeBool(b) })
		read("bool", appendBool(nil, b), b, func(v *values) (any, error) { return v.flag() })
	}
}

// TestMsgpackKinds gives each reader the first byte of every other kind of value.
func TestMsgpackKinds(t *testing.T) {
	for name, r := range map[string]struct {
		read func(*values) error
		is   func(byte) bool
	}{
		"whole": {func(v *values) error { _, _, err := v.whole(); return err }, func(c byte) bool { return c < 0x80 || c >= 0xe0 || c >= 0xcc && c <= 0xd3 }},
		"flag":  {func(v *values) error { _, err := v.flag(); return err }, func(c byte) bool { return c == 0xc2 || c == 0xc3 }},
		"float": {func(v *values) error { _, err := v.float(); return err }, func(c byte) bool { return c == 0xca }},
		"array": {func(v *values) error { _, err := v.array(); return err }, func(c byte) bool { return c>>4 == 9 || c == 0xdc || c == 0xdd }},
		"bytes": {func(v *values) error { _, err := v.bytes(); return err }, func(c byte) bool { return c >= 0xc4 && c <= 0xc6 }},
		"text":  {func(v *values) error { _, err := v.text(); return err }, func(c byte) bool { return c>>5 == 5 || c >= 0xd9 && c <= 0xdb }},
	} {
		for c := range 256 {
			v := values(append([]byte{byte(c)}, make([]byte, 8)...))
			if err := r.read(&v); (err == nil) != r.is(byte(c)) {
				t.Errorf("%s of %#x: %v", name, c, err)
			}
		}
	}
}
