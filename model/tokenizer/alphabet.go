package tokenizer

// Byte-level vocabularies spell each byte as one printable character: those of Latin-1 stand for themselves, the others
// follow from U+0100 on.
var (
	byteOfRune = map[rune]byte{}
	runeOfByte [256]rune
)

func init() {
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if (b < 33 || b > 126) && (b < 161 || b > 172) && b < 174 {
			r = next
			next++
		}
		byteOfRune[r], runeOfByte[b] = byte(b), r
	}
}

// rawBytes gives the bytes that a spelled token stands for; false when it holds a character outside the alphabet.
func rawBytes(spelled string) (string, bool) {
	out := make([]byte, 0, len(spelled))
	for _, r := range spelled {
		b, ok := byteOfRune[r]
		if !ok {
			return "", false
		}
		out = append(out, b)
	}
	return string(out), true
}
