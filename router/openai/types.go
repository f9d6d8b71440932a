package openai

import (
	"encoding/json"

	"quire/kvtransfer"
)

// Usage counts the tokens of a request.
type Usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

// Model is one entry of the list of models.
type Model struct {
	ID            string `json:"id"`
	Object        string `json:"object"` // "model"
	Created       int64  `json:"created"`
	OwnedBy       string `json:"owned_by"`
	MaxModelLen   int    `json:"max_model_len"`    // prompt + max_tokens of a request, in tokens; 0 while a role is missing
	LimitedBy     string `json:"max_model_len_by"` // what sets it
	VocabSize     int    `json:"vocab_size"`
	ContextLength int    `json:"context_length"` // what the model itself could take
}

// ModelList answers GET /v1/models.
type ModelList struct {
	Object string  `json:"object"` // "list"
	Data   []Model `json:"data"`
}

// Tokenized answers tokenize.
type Tokenized struct {
	Tokens      []int32  `json:"tokens"`
	Count       int      `json:"count"`
	MaxModelLen int      `json:"max_model_len"`
	TokenStrs   []string `json:"token_strs,omitempty"`
}

// Detokenized answers detokenize.
type Detokenized struct {
	Prompt string `json:"prompt"`
}

// ErrorBody is OpenAI's error object.
type ErrorBody struct {
	Error ErrorObject `json:"error"`
}

// ErrorObject says what is wrong, with which field, and under which code of docs/errors.md.
type ErrorObject struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

// NewErrorBody turns an error into the object that clients see.
func NewErrorBody(err kvtransfer.Error) ErrorBody {
	meaning := kvtransfer.Lookup(err.Code)
	o := ErrorObject{Message: meaning.Help, Type: meaning.Type, Code: string(err.Code)}
	if err.Detail != "" {
		o.Message = err.Detail + ". " + meaning.Help
	}
	if err.Param != "" {
		o.Param = &err.Param
	}
	return ErrorBody{Error: o}
}

// EncodeError gives the JSON of an error.
func EncodeError(err kvtransfer.Error) []byte { return encode(NewErrorBody(err)) }

// encode never fails on the types of this package; text that is not UTF-8 gets replacement characters.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("openai: " + err.Error())
	}
	return b
}

// The shapes of answers. Pointers are null in JSON where OpenAI's are.
type (
	chatAnswer struct {
		ID      string       `json:"id"`
		Object  string       `json:"object"`
		Created int64        `json:"created"`
		Model   string       `json:"model"`
		Choices []chatChoice `json:"choices"`
		Usage   *Usage       `json:"usage"`
	}
	chatChoice struct {
		Index        int           `json:"index"`
		Message      chatMessage   `json:"message"`
		Logprobs     *chatLogprobs `json:"logprobs"`
		FinishReason string        `json:"finish_reason"`
	}
	chatMessage struct {
		Role    string  `json:"role"`
		Content string  `json:"content"`
		Refusal *string `json:"refusal"`
	}
	chatChunk struct {
		ID      string        `json:"id"`
		Object  string        `json:"object"`
		Created int64         `json:"created"`
		Model   string        `json:"model"`
		Choices []chunkChoice `json:"choices"`
		Usage   *Usage        `json:"usage,omitempty"`
	}
	chunkChoice struct {
		Index        int           `json:"index"`
		Delta        chunkDelta    `json:"delta"`
		Logprobs     *chatLogprobs `json:"logprobs"`
		FinishReason *string       `json:"finish_reason"`
	}
	chunkDelta struct {
		Role    string  `json:"role,omitempty"`
		Content *string `json:"content,omitempty"`
	}
	chatLogprobs struct {
		Content []chatLogprob `json:"content"`
	}
	chatLogprob struct {
		Token   string       `json:"token"`
		Logprob float32      `json:"logprob"`
		Bytes   []int        `json:"bytes"`
		Top     []topLogprob `json:"top_logprobs"`
	}
	topLogprob struct {
		Token   string  `json:"token"`
		Logprob float32 `json:"logprob"`
		Bytes   []int   `json:"bytes"`
	}
	textAnswer struct {
		ID      string       `json:"id"`
		Object  string       `json:"object"` // "text_completion", chunks too
		Created int64        `json:"created"`
		Model   string       `json:"model"`
		Choices []textChoice `json:"choices"`
		Usage   *Usage       `json:"usage,omitempty"`
	}
	textChoice struct {
		Index        int           `json:"index"`
		Text         string        `json:"text"`
		Logprobs     *textLogprobs `json:"logprobs"`
		FinishReason *string       `json:"finish_reason"`
	}
	textLogprobs struct {
		Tokens        []string             `json:"tokens"`
		TokenLogprobs []float32            `json:"token_logprobs"`
		TopLogprobs   []map[string]float32 `json:"top_logprobs"`
		TextOffset    []int                `json:"text_offset"` // in characters from the beginning of the answer
	}
)
