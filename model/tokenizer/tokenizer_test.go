package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
	"pgregory.net/rapid"
)

// text draws what word patterns tell apart, and what they are known to stumble over.
var text = rapid.Custom(func(t *rapid.T) string {
	pools := []string{"abcXYZ '’", "0123456789½Ⅳ٣", " \t\n\r\u00a0\u3000\u0085", "!?.,;:-_'\"()[]{}<>|/\\#$%&*+=~^`@", "éßñçÅ日本漢字हिعر",
		"🎉👩\u200d👧\u0301\u0300", "sStTdDmMrReEvVlLſ'", "\x00\x04\u2028\ufeff"}
	var b strings.Builder
	for _, p := range rapid.SliceOfN(rapid.SampledFrom(pools), 0, 12).Draw(t, "pools") {
		for _, r := range rapid.SliceOfN(rapid.SampledFrom([]rune(p)), 1, 4).Draw(t, "runes") {
			b.WriteRune(r)
		}
	}
	return b.String()
})

// TestScannersMatchTheirPatterns compares the scanners with the patterns they stand for.
func TestScannersMatchTheirPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern string
		scan    scanner
	}{{gpt2Pattern, scanGPT2}, {llama3Pattern, scanLlama3}, {qwen2Pattern, scanQwen2}} {
		// The pattern engine does not know that U+017F is a small s where case does not count.
		re := regexp2.MustCompile(c.pattern, regexp2.None)
		rapid.Check(t, func(t *rapid.T) {
			s := strings.ReplaceAll(text.Draw(t, "text"), "ſ", "s")
			var want, got []string
			m, err := re.FindStringMatch(s)
			for ; err == nil && m != nil; m, err = re.FindNextMatch(m) {
				want = append(want, m.String())
			}
			if err != nil {
				t.Fatal(err)
			}
			words(c.scan)(s, func(w string) { got = append(got, w) })
			if !slices.Equal(got, want) {
				t.Fatalf("%q: %q, want %q", s, got, want)
			}
		})
	}
}

// TestDigits checks the split that keeps numbers apart.
func TestDigits(t *testing.T) {
	for _, c := range []struct {
		single bool
		in     string
		want   []string
	}{
		{true, "ab12 3½x", []string{"ab", "1", "2", " ", "3", "½", "x"}}, {false, "ab12 3½x", []string{"ab", "12", " ", "3½", "x"}},
		{true, "7", []string{"7"}}, {true, "", nil},
	} {
		var got []string
		digits(c.single)(c.in, func(w string) { got = append(got, w) })
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}

// TestHeapMergesAsTheSearchDoes compares the two ways of merging on vocabularies drawn at random.
func TestHeapMergesAsTheSearchDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pairs := map[uint64]ranked{}
		for i := range rapid.IntRange(0, 40).Draw(t, "pairs") {
			top := int32(4 + i)
			a, b := rapid.Int32Range(0, top-1).Draw(t, "a"), rapid.Int32Range(0, top-1).Draw(t, "b")
			pairs[pairKey(a, b)] = ranked{rank: rapid.Int32Range(0, 20).Draw(t, "rank"), id: top}
		}
		m := &bpe{pairs: pairs}
		ids := rapid.SliceOfN(rapid.Int32Range(0, 3), shortWord+1, 120).Draw(t, "word")
		start := func() []symbol {
			s := make([]symbol, len(ids))
			for i, id := range ids {
				s[i] = symbol{from: int32(i), to: int32(i) + 1, id: id}
			}
			return s
		}
		list := func(s []symbol) (out []int32) {
			for _, x := range s {
				out = append(out, x.from, x.to, x.id)
			}
			return out
		}
		if heap, plain := list(merge(start(), m.pair)), list(mergeShort(start(), m.pair)); !slices.Equal(heap, plain) {
			t.Fatalf("heap %v, search %v", heap, plain)
		}
	})
}

// spec is a tokenizer.json in the making.
type spec map[string]any

// byteLevel is a vocabulary of all bytes, some merges, and some marks.
func byteLevel() spec {
	vocab := map[string]int{}
	for b := range 256 {
		vocab[string(runeOfByte[b])] = b
	}
	merges := []string{"a b", "Ġ a", "ab c", "Ġ Ġ"}
	for i, m := range merges {
		vocab[strings.ReplaceAll(m, " ", "")] = 256 + i
	}
	return spec{
		"added_tokens": []any{
			map[string]any{"id": 260, "content": "<s>", "special": true}, map[string]any{"id": 261, "content": "</s>", "special": true},
			map[string]any{"id": 262, "content": "<tool>", "special": false}, map[string]any{"id": 263, "content": "    ", "special": false},
			map[string]any{"id": 264, "content": "<mask>", "special": true, "lstrip": true, "rstrip": true},
		},
		"pre_tokenizer":  spec{"type": "ByteLevel", "add_prefix_space": false},
		"post_processor": spec{"type": "TemplateProcessing", "single": []any{spec{"SpecialToken": spec{"id": "<s>"}}, spec{"Sequence": spec{"id": "A"}}}},
		"model":          spec{"type": "BPE", "vocab": vocab, "merges": merges},
	}
}

func (s spec) load(t testing.TB, x Extra) (*Tokenizer, error) {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return FromJSON(b, x)
}

func TestMarks(t *testing.T) {
	tok, err := byteLevel().load(t, Extra{EOS: []int32{261}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		o    EncodeOptions
		want []int32
	}{
		{"abc", EncodeOptions{}, []int32{258}},
		{"abc", EncodeOptions{AddSpecial: true}, []int32{260, 258}},
		{"<s>", EncodeOptions{ParseMarks: true}, []int32{260}},
		{"a<s></s>", EncodeOptions{ParseMarks: true}, []int32{'a', 260, 261}},
		{"<s>", EncodeOptions{}, []int32{'<', 's', '>'}},
		{"<tool>", EncodeOptions{}, []int32{'<', 't', 'o', 'o', 'l', '>'}},
		{"<tool>", EncodeOptions{ParseMarks: true}, []int32{262}},
		{"a    b", EncodeOptions{}, []int32{'a', 263, 'b'}}, // added text is text
		{"a <mask> b", EncodeOptions{ParseMarks: true}, []int32{'a', 264, 'b'}},
	} {
		if got := tok.Encode(c.text, c.o); !slices.Equal(got, c.want) {
			t.Errorf("%q %+v: %v, want %v", c.text, c.o, got, c.want)
		}
	}
	if id, ok := tok.BOS(); !ok || id != 260 || !tok.AddsBOS() || !tok.IsEOS(261) || tok.IsEOS(260) || tok.MarkText(260) != "<s>" || tok.MarkText(5) != "" {
		t.Errorf("BOS %d, EOS %v", id, tok.EOS())
	}
	if got := tok.Decode([]int32{260, 258, -1, 9999, 261}); got != "<s>abc</s>" {
		t.Errorf("decoded %q", got)
	}
	parts := tok.Split("<s>x<mask>y")
	if fmt.Sprint(parts) != "[{ 260} {x 0} { 264} {y 0}]" || !slices.Equal(tok.EncodeParts(parts), []int32{260, 'x', 264, 'y'}) {
		t.Errorf("%v", parts)
	}
}

func TestByteFallback(t *testing.T) {
	vocab := map[string]int{"<unk>": 0, "▁": 257, "h": 258, "i": 259, "hi": 260, "▁hi": 261}
	for b := range 256 {
		vocab[fmt.Sprintf("<0x%02X>", b)] = b + 1
	}
	s := spec{
		"normalizer": spec{"type": "Sequence", "normalizers": []any{spec{"type": "Prepend", "prepend": "▁"}, spec{"type": "Replace", "pattern": spec{"String": " "}, "content": "▁"}}},
		"decoder":    spec{"type": "Sequence", "decoders": []any{spec{"type": "ByteFallback"}, spec{"type": "Strip", "content": " ", "start": 1}}},
		"model":      spec{"type": "BPE", "vocab": vocab, "merges": [][]string{{"h", "i"}, {"▁", "hi"}}, "unk_token": "<unk>", "byte_fallback": true, "fuse_unk": true},
	}
	tok, err := s.load(t, Extra{})
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string][]int32{"hi": {261}, "hi hi": {261, 261}, "é": {257, 0xC3 + 1, 0xA9 + 1}, "": {}, "<0x0A>": nil} {
		got := tok.Encode(in, EncodeOptions{})
		if want != nil && !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
		if back := tok.Decode(got); back != in {
			t.Errorf("%q: decodes to %q", in, back)
		}
	}
}

func TestFromJSONRefuses(t *testing.T) {
	model := func(s spec) spec { return s["model"].(spec) }
	for name, c := range map[string]struct {
		set  func(s spec)
		want string
	}{
		"unigram":        {func(s spec) { s["model"] = spec{"type": "Unigram", "vocab": []any{[]any{"a", 1}}} }, `model type "Unigram" does not load, BPE does`},
		"no vocabulary":  {func(s spec) { model(s)["vocab"] = map[string]int{}; s["added_tokens"] = nil }, "no tokens"},
		"wild id":        {func(s spec) { model(s)["vocab"] = map[string]int{"a": 1 << 30} }, "id 1073741824"},
		"negative id":    {func(s spec) { model(s)["vocab"] = map[string]int{"a": -1} }, "id -1"},
		"wild added id":  {func(s spec) { s["added_tokens"] = []any{spec{"id": 1 << 30, "content": "x"}} }, "id 1073741824"},
		"merge halves":   {func(s spec) { model(s)["merges"] = []string{"a zz"} }, "not all three are tokens"},
		"merge no space": {func(s spec) { model(s)["merges"] = []string{"ab"} }, "holds no space"},
		"merge triple":   {func(s spec) { model(s)["merges"] = [][]string{{"a", "b", "c"}} }, "3 parts"},
		"normalizer":     {func(s spec) { s["normalizer"] = spec{"type": "BertNormalizer"} }, "normalizer BertNormalizer does not load"},
		"pre-tokenizer":  {func(s spec) { s["pre_tokenizer"] = spec{"type": "BertPreTokenizer"} }, "pre-tokenizer BertPreTokenizer does not load"},
		"split": {func(s spec) {
			s["pre_tokenizer"] = spec{"type": "Split", "pattern": spec{"Regex": "a"}, "behavior": "MergedWithNext"}
		}, "MergedWithNext"},
		"pattern": {func(s spec) {
			s["pre_tokenizer"] = spec{"type": "Split", "pattern": spec{"Regex": "("}, "behavior": "Isolated"}
		}, "split pattern"},
		"suffix":    {func(s spec) { model(s)["end_of_word_suffix"] = "</w>" }, `"</w>" does not load`},
		"unk":       {func(s spec) { model(s)["unk_token"] = "nope" }, "is no token"},
		"few bytes": {func(s spec) { model(s)["vocab"] = map[string]int{"a": 0, "b": 1}; model(s)["merges"] = nil }, "only 2 of 256 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			s := byteLevel()
			c.set(s)
			if _, err := s.load(t, Extra{}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	if _, err := byteLevel().load(t, Extra{EOS: []int32{5000}}); err == nil || !strings.Contains(err.Error(), "eos_token_id 5000") {
		t.Error(err)
	}
}

// TestUnknownPatterns runs a pattern that has no scanner, and one that takes for ever.
func TestUnknownPatterns(t *testing.T) {
	s := byteLevel()
	s["pre_tokenizer"] = spec{"type": "Sequence", "pretokenizers": []any{
		spec{"type": "Split", "pattern": spec{"Regex": `\d+|\D+`}, "behavior": "Isolated"}, spec{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}}}
	tok, err := s.load(t, Extra{})
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.Encode("ab1é2", EncodeOptions{}); tok.Decode(got) != "ab1é2" {
		t.Errorf("%v", got)
	}
	s["pre_tokenizer"] = spec{"type": "Sequence", "pretokenizers": []any{
		spec{"type": "Split", "pattern": spec{"Regex": `(a+)+$`}, "behavior": "Isolated"}, spec{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}}}
	if tok, err = s.load(t, Extra{}); err != nil {
		t.Fatal(err)
	}
	slow := strings.Repeat("a", 60) + "!"
	if got := tok.Decode(tok.Encode(slow, EncodeOptions{})); got != slow {
		t.Errorf("%q", got)
	}
}

// TestLongWords would take hours if merging were quadratic.
func TestLongWords(t *testing.T) {
	tok, err := byteLevel().load(t, Extra{})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{"a", "abc", " ", "é"} {
		s := strings.Repeat(w, 1<<20/len(w))
		if back := tok.Decode(tok.Encode(s, EncodeOptions{})); back != s {
			t.Errorf("a megabyte of %q does not come back", w)
		}
	}
}

// TestDetokenizer cuts any bytes into tokens: what comes out is the whole text, and every piece is whole characters.
func TestDetokenizer(t *testing.T) {
	tok, err := byteLevel().load(t, Extra{})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.OneOf(rapid.Custom(func(t *rapid.T) []byte { return []byte(text.Draw(t, "text")) }), rapid.SliceOf(rapid.Byte())).Draw(t, "bytes")
		d := tok.NewDetokenizer()
		var got []byte
		for i, b := range raw {
			if i == len(raw)/2 {
				got = d.Add(got, 260) // a mark adds nothing
				d = d.Clone()
			}
			before := len(got)
			got = d.Add(got, int32(b))
			if !utf8.Valid(got[before:]) || d.Held() > 3 {
				t.Fatalf("%q is no text, %d held", got[before:], d.Held())
			}
		}
		got = d.Flush(got)
		if utf8.Valid(raw) && string(got) != string(raw) {
			t.Fatalf("%q, want %q", got, raw)
		}
		if strings.ReplaceAll(string(got), "\uFFFD", "") != strings.ReplaceAll(strings.ToValidUTF8(string(raw), ""), "\uFFFD", "") {
			t.Fatalf("%q, want %q", got, strings.ToValidUTF8(string(raw), "\uFFFD"))
		}
	})
}

func FuzzFromJSON(f *testing.F) {
	b, err := json.Marshal(byteLevel())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, "abc <s> é")
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]},"pre_tokenizer":{"type":"Metaspace"}}`), "ab ab")
	f.Fuzz(func(t *testing.T, b []byte, text string) {
		tok, err := FromJSON(b, Extra{})
		if err != nil {
			return
		}
		for _, id := range tok.Encode(text, EncodeOptions{AddSpecial: true, ParseMarks: true}) {
			if id < 0 || int(id) >= tok.Vocab() {
				t.Fatalf("id %d of %d", id, tok.Vocab())
			}
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	tok, err := byteLevel().load(f, Extra{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("abc <s>    é\xff")
	f.Fuzz(func(t *testing.T, text string) {
		if got := tok.Decode(tok.Encode(text, EncodeOptions{})); got != strings.ToValidUTF8(text, "\uFFFD") {
			t.Fatalf("%q, want %q", got, text)
		}
	})
}
