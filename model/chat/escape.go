package chat

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// escaper keeps what a user typed from becoming a mark. Before rendering, one character of every mark in a content, and of
// every beginning or end of a content that could become part of one, is replaced by a stand-in: a private-use character that
// stands nowhere else in the conversation. Rendered text is cut at marks while the stand-ins are in it, and then they are
// taken back. To a template a content otherwise looks as the user wrote it.
type escaper struct {
	marks []string
	base  rune          // stand-ins are base, base+1, ...
	stand map[rune]rune // character -> its stand-in
	back  map[rune]rune
}

// blocks of private-use characters, planes 15 and 16.
const (
	firstBlock = 0xF0000
	blockSize  = 256
	blocks     = 512
)

// checkMarks makes sure that every character of every mark can have a stand-in.
func checkMarks(marks []string) error {
	all := map[rune]bool{}
	for _, m := range marks {
		for _, r := range m {
			if r >= firstBlock || r == utf8.RuneError {
				return fmt.Errorf("chat: mark %q holds a private-use or broken character", m)
			}
			all[r] = true
		}
	}
	if len(all) > blockSize {
		return fmt.Errorf("chat: the marks hold %d different characters, at most %d are possible", len(all), blockSize)
	}
	return nil
}

func newEscaper(marks []string, messages []Message) (*escaper, error) {
	e := &escaper{marks: marks, stand: map[rune]rune{}, back: map[rune]rune{}}
	used := map[rune]bool{}
	for _, m := range messages {
		for _, s := range []string{m.Role, m.Content} {
			for _, r := range s {
				if r >= firstBlock {
					used[(r-firstBlock)/blockSize] = true
				}
			}
		}
	}
	for b := rune(blocks - 1); b >= 0; b-- {
		if b%256 == 255 || used[b] { // the last block of a plane ends in two characters that are none
			continue
		}
		e.base = firstBlock + b*blockSize
		return e, nil
	}
	return nil, errors.New("chat: the conversation uses characters of every private-use block")
}

// standIn gives the stand-in of a character; the same character has one stand-in. Only characters of marks get one, so they
// fit into a block (New checks that), and a stand-in stays what it is.
func (e *escaper) standIn(r rune) rune {
	if _, already := e.back[r]; already {
		return r
	}
	s, ok := e.stand[r]
	if !ok {
		s = e.base + rune(len(e.stand))
		e.stand[r], e.back[s] = s, r
	}
	return s
}

// escape breaks all marks in a content.
func (e *escaper) escape(content string) string {
	var out strings.Builder
	rest := content
	for rest != "" {
		at, mark := e.next(rest)
		out.WriteString(rest[:at])
		if mark == "" {
			break
		}
		// Break the first character, then look again from the second on: marks may overlap.
		r, n := utf8.DecodeRuneInString(mark)
		out.WriteRune(e.standIn(r))
		rest = rest[at+n:]
	}
	return e.ends(out.String())
}

func (e *escaper) next(s string) (int, string) {
	at, found := len(s), ""
	for _, m := range e.marks {
		if i := strings.Index(s[:min(len(s), at+len(m))], m); i >= 0 && i < at {
			at, found = i, m
		}
	}
	return at, found
}

// ends breaks a beginning that is the end of a mark, an end that is the beginning of one, and a content that is the middle
// of one: the template may write the rest of it next to the content, or next to its trimmed form.
func (e *escaper) ends(content string) string {
	trimmed := strings.TrimSpace(content)
	if trimmed == "" {
		return content
	}
	for _, m := range e.marks {
		if len(trimmed) < len(m) && strings.Contains(m, trimmed) {
			return e.breakAt(content, strings.Index(content, trimmed))
		}
	}
	start := strings.Index(content, trimmed)
	cut := map[int]bool{}
	for _, m := range e.marks {
		for i := range m {
			if i == 0 {
				continue
			}
			if strings.HasSuffix(content, m[:i]) {
				cut[len(content)-i] = true
			}
			if strings.HasSuffix(trimmed, m[:i]) {
				cut[start+len(trimmed)-i] = true
			}
			if strings.HasPrefix(content, m[i:]) {
				cut[0] = true
			}
			if strings.HasPrefix(trimmed, m[i:]) {
				cut[start] = true
			}
		}
	}
	if len(cut) == 0 {
		return content
	}
	var out strings.Builder
	for i, r := range content {
		if cut[i] {
			r = e.standIn(r)
		}
		out.WriteRune(r)
	}
	return out.String()
}

// breakAt replaces the character at a byte.
func (e *escaper) breakAt(s string, at int) string {
	r, n := utf8.DecodeRuneInString(s[at:])
	return s[:at] + string(e.standIn(r)) + s[at+n:]
}

// restore takes the stand-ins back.
func (e *escaper) restore(s string) string {
	if e == nil || len(e.back) == 0 {
		return s
	}
	return strings.Map(func(r rune) rune {
		if b, ok := e.back[r]; ok {
			return b
		}
		return r
	}, s)
}
