package router

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"quire/kvtransfer"
	"quire/model"
	"quire/router/openai"
)

// TestThinking: the switch of a template changes the prompt; a template without one refuses it.
func TestThinking(t *testing.T) {
	prompt := func(name string, thinking *bool) ([]int32, error) {
		src, err := model.OpenTokenizer(filepath.Join("..", "model", "testdata", name), model.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return sourceText{src}.Chat([]openai.Message{{Role: "user", Content: "hi"}}, openai.ChatOptions{GenerationPrompt: true, Thinking: thinking})
	}
	on, off := true, false
	unset, err0 := prompt("qwen3", nil)
	with, err1 := prompt("qwen3", &on)
	without, err2 := prompt("qwen3", &off)
	if err := errors.Join(err0, err1, err2); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(unset, with) || len(without) <= len(with) || !slices.Equal(without[:len(with)], with) {
		t.Errorf("prompts: unset %d, on %d, off %d", unset, with, without)
	}
	var e kvtransfer.Error
	if _, err := prompt("qwen2", &off); !errors.As(err, &e) || e.Code != kvtransfer.InvalidRequest || e.Param != "chat_template_kwargs.enable_thinking" {
		t.Errorf("a template without the switch: %v", err)
	}
}
