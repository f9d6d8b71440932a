package wire

import (
	"encoding/binary"
	"fmt"
)

// maxDepth is how deep arrays may nest: the deepest message (a heartbeat, a resent reply) has 4 levels.
const maxDepth = 8

// item says how one msgpack value goes on after its first byte: width bytes of big-endian length, then (with that length, or
// with fixed) so many bytes of payload and so many values nested in it.
type item struct {
	width  int    // bytes of the length that follows: 0, 1, 2 or 4
	fixed  uint64 // payload bytes that are always there
	length use    // what the length counts
	kids   uint64 // nested values, when width is 0
	bad    bool
}

// use is what a length counts.
type use uint8

const (
	ofBytes use = iota
	ofItems
	ofPairs
)

// classify reads a value's first byte. The table is the msgpack specification's.
func classify(c byte) item {
	switch {
	case c <= 0x7f || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3: // small integers, nil, false, true
		return item{}
	case c <= 0x8f:
		return item{kids: 2 * uint64(c&15)}
	case c <= 0x9f:
		return item{kids: uint64(c & 15)}
	case c <= 0xbf:
		return item{fixed: uint64(c & 31)}
	case c >= 0xc4 && c <= 0xc6: // bin
		return item{width: 1 << (c - 0xc4)}
	case c >= 0xc7 && c <= 0xc9: // ext: a type byte too
		return item{width: 1 << (c - 0xc7), fixed: 1}
	case c == 0xca || c == 0xce || c == 0xd2:
		return item{fixed: 4}
	case c == 0xcb || c == 0xcf || c == 0xd3:
		return item{fixed: 8}
	case c == 0xcc || c == 0xd0:
		return item{fixed: 1}
	case c == 0xcd || c == 0xd1:
		return item{fixed: 2}
	case c >= 0xd4 && c <= 0xd8: // fixext
		return item{fixed: 1 + 1<<(c-0xd4)}
	case c >= 0xd9 && c <= 0xdb: // str
		return item{width: 1 << (c - 0xd9)}
	case c == 0xdc || c == 0xdd: // array
		return item{width: 2 << (c - 0xdc), length: ofItems}
	case c == 0xde || c == 0xdf: // map
		return item{width: 2 << (c - 0xde), length: ofPairs}
	default: // 0xc1 is never used
		return item{bad: true}
	}
}

// Check walks one msgpack value without recursion or allocation, before anything decodes it: every length must fit in what is
// left of b (each nested value takes a byte at least), nesting is bounded, and nothing may follow the value.
func Check(b []byte) error {
	var open [maxDepth]uint64 // values still to come at each depth
	depth, at := 0, 0
	open[0] = 1
	for {
		for open[depth] == 0 {
			if depth == 0 {
				if at != len(b) {
					return fmt.Errorf("wire: msgpack: %d bytes follow the value of %d", len(b)-at, at)
				}
				return nil
			}
			depth--
		}
		open[depth]--
		if at >= len(b) {
			return fmt.Errorf("wire: msgpack: value missing at byte %d of %d", at, len(b))
		}
		it := classify(b[at])
		if it.bad {
			return fmt.Errorf("wire: msgpack: byte %d is %#x", at, b[at])
		}
		at++
		payload, kids, err := it.extent(b[at:])
		if err != nil {
			return fmt.Errorf("%w, at byte %d of %d", err, at, len(b))
		}
		at += payload
		if kids == 0 {
			continue
		}
		if depth+1 == maxDepth {
			return fmt.Errorf("wire: msgpack: nesting at byte %d, limit %d", at, maxDepth)
		}
		depth++
		open[depth] = kids
	}
}

// extent reads a value's length, if it has one, and says how many bytes follow the first byte and how many values after those.
func (it item) extent(rest []byte) (payload int, kids uint64, err error) {
	if len(rest) < it.width {
		return 0, 0, fmt.Errorf("wire: msgpack: length of %d bytes, %d left", it.width, len(rest))
	}
	var n uint64
	switch it.width {
	case 1:
		n = uint64(rest[0])
	case 2:
		n = uint64(binary.BigEndian.Uint16(rest))
	case 4:
		n = uint64(binary.BigEndian.Uint32(rest))
	}
	size, kids := it.fixed, it.kids
	switch it.length {
	case ofBytes:
		size += n
	case ofItems:
		kids += n
	case ofPairs:
		kids += 2 * n
	}
	left := uint64(len(rest) - it.width)
	if size > left || kids > left-size {
		return 0, 0, fmt.Errorf("wire: msgpack: %d bytes and %d values, %d bytes left", size, kids, left)
	}
	return it.width + int(size), kids, nil
}
