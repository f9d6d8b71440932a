package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// Extra is what other files say about a tokenizer.json.
type Extra struct {
	Config []byte  // tokenizer_config.json, may be nil
	BOS    *int32  // from config.json
	EOS    []int32 // from config.json and generation_config.json
}

// step is a normalizer, a pre-tokenizer, a decoder or a post-processor: one of several kinds, or a sequence.
type step struct {
	Type             string          `json:"type"`
	Normalizers      []step          `json:"normalizers"`
	Pretokenizers    []step          `json:"pretokenizers"`
	Processors       []step          `json:"processors"`
	Decoders         []step          `json:"decoders"`
	Prepend          string          `json:"prepend"`
	Pattern          pattern         `json:"pattern"`
	Content          string          `json:"content"`
	Behavior         string          `json:"behavior"`
	Invert           bool            `json:"invert"`
	IndividualDigits bool            `json:"individual_digits"`
	AddPrefixSpace   *bool           `json:"add_prefix_space"`
	UseRegex         *bool           `json:"use_regex"`
	Replacement      string          `json:"replacement"`
	PrependScheme    string          `json:"prepend_scheme"`
	Split            *bool           `json:"split"`
	Start            int             `json:"start"`
	Single           []templateToken `json:"single"`
}

// pattern is a regular expression or a plain string.
type pattern struct {
	Regex  string `json:"Regex"`
	String string `json:"String"`
}

// templateToken is one element of TemplateProcessing: a special token, or where the text goes.
type templateToken struct {
	Special *struct {
		ID string `json:"id"`
	} `json:"SpecialToken"`
	Sequence *struct{} `json:"Sequence"`
}

type addedToken struct {
	ID      int32  `json:"id"`
	Content string `json:"content"`
	LStrip  bool   `json:"lstrip"`
	RStrip  bool   `json:"rstrip"`
	Special bool   `json:"special"`
}

type file struct {
	Added      []addedToken `json:"added_tokens"`
	Normalizer *step        `json:"normalizer"`
	Pre        *step        `json:"pre_tokenizer"`
	Post       *step        `json:"post_processor"`
	Decoder    *step        `json:"decoder"`
	Model      struct {
		Type         string           `json:"type"`
		RawVocab     json.RawMessage  `json:"vocab"` // other types' have another shape
		Vocab        map[string]int32 `json:"-"`
		Merges       json.RawMessage  `json:"merges"`
		Unk          *string          `json:"unk_token"`
		Prefix       *string          `json:"continuing_subword_prefix"`
		Suffix       *string          `json:"end_of_word_suffix"`
		FuseUnk      bool             `json:"fuse_unk"`
		ByteFallback bool             `json:"byte_fallback"`
		IgnoreMerges bool             `json:"ignore_merges"`
	} `json:"model"`
}

// maxID bounds ids, so that one wild id allocates no table of gigabytes.
const maxID = 1 << 22

// FromJSON reads a tokenizer.json whose model is BPE: byte-level, or over characters with byte fallback.
func FromJSON(b []byte, x Extra) (*Tokenizer, error) {
	var f file
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if f.Model.Type != "BPE" && f.Model.Type != "" {
		return nil, fmt.Errorf("tokenizer: model type %q does not load, BPE does", f.Model.Type)
	}
	if err := json.Unmarshal(f.Model.RawVocab, &f.Model.Vocab); err != nil {
		return nil, fmt.Errorf("tokenizer: vocab: %w", err)
	}
	t := &Tokenizer{bos: -1, unk: -1}
	strips, err := t.table(f)
	if err != nil {
		return nil, err
	}
	if err := t.jsonModel(f); err != nil {
		return nil, err
	}
	if t.prep.normal, err = normalizers(f.Normalizer); err != nil {
		return nil, err
	}
	if t.prep.splits, err = splitters(f.Pre); err != nil {
		return nil, err
	}
	t.stripFirst = strips0(f.Decoder)
	eos, err := t.specials(f, x)
	if err != nil {
		return nil, err
	}
	return t, t.finish(eos, strips)
}

// table sizes the vocabulary and enters the added tokens.
func (t *Tokenizer) table(f file) (map[int32][2]bool, error) {
	top := int32(-1)
	for s, id := range f.Model.Vocab {
		if id < 0 || id >= maxID {
			return nil, fmt.Errorf("tokenizer: token %q: id %d, 0 to %d are possible", s, id, maxID-1)
		}
		top = max(top, id)
	}
	for _, a := range f.Added {
		if a.ID < 0 || a.ID >= maxID || a.Content == "" {
			return nil, fmt.Errorf("tokenizer: added token %q: id %d, 0 to %d are possible", a.Content, a.ID, maxID-1)
		}
		top = max(top, a.ID)
	}
	if top < 0 {
		return nil, errors.New("tokenizer: no tokens")
	}
	t.pieces, t.kinds = make([][]byte, top+1), make([]Kind, top+1)
	for i := range t.kinds {
		t.kinds[i] = Unused
	}
	for _, id := range f.Model.Vocab {
		t.kinds[id] = Normal
	}
	strips := map[int32][2]bool{}
	for _, a := range f.Added {
		t.pieces[a.ID], t.kinds[a.ID] = []byte(a.Content), Added
		if a.Special || looksLikeMark(a.Content) {
			t.kinds[a.ID] = Mark
		}
		if !a.Special && t.kinds[a.ID] == Mark {
			t.show(a.ID)
		}
		strips[a.ID] = [2]bool{a.LStrip, a.RStrip}
	}
	return strips, nil
}

func (t *Tokenizer) jsonModel(f file) error {
	for _, s := range []*string{f.Model.Prefix, f.Model.Suffix} {
		if s != nil && *s != "" {
			return fmt.Errorf("tokenizer: subword prefix or suffix %q does not load", *s)
		}
	}
	m := &bpe{unk: -1, fallback: f.Model.ByteFallback, ignoreMerges: f.Model.IgnoreMerges, fuseUnk: f.Model.FuseUnk}
	if f.Model.Unk != nil {
		id, ok := f.Model.Vocab[*f.Model.Unk]
		if !ok {
			return fmt.Errorf("tokenizer: unk_token %q is no token", *f.Model.Unk)
		}
		t.unk = id
		if t.kinds[id] != Mark {
			t.kinds[id] = Unknown
		}
		if t.kinds[id] != Mark || *f.Model.Unk == "<unk>" {
			m.unk = id // else what has no token is left out: a user's text must not become a mark
		}
	}
	m.byteLevel = has(f.Pre, "ByteLevel") || has(f.Decoder, "ByteLevel")
	t.model = m
	if m.byteLevel {
		if err := m.byteLevelVocab(t, f.Model.Vocab); err != nil {
			return err
		}
	} else {
		m.characterVocab(t, f.Model.Vocab)
	}
	list, err := mergeList(f.Model.Merges)
	if err != nil {
		return err
	}
	return m.merges(f.Model.Vocab, list)
}

// characterVocab fills the pieces of a vocabulary that spells spaces as underlines and may have byte tokens.
func (m *bpe) characterVocab(t *Tokenizer, vocab map[string]int32) {
	m.vocab = make(map[string]int32, len(vocab))
	for i := range m.byteID {
		m.byteID[i] = -1
	}
	for s, id := range vocab {
		if k := t.kinds[id]; k == Mark || k == Added || k == Unknown {
			t.pieces[id] = []byte(s)
			continue
		}
		if b, ok := byteToken(s); ok && m.fallback {
			t.kinds[id], t.pieces[id], m.byteID[b] = Byte, []byte{b}, id
			continue
		}
		t.pieces[id] = []byte(strings.ReplaceAll(s, underline, " "))
		m.vocab[s] = id
	}
}

// mergeList reads merges as strings with a space, or as pairs.
func mergeList(b json.RawMessage) ([][2]string, error) {
	if len(bytes.TrimSpace(b)) == 0 || string(b) == "null" {
		return nil, nil
	}
	if !bytes.HasPrefix(bytes.TrimLeft(b[1:], " \t\r\n"), []byte("[")) {
		var lines []string
		if err := json.Unmarshal(b, &lines); err != nil {
			return nil, fmt.Errorf("tokenizer: merges: %w", err)
		}
		return cutMerges(lines)
	}
	var pairs [][]string
	if err := json.Unmarshal(b, &pairs); err != nil {
		return nil, fmt.Errorf("tokenizer: merges: %w", err)
	}
	out := make([][2]string, len(pairs))
	for i, p := range pairs {
		if len(p) != 2 {
			return nil, fmt.Errorf("tokenizer: merge %d: %d parts, 2 are needed", i, len(p))
		}
		out[i] = [2]string{p[0], p[1]}
	}
	return out, nil
}

// cutMerges cuts merges at their space.
func cutMerges(lines []string) ([][2]string, error) {
	out := make([][2]string, len(lines))
	for i, s := range lines {
		a, b, ok := strings.Cut(s, " ")
		if !ok {
			return nil, fmt.Errorf("tokenizer: merge %d: %q holds no space", i, s)
		}
		out[i] = [2]string{a, b}
	}
	return out, nil
}

// has says whether a step or one within it is of a kind.
func has(s *step, kind string) bool {
	if s == nil {
		return false
	}
	if s.Type == kind {
		return true
	}
	for _, list := range [][]step{s.Pretokenizers, s.Decoders} {
		for i := range list {
			if has(&list[i], kind) {
				return true
			}
		}
	}
	return false
}

func normalizers(s *step) ([]normalizer, error) {
	if s == nil {
		return nil, nil
	}
	switch s.Type {
	case "Sequence":
		var out []normalizer
		for i := range s.Normalizers {
			n, err := normalizers(&s.Normalizers[i])
			if err != nil {
				return nil, err
			}
			out = append(out, n...)
		}
		return out, nil
	case "NFC":
		return []normalizer{form(norm.NFC)}, nil
	case "NFD":
		return []normalizer{form(norm.NFD)}, nil
	case "NFKC":
		return []normalizer{form(norm.NFKC)}, nil
	case "NFKD":
		return []normalizer{form(norm.NFKD)}, nil
	case "Prepend":
		return []normalizer{prepend(s.Prepend)}, nil
	case "Replace":
		if s.Pattern.String != "" {
			return []normalizer{replace(s.Pattern.String, s.Content)}, nil
		}
	}
	return nil, fmt.Errorf("tokenizer: normalizer %s does not load, these do: Sequence, NFC, NFD, NFKC, NFKD, Prepend, Replace of a string", s.Type)
}

// strips0 says whether a decoder takes one leading space off.
func strips0(s *step) bool {
	if s == nil {
		return false
	}
	for i := range s.Decoders {
		if strips0(&s.Decoders[i]) {
			return true
		}
	}
	return (s.Type == "Strip" && s.Content == " " && s.Start == 1) || (s.Type == "Metaspace" && s.PrependScheme != "never")
}

// specials finds the start and end tokens and whether they are put around a text.
func (t *Tokenizer) specials(f file, x Extra) ([]int32, error) {
	var c struct {
		BOS    tokenName `json:"bos_token"`
		EOS    tokenName `json:"eos_token"`
		AddBOS *bool     `json:"add_bos_token"`
		AddEOS *bool     `json:"add_eos_token"`
	}
	if x.Config != nil {
		if err := json.Unmarshal(x.Config, &c); err != nil {
			return nil, fmt.Errorf("tokenizer: tokenizer_config.json: %w", err)
		}
	}
	id := func(s tokenName) (int32, bool) {
		for _, a := range f.Added {
			if a.Content == string(s) && s != "" {
				return a.ID, true
			}
		}
		v, ok := f.Model.Vocab[string(s)]
		return v, ok && s != ""
	}
	var eos []int32
	if v, ok := id(c.EOS); ok {
		eos = append(eos, v)
	}
	for _, v := range x.EOS {
		if v < 0 || int(v) >= len(t.pieces) {
			return nil, fmt.Errorf("tokenizer: eos_token_id %d, the vocabulary has %d", v, len(t.pieces))
		}
		eos = append(eos, v)
	}
	if v, ok := id(c.BOS); ok {
		t.bos = v
	} else if x.BOS != nil {
		t.bos = *x.BOS
	}
	before, after := around(f.Post)
	if v, ok := id(tokenName(before)); ok {
		t.bos, t.addBOS = v, true
	}
	if v, ok := id(tokenName(after)); ok {
		eos = append([]int32{v}, eos...)
		t.addEOS = true
	}
	if c.AddBOS != nil && f.Post == nil {
		t.addBOS = *c.AddBOS
	}
	if c.AddEOS != nil && f.Post == nil {
		t.addEOS = *c.AddEOS
	}
	return eos, nil
}

// around gives the special tokens that a post-processor puts before and after a text.
func around(s *step) (before, after string) {
	if s == nil {
		return "", ""
	}
	for i := range s.Processors {
		b, a := around(&s.Processors[i])
		if b != "" {
			before = b
		}
		if a != "" {
			after = a
		}
	}
	seen := false
	for _, x := range s.Single {
		switch {
		case x.Sequence != nil:
			seen = true
		case x.Special != nil && !seen:
			before = x.Special.ID
		case x.Special != nil:
			after = x.Special.ID
		}
	}
	return before, after
}

// tokenName is a token's text, or an object that holds it, or null.
type tokenName string

// UnmarshalJSON takes all three forms.
func (n *tokenName) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*n = tokenName(s)
		return nil
	}
	var o struct {
		Content string `json:"content"`
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return err
	}
	*n = tokenName(o.Content)
	return nil
}
