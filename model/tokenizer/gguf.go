package tokenizer

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"golang.org/x/text/unicode/norm"

	"quire/model/gguf"
)

// GGUF's token types.
const (
	ggufNormal      = 1
	ggufUnknown     = 2
	ggufControl     = 3
	ggufUserDefined = 4
	ggufUnused      = 5
	ggufByte        = 6
)

var ggufKinds = map[int64]Kind{
	ggufNormal: Normal, ggufUnknown: Unknown, ggufControl: Mark, ggufUserDefined: Added, ggufUnused: Unused, ggufByte: Byte,
}

// FromGGUF reads the tokenizer of a GGUF file: model gpt2 (byte-level BPE) or llama (SentencePiece BPE).
func FromGGUF(f *gguf.File) (*Tokenizer, error) {
	const p = "tokenizer.ggml."
	tokens, kinds := f.Strings(p+"tokens"), f.Ints(p+"token_type")
	if len(tokens) == 0 || len(tokens) > math.MaxInt32 {
		return nil, fmt.Errorf("tokenizer: %stokens: %d tokens", p, len(tokens))
	}
	if kinds != nil && len(kinds) != len(tokens) {
		return nil, fmt.Errorf("tokenizer: %d tokens and %d token types", len(tokens), len(kinds))
	}
	t := &Tokenizer{
		pieces: make([][]byte, len(tokens)), kinds: make([]Kind, len(tokens)),
		bos: int32(f.Int(p+"bos_token_id", -1)), unk: int32(f.Int(p+"unknown_token_id", -1)),
		addEOS: f.Bool(p+"add_eos_token", false),
	}
	for i := range tokens {
		if kinds == nil {
			continue
		}
		k, ok := ggufKinds[kinds[i]]
		if !ok {
			return nil, fmt.Errorf("tokenizer: token %d: type %d, 1 to 6 are possible", i, kinds[i])
		}
		if k == Added && looksLikeMark(tokens[i]) {
			k = Mark
			t.show(int32(i))
		}
		t.kinds[i] = k
	}
	var err error
	switch name := f.String(p+"model", ""); name {
	case "gpt2":
		t.addBOS = f.Bool(p+"add_bos_token", false)
		err = t.ggufByteLevel(f, tokens)
	case "llama":
		t.addBOS = f.Bool(p+"add_bos_token", true)
		err = t.ggufScored(f, tokens)
	default:
		err = fmt.Errorf("tokenizer: model %q does not load, these do: gpt2, llama", name)
	}
	if err != nil {
		return nil, err
	}
	var eos []int32
	for _, key := range []string{"eos_token_id", "eot_token_id", "eom_token_id"} {
		if id := f.Int(p+key, -1); id >= 0 && id < len(tokens) {
			eos = append(eos, int32(id))
		} else if id >= len(tokens) {
			return nil, fmt.Errorf("tokenizer: %s%s %d, the vocabulary has %d", p, key, id, len(tokens))
		}
	}
	return t, t.finish(eos, nil)
}

// looksLikeMark tells markers such as <tool_call> from mere text among tokens that files add without calling them special.
func looksLikeMark(s string) bool {
	return len(s) > 2 && ((s[0] == '<' && s[len(s)-1] == '>') || (s[0] == '[' && s[len(s)-1] == ']')) && !strings.ContainsAny(s, " \t\n")
}

// ggufPre is what the names in tokenizer.ggml.pre mean.
var ggufPre = map[string]preparation{
	"gpt-2":     {splits: []splitter{words(scanGPT2)}},
	"gpt2":      {splits: []splitter{words(scanGPT2)}},
	"smollm":    {splits: []splitter{digits(true), words(scanGPT2)}},
	"llama-bpe": {splits: []splitter{words(scanLlama3)}},
	"llama3":    {splits: []splitter{words(scanLlama3)}},
	"llama-v3":  {splits: []splitter{words(scanLlama3)}},
	"qwen2":     {normal: []normalizer{form(norm.NFC)}, splits: []splitter{words(scanQwen2)}},
}

func (t *Tokenizer) ggufByteLevel(f *gguf.File, tokens []string) error {
	const p = "tokenizer.ggml."
	pre := f.String(p+"pre", "")
	prep, ok := ggufPre[pre]
	if !ok {
		return fmt.Errorf("tokenizer: pre-tokenizer %q does not load, these do: gpt-2, smollm, llama-bpe, qwen2", pre)
	}
	t.prep = prep
	if f.Bool(p+"add_space_prefix", false) {
		t.prep.splits = append([]splitter{spaceBefore}, prep.splits...)
	}
	m := &bpe{byteLevel: true, unk: -1, ignoreMerges: pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3"}
	t.model = m
	vocab := make(map[string]int32, len(tokens))
	for i, s := range tokens {
		vocab[s] = int32(i)
	}
	if err := m.byteLevelVocab(t, vocab); err != nil {
		return err
	}
	merges, err := cutMerges(f.Strings(p + "merges"))
	if err != nil {
		return err
	}
	return m.merges(vocab, merges)
}

// byteLevelVocab fills the pieces of t and the byte tokens from tokens spelled in the byte-level alphabet.
func (m *bpe) byteLevelVocab(t *Tokenizer, vocab map[string]int32) error {
	m.vocab = make(map[string]int32, len(vocab))
	for i := range m.byteID {
		m.byteID[i] = -1
	}
	for s, id := range vocab {
		if t.kinds[id] == Mark || t.kinds[id] == Added {
			t.pieces[id] = []byte(s)
			continue
		}
		raw, ok := rawBytes(s)
		if !ok {
			t.pieces[id] = []byte(s) // no text becomes this token
			continue
		}
		t.pieces[id] = []byte(raw)
		m.vocab[raw] = id
		if len(raw) == 1 {
			m.byteID[raw[0]] = id
		}
	}
	if have := len(m.byteID) - missing(m.byteID); have < 128 {
		return fmt.Errorf("tokenizer: only %d of 256 bytes have a token: is the vocabulary byte-level?", have)
	}
	return nil
}

// missing counts the bytes without a token. Some models lack those that no text holds; such a byte is left out.
func missing(byteID [256]int32) (n int) {
	for _, id := range byteID {
		if id < 0 {
			n++
		}
	}
	return n
}

// merges fills the list of pairs; both halves and the whole must be tokens.
func (m *bpe) merges(vocab map[string]int32, list [][2]string) error {
	m.pairs = make(map[uint64]ranked, len(list))
	for i, p := range list {
		a, okA := vocab[p[0]]
		b, okB := vocab[p[1]]
		ab, okAB := vocab[p[0]+p[1]]
		if !okA || !okB || !okAB {
			return fmt.Errorf("tokenizer: merge %d: %q + %q: not all three are tokens", i, p[0], p[1])
		}
		if _, twice := m.pairs[pairKey(a, b)]; !twice {
			m.pairs[pairKey(a, b)] = ranked{int32(i), ab}
		}
	}
	return nil
}

func (t *Tokenizer) ggufScored(f *gguf.File, tokens []string) error {
	const p = "tokenizer.ggml."
	scores := f.Floats(p + "scores")
	if len(scores) != len(tokens) {
		return fmt.Errorf("tokenizer: %d tokens and %d scores", len(tokens), len(scores))
	}
	m := &scored{vocab: make(map[string]ranked, len(tokens)), unk: t.unk}
	for i := range m.byteID {
		m.byteID[i] = -1
	}
	order := make([]int, 0, len(tokens))
	for i, s := range tokens {
		t.pieces[i] = []byte(strings.ReplaceAll(s, underline, " "))
		switch t.kinds[i] {
		case Byte:
			b, ok := byteToken(s)
			if !ok {
				return fmt.Errorf("tokenizer: byte token %d: %q is not of the form <0x0A>", i, s)
			}
			m.byteID[b], t.pieces[i] = int32(i), []byte{b}
		case Normal, Added:
			if math.IsNaN(scores[i]) {
				return fmt.Errorf("tokenizer: token %d: its score is no number", i)
			}
			order = append(order, i)
		case Unknown:
			t.pieces[i] = []byte(s)
			if t.unk < 0 {
				t.unk, m.unk = int32(i), int32(i)
			}
		}
	}
	m.rank(tokens, scores, order)
	t.model = m
	if f.Bool(p+"add_space_prefix", true) {
		t.prep.normal = append(t.prep.normal, prepend(" "))
		t.stripFirst = true
	}
	t.prep.normal = append(t.prep.normal, replace(" ", underline))
	return nil
}

// rank orders the tokens by falling score.
func (m *scored) rank(tokens []string, scores []float64, order []int) {
	sort.SliceStable(order, func(i, j int) bool { return scores[order[i]] > scores[order[j]] })
	rank := int32(0)
	for k, i := range order {
		if k > 0 && scores[i] != scores[order[k-1]] {
			rank++
		}
		if _, twice := m.vocab[tokens[i]]; !twice && tokens[i] != "" {
			m.vocab[tokens[i]] = ranked{rank, int32(i)}
			m.longest = max(m.longest, len(tokens[i]))
		}
	}
}
