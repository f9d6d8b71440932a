package tokenizer

import "unicode/utf8"

// Detokenizer gives the text of tokens as they come. It never cuts a character: bytes of one that is not complete yet are
// held back. Marks add no text, but for those that a file adds without calling them special (<think>, <tool_call>).
type Detokenizer struct {
	tok  *Tokenizer
	held []byte // the beginning of a character, at most 3 bytes
}

// NewDetokenizer starts a text.
func (t *Tokenizer) NewDetokenizer() *Detokenizer { return &Detokenizer{tok: t} }

// Add gives the text that a token completes, appended to dst. Bytes that can become no character give U+FFFD.
func (d *Detokenizer) Add(dst []byte, id int32) []byte {
	if d.tok.Kind(id) == Mark && !d.tok.shown[id] {
		return dst
	}
	b := d.tok.Piece(id)
	if len(d.held) > 0 {
		b = append(d.held, b...)
		d.held = nil
	}
	for len(b) > 0 {
		if !utf8.FullRune(b) {
			d.held = append([]byte(nil), b...)
			break
		}
		r, n := utf8.DecodeRune(b)
		dst = utf8.AppendRune(dst, r)
		b = b[n:]
	}
	return dst
}

// Flush ends the text: a character that was never completed gives U+FFFD, appended to dst.
func (d *Detokenizer) Flush(dst []byte) []byte {
	if len(d.held) > 0 {
		dst = utf8.AppendRune(dst, utf8.RuneError)
		d.held = nil
	}
	return dst
}

// Held is how many bytes wait for the rest of their character.
func (d *Detokenizer) Held() int { return len(d.held) }

// Clone gives a detokenizer that goes on from here by itself.
func (d *Detokenizer) Clone() *Detokenizer {
	return &Detokenizer{tok: d.tok, held: append([]byte(nil), d.held...)}
}
