package model_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quire/device"
	"quire/device/cpu"
	"quire/model"
	"quire/model/gguf/gguftest"
	"quire/model/tensor"
)

// qwenGolden is what other implementations make of a model in testdata: see testdata/qwen.py.
type qwenGolden struct {
	Tokens []int32     `json:"tokens"`
	Rows   []int       `json:"rows"`
	Logits [][]float64 `json:"logits"` // of those rows
	Texts  []struct {
		Text string  `json:"text"`
		IDs  []int32 `json:"ids"`
	} `json:"texts"`
	Chats []struct {
		Messages []struct{ Role, Content string } `json:"messages"`
		Prompt   bool                             `json:"prompt"`
		Thinking *bool                            `json:"thinking"`
		Text     string                           `json:"text"`
	} `json:"chats"`
}

// forQwens runs a test on each model of testdata: the Hugging Face directory, and the GGUF file that llama.cpp's converter makes of it.
func forQwens(t *testing.T, run func(t *testing.T, src *model.Source, g qwenGolden)) {
	for _, name := range []string{"qwen2", "qwen2.gguf", "qwen3", "qwen3.gguf"} {
		t.Run(name, func(t *testing.T) {
			var g qwenGolden
			readJSON(t, filepath.Join("testdata", strings.TrimSuffix(name, ".gguf"), "golden.json"), &g)
			run(t, open(t, filepath.Join("testdata", name)), g)
		})
	}
}

// f32 is how references compute.
var f32 = rigOptions{cpu.Options{Activations: "f32"}, model.EngineOptions{KVType: device.F32}}

// TestQwenForward: logits are within 1e-4 of torch's.
func TestQwenForward(t *testing.T) {
	forQwens(t, func(t *testing.T, src *model.Source, g qwenGolden) {
		got := newRig(t, src, f32).seq(len(g.Tokens)).logits(g.Tokens...)
		var worst float64
		for i, row := range g.Rows {
			for j, want := range g.Logits[i] {
				worst = math.Max(worst, math.Abs(float64(got[row][j])-want))
			}
		}
		t.Logf("largest difference of a logit: %.2g", worst)
		if !(worst < 1e-4) {
			t.Errorf("largest difference of a logit: %g, below 1e-4 is right", worst)
		}
	})
}

// TestQwenFiles: a GGUF file and safetensors of the same weights give the same bits.
func TestQwenFiles(t *testing.T) {
	for _, name := range []string{"qwen2", "qwen3"} {
		tokens := story(50, 384, 6)
		want := newRig(t, open(t, filepath.Join("testdata", name)), f32).seq(len(tokens)).logits(tokens...)
		got := newRig(t, open(t, filepath.Join("testdata", name+".gguf")), f32).seq(len(tokens)).logits(tokens...)
		for i := range want {
			for j := range want[i] {
				if got[i][j] != want[i][j] {
					t.Fatalf("%s: row %d logit %d: %g from GGUF, %g from safetensors", name, i, j, got[i][j], want[i][j])
				}
			}
		}
	}
}

// asGGUF writes a model's tensors as GGUF has them, with a vocabulary of its size.
func asGGUF(t *testing.T, src *model.Source) gguftest.File {
	t.Helper()
	c := src.Config
	f := gguftest.Tiny()
	f.Tensors, f.Data = nil, nil
	f.Pairs = slices.DeleteFunc(f.Pairs, func(p gguftest.Pair) bool { return bytes.HasPrefix([]byte(p.Key), []byte("llama.")) })
	f.Set("general.architecture", c.Architecture)
	for key, v := range map[string]any{
		"block_count": uint32(c.Layers), "embedding_length": uint32(c.Dim), "feed_forward_length": uint32(c.FFN),
		"attention.head_count": uint32(c.Heads), "attention.head_count_kv": uint32(c.KVHeads), "context_length": uint32(c.Context),
		"attention.key_length": uint32(c.HeadDim), "attention.layer_norm_rms_epsilon": c.Eps, "rope.freq_base": float32(c.Rope.Base),
		"vocab_size": uint32(c.Vocab),
	} {
		f.Set(c.Architecture+"."+key, v)
	}
	kinds := map[tensor.Type]uint32{tensor.F32: 0, tensor.BF16: 30}
	for name, x := range src.Tensors {
		var dims []uint64
		for _, d := range slices.Backward(x.Shape) {
			dims = append(dims, uint64(d))
		}
		f.Tensors = append(f.Tensors, gguftest.Tensor{Name: name, Dims: dims, Type: kinds[x.Type], Offset: uint64(len(f.Data))})
		f.Data = append(f.Data, x.Data...)
		f.Data = append(f.Data, make([]byte, (32-len(x.Data)%32)%32)...)
	}
	return f
}

// TestQwenTokenizer: ids are those of the package tokenizers; what looks like a mark in a text is none.
func TestQwenTokenizer(t *testing.T) {
	forQwens(t, func(t *testing.T, src *model.Source, g qwenGolden) {
		for _, c := range g.Texts {
			if got := src.Tokenizer.Encode(c.Text, model.EncodeOptions{AddSpecial: true}); !slices.Equal(got, c.IDs) {
				t.Errorf("%q:\ngot  %d\nwant %d", c.Text, got, c.IDs)
			}
		}
		think := src.Tokenizer.Encode("<think>hm</think><|im_end|>", model.EncodeOptions{ParseMarks: true})
		var shown []byte
		d := src.Tokenizer.NewDetokenizer()
		for _, id := range think {
			shown = d.Add(shown, id)
		}
		if string(shown) != "<think>hm</think>" || src.Tokenizer.MarkText(think[0]) != "<think>" {
			t.Errorf("%d shows as %q", think, shown)
		}
		if s := src.Generation; s.Temperature == nil || *s.Temperature != 0.6 || *s.TopK != 20 || *s.TopP != 0.95 || s.MinP != nil {
			t.Errorf("suggested sampling: %+v", s)
		}
		var ends []string
		for _, id := range src.Tokenizer.EOS() {
			ends = append(ends, src.Tokenizer.MarkText(id))
		}
		slices.Sort(ends)
		if !slices.Equal(ends, []string{"<|endoftext|>", "<|im_end|>"}) {
			t.Errorf("answers end at %q", ends)
		}
	})
}

// TestQwenChat: prompts are those of transformers, with and without thinking where the template has the switch.
func TestQwenChat(t *testing.T) {
	forQwens(t, func(t *testing.T, src *model.Source, g qwenGolden) {
		if src.TemplateErr != nil {
			t.Fatal(src.TemplateErr)
		}
		if thinks := src.Config.Architecture == "qwen3"; src.Template.Thinks() != thinks {
			t.Errorf("a switch for thinking: %t, want %t", src.Template.Thinks(), thinks)
		}
		for i, c := range g.Chats {
			var messages []model.Message
			for _, m := range c.Messages {
				messages = append(messages, model.Message{Role: m.Role, Content: m.Content})
			}
			got, err := src.Template.WithThinking(c.Thinking).Text(messages, c.Prompt)
			if err != nil || got != c.Text {
				t.Errorf("chat %d: %v\ngot  %q\nwant %q", i, err, got, c.Text)
			}
		}
	})
}

// TestQwenRefuses: what would be computed wrongly is refused by the name of its key.
func TestQwenRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(config map[string]any)
		want string
	}{
		{"qwen2", func(c map[string]any) { c["use_sliding_window"] = true }, "use_sliding_window true: sliding windows do not load"},
		{"qwen2", func(c map[string]any) { c["layer_types"] = []string{"full_attention", "sliding_attention"} }, `layer_types "sliding_attention" does not load`},
		{"qwen2", func(c map[string]any) { c["rope_parameters"] = map[string]any{"rope_type": "mrope"} }, `rope_scaling rope_type "mrope" does not load`},
		{"qwen3", func(c map[string]any) { c["attention_bias"] = true }, "attention_bias true"},
		{"qwen3", func(c map[string]any) { c["architectures"] = []string{"Qwen3MoeForCausalLM"} }, `architectures "Qwen3MoeForCausalLM" does not load`},
		{"qwen3", func(c map[string]any) { c["architectures"] = []string{"Qwen2ForCausalLM"} }, "tensor blk.0.attn_q.bias is missing"},
		{"qwen2", func(c map[string]any) { c["architectures"] = []string{"LlamaForCausalLM"} }, ".bias ["},
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", c.name))); err != nil {
			t.Fatal(err)
		}
		var config map[string]any
		readJSON(t, filepath.Join(dir, "config.json"), &config)
		c.set(config)
		b, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "config.json"), b)
		if _, err := model.Open(dir, model.OpenOptions{}); err == nil || !bytes.Contains([]byte(err.Error()), []byte(c.want)) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
	f := asGGUF(t, open(t, filepath.Join("testdata", "qwen2")))
	f.Set("qwen2.attention.sliding_window", uint32(64))
	path := write(t, filepath.Join(t.TempDir(), "window.gguf"), f.Bytes())
	if _, err := model.Open(path, model.OpenOptions{}); err == nil || !bytes.Contains([]byte(err.Error()), []byte("qwen2.attention.sliding_window 64: sliding windows do not load")) {
		t.Errorf("a window: %v", err)
	}
}

// TestQwenConfigs: a window that is not turned on changes nothing, and Qwen3's heads are of 128 where the file does not say so.
func TestQwenConfigs(t *testing.T) {
	config := func(name string, set func(config map[string]any)) (model.Config, error) {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", name))); err != nil {
			t.Fatal(err)
		}
		var c map[string]any
		readJSON(t, filepath.Join(dir, "config.json"), &c)
		set(c)
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "config.json"), b)
		src, err := model.OpenTokenizer(dir, model.OpenOptions{})
		if err != nil {
			return model.Config{}, err
		}
		return src.Config, nil
	}
	c, err := config("qwen2", func(c map[string]any) { c["sliding_window"], c["max_window_layers"] = 32, 1 })
	if err != nil || c.Context != 256 || !c.Bias || c.HeadNorm || !c.Tied {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = config("qwen3", func(c map[string]any) { delete(c, "head_dim") })
	if err != nil || c.HeadDim != 128 || c.Bias || !c.HeadNorm || c.Tied {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = config("qwen2", func(c map[string]any) {
		c["rope_parameters"] = map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1000000.0}
	})
	if err != nil || c.Rope.Scaling.Kind != "yarn" || c.Rope.Scaling.OriginalContext != 64 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestQwenRows: biases and normed heads keep rule 6.
func TestQwenRows(t *testing.T) {
	forQwens(t, func(t *testing.T, src *model.Source, _ qwenGolden) {
		for _, acts := range []string{"f32", "int8"} {
			t.Run(acts, func(t *testing.T) { testRows(t, src, cpu.Options{Activations: acts}, device.F16, 60) })
		}
		testWitness(t, src, device.F16)
	})
}
