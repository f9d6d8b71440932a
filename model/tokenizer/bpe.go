package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// bpe merges the pairs that a model lists, in the order of the list.
type bpe struct {
	vocab        map[string]int32  // token text as prepared text spells it -> id
	pairs        map[uint64]ranked // two ids -> what they become
	byteID       [256]int32        // -1 where a byte has no token
	byteLevel    bool              // symbols begin as bytes; else as characters
	fallback     bool              // a character without a token becomes its bytes
	ignoreMerges bool              // a word that is a token is that token
	unk          int32             // -1 = none
	fuseUnk      bool              // a run of unknown characters is one unknown token
}

// ranked is the outcome of a merge and its place in the list.
type ranked struct{ rank, id int32 }

func pairKey(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }

func (m *bpe) encode(word string, out []int32) []int32 {
	if m.ignoreMerges {
		if id, ok := m.vocab[word]; ok {
			return append(out, id)
		}
	}
	var room [64]symbol
	s := room[:0]
	if m.byteLevel {
		for i := range len(word) {
			s = m.add(s, int32(i), int32(i)+1, m.byteID[word[i]])
		}
	} else {
		s = m.characters(word, s)
	}
	for _, x := range merge(s, m.pair) {
		if x.id >= 0 {
			out = append(out, x.id)
		}
	}
	return out
}

func (m *bpe) pair(a, b symbol) (rank, id int32, ok bool) {
	if a.id < 0 || b.id < 0 {
		return 0, 0, false
	}
	r, ok := m.pairs[pairKey(a.id, b.id)]
	return r.rank, r.id, ok
}

// add appends a symbol; one without a token becomes the unknown token.
func (m *bpe) add(s []symbol, from, to, id int32) []symbol {
	if id < 0 {
		id = m.unk
		if n := len(s); m.fuseUnk && id >= 0 && n > 0 && s[n-1].id == id {
			s[n-1].to = to
			return s
		}
	}
	return append(s, symbol{from: from, to: to, id: id})
}

func (m *bpe) characters(word string, s []symbol) []symbol {
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		id, ok := m.vocab[word[i:i+n]]
		switch {
		case ok:
			s = m.add(s, int32(i), int32(i+n), id)
		case m.fallback && m.haveBytes(word[i:i+n]):
			for j := i; j < i+n; j++ {
				s = m.add(s, int32(j), int32(j)+1, m.byteID[word[j]])
			}
		default:
			s = m.add(s, int32(i), int32(i+n), -1)
		}
		i += n
	}
	return s
}

func (m *bpe) haveBytes(char string) bool {
	for i := range len(char) {
		if m.byteID[char[i]] < 0 {
			return false
		}
	}
	return true
}

// scored merges neighbours whose joined text is a token, best score first: SentencePiece's BPE.
type scored struct {
	vocab   map[string]ranked // token text -> its place by falling score (equal scores, equal places), and its id
	longest int               // bytes of the longest token
	byteID  [256]int32
	unk     int32
}

func (m *scored) encode(text string, out []int32) []int32 {
	s := make([]symbol, 0, len(text))
	for i := 0; i < len(text); {
		_, n := utf8.DecodeRuneInString(text[i:])
		id := int32(-1)
		if r, ok := m.vocab[text[i:i+n]]; ok {
			id = r.id
		}
		s = append(s, symbol{from: int32(i), to: int32(i + n), id: id})
		i += n
	}
	s = merge(s, func(a, b symbol) (rank, id int32, ok bool) {
		if int(b.to-a.from) > m.longest {
			return 0, 0, false
		}
		r, ok := m.vocab[text[a.from:b.to]]
		return r.rank, r.id, ok
	})
	for _, x := range s {
		if x.id >= 0 {
			out = append(out, x.id)
			continue
		}
		out = m.spell(text[x.from:x.to], out)
	}
	return out
}

// spell gives the byte tokens of a character, or the unknown token.
func (m *scored) spell(char string, out []int32) []int32 {
	for i := range len(char) {
		if m.byteID[char[i]] < 0 {
			if m.unk >= 0 {
				out = append(out, m.unk)
			}
			return out
		}
	}
	for i := range len(char) {
		out = append(out, m.byteID[char[i]])
	}
	return out
}

// underline is what SentencePiece vocabularies spell a space as.
const underline = "\u2581"

// byteToken reads <0x0A>; false for any other text.
func byteToken(text string) (byte, bool) {
	if len(text) != 6 || !strings.HasPrefix(text, "<0x") || text[5] != '>' {
		return 0, false
	}
	hi, lo := hexDigit(text[3]), hexDigit(text[4])
	return byte(hi<<4 | lo), hi >= 0 && lo >= 0
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
