package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"quire/kvtransfer"
)

// codec goes through the fields of a message in order, and either writes or reads each: one description serves both
// directions. The first violation of a limit stays in err; a writer goes on writing, a reader stops.
type codec struct {
	reads bool
	out   []byte // what is written so far
	in    values // what is still to be read
	what  string // the message's name, for errors
	err   error
}

func (c *codec) writing() bool { return !c.reads }

func (c *codec) fail(field, format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("wire: %s: %s: %s", c.what, field, fmt.Sprintf(format, args...))
	}
}

// keep takes note of a value that could not be read.
func (c *codec) keep(field string, err error) {
	if err != nil {
		c.fail(field, "%v", err)
	}
}

// skip says that there is no more to read.
func (c *codec) skip() bool { return c.err != nil && !c.writing() }

// array opens an array of exactly n values.
func (c *codec) array(field string, n int) {
	if got := c.count(field, n, math.MaxInt32); got != n {
		c.fail(field, "fields %d, want %d", got, n)
	}
}

// count opens an array of n values when writing; when reading it gives the number of values, at most limit.
func (c *codec) count(field string, n, limit int) int {
	if c.skip() {
		return 0
	}
	if c.writing() {
		c.out = appendArray(c.out, n)
	} else {
		var err error
		n, err = c.in.array()
		c.keep(field, err)
	}
	if n < 0 || n > limit {
		c.fail(field, "count %d, limit %d", n, limit)
		if !c.writing() {
			return 0
		}
	}
	return n
}

// list goes through a slice, each item with one.
func list[T any](c *codec, field string, p *[]T, limit int, one func(*codec, *T)) {
	n := c.count(field, len(*p), limit)
	if !c.writing() {
		*p = nil
		if n > 0 && c.err == nil {
			*p = make([]T, n)
		}
	}
	for i := range *p {
		one(c, &(*p)[i])
		if c.skip() {
			return
		}
	}
}

// bytes is a byte string of [0, limit] bytes; an empty one reads as nil.
func (c *codec) bytes(field string, p *[]byte, limit int) {
	if c.skip() {
		return
	}
	if c.writing() {
		if len(*p) > limit {
			c.fail(field, "length %d, limit %d", len(*p), limit)
		}
		c.out = appendBytes(c.out, *p)
		return
	}
	*p = append([]byte(nil), c.run(field, (*values).bytes, limit)...)
}

// run reads a byte string or a text of at most limit bytes. It shares the message's memory.
func (c *codec) run(field string, length func(*values) (int, error), limit int) []byte {
	n, err := length(&c.in)
	c.keep(field, err)
	if n < 0 || n > limit {
		c.fail(field, "length %d, limit %d", n, limit)
	}
	if c.err != nil {
		return nil
	}
	b, err := c.in.take(n)
	c.keep(field, err)
	return b
}

// fixed is a byte string of exactly len(p) bytes.
func (c *codec) fixed(field string, p []byte) {
	if c.skip() {
		return
	}
	if c.writing() {
		c.out = appendBytes(c.out, p)
		return
	}
	if n := copy(p, c.run(field, (*values).bytes, len(p))); n != len(p) {
		c.fail(field, "length %d, want %d", n, len(p))
	}
}

// text is a string of [0, limit] bytes.
func (c *codec) text(field string, p *string, limit int) {
	if c.skip() {
		return
	}
	if c.writing() {
		if len(*p) > limit {
			c.fail(field, "length %d, limit %d", len(*p), limit)
		}
		c.out = appendText(c.out, *p)
		return
	}
	*p = string(c.run(field, (*values).text, limit))
}

// slug is a string of [0, limit] characters of [a-z0-9-], as subjects are made of.
func (c *codec) slug(field string, p *string, limit int) {
	c.text(field, p, limit)
	for i := range len(*p) {
		if ch := (*p)[i]; !(ch >= 'a' && ch <= 'z' || ch >= '0' && ch <= '9' || ch == '-') {
			c.fail(field, "byte %d is %#x, not of [a-z0-9-]", i, ch)
			return
		}
	}
}

// whole is an integer of [low, high].
func (c *codec) whole(field string, p *int64, low, high int64) {
	if c.skip() {
		return
	}
	if c.writing() {
		c.out = appendInt(c.out, *p)
	} else {
		n, big, err := c.in.whole()
		c.keep(field, err)
		if big {
			c.fail(field, "%d, want [%d, %d]", uint64(n), low, high)
		}
		*p = n
	}
	if *p < low || *p > high {
		c.fail(field, "%d, want [%d, %d]", *p, low, high)
	}
}

// num is a count of [0, limit).
func (c *codec) num(field string, p *int, limit int) {
	n := int64(*p)
	c.whole(field, &n, 0, int64(limit)-1)
	*p = int(n)
}

// number is any integer of 32 bits without sign.
func (c *codec) number(field string, p *uint32) {
	n := int64(*p)
	c.whole(field, &n, 0, math.MaxUint32)
	*p = uint32(n)
}

// token is a token id, not negative.
func (c *codec) token(field string, p *int32) {
	n := int64(*p)
	c.whole(field, &n, 0, math.MaxInt32)
	*p = int32(n)
}

// ticks is a duration.
func (c *codec) ticks(field string, p *kvtransfer.Tick) {
	c.whole(field, (*int64)(p), -MaxTicks, MaxTicks)
}

// wide is any integer of 64 bits without sign.
func (c *codec) wide(field string, p *uint64) {
	if c.skip() {
		return
	}
	if c.writing() {
		c.out = appendUint(c.out, *p)
		return
	}
	n, big, err := c.in.whole()
	c.keep(field, err)
	if n < 0 && !big {
		c.fail(field, "%d, want 0 or more", n)
	}
	*p = uint64(n)
}

// flag is a truth value.
func (c *codec) flag(field string, p *bool) {
	if c.skip() {
		return
	}
	if c.writing() {
		c.out = appendBool(c.out, *p)
		return
	}
	v, err := c.in.flag()
	c.keep(field, err)
	*p = v
}

// float is a number, infinite ones included, but not NaN.
func (c *codec) float(field string, p *float32) {
	if c.skip() {
		return
	}
	if c.writing() {
		c.out = appendFloat(c.out, *p)
	} else {
		v, err := c.in.float()
		c.keep(field, err)
		*p = v
	}
	if *p != *p {
		c.fail(field, "not a number")
	}
}

// tokens is a list of token ids as a byte string, 4 bytes each, little endian.
func (c *codec) tokens(field string, p *[]int32, limit int) {
	var b []byte
	if c.writing() {
		b = make([]byte, 0, 4*len(*p))
		for _, t := range *p {
			b = binary.LittleEndian.AppendUint32(b, uint32(t))
		}
	}
	c.bytes(field, &b, 4*limit)
	if !c.writing() {
		if len(b)%4 != 0 {
			c.fail(field, "bytes %d, not a multiple of 4", len(b))
		}
		*p = nil
		if len(b) > 0 && c.err == nil {
			*p = make([]int32, len(b)/4)
		}
		for i := range *p {
			(*p)[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
		}
	}
	for i, t := range *p {
		if t < 0 {
			c.fail(field, "token %d is %d", i, t)
			return
		}
	}
}

// optional says whether a value is there: an array of one or none.
func (c *codec) optional(field string, there bool) bool {
	n := 0
	if there {
		n = 1
	}
	return c.count(field, n, 1) == 1
}

// room is what most messages take.
const room = 256

// write encodes one message behind the version byte. What breaks a limit is written all the same, for the receiver to refuse.
func write(what string, fields func(*codec)) ([]byte, error) {
	return writeInto(make([]byte, 0, room), what, fields)
}

func writeInto(b []byte, what string, fields func(*codec)) ([]byte, error) {
	c := codec{out: append(b, Version), what: what}
	fields(&c)
	return c.out, c.err
}

// read decodes one message. The bytes must be exactly those that write makes of it.
func read(what string, b []byte, fields func(*codec)) error {
	if len(b) > MaxMessage {
		return fmt.Errorf("wire: %s: length %d, limit %d", what, len(b), MaxMessage)
	}
	if len(b) == 0 || b[0] != Version {
		return fmt.Errorf("wire: %s: version %x, want %x, length %d", what, b[:min(1, len(b))], Version, len(b))
	}
	if err := Check(b[1:]); err != nil {
		return fmt.Errorf("wire: %s: %w", what, err)
	}
	c := codec{reads: true, in: b[1:], what: what}
	fields(&c)
	if c.err != nil {
		return c.err
	}
	again, err := writeInto(make([]byte, 0, len(b)), what, fields)
	if err != nil {
		return err
	}
	if !bytes.Equal(again, b) {
		return fmt.Errorf("wire: %s: not in canonical form: length %d, canonical %d", what, len(b), len(again))
	}
	return nil
}
