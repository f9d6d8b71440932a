// Package chat renders conversations with a model's chat template.
//
// A template is a program that came with a model, and contents come from users. So a template runs under limits, and what a
// user typed never becomes a mark: only the template's own text does.
package chat

import (
	"errors"

	"quire/model/tokenizer"
)

// Message is one turn of a conversation.
type Message struct {
	Role    string // "system", "user", "assistant"
	Content string
}

// Part is a piece of a rendered conversation: text, or one mark.
type Part = tokenizer.Part

// Template is a compiled chat template, safe for concurrent use.
type Template struct {
	tok *tokenizer.Tokenizer
}

// New compiles a template for a model's tokenizer.
func New(source string, tok *tokenizer.Tokenizer) (*Template, error) {
	return &Template{tok: tok}, nil
}

// Render gives the prompt of a conversation in parts.
func (t *Template) Render(messages []Message, addGenerationPrompt bool) ([]Part, error) {
	return nil, errors.New("chat: not rendered")
}
