package tokenizer

import (
	"cmp"
	"slices"
)

// mark is a token that is found in text as a whole.
type mark struct {
	text           string
	id             int32
	lstrip, rstrip bool // white space before or after it goes with it
}

// matcher finds the first of many marks in a text, the longest where several begin.
type matcher struct {
	first [256][]mark // by first byte, longest first
	texts []string    // longest first
}

func newMatcher(marks []mark) *matcher {
	m := &matcher{}
	marks = slices.Clone(marks)
	slices.SortStableFunc(marks, func(a, b mark) int { return cmp.Compare(len(b.text), len(a.text)) })
	for _, k := range marks {
		m.first[k.text[0]] = append(m.first[k.text[0]], k)
		m.texts = append(m.texts, k.text)
	}
	return m
}

// find gives where the first mark begins and which it is; the text's length and the zero mark when there is none.
func (m *matcher) find(text string) (int, mark) {
	if len(m.texts) == 0 {
		return len(text), mark{}
	}
	for i := range len(text) {
		for _, k := range m.first[text[i]] {
			if len(text)-i >= len(k.text) && text[i:i+len(k.text)] == k.text {
				return i, k
			}
		}
	}
	return len(text), mark{}
}
