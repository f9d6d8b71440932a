package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestModelsDescribesFiles(t *testing.T) {
	out, errs, code := quire(t, nil, "", "models", filepath.Join("..", "..", "model", "testdata", "qwen3"))
	if code != 0 {
		t.Fatal(errs)
	}
	for _, want := range []string{"qwen3: 2 layers of 48, 4 query and 2 key/value heads of 16", "256 tokens", `"<|im_end|>" (362)`, "BF16", "a switch for thinking",
		"256 bytes in f16, 512 bytes in f32"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if _, errs, code = quire(t, nil, "", "models", filepath.Join("..", "..", "go.mod")); code == 0 || !strings.Contains(errs, "neither a GGUF file") {
		t.Errorf("%d, %q", code, errs)
	}
	out, _, code = quire(t, nil, "", "models", "--formats")
	if code != 0 || !strings.Contains(out, "llama, qwen2, qwen3") || !strings.Contains(out, "Q6_K") {
		t.Errorf("%d, %q", code, out)
	}
}
