package openai

import (
	"slices"

	"quire/kvtransfer"
)

// ParseChat validates the body of a chat completion. The error is a kvtransfer.Error with the field in Param.
func ParseChat(body []byte, rules Rules) (Request, error) {
	return parse(OpChat, chatOnly, body, rules)
}

// ParseCompletion validates the body of a completion. The error is a kvtransfer.Error with the field in Param.
func ParseCompletion(body []byte, rules Rules) (Request, error) {
	return parse(OpCompletion, completionOnly, body, rules)
}

func parse(op Op, only map[string]setter, body []byte, rules Rules) (Request, error) {
	members, err := object("body", body)
	if err != nil {
		return Request{}, *err
	}
	p := &parser{rules: rules, req: Request{Op: op, Sampling: rules.Defaults}, topLogprobs: -1}
	p.req.Sampling.Logprobs = -1
	p.req.Sampling.Seed = 0
	for _, m := range members {
		if err := p.field(m, only); err != nil {
			return Request{}, *err
		}
	}
	if err := p.finish(); err != nil {
		return Request{}, *err
	}
	return p.req, nil
}

func (p *parser) field(m member, only map[string]setter) *kvtransfer.Error {
	set, served := sampled[m.name]
	if !served {
		set, served = only[m.name]
	}
	values, no := refused[m.name]
	switch {
	case served && m.isNull():
		return nil
	case served:
		return set(p, m)
	case slices.Contains(ignored, m.name):
		return nil
	case no && (m.isNull() || neutral(m.raw, values)):
		return nil
	case no:
		return unsupported(m.name, "not supported, and it would change the answer")
	}
	return fault(clip(m.name), "unknown field")
}

// finish checks what depends on more than one field.
func (p *parser) finish() *kvtransfer.Error {
	switch {
	case p.req.Op == OpChat && !p.hasMessages:
		return fault("messages", "missing")
	case p.req.Op == OpCompletion && !p.hasPrompt:
		return fault("prompt", "missing")
	case p.usageAsked && !p.req.Stream:
		return fault("stream_options", "only with stream: true")
	case p.topLogprobs > 0 && !p.logprobs:
		return fault("top_logprobs", "only with logprobs: true")
	case p.maxTokens > 0 && p.maxNew > 0 && p.maxTokens != p.maxNew:
		return fault("max_completion_tokens", "max_tokens is %d and max_completion_tokens %d: send one of them", p.maxTokens, p.maxNew)
	}
	p.req.MaxTokens = max(p.maxTokens, p.maxNew)
	if p.req.MaxTokens > 0 && p.req.Sampling.MinTokens > p.req.MaxTokens {
		return fault("min_tokens", "%d is more than max_tokens %d", p.req.Sampling.MinTokens, p.req.MaxTokens)
	}
	if p.logprobs {
		p.req.Sampling.Logprobs = max(0, p.topLogprobs)
	}
	return nil
}

// clip keeps a client's text short in messages, and visible where it is empty.
func clip(s string) string {
	if s == "" {
		return `""`
	}
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}

// ParseTokenize validates the body of tokenize.
func ParseTokenize(body []byte, rules Rules) (TokenizeRequest, error) {
	req := TokenizeRequest{AddSpecialTokens: true, Chat: ChatOptions{GenerationPrompt: true}}
	members, err := object("body", body)
	if err != nil {
		return req, *err
	}
	p := &parser{rules: rules}
	for _, m := range members {
		if m.isNull() {
			continue
		}
		switch m.name {
		case "model":
			err = setModel(p, m)
		case "messages":
			err = setMessages(p, m)
		case "prompt":
			p.hasPrompt = true
			req.Prompt, err = asString(m.name, m.raw)
		case "add_special_tokens":
			req.AddSpecialTokens, err = asBool(m.name, m.raw)
		case "add_generation_prompt":
			req.Chat.GenerationPrompt, err = asBool(m.name, m.raw)
		case "return_token_strs":
			req.ReturnTokenString, err = asBool(m.name, m.raw)
		case "chat_template_kwargs":
			err = setTemplateArgs(p, m)
		default:
			err = fault(clip(m.name), "unknown field")
		}
		if err != nil {
			return req, *err
		}
	}
	if p.hasPrompt == p.hasMessages {
		return req, *fault("prompt", "want one of prompt and messages")
	}
	req.Messages, req.Chat.Thinking = p.req.Messages, p.req.Thinking
	return req, nil
}

// ParseDetokenize validates the body of detokenize; at most limit tokens.
func ParseDetokenize(body []byte, rules Rules, limit int) ([]int32, error) {
	members, err := object("body", body)
	if err != nil {
		return nil, *err
	}
	p := &parser{rules: rules}
	var ids []int32
	found := false
	for _, m := range members {
		switch m.name {
		case "model":
			if !m.isNull() {
				err = setModel(p, m)
			}
		case "tokens":
			found = true
			list, e := asList(m.name, m.raw, limit)
			if e != nil {
				return nil, *e
			}
			ids, err = asTokens(m.name, list, rules.Vocab)
		default:
			err = fault(clip(m.name), "unknown field")
		}
		if err != nil {
			return nil, *err
		}
	}
	if !found {
		return nil, *fault("tokens", "missing")
	}
	return ids, nil
}
