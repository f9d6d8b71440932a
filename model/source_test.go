package model_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	_ "quire/embedded"
	"quire/model"
	"quire/model/tokenizer"
)

// shared gives a path under the shared folder beside the repository, or skips.
func shared(t testing.TB, parts ...string) string {
	t.Helper()
	dir := os.Getenv("QUIRE_SHARED")
	if dir == "" {
		wd, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := os.Stat(filepath.Join(wd, "go.mod")); err == nil {
				break
			}
			if filepath.Dir(wd) == wd {
				t.Fatal("no go.mod above the package")
			}
			wd = filepath.Dir(wd)
		}
		dir = filepath.Join(wd, "..", "shared")
	}
	path := filepath.Join(append([]string{dir}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("skipped: %s is not there (QUIRE_SHARED names the folder)", filepath.Join(parts...))
	}
	return path
}

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, path string) *model.Source {
	t.Helper()
	s, err := model.Open(path, model.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestEmbeddedTokenizerGolden(t *testing.T) {
	tok := open(t, "").Tokenizer
	var g struct {
		Cases []struct {
			Text  string  `json:"text"`
			IDs   []int32 `json:"ids"`
			Marks []int32 `json:"ids_with_marks"`
		}
	}
	readJSON(t, "../embedded/golden/tokenizer.json", &g)
	for _, c := range g.Cases {
		if got := tok.Encode(c.Text, model.EncodeOptions{}); !slices.Equal(got, c.IDs) {
			t.Errorf("%q: %v, want %v", c.Text, got, c.IDs)
		}
		got := tok.Encode(c.Text, model.EncodeOptions{ParseMarks: true})
		if !slices.Equal(got, c.Marks) {
			t.Errorf("%q with marks: %v, want %v", c.Text, got, c.Marks)
		}
		for _, ids := range [][]int32{c.IDs, c.Marks} {
			if back := tok.Decode(ids); back != c.Text {
				t.Errorf("%v decodes to %q, want %q", ids, back, c.Text)
			}
		}
	}
}

func TestSmolLM2TokenizerGolden(t *testing.T) {
	var g struct {
		Vectors []struct {
			Text string
			IDs  []int32
		}
	}
	readJSON(t, shared(t, "models", "golden", "smollm2_tokenizer.json"), &g)
	s := open(t, shared(t, "models", "smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"))
	for _, c := range g.Vectors {
		if got := s.Tokenizer.Encode(c.Text, model.EncodeOptions{}); !slices.Equal(got, c.IDs) {
			t.Errorf("%q: %v, want %v", c.Text, got, c.IDs)
		}
	}
	t.Logf("%d vectors", len(g.Vectors))
}

func TestOpensEveryKind(t *testing.T) {
	for _, p := range []string{"stories260K/stories260K-f32.gguf", "stories3M/stories3M-F16.gguf", "stories3M/stories3M-Q8_0.gguf",
		"stories3M/stories3M-Q4_0.gguf", "stories3M/stories3M-Q4_1.gguf", "tinystories-656k", "tinystories-656k/tinystories-656k-f32.gguf"} {
		t.Run(p, func(t *testing.T) {
			path := shared(t, "models", filepath.FromSlash(p))
			s := open(t, path)
			r, err := model.OpenTokenizer(path, model.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if r.Fingerprint != s.Fingerprint || r.Tensors != nil {
				t.Errorf("OpenTokenizer: fingerprint %x, want %x; %d tensors", r.Fingerprint, s.Fingerprint, len(r.Tensors))
			}
			ids := s.Tokenizer.Encode("Once upon a time", model.EncodeOptions{AddSpecial: true})
			t.Log(s.Config, ids, s.Tokenizer.Decode(ids))
			if s.Tokenizer.Decode(ids[1:]) != "Once upon a time" {
				t.Errorf("%v decodes to %q", ids, s.Tokenizer.Decode(ids))
			}
		})
	}
}

type chatGolden struct {
	Messages []struct{ Role, Content string }
	Prompt   string // embedded/golden
	Rendered string // smollm2
	IDs      []int32
	Add      *bool `json:"add_generation_prompt"`
}

func checkChats(t *testing.T, s *model.Source, cases []chatGolden) {
	t.Helper()
	for _, c := range cases {
		var m []model.Message
		for _, x := range c.Messages {
			m = append(m, model.Message{Role: x.Role, Content: x.Content})
		}
		text, err := s.Template.Text(m, c.Add == nil || *c.Add)
		if err != nil {
			t.Fatal(err)
		}
		if want := c.Prompt + c.Rendered; text != want {
			t.Errorf("%v:\n%q, want\n%q", m, text, want)
		}
		ids, err := s.Template.Encode(m, c.Add == nil || *c.Add)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(ids, c.IDs) {
			t.Errorf("%v:\n%v, want\n%v", m, ids, c.IDs)
		}
	}
	t.Logf("%d conversations", len(cases))
}

func TestEmbeddedChatGolden(t *testing.T) {
	var g struct{ Cases []chatGolden }
	readJSON(t, "../embedded/golden/chat.json", &g)
	checkChats(t, open(t, ""), g.Cases)
}

func TestSmolLM2ChatGolden(t *testing.T) {
	var g struct{ Chats []chatGolden }
	readJSON(t, shared(t, "models", "golden", "smollm2_chat.json"), &g)
	checkChats(t, open(t, shared(t, "models", "smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")), g.Chats)
}

// TestTokenizerJSONAgrees reads the embedded model's tokenizer.json: it must give what the GGUF file gives.
func TestTokenizerJSONAgrees(t *testing.T) {
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join("..", "embedded", "hf", name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	fromJSON, err := tokenizer.FromJSON(read("tokenizer.json"), tokenizer.Extra{Config: read("tokenizer_config.json")})
	if err != nil {
		t.Fatal(err)
	}
	fromGGUF := open(t, "").Tokenizer
	var g struct {
		Cases []struct {
			Text  string
			IDs   []int32
			Marks []int32 `json:"ids_with_marks"`
		}
	}
	readJSON(t, "../embedded/golden/tokenizer.json", &g)
	for _, c := range g.Cases {
		if got := fromJSON.Encode(c.Text, model.EncodeOptions{}); !slices.Equal(got, c.IDs) {
			t.Errorf("%q: %v, want %v", c.Text, got, c.IDs)
		}
		if got := fromJSON.Encode(c.Text, model.EncodeOptions{ParseMarks: true}); !slices.Equal(got, c.Marks) {
			t.Errorf("%q with marks: %v, want %v", c.Text, got, c.Marks)
		}
	}
	a, _ := fromJSON.BOS()
	b, _ := fromGGUF.BOS()
	if a != b || !slices.Equal(fromJSON.EOS(), fromGGUF.EOS()) || fromJSON.AddsBOS() != fromGGUF.AddsBOS() || !slices.Equal(fromJSON.Marks(), fromGGUF.Marks()) {
		t.Errorf("BOS %d and %d, EOS %v and %v, marks %q and %q", a, b, fromJSON.EOS(), fromGGUF.EOS(), fromJSON.Marks(), fromGGUF.Marks())
	}
}

// TestTinyStoriesPrompts compares prompts' ids with those of the golden file, from the directory and from the GGUF file.
func TestTinyStoriesPrompts(t *testing.T) {
	var g map[string]struct {
		Prompt []int32 `json:"prompt_ids"`
	}
	readJSON(t, shared(t, "models", "golden", "tinystories-656k_greedy.json"), &g)
	dir := open(t, shared(t, "models", "tinystories-656k"))
	file := open(t, shared(t, "models", "tinystories-656k", "tinystories-656k-f32.gguf"))
	for text, c := range g {
		for _, s := range []*model.Source{dir, file} {
			if got := s.Tokenizer.Encode(text, model.EncodeOptions{AddSpecial: true}); !slices.Equal(got, c.Prompt) {
				t.Errorf("%s: %q: %v, want %v", s.Path, text, got, c.Prompt)
			}
		}
	}
	if dir.Config.Eps != file.Config.Eps || dir.Config.Rope.Interleaved == file.Config.Rope.Interleaved || dir.Config.Layers != file.Config.Layers {
		t.Errorf("%+v and %+v", dir.Config, file.Config)
	}
}
