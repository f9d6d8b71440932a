package clients

import (
	"errors"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
)

func client(key string) openai.Client {
	return openai.NewClient(option.WithBaseURL(cluster.http+"/v1/"), option.WithAPIKey(key), option.WithMaxRetries(0))
}

func chat() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:       model,
		Messages:    []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(system), openai.UserMessage(question)},
		Temperature: param.NewOpt(0.0),
	}
}

func TestOpenAIModels(t *testing.T) {
	c := client(key)
	page, err := c.Models.List(t.Context())
	if err != nil || len(page.Data) != 1 || page.Data[0].ID != model || page.Data[0].Object != "model" {
		t.Fatalf("models: %v, %+v", err, page)
	}
	if extra := page.Data[0].JSON.ExtraFields; extra["max_model_len"].Raw() != "2048" || extra["vocab_size"].Raw() != "2048" {
		t.Errorf("max_model_len %s, vocab_size %s", extra["max_model_len"].Raw(), extra["vocab_size"].Raw())
	}
	one, err := c.Models.Get(t.Context(), model)
	if err != nil || one.ID != model {
		t.Errorf("model: %v, %+v", err, one)
	}
}

func TestOpenAIChat(t *testing.T) {
	c := client(key)
	for name, system := range map[string]openai.ChatCompletionMessageParamUnion{
		"system": openai.SystemMessage(system), "developer": openai.DeveloperMessage(system),
		"parts": openai.SystemMessage([]openai.ChatCompletionContentPartTextParam{{Text: system}}),
	} {
		p := chat()
		p.Messages[0] = system
		p.MaxCompletionTokens = param.NewOpt(int64(30))
		p.Logprobs, p.TopLogprobs = param.NewOpt(true), param.NewOpt(int64(2))
		r, err := c.Chat.Completions.New(t.Context(), p)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(r.Choices) != 1 || r.Choices[0].Message.Content != answer || r.Choices[0].FinishReason != "stop" || r.Object != "chat.completion" {
			t.Errorf("%s: %s", name, r.RawJSON())
		}
		if u := r.Usage; u.PromptTokens != 21 || u.CompletionTokens == 0 || u.TotalTokens != u.PromptTokens+u.CompletionTokens {
			t.Errorf("%s: usage %s", name, u.RawJSON())
		}
		text := ""
		for _, l := range r.Choices[0].Logprobs.Content {
			text += l.Token
			if len(l.TopLogprobs) != 2 || l.Logprob > 0 || l.TopLogprobs[0].Logprob < l.TopLogprobs[1].Logprob {
				t.Errorf("%s: logprobs %s", name, l.RawJSON())
			}
		}
		if !strings.HasPrefix(text, answer) {
			t.Errorf("%s: tokens of the logprobs give %q", name, text)
		}
	}
}

func TestOpenAIChatStream(t *testing.T) {
	c := client(otherKey)
	p := chat()
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)}
	s := c.Chat.Completions.NewStreaming(t.Context(), p)
	var acc openai.ChatCompletionAccumulator
	chunks := 0
	for s.Next() {
		chunks++
		if !acc.AddChunk(s.Current()) {
			t.Fatalf("the client cannot add %s", s.Current().RawJSON())
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	if len(acc.Choices) != 1 || acc.Choices[0].Message.Content != answer || acc.Choices[0].FinishReason != "stop" || chunks < 4 {
		t.Errorf("%d chunks: %+v", chunks, acc.ChatCompletion)
	}
	if acc.Usage.PromptTokens != 21 || acc.Usage.CompletionTokens == 0 {
		t.Errorf("usage %+v", acc.Usage)
	}
}

func TestOpenAICompletions(t *testing.T) {
	c := client(key)
	p := openai.CompletionNewParams{
		Model: model, Prompt: openai.CompletionNewParamsPromptUnion{OfString: param.NewOpt("Once upon a time")},
		MaxTokens: param.NewOpt(int64(12)), Temperature: param.NewOpt(0.8), Seed: param.NewOpt(int64(7)),
	}
	r, err := c.Completions.New(t.Context(), p)
	if err != nil || len(r.Choices) != 1 || r.Choices[0].Text == "" || r.Usage.CompletionTokens != 12 || r.Choices[0].FinishReason != "length" {
		t.Fatalf("completion: %v, %+v", err, r)
	}
	s := c.Completions.NewStreaming(t.Context(), p)
	text := ""
	for s.Next() {
		for _, choice := range s.Current().Choices {
			text += choice.Text
		}
	}
	if err := s.Err(); err != nil || text != r.Choices[0].Text {
		t.Errorf("streamed: %v, %q, want %q", err, text, r.Choices[0].Text)
	}
	p.Prompt = openai.CompletionNewParamsPromptUnion{OfArrayOfTokens: []int64{0, 300, 301}}
	if r, err = c.Completions.New(t.Context(), p); err != nil || r.Usage.PromptTokens != 3 {
		t.Errorf("token ids: %v, %+v", err, r)
	}
}

// TestOpenAIErrors: what the client makes of refusals, whole and streaming.
func TestOpenAIErrors(t *testing.T) {
	long := chat()
	long.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage(strings.Repeat("word ", 3000))}
	foreign := chat()
	foreign.Model = "gpt-4o"
	tools := chat()
	tools.N = param.NewOpt(int64(3))
	hot := chat()
	hot.Temperature = param.NewOpt(9.0)
	for name, c := range map[string]struct {
		key     string
		params  openai.ChatCompletionNewParams
		status  int
		code    string
		param   string
		message string
	}{
		"key":      {"wrong", chat(), 401, "invalid_api_key", "", "key"},
		"too long": {key, long, 400, "context_length_exceeded", "", "2048"},
		"model":    {key, foreign, 404, "model_not_found", "model", "gpt-4o"},
		"n":        {key, tools, 400, "unsupported_parameter", "n", "n"},
		"range":    {key, hot, 400, "invalid_request", "temperature", "0 to 2"},
	} {
		client := client(c.key)
		_, whole := client.Chat.Completions.New(t.Context(), c.params)
		s := client.Chat.Completions.NewStreaming(t.Context(), c.params)
		for s.Next() {
			t.Errorf("%s: a chunk came: %s", name, s.Current().RawJSON())
		}
		for how, err := range map[string]error{"whole": whole, "streaming": s.Err()} {
			var e *openai.Error
			if !errors.As(err, &e) {
				t.Errorf("%s, %s: %v is no error of the API", name, how, err)
				continue
			}
			if e.StatusCode != c.status || e.Code != c.code || (c.param != "" && e.Param != c.param) || !strings.Contains(e.Message, c.message) {
				t.Errorf("%s, %s: %d %s, param %q: %s", name, how, e.StatusCode, e.Code, e.Param, e.Message)
			}
		}
	}
}
