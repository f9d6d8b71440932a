package script

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// fields are the name=value pairs of a line. The first that does not fit is the line's error.
type fields struct {
	values map[string]string
	err    error
}

// parse splits a line; detail= takes the rest of it.
func parse(rest string) *fields {
	f := &fields{values: map[string]string{}}
	if i := strings.Index(" "+rest, " detail="); i >= 0 {
		f.values["detail"] = rest[i+len("detail="):]
		rest = rest[:i]
	}
	for _, w := range strings.Fields(rest) {
		name, value, ok := strings.Cut(w, "=")
		if _, twice := f.values[name]; !ok || twice {
			f.fail(name, w)
		}
		f.values[name] = value
	}
	return f
}

func (f *fields) fail(name, value string) {
	if f.err == nil {
		f.err = fmt.Errorf("%s: %.80q", name, value)
	}
}

// done says what did not fit: also a field that nobody asked for.
func (f *fields) done() error {
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		f.fail(name, f.values[name])
	}
	return f.err
}

// word takes an optional field.
func (f *fields) word(name, otherwise string) string {
	v, ok := f.values[name]
	delete(f.values, name)
	if !ok {
		return otherwise
	}
	return v
}

func (f *fields) text(name string) string {
	if _, ok := f.values[name]; !ok {
		f.fail(name, "")
	}
	return f.word(name, "")
}

func (f *fields) int(name string) int {
	s := f.text(name)
	n, err := strconv.Atoi(s)
	if err != nil {
		f.fail(name, s)
	}
	return n
}

func (f *fields) optional(name string) int {
	if _, ok := f.values[name]; !ok {
		return 0
	}
	return f.int(name)
}

func (f *fields) hex(name string, into []byte) {
	s := f.text(name)
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(into) {
		f.fail(name, s)
	}
	copy(into, b)
}

func (f *fields) span(name string) (from, to int) {
	s := f.text(name)
	a, b, ok := strings.Cut(s, "-")
	from, err1 := strconv.Atoi(a)
	to, err2 := strconv.Atoi(b)
	if !ok || err1 != nil || err2 != nil {
		f.fail(name, s)
	}
	return from, to
}

// peer reads role/id@epoch.
func (f *fields) peer(name string) (p kvtransfer.Peer) {
	s := f.text(name)
	p, err := ParsePeer(s)
	if err != nil {
		f.fail(name, s)
	}
	return p
}

// ParsePeer reads role/id@epoch.
func ParsePeer(s string) (p kvtransfer.Peer, err error) {
	role, rest, ok := strings.Cut(s, "/")
	id, epoch, ok2 := strings.Cut(rest, "@")
	n, err := strconv.ParseUint(epoch, 10, 64)
	if !ok || !ok2 || err != nil {
		return p, fmt.Errorf("script: peer %.80q", s)
	}
	return kvtransfer.Peer{Role: kvtransfer.Role(role), ID: id, Epoch: n}, nil
}

// attempt reads <hand-off>-<n>.
func (f *fields) attempt(name string) (k kvtransfer.Key) {
	s := f.text(name)
	id, n, ok := strings.Cut(s, "-")
	b, err := hex.DecodeString(id)
	a, err2 := strconv.ParseUint(n, 10, 32)
	if !ok || err != nil || err2 != nil || len(b) != len(k.ID) {
		f.fail(name, s)
		return k
	}
	copy(k.ID[:], b)
	k.Attempt = uint32(a)
	return k
}

// maxPages bounds what a line can make of memory.
const maxPages = 1 << 20

// pages reads what Pages writes.
func (f *fields) pages(name string) (out []page.Slot) {
	s := f.text(name)
	if s == "" {
		return nil
	}
	for run := range strings.SplitSeq(s, ",") {
		parts := strings.Split(run, ":")
		n := [3]uint64{0, 0, 1}
		if len(parts) < 2 || len(parts) > 3 {
			f.fail(name, run)
			return nil
		}
		for i, p := range parts {
			v, err := strconv.ParseUint(p, 10, 32)
			if err != nil {
				f.fail(name, run)
				return nil
			}
			n[i] = v
		}
		if n[2] > uint64(maxPages-len(out)) {
			f.fail(name, run)
			return nil
		}
		for i := range n[2] {
			out = append(out, page.Slot{Page: page.ID(n[0] + i), Gen: page.Gen(n[1])})
		}
	}
	return out
}
