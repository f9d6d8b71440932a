package router

import (
	"fmt"

	"quire/kvtransfer"
	"quire/model"
	"quire/router/openai"
)

// Text is what a router needs of a model: words to ids and back. Safe for concurrent use.
type Text interface {
	// Encode gives the ids of a text; special adds the model's own start and end tokens. Marks that a user typed stay text.
	Encode(text string, special bool) []int32
	// Chat gives the ids of a conversation as the model's template renders it; an error is the client's to mend.
	Chat(messages []openai.Message, o openai.ChatOptions) ([]int32, error)
	// Decode gives the text of ids, Piece one token's own bytes.
	Decode(ids []int32) string
	Piece(id int32) []byte
	// Vocab is how many ids there are.
	Vocab() int
}

// Served describes the model that a router serves.
type Served struct {
	Name        string   // as clients name it
	Aliases     []string // other names for it
	Fingerprint [32]byte // of weights and tokenizer
	Context     int      // tokens that the model can take
	Defaults    kvtransfer.Sampling
}

// FromSource gives what a router needs of an opened model (model.OpenTokenizer is enough).
func FromSource(src *model.Source) (Text, Served) {
	served := Served{Name: src.Name, Fingerprint: src.Fingerprint, Context: src.Config.Context, Defaults: defaults(src.Generation)}
	return sourceText{src}, served
}

// defaults follow the model's makers; where they say nothing, OpenAI's: temperature 1, nothing else.
func defaults(g model.Generation) kvtransfer.Sampling {
	s := kvtransfer.Sampling{Temperature: 1, Logprobs: -1}
	if g.Temperature != nil {
		s.Temperature = min(2, max(0, *g.Temperature))
	}
	if g.TopK != nil {
		s.TopK = max(0, *g.TopK)
	}
	if g.TopP != nil {
		s.TopP = min(1, max(0, *g.TopP))
	}
	if g.MinP != nil {
		s.MinP = min(1, max(0, *g.MinP))
	}
	if g.RepetitionPenalty != nil {
		s.RepetitionPenalty = min(2, max(0, *g.RepetitionPenalty))
	}
	return s
}

type sourceText struct{ src *model.Source }

func (t sourceText) Encode(text string, special bool) []int32 {
	return t.src.Tokenizer.Encode(text, model.EncodeOptions{AddSpecial: special})
}

func (t sourceText) Chat(messages []openai.Message, o openai.ChatOptions) ([]int32, error) {
	if t.src.Template == nil {
		e := kvtransfer.Errorf(kvtransfer.InvalidRequest, "messages: model %s has no chat template; use /v1/completions", t.src.Name)
		e.Param = "messages"
		return nil, e
	}
	if o.Thinking != nil && !t.src.Template.Thinks() {
		const param = "chat_template_kwargs.enable_thinking"
		e := kvtransfer.Errorf(kvtransfer.InvalidRequest, "%s: the chat template of %s has no such switch", param, t.src.Name)
		e.Param = param
		return nil, e
	}
	list := make([]model.Message, len(messages))
	for i, m := range messages {
		list[i] = model.Message{Role: m.Role, Content: m.Content}
	}
	parts, err := t.src.Template.WithThinking(o.Thinking).Render(list, o.GenerationPrompt)
	if err != nil {
		e := kvtransfer.Errorf(kvtransfer.InvalidRequest, "messages: %s", fmt.Sprint(err))
		e.Param = "messages"
		return nil, e
	}
	return t.src.Tokenizer.EncodeParts(parts), nil
}

func (t sourceText) Decode(ids []int32) string { return t.src.Tokenizer.Decode(ids) }
func (t sourceText) Piece(id int32) []byte     { return t.src.Tokenizer.Piece(id) }
func (t sourceText) Vocab() int                { return t.src.Tokenizer.Vocab() }
