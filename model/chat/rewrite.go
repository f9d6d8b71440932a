package chat

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Limits on one tag of a template, so that what lies between two checks is bounded as well.
const (
	maxTag       = 8 << 10 // bytes
	maxOperators = 256     // of ~ + , within one tag
	maxRepeat    = 4096    // of a text, as in '-' * 40
)

// segment is a piece of a template's source.
type segment struct {
	kind        byte   // 't' text, '{' expression, '%' statement, '#' comment
	open, close string // delimiters with their trim marks
	body        string
}

// rewrite puts the calls of guard's functions into a template. Apart from them the template does what it did.
func rewrite(source string) (string, error) {
	segs, err := scan(source)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	raw := false
	for i, s := range segs {
		if raw || s.kind == 't' || s.kind == '#' {
			raw = raw && (s.kind != '%' || keyword(s.body) != "endraw")
			out.WriteString(s.open + s.body + s.close)
			continue
		}
		if s.kind == '%' && keyword(s.body) == "raw" {
			raw = true
		}
		body, after, err := s.rewrite(segs[i+1:])
		if err != nil {
			return "", fmt.Errorf("%s%s%s: %w", s.open, s.body, s.close, err)
		}
		out.WriteString(s.open + body + s.close + after)
	}
	return out.String(), nil
}

// scan cuts a source as the library does: closers within quotes do not count, but in comments.
func scan(source string) ([]segment, error) {
	var segs []segment
	for source != "" {
		at := len(source)
		for i := 0; i+1 < len(source); i++ {
			if source[i] == '{' && strings.IndexByte("{%#", source[i+1]) >= 0 {
				at = i
				break
			}
		}
		if at > 0 {
			segs = append(segs, segment{kind: 't', body: source[:at]})
		}
		if at == len(source) {
			break
		}
		s, n, err := scanTag(source[at:])
		if err != nil {
			return nil, err
		}
		segs = append(segs, s)
		source = source[at+n:]
	}
	return segs, nil
}

func scanTag(source string) (segment, int, error) {
	s := segment{kind: source[1], open: source[:2]}
	closer := map[byte]string{'{': "}}", '%': "%}", '#': "#}"}[s.kind]
	at := 2
	if at < len(source) && source[at] == '-' {
		s.open, at = source[:3], 3
	}
	for i := at; i < len(source); i++ {
		c := source[i]
		if s.kind != '#' && (c == '\'' || c == '"') {
			i = quoteEnd(source, i)
			continue
		}
		for _, end := range []string{"-" + closer, closer} {
			if strings.HasPrefix(source[i:], end) {
				s.body, s.close = source[at:i], end
				if s.kind != '#' && len(s.body) > maxTag {
					return s, 0, fmt.Errorf("a tag of %d bytes, at most %d are possible", len(s.body), maxTag)
				}
				return s, i + len(end), nil
			}
		}
	}
	return s, 0, fmt.Errorf("the tag %.40q has no end", source)
}

// quoteEnd is where the quote that opens at i closes, or the end.
func quoteEnd(s string, i int) int {
	quote := s[i]
	for i++; i < len(s) && s[i] != quote; i++ {
		if s[i] == '\\' {
			i++
		}
	}
	return min(i, len(s)-1)
}

func keyword(body string) string {
	body = strings.TrimSpace(body)
	for i := range len(body) {
		if !isName(body[i]) {
			return body[:i]
		}
	}
	return body
}

func isName(c byte) bool {
	return c == '_' || (c >= '0' && c <= '9') || (c|0x20 >= 'a' && c|0x20 <= 'z')
}

var verbatim = []string{"else", "endif", "endfor", "endset", "endmacro", "endcall", "break", "continue", "raw", "endraw", "generation", "endgeneration"}

// rewrite gives the tag's new body and what comes right behind the tag.
func (s segment) rewrite(rest []segment) (body, after string, err error) {
	if s.kind == '{' {
		e, err := expression(s.body)
		return "quire_out(" + e + ")", "", err
	}
	kw := keyword(s.body)
	e := strings.TrimPrefix(strings.TrimSpace(s.body), kw)
	step := func() string { return fmt.Sprintf("{{ quire_step(%d) }}", textUntil(rest, "end"+kw)) }
	switch kw {
	case "if", "elif":
		e, err = expression(e)
		return " " + kw + " quire_check(" + e + ") ", "", err
	case "for":
		body, err = forTag(e)
		return body, step(), err
	case "set":
		body, err = setTag(e)
		return body, "", err
	case "macro", "call":
		e, err = expression(e)
		return " " + kw + e + " ", step(), err
	}
	if slices.Contains(verbatim, kw) {
		if strings.Contains(e, "quire_") {
			return "", "", errReserved
		}
		return s.body, "", nil
	}
	return "", "", fmt.Errorf("statement %q is not supported; these are: if, for, set, macro, call, raw, break, continue, generation", kw)
}

var errReserved = errors.New("names that begin with quire_ are reserved")

func forTag(e string) (string, error) {
	vars, list, ok := cutWord(e, "in")
	if !ok || strings.Contains(vars, "quire_") {
		return "", errors.New("a loop needs variables and a list")
	}
	list, only, filtered := cutWord(list, "if")
	list, err := expression(list)
	if err != nil {
		return "", err
	}
	body := " for " + strings.TrimSpace(vars) + " in quire_check(" + list + ") "
	if filtered {
		if only, err = expression(only); err != nil {
			return "", err
		}
		body += "if " + only + " "
	}
	return body, nil
}

func setTag(e string) (string, error) {
	target, value, inline := strings.Cut(e, "=")
	if strings.Contains(target, "quire_") {
		return "", errReserved
	}
	target = strings.TrimSpace(target)
	if !inline {
		return " set " + target + " ", nil
	}
	value, err := expression(value)
	if err != nil {
		return "", err
	}
	if ns, _, ok := strings.Cut(target, "."); ok {
		return " set " + target + " = quire_attr(" + ns + ", " + value + ") ", nil
	}
	return " set " + target + " = quire_check(" + value + ") ", nil
}

// cutWord cuts an expression at a word that stands outside quotes and brackets.
func cutWord(e, word string) (before, after string, ok bool) {
	depth := 0
	for i := 0; i < len(e); i++ {
		switch c := e[i]; {
		case c == '\'' || c == '"':
			i = quoteEnd(e, i)
		case strings.IndexByte("([{", c) >= 0:
			depth++
		case strings.IndexByte(")]}", c) >= 0:
			depth--
		case isName(c):
			end := i
			for end < len(e) && isName(e[end]) {
				end++
			}
			if depth == 0 && e[i:end] == word {
				return e[:i], e[end:], true
			}
			i = end - 1
		}
	}
	return e, "", false
}

// expression renames filters and methods that have a bounded twin, both to filters: x.replace(a, b) and x | replace(a, b)
// become x|quire_replace(a, b). The bounds of slices are put into quire_bound. It refuses what cannot be bounded.
func expression(e string) (string, error) {
	w := writer{}
	operators, repeats := 0, 0
	for i := 0; i < len(e); i++ {
		c := e[i]
		switch {
		case c == '\'' || c == '"':
			end := quoteEnd(e, i)
			w.out = append(w.out, e[i:end+1]...)
			i = end
			continue
		case c == '*' && !strings.HasPrefix(e[i:], "**") && (i == 0 || e[i-1] != '*'):
			repeats++
			if n := leadingInt(e[i+1:]); n < 0 || n > maxRepeat || repeats > 1 {
				return "", fmt.Errorf("a product is only possible once in a tag, with a number up to %d behind it", maxRepeat)
			}
		case c == '~' || c == '+' || c == ',':
			operators++
		case c == '.' || c == '|':
			name, end := nameAfter(e, i+1)
			_, bounded := guarded[name]
			called := strings.HasPrefix(strings.TrimLeft(e[end:], " \t\r\n"), "(")
			if bounded && (c == '|' || called) {
				w.out = append(w.out, "|quire_"+name...)
				i = end - 1
				continue
			}
		case isName(c):
			name, end := nameAfter(e, i)
			if strings.HasPrefix(name, "quire_") {
				return "", errReserved
			}
			w.out = append(w.out, name...)
			i = end - 1
			continue
		}
		w.put(c)
	}
	if operators > maxOperators {
		return "", fmt.Errorf("%d operators, at most %d are possible in a tag", operators, maxOperators)
	}
	return string(w.out), nil
}

// writer collects an expression and knows which brackets are open in it.
type writer struct {
	out  []byte
	open []bracket
}

// bracket is one that is open: a '[' with a colon directly in it is a slice.
type bracket struct {
	kind  byte
	from  int // where its current part begins in out
	slice bool
}

func (w *writer) put(c byte) {
	switch {
	case strings.IndexByte("([{", c) >= 0:
		w.out = append(w.out, c)
		w.open = append(w.open, bracket{kind: c, from: len(w.out)})
		return
	case len(w.open) == 0:
	case c == ':' && w.open[len(w.open)-1].kind == '[':
		top := &w.open[len(w.open)-1]
		top.slice = true
		w.bound(top.from)
		top.from = len(w.out) + 1
	case strings.IndexByte(")]}", c) >= 0:
		top := w.open[len(w.open)-1]
		w.open = w.open[:len(w.open)-1]
		if top.slice {
			w.bound(top.from)
		}
	}
	w.out = append(w.out, c)
}

// bound wraps the part of a slice that begins at from.
func (w *writer) bound(from int) {
	part := string(w.out[from:])
	if strings.TrimSpace(part) != "" {
		w.out = append(w.out[:from], "quire_bound("+part+")"...)
	}
}

// nameAfter gives the name that begins at or, behind white space, after i, and where it ends.
func nameAfter(e string, i int) (string, int) {
	for i < len(e) && strings.IndexByte(" \t\r\n", e[i]) >= 0 {
		i++
	}
	end := i
	for end < len(e) && isName(e[end]) {
		end++
	}
	return e[i:end], end
}

// leadingInt is the whole number that a text begins with, -1 when it begins otherwise.
func leadingInt(s string) int {
	name, _ := nameAfter(s, 0)
	n, err := strconv.Atoi(name)
	if err != nil {
		return -1
	}
	return n
}

// textUntil counts the plain text up to the statement that closes a block, or to the end.
func textUntil(segs []segment, end string) int {
	n, depth, open := 0, 0, strings.TrimPrefix(end, "end")
	for _, s := range segs {
		if s.kind == 't' {
			n += len(s.body)
		}
		if s.kind != '%' {
			continue
		}
		switch keyword(s.body) {
		case open:
			depth++
		case end:
			if depth == 0 {
				return n
			}
			depth--
		}
	}
	return n
}
