package model_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quire/model"
	"quire/model/gguf/gguftest"
)

func write(t testing.TB, path string, b []byte) string {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenGGUF(t *testing.T) {
	f := gguftest.Tiny()
	b := f.Bytes()
	path := write(t, filepath.Join(t.TempDir(), "tiny.gguf"), b)
	var calls, last int64
	s, err := model.Open(path, model.OpenOptions{Progress: func(done, total int64) { calls++; last = done - total }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := s.Config
	if s.Name != "tiny" || c.Layers != 1 || c.Dim != 4 || c.FFN != 8 || c.Heads != 2 || c.KVHeads != 1 || c.HeadDim != 2 || c.Vocab != 263 ||
		c.Context != 64 || !c.Tied || !c.Rope.Interleaved || c.Rope.Base != 10000 || s.Bytes != int64(len(b)) || calls == 0 || last != 0 {
		t.Errorf("%+v, %d calls", s, calls)
	}
	if s.Template != nil || s.TemplateErr == nil {
		t.Errorf("template %v, %v", s.Template, s.TemplateErr)
	}
	if ids := s.Tokenizer.Encode("a b\x00", model.EncodeOptions{AddSpecial: true}); !slices.Equal(ids, []int32{1, 6, 3, 5, 7}) {
		t.Errorf("%v", ids)
	}
	other := gguftest.Tiny()
	other.Data[0] = 1
	s2 := open(t, write(t, filepath.Join(t.TempDir(), "tiny.gguf"), other.Bytes()))
	if s2.Fingerprint == s.Fingerprint {
		t.Error("two files have one fingerprint")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenRefusesGGUF(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(f *gguftest.File)
		want string
	}{
		{"architecture", func(f *gguftest.File) { f.Set("general.architecture", "mamba") }, `general.architecture "mamba" does not load; what loads is Llama, Qwen2, Qwen3`},
		{"experts", func(f *gguftest.File) { f.Set("llama.expert_count", uint32(8)) }, "llama.expert_count 8: mixtures of experts do not load"},
		{"no layers", func(f *gguftest.File) { f.Set("llama.block_count", nil) }, "layers: 0, 1 to 4096"},
		{"wild layers", func(f *gguftest.File) { f.Set("llama.block_count", uint32(1<<31)) }, "layers: 2147483648"},
		{"more layers than tensors", func(f *gguftest.File) { f.Set("llama.block_count", uint32(2)) }, "tensor blk.1.attn_norm.weight is missing"},
		{"heads", func(f *gguftest.File) { f.Set("llama.attention.head_count_kv", uint32(3)) }, "2 query heads are no multiple of 3"},
		{"context", func(f *gguftest.File) { f.Set("llama.context_length", nil) }, "context: 0"},
		{"epsilon", func(f *gguftest.File) { f.Set("llama.attention.layer_norm_rms_epsilon", float32(math.NaN())) }, "epsilon: NaN"},
		{"rope dimensions", func(f *gguftest.File) { f.Set("llama.rope.dimension_count", uint32(3)) }, "rope dimensions: 3"},
		{"rope base", func(f *gguftest.File) { f.Set("llama.rope.freq_base", float32(0)) }, "rope base: 0"},
		{"rope scaling", func(f *gguftest.File) { f.Set("llama.rope.scaling.type", "spiral") }, `llama.rope.scaling.type "spiral" does not load, these do: none (default), linear, dynamic, yarn, longrope, llama3`},
		{"rope factor", func(f *gguftest.File) { f.Set("llama.rope.scaling.type", "linear") }, "factor 0"},
		{"value heads", func(f *gguftest.File) { f.Set("llama.attention.value_length", uint32(4)) }, "keys of 2 and values of 4"},
		{"shape", func(f *gguftest.File) { f.Tensors[3].Dims = []uint64{2, 4} }, "tensor blk.0.attn_q.weight: shape [4 2], the config needs [4 4]"},
		{"missing", func(f *gguftest.File) { f.Tensors = f.Tensors[:10] }, "tensor blk.0.ffn_down.weight is missing: a model of 1 layers needs it with shape [4 8]"},
		{"bias", func(f *gguftest.File) { f.Add(gguftest.Tensor{Name: "blk.0.attn_q.bias", Dims: []uint64{4}}, 4) }, "tensor blk.0.attn_q.bias [4] has no place"},
		{"rope factors", func(f *gguftest.File) {
			f.Add(gguftest.Tensor{Name: "rope_freqs.weight", Dims: []uint64{5}}, 4)
		}, "rope_freqs.weight: 5 numbers, 1 are needed"},
		{"tokenizer", func(f *gguftest.File) { f.Set("tokenizer.ggml.model", "t5") }, `model "t5" does not load, these do: gpt2, llama`},
		{"no tokens", func(f *gguftest.File) { f.Set("tokenizer.ggml.tokens", nil); f.Set("llama.vocab_size", uint32(263)) }, "0 tokens"},
		{"scores", func(f *gguftest.File) { f.Set("tokenizer.ggml.scores", []float32{1}) }, "263 tokens and 1 scores"},
		{"token types", func(f *gguftest.File) { f.Set("tokenizer.ggml.token_type", []int32{1}) }, "263 tokens and 1 token types"},
		{"end token", func(f *gguftest.File) { f.Set("tokenizer.ggml.eos_token_id", uint32(9999)) }, "eos_token_id 9999, the vocabulary has 263"},
		{"begin token", func(f *gguftest.File) { f.Set("tokenizer.ggml.bos_token_id", uint32(9999)) }, "special token id 9999"},
		{"pre-tokenizer", func(f *gguftest.File) {
			f.Set("tokenizer.ggml.model", "gpt2")
			f.Set("tokenizer.ggml.pre", "chameleon")
		}, `pre-tokenizer "chameleon" does not load, these do: gpt-2, smollm, llama-bpe, qwen2`},
		{"vocabulary", func(f *gguftest.File) {
			f.Set("llama.vocab_size", uint32(100))
			f.Tensors[0].Dims[1] = 100
		}, "the tokenizer has 263 tokens, the config says 100"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := gguftest.Tiny()
			c.set(&f)
			path := write(t, filepath.Join(t.TempDir(), "bad.gguf"), f.Bytes())
			_, err := model.Open(path, model.OpenOptions{})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "bad.gguf") {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	if _, err := model.Open(write(t, filepath.Join(t.TempDir(), "x.bin"), []byte("PK\x03\x04")), model.OpenOptions{}); err == nil || !strings.Contains(err.Error(), "neither a GGUF file") {
		t.Error(err)
	}
	if _, err := model.Open(filepath.Join(t.TempDir(), "none"), model.OpenOptions{}); err == nil {
		t.Error("a file that is not there opens")
	}
}

// hfTensor is one tensor of zeros in BF16.
type hfTensor struct {
	name  string
	shape []int
}

func hfTensors() []hfTensor {
	l := "model.layers.0."
	return []hfTensor{
		{"model.embed_tokens.weight", []int{259, 4}}, {"model.norm.weight", []int{4}}, {"lm_head.weight", []int{259, 4}},
		{l + "input_layernorm.weight", []int{4}}, {l + "self_attn.q_proj.weight", []int{4, 4}}, {l + "self_attn.k_proj.weight", []int{2, 4}},
		{l + "self_attn.v_proj.weight", []int{2, 4}}, {l + "self_attn.o_proj.weight", []int{4, 4}}, {l + "post_attention_layernorm.weight", []int{4}},
		{l + "mlp.gate_proj.weight", []int{8, 4}}, {l + "mlp.up_proj.weight", []int{8, 4}}, {l + "mlp.down_proj.weight", []int{4, 8}},
	}
}

func safetensorsFile(tensors []hfTensor) []byte {
	header, at := map[string]any{}, 0
	for _, x := range tensors {
		n := 2
		for _, d := range x.shape {
			n *= d
		}
		header[x.name] = map[string]any{"dtype": "BF16", "shape": x.shape, "data_offsets": []int{at, at + n}}
		at += n
	}
	h, err := json.Marshal(header)
	if err != nil {
		panic(err)
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(h))), h...), make([]byte, at)...)
}

// hfDir writes a directory of a tiny model; set changes its config and tensors first.
func hfDir(t testing.TB, set func(config map[string]any, tensors *[]hfTensor)) string {
	t.Helper()
	dir := t.TempDir()
	config := map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "hidden_size": 4, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
		"num_key_value_heads": 1, "vocab_size": 259, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 5000.0, "eos_token_id": []int{258, 257},
	}
	tensors := hfTensors()
	if set != nil {
		set(config, &tensors)
	}
	vocab := map[string]int{"<s>": 256, "</s>": 257, "<unk>": 258}
	for i := range 256 {
		vocab[fmt.Sprintf("<0x%02X>", i)] = i
	}
	tok := map[string]any{"model": map[string]any{"type": "BPE", "byte_fallback": true, "vocab": vocab, "merges": []string{}, "unk_token": "<unk>"},
		"added_tokens": []any{map[string]any{"id": 256, "content": "<s>", "special": true}, map[string]any{"id": 257, "content": "</s>", "special": true}}}
	for name, v := range map[string]any{
		"config.json": config, "tokenizer.json": tok,
		"tokenizer_config.json":  map[string]any{"bos_token": "<s>", "chat_template": []any{map[string]any{"name": "default", "template": "{{ messages[0].content }}</s>"}}},
		"generation_config.json": map[string]any{"temperature": 0.6, "top_p": 0.9, "top_k": -1, "eos_token_id": 257},
	} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), b)
	}
	write(t, filepath.Join(dir, "model.safetensors"), safetensorsFile(tensors))
	return dir
}

func TestOpenHF(t *testing.T) {
	s := open(t, hfDir(t, nil))
	c := s.Config
	if c.Tied || c.Rope.Interleaved || c.Rope.Base != 5000 || c.HeadDim != 2 || len(s.Tensors) != 12 || s.Tensors["blk.0.ffn_down.weight"].Cols() != 8 {
		t.Errorf("%+v", c)
	}
	if !slices.Equal(s.Tokenizer.EOS(), []int32{258, 257}) || *s.Generation.Temperature != 0.6 || s.Generation.TopK != nil {
		t.Errorf("EOS %v, %+v", s.Tokenizer.EOS(), s.Generation)
	}
	ids, err := s.Template.Encode([]model.Message{{Role: "user", Content: "</s>"}}, true)
	if err != nil || !slices.Equal(ids, []int32{'<', '/', 's', '>', 257}) {
		t.Errorf("%v, %v", ids, err)
	}
}

// TestShards spreads the tensors over two files.
func TestShards(t *testing.T) {
	dir := hfDir(t, nil)
	all := hfTensors()
	if err := os.Remove(filepath.Join(dir, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	index := map[string]string{}
	for i, x := range all {
		index[x.name] = fmt.Sprintf("model-%d.safetensors", i/6)
	}
	put := func() {
		b, err := json.Marshal(map[string]any{"weight_map": index})
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "model.safetensors.index.json"), b)
	}
	put()
	write(t, filepath.Join(dir, "model-0.safetensors"), safetensorsFile(all[:6]))
	write(t, filepath.Join(dir, "model-1.safetensors"), safetensorsFile(all[6:]))
	if s := open(t, dir); len(s.Tensors) != 12 {
		t.Errorf("%d tensors", len(s.Tensors))
	}
	for _, c := range []struct{ tensor, file, want string }{
		{"lm_head.weight", "model-1.safetensors", "the index says model-1.safetensors, which does not hold it"},
		{"lm_head.weight", "../model-0.safetensors", "is no name of a safetensors file in this directory"},
		{"lm_head.weight", "model-9.safetensors", "no such file"},
	} {
		was := index[c.tensor]
		index[c.tensor] = c.file
		put()
		if _, err := model.Open(dir, model.OpenOptions{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
		index[c.tensor] = was
	}
}

func TestOpenRefusesHF(t *testing.T) {
	type config = map[string]any
	for _, c := range []struct {
		name string
		set  func(config map[string]any, tensors *[]hfTensor)
		want string
	}{
		{"architecture", func(c config, _ *[]hfTensor) { c["architectures"] = []string{"GemmaForCausalLM"} }, `architectures "GemmaForCausalLM" does not load; what loads is Llama, Qwen2, Qwen3`},
		{"no architecture", func(c config, _ *[]hfTensor) { delete(c, "architectures") }, `architectures "" does not load`},
		{"bias", func(c config, _ *[]hfTensor) { c["attention_bias"] = true }, "attention_bias true, mlp_bias false: such biases do not load"},
		{"activation", func(c config, _ *[]hfTensor) { c["hidden_act"] = "gelu" }, `hidden_act "gelu"`},
		{"quantised", func(c config, _ *[]hfTensor) { c["quantization_config"] = config{"bits": 4} }, "quantised safetensors do not load"},
		{"rope", func(c config, _ *[]hfTensor) { c["rope_scaling"] = config{"rope_type": "spiral", "factor": 2} }, `rope_scaling rope_type "spiral" does not load`},
		{"llama3 factors", func(c config, _ *[]hfTensor) { c["rope_scaling"] = config{"rope_type": "llama3", "factor": 8} }, "low and high frequency factors 0 and 0"},
		{"longrope factors", func(c config, _ *[]hfTensor) { c["rope_scaling"] = config{"type": "su"} }, "rope short factors: 0 numbers, 1 are needed"},
		{"untied without a head", func(_ config, x *[]hfTensor) { *x = append((*x)[:2:2], (*x)[3:]...) }, "tensor output.weight is missing"},
		{"number of heads", func(c config, _ *[]hfTensor) { c["num_attention_heads"] = 0 }, "query heads: 0"},
		{"shape", func(_ config, x *[]hfTensor) { (*x)[4].shape = []int{4, 5} }, "tensor blk.0.attn_q.weight: shape [4 5], the config needs [4 4]"},
		{"unknown tensor", func(_ config, x *[]hfTensor) {
			*x = append(*x, hfTensor{"model.layers.0.self_attn.q_norm.weight", []int{2}})
		}, "tensor blk.0.attn_q_norm.weight [2] has no place"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := model.Open(hfDir(t, c.set), model.OpenOptions{}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	for _, name := range []string{"config.json", "tokenizer.json", "model.safetensors"} {
		dir := hfDir(t, nil)
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if _, err := model.Open(dir, model.OpenOptions{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// TestTied opens tied models whose matrix has either name.
func TestTied(t *testing.T) {
	for _, drop := range []int{0, 2} {
		s := open(t, hfDir(t, func(c map[string]any, x *[]hfTensor) {
			c["tie_word_embeddings"] = true
			*x = slices.Delete(slices.Clone(*x), drop, drop+1)
		}))
		if _, ok := s.Tensors["token_embd.weight"]; !ok || !s.Config.Tied {
			t.Errorf("without tensor %d: %v", drop, s.Config)
		}
	}
}

// TestWindowLimitsTheContext: within its window a model with a sliding window attends to everything.
func TestWindowLimitsTheContext(t *testing.T) {
	s := open(t, hfDir(t, func(c map[string]any, _ *[]hfTensor) {
		c["architectures"], c["sliding_window"] = []string{"MistralForCausalLM"}, 32
	}))
	if s.Config.Context != 32 {
		t.Errorf("context %d", s.Config.Context)
	}
}

// TestFrequencies pins the rope variants: expected values follow the formulas of transformers' modeling_rope_utils.
func TestFrequencies(t *testing.T) {
	base := model.Rope{Base: 10000, Dims: 8}
	with := func(s model.RopeScaling) model.Rope { r := base; r.Scaling = s; return r }
	for _, c := range []struct {
		name  string
		rope  model.Rope
		want  []float64
		scale float64
	}{
		{"none", base, []float64{1, 0.1, 0.01, 0.001}, 1},
		{"dynamic", with(model.RopeScaling{Kind: "dynamic", Factor: 2}), []float64{1, 0.1, 0.01, 0.001}, 1},
		{"linear", with(model.RopeScaling{Kind: "linear", Factor: 4}), []float64{0.25, 0.025, 0.0025, 0.00025}, 1},
		{"llama3", with(model.RopeScaling{Kind: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalContext: 1024}),
			[]float64{1, 0.1, 0.01*(1-0.2099156)/8 + 0.01*0.2099156, 0.000125}, 1},
		{"yarn", with(model.RopeScaling{Kind: "yarn", Factor: 4, OriginalContext: 1024}), []float64{1, 0.1*0.25/3 + 0.1*2/3, 0.01*0.25*2/3 + 0.01/3, 0.00025}, 1.1386294},
		{"longrope", with(model.RopeScaling{Kind: "longrope", OriginalContext: 1024, ShortFactors: []float64{1, 1, 1, 1}, LongFactors: []float64{1, 2, 4, 8}}),
			[]float64{1, 0.05, 0.0025, 0.000125}, math.Sqrt(1 + math.Log(4)/math.Log(1024))},
		{"factors in the file", model.Rope{Base: 10000, Dims: 8, Factors: []float64{1, 1, 2, 8}}, []float64{1, 0.1, 0.005, 0.000125}, 1},
	} {
		got, scale := c.rope.Frequencies(4096)
		for i := range got {
			if math.Abs(got[i]-c.want[i]) > 1e-6*c.want[i] {
				t.Errorf("%s: pair %d turns by %g, want %g", c.name, i, got[i], c.want[i])
			}
		}
		if math.Abs(scale-c.scale) > 1e-6 {
			t.Errorf("%s: scale %g, want %g", c.name, scale, c.scale)
		}
	}
}

func FuzzOpenGGUF(f *testing.F) {
	f.Add(gguftest.Tiny().Bytes())
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(dir, fmt.Sprintf("%d.gguf", os.Getpid()))
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := model.Open(path, model.OpenOptions{})
		if err != nil {
			return
		}
		s.Tokenizer.Decode(s.Tokenizer.Encode("a b é", model.EncodeOptions{AddSpecial: true}))
		_ = s.Close()
	})
}
