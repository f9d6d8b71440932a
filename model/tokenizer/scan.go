package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// The word patterns of the known families, as scanners: each gives the length in bytes of the first word of a text that is
// not empty. They do what the patterns say:
//
//	GPT-2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//	Llama 3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//	Qwen 2   the same with \p{N} for \p{N}{1,3}
type scanner func(text string) int

const (
	gpt2Pattern   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	llama3Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen2Pattern  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// class of a character in these patterns.
type class uint8

const (
	other class = iota
	letter
	number
	space
)

func classOf(r rune) class {
	if r < 0x80 {
		switch {
		case r|0x20 >= 'a' && r|0x20 <= 'z':
			return letter
		case r >= '0' && r <= '9':
			return number
		case r == ' ' || (r >= '\t' && r <= '\r'):
			return space
		}
		return other
	}
	switch {
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return other
}

// first gives the first character, its class and its length. A byte that is no UTF-8 is a character of class other.
func first(text string) (r rune, c class, n int) {
	r, n = utf8.DecodeRuneInString(text)
	return r, classOf(r), n
}

// run gives how many bytes from at on are of class c, up to limit characters.
func run(text string, at int, c class, limit int) int {
	for ; limit > 0 && at < len(text); limit-- {
		_, k, n := first(text[at:])
		if k != c {
			break
		}
		at += n
	}
	return at
}

const endless = int(^uint(0) >> 1)

func scanGPT2(text string) int {
	if n := contraction(text, false); n > 0 {
		return n
	}
	at := 0
	if text[0] == ' ' && len(text) > 1 {
		at = 1
	}
	if _, c, _ := first(text[at:]); c != space {
		return run(text, at, c, endless)
	}
	return spaces(text)
}

// spaces is \s+(?!\S)|\s+: all of a run of white space but its last character, which belongs to the word that follows.
func spaces(text string) int {
	end, last := 0, 0
	for end < len(text) {
		_, c, n := first(text[end:])
		if c != space {
			break
		}
		last = end
		end += n
	}
	if end == len(text) || last == 0 {
		return end
	}
	return last
}

// contraction is 's|'t|'re|'ve|'m|'ll|'d; 0 when the text does not begin so.
func contraction(text string, fold bool) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	a, b := text[1], byte(0)
	if len(text) > 2 {
		b = text[2]
	}
	if fold {
		if a == 0xC5 && b == 0xBF { // U+017F, which folds to s
			return 3
		}
		a, b = lower(a), lower(b)
	}
	switch {
	case (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'):
		return 3
	case a == 's' || a == 't' || a == 'm' || a == 'd':
		return 2
	}
	return 0
}

func lower(b byte) byte {
	if b >= 'A' && b <= 'Z' {
		return b | 0x20
	}
	return b
}

func scanLlama3(text string) int { return scanLines(text, 3) }

func scanQwen2(text string) int { return scanLines(text, 1) }

func scanLines(text string, digits int) int {
	if n := contraction(text, true); n > 0 {
		return n
	}
	r, c, n := first(text)
	switch {
	case c == letter:
		return run(text, n, letter, endless)
	case r != '\r' && r != '\n' && c != number && n < len(text):
		if _, next, _ := first(text[n:]); next == letter {
			return run(text, n, letter, endless)
		}
	}
	if c == number {
		return run(text, 0, number, digits)
	}
	at := 0
	if r == ' ' && n < len(text) {
		at = 1
	}
	if _, k, _ := first(text[at:]); k == other {
		end := run(text, at, other, endless)
		for end < len(text) && (text[end] == '\r' || text[end] == '\n') {
			end++
		}
		return end
	}
	if end := lastLineEnd(text); end > 0 {
		return end
	}
	return spaces(text)
}

// lastLineEnd is \s*[\r\n]+: up to the last line end within a run of white space, 0 when it holds none.
func lastLineEnd(text string) int {
	at, last := 0, 0
	for at < len(text) {
		r, c, n := first(text[at:])
		if c != space {
			break
		}
		at += n
		if r == '\r' || r == '\n' {
			last = at
		}
	}
	return last
}
