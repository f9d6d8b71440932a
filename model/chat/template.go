// Package chat renders conversations with a model's chat template.
//
// A template is a program that came with a model, and contents come from users. So a template runs under limits of steps,
// time and output (guard.go, put into its source by rewrite.go), and what a user typed never becomes a mark: only the
// template's own text does (escape.go).
package chat

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"

	"quire/model/tokenizer"
)

// Message is one turn of a conversation. Content is plain text; a caller joins content parts.
type Message struct {
	Role    string // "system", "user", "assistant", ...
	Content string
}

// Part is a piece of a rendered conversation: text, or one mark.
type Part = tokenizer.Part

// Template is a compiled chat template, safe for concurrent use.
type Template struct {
	Source   string // as the model's makers wrote it
	tok      *tokenizer.Tokenizer
	compiled *jinja.Template
	dated    bool // the template has a date of its own when it is not told today's: a prompt must not depend on the day
	thinking *bool
}

// Limits of one rendering.
const (
	maxSource  = 256 << 10 // bytes of a template
	maxSteps   = 10_000    // turns of loops and calls of macros, beside stepsPerMessage for each message
	maxTime    = 2 * time.Second
	maxValue   = 4 << 20 // bytes of one value within a template, beside the conversation's own
	maxNodes   = 1 << 17 // strings, numbers, lists and dicts within one value
	maxContent = 16 << 20

	stepsPerMessage = 64
)

// ErrNone says that a model has no chat template, so that chat requests cannot be served.
var ErrNone = errors.New("chat: this model has no chat template; use completions, or a model with one")

// New compiles a template for a model's tokenizer. It refuses templates that are too long, that do not parse, or that use
// what cannot be bounded.
func New(source string, tok *tokenizer.Tokenizer) (t *Template, err error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("chat: template of %d bytes, at most %d are possible", len(source), maxSource)
	}
	if err := checkMarks(tok.Marks()); err != nil {
		return nil, err
	}
	guarded, err := rewrite(source)
	if err != nil {
		return nil, fmt.Errorf("chat: template: %w", err)
	}
	defer func() {
		if r := recover(); r != nil {
			t, err = nil, fmt.Errorf("chat: template does not parse: %v", r)
		}
	}()
	compiled, err := jinja.Compile(guarded)
	if err != nil {
		return nil, fmt.Errorf("chat: template: %w", err)
	}
	return &Template{Source: source, tok: tok, compiled: compiled, dated: strings.Contains(source, "strftime_now is ")}, nil
}

// Thinks says whether the template has a switch for thinking before the answer, which WithThinking sets.
func (t *Template) Thinks() bool { return t != nil && strings.Contains(t.Source, "enable_thinking") }

// WithThinking gives the template with its switch for thinking set; nil leaves what it does by itself, which with Qwen3 is to think.
// A template without a switch is not changed.
func (t *Template) WithThinking(on *bool) *Template {
	if !t.Thinks() || on == nil {
		return t
	}
	c := *t
	c.thinking = on
	return &c
}

// Render gives the prompt of a conversation in parts: marks that the template wrote, and text. A nil template is ErrNone. Errors
// that the template raises itself come with its message.
func (t *Template) Render(messages []Message, addGenerationPrompt bool) ([]Part, error) {
	text, esc, err := t.render(messages, addGenerationPrompt)
	if err != nil {
		return nil, err
	}
	parts := t.tok.Split(text)
	for i := range parts {
		parts[i].Text = esc.restore(parts[i].Text)
	}
	return parts, nil
}

// Encode gives the token ids of a conversation's prompt. The template alone decides whether it begins with BOS.
func (t *Template) Encode(messages []Message, addGenerationPrompt bool) ([]int32, error) {
	parts, err := t.Render(messages, addGenerationPrompt)
	if err != nil {
		return nil, err
	}
	return t.tok.EncodeParts(parts), nil
}

// Text gives the prompt as one string, for display: marks and text can no longer be told apart.
func (t *Template) Text(messages []Message, addGenerationPrompt bool) (string, error) {
	text, esc, err := t.render(messages, addGenerationPrompt)
	return esc.restore(text), err
}

func (t *Template) render(messages []Message, addGenerationPrompt bool) (text string, esc *escaper, err error) {
	if t == nil {
		return "", nil, ErrNone
	}
	size := 0
	for _, m := range messages {
		if !isRole(m.Role) {
			return "", nil, fmt.Errorf("chat: role %.40q: a word of at most 32 letters, digits, - and _ is possible", m.Role)
		}
		size += len(m.Content)
	}
	if size > maxContent {
		return "", nil, fmt.Errorf("chat: conversation of %d bytes, at most %d are possible", size, maxContent)
	}
	if esc, err = newEscaper(t.tok.Marks(), messages); err != nil {
		return "", nil, err
	}
	list := make([]jinja.Value, 0, len(messages))
	for _, m := range messages {
		list = append(list, t.message(m, esc))
	}
	data := map[string]jinja.Value{
		"messages":              jinja.NewList(list),
		"add_generation_prompt": jinja.NewBool(addGenerationPrompt),
		"bos_token":             jinja.NewString(t.bos()),
		"eos_token":             jinja.NewString(t.eos()),
		"tools":                 jinja.None(),
		"documents":             jinja.None(),
	}
	if t.thinking != nil {
		data["enable_thinking"] = jinja.NewBool(*t.thinking)
	}
	if t.dated {
		data["strftime_now"] = jinja.Undefined()
	}
	g := &guard{steps: maxSteps + stepsPerMessage*len(messages), room: maxValue + 4*size, deadline: time.Now().Add(maxTime)}
	g.output = g.room
	g.enter(data)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("chat: template failed: %v", r)
		}
	}()
	text, err = t.compiled.RenderValues(data)
	if err != nil {
		return "", esc, fmt.Errorf("chat: template: %w", err)
	}
	return text, esc, nil
}

// message makes a message for the template. An answer's reasoning goes by itself where the template takes it so: the tags that
// it would look for are marks, and what looks like a mark in a content is none.
func (t *Template) message(m Message, esc *escaper) jinja.Value {
	d := jinja.NewDict()
	d.AsDict().Set("role", jinja.NewString(m.Role))
	content := m.Content
	if m.Role == "assistant" && strings.Contains(t.Source, "reasoning_content") {
		if before, _, ok := strings.Cut(content, thinkEnd); ok {
			content = strings.TrimLeft(content[strings.LastIndex(content, thinkEnd)+len(thinkEnd):], "\n")
			before = strings.TrimRight(before, "\n")
			if at := strings.LastIndex(before, thinkBegin); at >= 0 {
				before = before[at+len(thinkBegin):]
			}
			d.AsDict().Set("reasoning_content", jinja.NewString(esc.escape(strings.TrimLeft(before, "\n"))))
		}
	}
	d.AsDict().Set("content", jinja.NewString(esc.escape(content)))
	return d
}

// The tags around reasoning.
const (
	thinkBegin = "<think>"
	thinkEnd   = "</think>"
)

// isRole says whether a role can stand within a mark, as some templates have it: <|user|>.
func isRole(s string) bool {
	for i := range len(s) {
		if !isName(s[i]) && s[i] != '-' {
			return false
		}
	}
	return len(s) > 0 && len(s) <= 32
}

func (t *Template) bos() string {
	id, ok := t.tok.BOS()
	if !ok {
		return ""
	}
	return string(t.tok.Piece(id))
}

func (t *Template) eos() string {
	if len(t.tok.EOS()) == 0 {
		return ""
	}
	return string(t.tok.Piece(t.tok.EOS()[0]))
}
