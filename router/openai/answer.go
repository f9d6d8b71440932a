package openai

import (
	"unicode/utf8"

	"quire/kvtransfer"
)

// Frame says what all JSON of one answer has in common.
type Frame struct {
	ID      string
	Created int64 // seconds since 1970
	Model   string
	Piece   func(id int32) []byte // a token's own bytes, for logprobs
}

// Answer turns the tokens of one request into JSON: chunks while they come, or one body at the end.
type Answer struct {
	frame Frame
	req   Request
	text  []byte
	all   []kvtransfer.Token // kept only where the body at the end needs their logprobs
	runes int                // characters of the answer so far, for text_offset
}

// NewAnswer begins an answer.
func NewAnswer(frame Frame, req Request) *Answer { return &Answer{frame: frame, req: req} }

// Open gives the chunks that come before any text.
func (a *Answer) Open() [][]byte {
	if a.req.Op != OpChat {
		return nil
	}
	empty := ""
	return [][]byte{a.chatChunk(chunkDelta{Role: "assistant", Content: &empty}, nil, nil)}
}

// Tokens gives the chunk of some tokens; none where they add neither text nor logprobs.
func (a *Answer) Tokens(tokens []kvtransfer.Token) [][]byte {
	var text []byte
	for _, t := range tokens {
		text = append(text, t.Text...)
	}
	wanted := a.req.Sampling.Logprobs >= 0
	if len(text) == 0 && !(wanted && len(tokens) > 0) {
		return nil
	}
	content := string(text)
	if a.req.Op == OpChat {
		return [][]byte{a.chatChunk(chunkDelta{Content: &content}, a.chatLogprobs(tokens), nil)}
	}
	return [][]byte{a.textChunk(content, a.textLogprobs(tokens), nil)}
}

// Close gives the last chunks: the text that was held back, the reason, and usage if it was asked for.
func (a *Answer) Close(end kvtransfer.End) [][]byte {
	var chunks [][]byte
	held, finish := string(end.Text), string(end.Finish)
	if a.req.Op == OpChat {
		if held != "" {
			chunks = append(chunks, a.chatChunk(chunkDelta{Content: &held}, nil, nil))
		}
		chunks = append(chunks, a.chatChunk(chunkDelta{}, nil, &finish))
	} else {
		chunks = append(chunks, a.textChunk(held, nil, &finish))
	}
	if !a.req.IncludeUsage {
		return chunks
	}
	usage := usageOf(end)
	if a.req.Op == OpChat {
		return append(chunks, encode(chatChunk{a.frame.ID, "chat.completion.chunk", a.frame.Created, a.frame.Model,
			[]chunkChoice{}, &usage}))
	}
	return append(chunks, encode(textAnswer{a.frame.ID, "text_completion", a.frame.Created, a.frame.Model,
		[]textChoice{}, &usage}))
}

// Keep stores tokens for Whole.
func (a *Answer) Keep(tokens []kvtransfer.Token) {
	for _, t := range tokens {
		a.text = append(a.text, t.Text...)
	}
	if a.req.Sampling.Logprobs >= 0 {
		a.all = append(a.all, tokens...)
	}
}

// Whole gives the one body of an answer that is not streamed, from what was kept.
func (a *Answer) Whole(end kvtransfer.End) []byte {
	text := string(append(a.text, end.Text...))
	usage := usageOf(end)
	if a.req.Op == OpChat {
		return encode(chatAnswer{a.frame.ID, "chat.completion", a.frame.Created, a.frame.Model, []chatChoice{{
			Message:      chatMessage{Role: "assistant", Content: text},
			Logprobs:     a.chatLogprobs(a.all),
			FinishReason: string(end.Finish),
		}}, &usage})
	}
	finish := string(end.Finish)
	return encode(textAnswer{a.frame.ID, "text_completion", a.frame.Created, a.frame.Model, []textChoice{{
		Text: text, Logprobs: a.textLogprobs(a.all), FinishReason: &finish,
	}}, &usage})
}

func usageOf(end kvtransfer.End) Usage {
	return Usage{PromptTokens: end.Prompt, CompletionTokens: end.Output, TotalTokens: end.Prompt + end.Output}
}

// UsageOf counts the tokens of an ended answer.
func UsageOf(end kvtransfer.End) Usage { return usageOf(end) }

func (a *Answer) chatChunk(d chunkDelta, lp *chatLogprobs, finish *string) []byte {
	return encode(chatChunk{a.frame.ID, "chat.completion.chunk", a.frame.Created, a.frame.Model,
		[]chunkChoice{{Delta: d, Logprobs: lp, FinishReason: finish}}, nil})
}

func (a *Answer) textChunk(text string, lp *textLogprobs, finish *string) []byte {
	return encode(textAnswer{a.frame.ID, "text_completion", a.frame.Created, a.frame.Model,
		[]textChoice{{Text: text, Logprobs: lp, FinishReason: finish}}, nil})
}

func (a *Answer) chatLogprobs(tokens []kvtransfer.Token) *chatLogprobs {
	if a.req.Sampling.Logprobs < 0 {
		return nil
	}
	out := &chatLogprobs{Content: make([]chatLogprob, 0, len(tokens))}
	for _, t := range tokens {
		one := a.logprob(t.ID, t.Logprob)
		entry := chatLogprob{Token: one.Token, Logprob: one.Logprob, Bytes: one.Bytes, Top: make([]topLogprob, 0, len(t.Top))}
		for _, alt := range t.Top {
			entry.Top = append(entry.Top, a.logprob(alt.ID, alt.Logprob))
		}
		out.Content = append(out.Content, entry)
	}
	return out
}

func (a *Answer) logprob(id int32, lp float32) topLogprob {
	piece := a.frame.Piece(id)
	out := topLogprob{Token: string(piece), Logprob: finite(lp), Bytes: make([]int, len(piece))}
	for i, b := range piece {
		out.Bytes[i] = int(b)
	}
	return out
}

func (a *Answer) textLogprobs(tokens []kvtransfer.Token) *textLogprobs {
	if a.req.Sampling.Logprobs < 0 {
		return nil
	}
	out := &textLogprobs{Tokens: []string{}, TokenLogprobs: []float32{}, TopLogprobs: []map[string]float32{}, TextOffset: []int{}}
	for _, t := range tokens {
		top := make(map[string]float32, len(t.Top))
		for _, alt := range t.Top {
			name := string(a.frame.Piece(alt.ID))
			if old, ok := top[name]; !ok || old < finite(alt.Logprob) { // two ids may have the same text
				top[name] = finite(alt.Logprob)
			}
		}
		out.Tokens = append(out.Tokens, string(a.frame.Piece(t.ID)))
		out.TokenLogprobs = append(out.TokenLogprobs, finite(t.Logprob))
		out.TopLogprobs = append(out.TopLogprobs, top)
		out.TextOffset = append(out.TextOffset, a.runes)
		a.runes += utf8.RuneCount(t.Text)
	}
	return out
}

// finite keeps JSON valid: a token that cannot come has the logarithm that OpenAI's API gives it.
func finite(lp float32) float32 {
	if lp >= -9999 && lp <= 0 {
		return lp
	}
	if lp > 0 {
		return 0
	}
	return -9999
}
