package tokenizer

import (
	"strings"
	"time"

	"github.com/dlclark/regexp2/v2"
	"golang.org/x/text/unicode/norm"
)

// preparation is what happens to a text before its words are merged: normalizers on the whole, then splits.
type preparation struct {
	normal []normalizer
	splits []splitter
}

// normalizer changes a text.
type normalizer func(string) string

// splitter calls yield for each piece of a text, in order and without a gap.
type splitter func(text string, yield func(string))

func (p preparation) encode(text string, e encoder, out []int32) []int32 {
	for _, f := range p.normal {
		text = f(text)
	}
	// Most words of a long text come again: seen says where in out their ids are.
	type span struct{ from, to int }
	seen := map[string]span{}
	p.cut(text, 0, func(word string) {
		for len(word) > maxWord {
			out = e.encode(word[:maxWord], out)
			word = word[maxWord:]
		}
		if was, ok := seen[word]; ok {
			out = append(out, out[was.from:was.to]...)
			return
		}
		from := len(out)
		out = e.encode(word, out)
		if len(word) <= maxSeen && len(seen) < maxSeenWords {
			seen[word] = span{from, len(out)}
		}
	})
	return out
}

// Limits on the words that are remembered within one text.
const (
	maxSeen      = 64 // bytes of a word
	maxSeenWords = 1 << 14
)

// cut applies the splits from the i-th on.
func (p preparation) cut(text string, i int, yield func(string)) {
	if text == "" {
		return
	}
	if i == len(p.splits) {
		yield(text)
		return
	}
	p.splits[i](text, func(piece string) { p.cut(piece, i+1, yield) })
}

func form(f norm.Form) normalizer { return f.String }

func prepend(prefix string) normalizer {
	return func(s string) string {
		if s == "" {
			return s
		}
		return prefix + s
	}
}

func replace(from, to string) normalizer {
	return func(s string) string { return strings.ReplaceAll(s, from, to) }
}

// words cuts with a scanner.
func words(scan scanner) splitter {
	return func(text string, yield func(string)) {
		for len(text) > 0 {
			n := scan(text)
			yield(text[:n])
			text = text[n:]
		}
	}
}

// digits cuts every number character off by itself, or runs of them.
func digits(single bool) splitter {
	return func(text string, yield func(string)) {
		start := 0
		for at := 0; at < len(text); {
			_, c, n := first(text[at:])
			if c != number {
				at += n
				continue
			}
			if at > start {
				yield(text[start:at])
			}
			end := at + n
			if !single {
				end = run(text, at, number, endless)
			}
			yield(text[at:end])
			at, start = end, end
		}
		if start < len(text) {
			yield(text[start:])
		}
	}
}

// spaceBefore puts a space before a text that has none: ByteLevel's add_prefix_space.
func spaceBefore(text string, yield func(string)) {
	if !strings.HasPrefix(text, " ") {
		text = " " + text
	}
	yield(text)
}

// patternTimeout bounds one match of a pattern that came with a model.
const patternTimeout = 250 * time.Millisecond

// matches cuts a text into what a pattern matches and what lies between: the behaviour Isolated. A match that takes too long
// ends the search: the rest is one piece.
func matches(pattern string) (splitter, error) {
	re, err := regexp2.Compile(pattern, regexp2.None)
	if err != nil {
		return nil, err
	}
	re.MatchTimeout = patternTimeout
	return func(text string, yield func(string)) {
		at := 0 // how far text has been given out, in bytes
		m, err := re.FindStringMatch(text)
		for ; err == nil && m != nil; m, err = re.FindNextMatch(m) {
			from, n := m.ByteRange()
			if from > at {
				yield(text[at:from])
			}
			if n > 0 {
				yield(text[from : from+n])
			}
			at = from + n
		}
		if at < len(text) {
			yield(text[at:])
		}
	}, nil
}
