package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"quire/device"
	"quire/model"
)

// describe says what a model file holds, or why it does not load.
func (m *modelsCmd) describe(s streams) error {
	dir, err := modelsDir(m.Models)
	if err != nil {
		return err
	}
	path, err := model.Resolve(m.File, dir)
	if err != nil {
		return err
	}
	src, err := model.Open(path, model.OpenOptions{})
	if err != nil {
		return err
	}
	defer src.Close()
	c := src.Config
	t := tabwriter.NewWriter(s.out, 0, 8, 3, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	row("model", "%s", src.Name)
	row("architecture", "%s: %d layers of %d, %d query and %d key/value heads of %d, feed-forward %d", c.Architecture, c.Layers, c.Dim, c.Heads, c.KVHeads,
		c.HeadDim, c.FFN)
	row("context", "%d tokens", c.Context)
	row("vocabulary", "%d tokens; answers end at %s", c.Vocab, endTokens(src.Tokenizer))
	row("weights", "%s", weights(src))
	row("chat template", "%s", template(src))
	row("a token's keys and values", "%s", rowBytes(c))
	row("fingerprint", "%x", src.Fingerprint[:8])
	return t.Flush()
}

func endTokens(tok *model.Tokenizer) string {
	var out []string
	for _, id := range tok.EOS() {
		out = append(out, fmt.Sprintf("%q (%d)", tok.Piece(id), id))
	}
	if out == nil {
		return "no token"
	}
	return strings.Join(out, ", ")
}

func weights(src *model.Source) string {
	var out []string
	for _, u := range src.Types() {
		out = append(out, fmt.Sprintf("%s %.1f MB in %d", u.Type, float64(u.Bytes)/1e6, u.Tensors))
	}
	return strings.Join(out, ", ") + " tensors"
}

func template(src *model.Source) string {
	switch {
	case src.TemplateErr != nil:
		return src.TemplateErr.Error()
	case src.Template.Thinks():
		return "yes, with a switch for thinking"
	}
	return "yes"
}

func rowBytes(c model.Config) string {
	var out []string
	for _, name := range []string{"f16", "q8_0", "f32"} {
		kv, err := device.KVType(name)
		if n := c.RowBytes(kv); err == nil && n > 0 {
			out = append(out, fmt.Sprintf("%d bytes in %s", n, name))
		}
	}
	return strings.Join(out, ", ")
}

// formats prints what loads.
func formats(s streams) error {
	fmt.Fprintf(s.out, "architectures: %s\n\n", strings.Join(model.Architectures(), ", "))
	t := tabwriter.NewWriter(s.out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(t, "WEIGHTS\tBITS\tGGUF\tSAFETENSORS")
	for _, f := range model.Formats() {
		fmt.Fprintf(t, "%s\t%.4g\t%s\t%s\n", f.Type, f.Bits, yes(f.GGUF), yes(f.Safetensors))
	}
	return t.Flush()
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
