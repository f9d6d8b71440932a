package openai

import "quire/kvtransfer"

// Op tells the two ways of asking apart.
type Op string

// The operations that make tokens.
const (
	OpChat       Op = "chat"
	OpCompletion Op = "completions"
)

// Limits on a request's parts. A longer one is a 400 that names both numbers.
const (
	MaxMessages    = 2048
	MaxParts       = 1024 // content parts of one message
	MaxStops       = 16
	MaxStopBytes   = 256
	MaxStopTokens  = 64
	MaxBiases      = 300
	MaxTopLogprobs = 20
	MaxNameBytes   = 256
	MaxTopFields   = 128 // fields of a body
	maxInt         = 1 << 30
)

// Rules is what validation must know of the model that is served.
type Rules struct {
	Model    string              // the name it is served under
	Aliases  []string            // other names for it
	Vocab    int                 // token ids are in [0, Vocab)
	Defaults kvtransfer.Sampling // for fields that are absent (of a model's generation_config); Logprobs and Seed are not used
}

// Message is one turn of a chat, its content parts joined with a newline. Role is system, user or assistant: developer is
// read as system.
type Message struct {
	Role    string
	Content string
}

// Request is a validated body of a chat or a completion.
type Request struct {
	Op           Op
	Model        string // as the client wrote it; "" = the one that is served
	Messages     []Message
	Prompt       string
	PromptTokens []int32 // instead of Prompt; nil when the prompt is text
	MaxTokens    int     // >= 1; 0 = absent
	Sampling     kvtransfer.Sampling
	SeedSet      bool // Sampling.Seed is the client's
	Stream       bool
	IncludeUsage bool  // a last chunk with usage
	Thinking     *bool // of ChatOptions
}

// ChatOptions is how messages become a prompt.
type ChatOptions struct {
	GenerationPrompt bool  // the prompt ends where the answer begins
	Thinking         *bool // the template's switch for thinking before the answer; nil = what the template does by itself
}

// TokenizeRequest is a validated body of tokenize: a prompt, or messages as a chat would render them.
type TokenizeRequest struct {
	Prompt            string
	Messages          []Message
	AddSpecialTokens  bool        // default true
	Chat              ChatOptions // with messages; its GenerationPrompt is true by default
	ReturnTokenString bool        // adds token_strs to the answer
}

// fault makes the 400 of a field.
func fault(param, format string, args ...any) *kvtransfer.Error {
	e := kvtransfer.Errorf(kvtransfer.InvalidRequest, "%s: "+format, append([]any{param}, args...)...)
	e.Param = param
	return &e
}

// unsupported makes the 400 of a field that is refused.
func unsupported(param, why string) *kvtransfer.Error {
	e := kvtransfer.Errorf(kvtransfer.UnsupportedField, "%s: %s", param, why)
	e.Param = param
	return &e
}
