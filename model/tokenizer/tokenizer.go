// Package tokenizer turns text into the token ids of a model and back: byte-level BPE and SentencePiece-style BPE with byte
// fallback, read from tokenizer.json or from a GGUF file.
//
// Marks are the special tokens of a model, such as <|im_end|>. Text that looks like a mark stays text unless the caller says
// that it may be one: only templates may, never what a user typed.
package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Kind says what a token is for.
type Kind uint8

// Kinds of token.
const (
	Normal  Kind = iota
	Mark         // only a template or the model itself makes it; not part of the text unless shown
	Added        // found in any text before everything else
	Byte         // one byte, of a character that has no token
	Unknown      // stands for what has no token
	Unused
)

// Tokenizer is safe for concurrent use.
type Tokenizer struct {
	pieces [][]byte // by id: what the token adds to the text
	kinds  []Kind   // by id
	model  encoder
	prep   preparation
	marks  *matcher // Mark and Added
	added  *matcher // Added alone

	shown map[int32]bool // marks that an answer shows: a file adds them without calling them special, such as <think>

	bos, unk       int32 // -1 = none
	eos            []int32
	addBOS, addEOS bool
	stripFirst     bool // decoding drops one leading space, which encoding put there
}

// encoder turns prepared text without marks into ids.
type encoder interface {
	encode(text string, out []int32) []int32
}

// EncodeOptions says what Encode does beside the text itself.
type EncodeOptions struct {
	AddSpecial bool // put the model's own start and end tokens around, as the model's makers say
	ParseMarks bool // take marks in the text for special tokens: never set this for what a user typed
}

// Encode gives the ids of a text. Any string has ids; invalid UTF-8 is kept byte for byte where the vocabulary allows.
func (t *Tokenizer) Encode(text string, o EncodeOptions) []int32 {
	out := make([]int32, 0, len(text)/3+2)
	if o.AddSpecial && t.addBOS && t.bos >= 0 {
		out = append(out, t.bos)
	}
	found := t.added
	if o.ParseMarks {
		found = t.marks
	}
	out = t.encodeFound(text, found, out)
	if o.AddSpecial && t.addEOS && len(t.eos) > 0 {
		out = append(out, t.eos[0])
	}
	return out
}

func (t *Tokenizer) encodeFound(text string, m *matcher, out []int32) []int32 {
	for len(text) > 0 {
		at, mark := m.find(text)
		before, after := text[:at], text[min(len(text), at+len(mark.text)):]
		if mark.lstrip {
			before = strings.TrimRight(before, whitespace)
		}
		if mark.rstrip {
			after = strings.TrimLeft(after, whitespace)
		}
		if before != "" {
			out = t.prep.encode(before, t.model, out)
		}
		if mark.text == "" {
			break
		}
		out = append(out, mark.id)
		text = after
	}
	return out
}

// Part is a piece of a rendered chat: text, or one mark.
type Part struct {
	Text string
	Mark int32 // the mark's id when Text is ""
}

// Split cuts a rendered template at its marks. The text between is not looked at any further.
func (t *Tokenizer) Split(text string) []Part {
	var parts []Part
	for len(text) > 0 {
		at, mark := t.marks.find(text)
		before, after := text[:at], text[min(len(text), at+len(mark.text)):]
		if mark.lstrip {
			before = strings.TrimRight(before, whitespace)
		}
		if mark.rstrip {
			after = strings.TrimLeft(after, whitespace)
		}
		if before != "" {
			parts = append(parts, Part{Text: before})
		}
		if mark.text != "" {
			parts = append(parts, Part{Mark: mark.id})
		}
		text = after
	}
	return parts
}

// EncodeParts gives the ids of a rendered chat: marks as they are, text as text.
func (t *Tokenizer) EncodeParts(parts []Part) []int32 {
	var out []int32
	for _, p := range parts {
		if p.Text == "" {
			out = append(out, p.Mark)
			continue
		}
		out = t.encodeFound(p.Text, t.added, out)
	}
	return out
}

// Decode gives the text of ids, marks included. What is no valid UTF-8 becomes U+FFFD; ids outside the vocabulary add nothing.
func (t *Tokenizer) Decode(ids []int32) string {
	var b []byte
	first := true
	for _, id := range ids {
		p := t.Piece(id)
		if first && t.stripFirst && len(p) > 0 && t.Kind(id) != Mark {
			p = []byte(strings.TrimPrefix(string(p), " "))
			first = false
		}
		b = append(b, p...)
	}
	return strings.ToValidUTF8(string(b), string(utf8.RuneError))
}

// Piece is what one token adds to the text, as bytes that need not be whole characters; nil for an id outside the vocabulary.
// The caller must not write to it.
func (t *Tokenizer) Piece(id int32) []byte {
	if id < 0 || int(id) >= len(t.pieces) {
		return nil
	}
	return t.pieces[id]
}

// Kind says what a token is for; Unused for an id outside the vocabulary.
func (t *Tokenizer) Kind(id int32) Kind {
	if id < 0 || int(id) >= len(t.kinds) {
		return Unused
	}
	return t.kinds[id]
}

// Vocab is how many ids there are: [0, Vocab).
func (t *Tokenizer) Vocab() int { return len(t.pieces) }

// BOS is the token that starts a text; false when the model has none.
func (t *Tokenizer) BOS() (int32, bool) { return t.bos, t.bos >= 0 }

// EOS lists the tokens that end an answer. The caller must not write to it.
func (t *Tokenizer) EOS() []int32 { return t.eos }

// IsEOS says whether a token ends an answer.
func (t *Tokenizer) IsEOS(id int32) bool { return slices.Contains(t.eos, id) }

// AddsBOS says whether AddSpecial puts BOS before a text.
func (t *Tokenizer) AddsBOS() bool { return t.addBOS && t.bos >= 0 }

// Marks lists the texts of all marks, longest first. The caller must not write to it.
func (t *Tokenizer) Marks() []string { return t.marks.texts }

// MarkText is the text of a mark, "" for a token that is none.
func (t *Tokenizer) MarkText(id int32) string {
	if t.Kind(id) != Mark {
		return ""
	}
	return string(t.Piece(id))
}

const whitespace = " \t\n\v\f\r\u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"

// ends are marks that end an answer in the models that have them, beside those that a file names.
var ends = []string{"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_turn|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "<|end_of_text|>"}

// show makes a mark one that answers show.
func (t *Tokenizer) show(id int32) {
	if t.shown == nil {
		t.shown = map[int32]bool{}
	}
	t.shown[id] = true
}

// finish checks the ids, collects the end tokens and builds the matchers.
func (t *Tokenizer) finish(eos []int32, strips map[int32][2]bool) error {
	for _, id := range append(slices.Clone(eos), t.bos) {
		if id < -1 || int(id) >= len(t.pieces) {
			return fmt.Errorf("tokenizer: special token id %d, the vocabulary has %d", id, len(t.pieces))
		}
	}
	var marks, added []mark
	for i, k := range t.kinds {
		if (k != Mark && k != Added) || len(t.pieces[i]) == 0 {
			continue
		}
		m := mark{text: string(t.pieces[i]), id: int32(i), lstrip: strips[int32(i)][0], rstrip: strips[int32(i)][1]}
		marks = append(marks, m)
		if k == Added {
			added = append(added, m)
		} else if slices.Contains(ends, m.text) {
			eos = append(eos, m.id)
		}
	}
	for _, id := range eos {
		if id >= 0 && !slices.Contains(t.eos, id) {
			t.eos = append(t.eos, id)
		}
	}
	t.marks, t.added = newMatcher(marks), newMatcher(added)
	return nil
}
