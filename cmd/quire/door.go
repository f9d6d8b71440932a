package main

import (
	"context"
	"errors"
	"fmt"
)

// message is one turn of a conversation, as both doors take it.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// question is what chat asks of a door: the fields of a chat completion that the verb has flags for.
type question struct {
	Model       string    `json:"model,omitempty"`
	Messages    []message `json:"messages"`
	Stream      bool      `json:"stream"`
	MaxTokens   int       `json:"max_completion_tokens,omitempty"`
	Temperature *float64  `json:"temperature,omitempty"`
	TopP        *float64  `json:"top_p,omitempty"`
	Seed        *int64    `json:"seed,omitempty"`
	Stop        []string  `json:"stop,omitempty"`
	Options     *options  `json:"stream_options,omitempty"`

	Template map[string]bool `json:"chat_template_kwargs,omitempty"`
}

type options struct {
	IncludeUsage bool `json:"include_usage"`
}

// usageCount is OpenAI's usage object.
type usageCount struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
}

// ending is how an answer ended well.
type ending struct {
	Finish string
	Usage  usageCount
}

// served is one entry of /v1/models.
type served struct {
	ID          string `json:"id"`
	MaxModelLen int    `json:"max_model_len"`
	Vocab       int    `json:"vocab_size"`
	OwnedBy     string `json:"owned_by"`
}

// door is one of the two ways to ask: HTTP or NATS.
type door interface {
	// chat streams the answer's text to fn. errCut means that it ended without its last frame.
	chat(ctx context.Context, q question, fn func(text string)) (ending, error)
	models(ctx context.Context) ([]served, error)
	name() string
	close()
}

// errCut says that a stream ended before its last frame: what was printed is not the whole answer.
var errCut = errors.New("the stream ended before its last frame: the answer is not complete")

// apiError is an error that the other side reported.
type apiError struct {
	Status  int
	Message string `json:"message"`
	Type    string `json:"type"`
	Param   string `json:"param"`
	Code    string `json:"code"`
}

func (e *apiError) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("%s (%d)", e.Message, e.Status)
	}
	return fmt.Sprintf("%s (%d %s)", e.Message, e.Status, e.Code)
}
