package model

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"quire/model/safetensors"
	"quire/model/tokenizer"
)

// Limits on the files of a Hugging Face directory.
const (
	maxJSON   = 64 << 20 // bytes of one JSON file
	maxShards = 1 << 10
)

// hfDir is a Hugging Face directory while it is read.
type hfDir struct {
	path  string
	files map[string][]byte // what was read, by name: all of it goes into the fingerprint
}

// read gives a small file, nil when it is not there and optional.
func (d *hfDir) read(name string, optional bool) ([]byte, error) {
	p := filepath.Join(d.path, name)
	st, err := os.Stat(p)
	if optional && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if st.Size() > maxJSON {
		return nil, fmt.Errorf("%s: %d bytes, at most %d are read", name, st.Size(), maxJSON)
	}
	b, err := os.ReadFile(p)
	if err == nil {
		d.files[name] = b
	}
	return b, err
}

func (s *Source) loadHF(path string, progress func(done, total int64)) error {
	d := &hfDir{path: path, files: map[string][]byte{}}
	b, err := d.read("config.json", false)
	if err != nil {
		return err
	}
	var h hfConfig
	if s.Config, h, err = parseHFConfig(b); err != nil {
		return fmt.Errorf("config.json: %w", err)
	}
	if err := s.loadHFTokenizer(d, h); err != nil {
		return err
	}
	shards, err := s.mapShards(d)
	if err != nil {
		return err
	}
	if s.Tensors, err = hfTensors(shards); err != nil {
		return err
	}
	s.tie()
	s.fingerprintHF(d, shards, progress)
	return nil
}

// tie gives a tied model's matrix its first name: files may hold either name, or both.
func (s *Source) tie() {
	out, haveOut := s.Tensors["output.weight"]
	if _, haveEmbd := s.Tensors["token_embd.weight"]; s.Config.Tied && haveOut && !haveEmbd {
		out.Name = "token_embd.weight"
		s.Tensors[out.Name] = out
		delete(s.Tensors, "output.weight")
	}
}

func (s *Source) loadHFTokenizer(d *hfDir, h hfConfig) error {
	tok, err := d.read("tokenizer.json", false)
	if err != nil {
		return fmt.Errorf("%w (tokenizer.json is the form that loads; a bare tokenizer.model is not)", err)
	}
	conf, err := d.read("tokenizer_config.json", true)
	if err != nil {
		return err
	}
	gen, err := d.read("generation_config.json", true)
	if err != nil {
		return err
	}
	var g hfGeneration
	if gen != nil {
		if err := json.Unmarshal(gen, &g); err != nil {
			return fmt.Errorf("generation_config.json: %w", err)
		}
	}
	s.Generation = g.Generation()
	extra := tokenizer.Extra{Config: conf, EOS: append(h.EOS, g.EOS...)}
	if len(h.BOS) > 0 {
		extra.BOS = &h.BOS[0]
	}
	if s.Tokenizer, err = tokenizer.FromJSON(tok, extra); err != nil {
		return fmt.Errorf("tokenizer.json: %w", err)
	}
	src, err := d.template(conf)
	s.compile(src)
	return err
}

// template finds the chat template: chat_template.jinja, chat_template.json, or tokenizer_config.json's chat_template, which
// is a string or a list of named ones, of which "default" counts.
func (d *hfDir) template(conf []byte) (string, error) {
	b, err := d.read("chat_template.jinja", true)
	if err != nil || b != nil {
		return string(b), err
	}
	if b, err = d.read("chat_template.json", true); err != nil {
		return "", err
	}
	if b == nil {
		b = conf
	}
	if b == nil {
		return "", nil
	}
	var holder struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(b, &holder); err != nil {
		return "", fmt.Errorf("chat_template: %w", err)
	}
	var one string
	if len(holder.Template) == 0 || json.Unmarshal(holder.Template, &one) == nil {
		return one, nil
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(holder.Template, &named); err != nil {
		return "", fmt.Errorf("chat_template: %w", err)
	}
	for _, n := range named {
		if n.Name == "default" {
			return n.Template, nil
		}
	}
	return "", nil
}

// hfGeneration is generation_config.json.
type hfGeneration struct {
	EOS               idOrIDs  `json:"eos_token_id"`
	DoSample          *bool    `json:"do_sample"`
	Temperature       *float32 `json:"temperature"`
	TopK              *int     `json:"top_k"`
	TopP              *float32 `json:"top_p"`
	MinP              *float32 `json:"min_p"`
	RepetitionPenalty *float32 `json:"repetition_penalty"`
}

// Generation gives the suggestions that can be used: those out of range are left out.
func (g hfGeneration) Generation() Generation {
	out := Generation{}
	if g.DoSample != nil && !*g.DoSample {
		return out
	}
	if v := g.Temperature; v != nil && *v >= 0 && *v <= 2 {
		out.Temperature = v
	}
	if v := g.TopK; v != nil && *v >= 0 {
		out.TopK = v
	}
	if v := g.TopP; v != nil && *v > 0 && *v <= 1 {
		out.TopP = v
	}
	if v := g.MinP; v != nil && *v >= 0 && *v <= 1 {
		out.MinP = v
	}
	if v := g.RepetitionPenalty; v != nil && *v > 0 && *v <= 2 {
		out.RepetitionPenalty = v
	}
	return out
}

// shard is one mapped safetensors file.
type shard struct {
	name  string
	bytes []byte
	file  *safetensors.File
	want  map[string]bool // names that the index places here; nil = all
}

// mapShards maps model.safetensors, or the files that model.safetensors.index.json lists, in order of their names.
func (s *Source) mapShards(d *hfDir) ([]shard, error) {
	index, err := d.read("model.safetensors.index.json", true)
	if err != nil {
		return nil, err
	}
	shards := []shard{{name: "model.safetensors"}}
	if index != nil {
		if shards, err = parseIndex(index); err != nil {
			return nil, fmt.Errorf("model.safetensors.index.json: %w", err)
		}
	}
	for i := range shards {
		sh := &shards[i]
		if sh.bytes, err = s.mapFile(filepath.Join(d.path, sh.name)); err != nil {
			return nil, err
		}
		if sh.file, err = safetensors.Parse(sh.name, sh.bytes); err != nil {
			return nil, err
		}
		for name := range sh.want {
			if _, ok := sh.file.Tensors[name]; !ok {
				return nil, fmt.Errorf("tensor %s: the index says %s, which does not hold it", name, sh.name)
			}
		}
	}
	return shards, nil
}

func parseIndex(b []byte) ([]shard, error) {
	var index struct {
		Map map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(b, &index); err != nil {
		return nil, err
	}
	by := map[string]map[string]bool{}
	for name, file := range index.Map {
		if file != filepath.Base(file) || !strings.HasSuffix(file, ".safetensors") {
			return nil, fmt.Errorf("tensor %s: file %q is no name of a safetensors file in this directory", name, file)
		}
		if by[file] == nil {
			by[file] = map[string]bool{}
		}
		by[file][name] = true
	}
	if len(by) == 0 || len(by) > maxShards {
		return nil, fmt.Errorf("%d files, 1 to %d are possible", len(by), maxShards)
	}
	shards := make([]shard, 0, len(by))
	for file, want := range by {
		shards = append(shards, shard{name: file, want: want})
	}
	sort.Slice(shards, func(i, j int) bool { return shards[i].name < shards[j].name })
	return shards, nil
}

func hfTensors(shards []shard) (map[string]Tensor, error) {
	out := map[string]Tensor{}
	for _, sh := range shards {
		for name, t := range sh.file.Tensors {
			t.Name = ggufName(name)
			if _, twice := out[t.Name]; twice {
				return nil, fmt.Errorf("tensor %s is in two files, one is %s", name, sh.name)
			}
			out[t.Name] = t
		}
	}
	return out, nil
}

// hfNames maps the names within a layer.
var hfNames = map[string]string{
	"input_layernorm.weight": "attn_norm.weight", "self_attn.q_proj.weight": "attn_q.weight",
	"self_attn.k_proj.weight": "attn_k.weight", "self_attn.v_proj.weight": "attn_v.weight",
	"self_attn.o_proj.weight": "attn_output.weight", "post_attention_layernorm.weight": "ffn_norm.weight",
	"mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight", "mlp.down_proj.weight": "ffn_down.weight",
	"self_attn.q_proj.bias": "attn_q.bias", "self_attn.k_proj.bias": "attn_k.bias", "self_attn.v_proj.bias": "attn_v.bias",
	"self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight",
}

// ggufName gives the GGUF name of a Hugging Face tensor; an unknown one stays as it is.
func ggufName(name string) string {
	switch name {
	case "model.embed_tokens.weight":
		return "token_embd.weight"
	case "model.norm.weight":
		return "output_norm.weight"
	case "lm_head.weight":
		return "output.weight"
	}
	rest, ok := strings.CutPrefix(name, "model.layers.")
	if !ok {
		return name
	}
	layer, part, _ := strings.Cut(rest, ".")
	if g, ok := hfNames[part]; ok {
		return "blk." + layer + "." + g
	}
	return name
}

// fingerprintHF hashes every file that was used, by name.
func (s *Source) fingerprintHF(d *hfDir, shards []shard, progress func(done, total int64)) {
	for _, sh := range shards {
		d.files[sh.name] = sh.bytes
	}
	names := make([]string, 0, len(d.files))
	for name, b := range d.files {
		names = append(names, name)
		s.Bytes += int64(len(b))
	}
	sort.Strings(names)
	h := newHasher(s.Bytes, progress)
	sha := sha256.New()
	sha.Write([]byte("quire model hf 1\n"))
	for _, name := range names {
		fmt.Fprintf(sha, "%d %s %x\n", len(d.files[name]), name, h.sum(d.files[name]))
	}
	sha.Sum(s.Fingerprint[:0])
}
