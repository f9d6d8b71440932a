package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"quire/kvtransfer"
)

func number(s span, field func(*kvtransfer.Sampling) *float32) setter {
	return func(p *parser, m member) (err *kvtransfer.Error) {
		*field(&p.req.Sampling), err = asFloat(m.name, m.raw, s)
		return err
	}
}

func setModel(p *parser, m member) *kvtransfer.Error {
	name, err := asString(m.name, m.raw)
	if err != nil {
		return err
	}
	if len(name) > MaxNameBytes {
		return fault(m.name, "%d bytes, at most %d are taken", len(name), MaxNameBytes)
	}
	if name != "" && name != p.rules.Model && !slices.Contains(p.rules.Aliases, name) {
		e := kvtransfer.Errorf(kvtransfer.ModelNotFound, "model %q is not served here; %q is", clip(name), p.rules.Model)
		e.Param = m.name
		return &e
	}
	p.req.Model = name
	return nil
}

func setMaxTokens(p *parser, m member) *kvtransfer.Error {
	n, err := asInt(m.name, m.raw, 1, maxInt)
	p.maxTokens = int(n)
	return err
}

func setMaxNew(p *parser, m member) *kvtransfer.Error {
	n, err := asInt(m.name, m.raw, 1, maxInt)
	p.maxNew = int(n)
	return err
}

// setTopK takes -1 as off, as other engines do.
func setTopK(p *parser, m member) *kvtransfer.Error {
	n, err := asInt(m.name, m.raw, -1, maxInt)
	p.req.Sampling.TopK = int(max(0, n))
	return err
}

func setMinTokens(p *parser, m member) *kvtransfer.Error {
	n, err := asInt(m.name, m.raw, 0, maxInt)
	p.req.Sampling.MinTokens = int(n)
	return err
}

func setSeed(p *parser, m member) *kvtransfer.Error {
	n, err := asInt(m.name, m.raw, math.MinInt64, math.MaxInt64)
	p.req.Sampling.Seed, p.req.SeedSet = uint64(n), err == nil
	return err
}

func setStop(p *parser, m member) *kvtransfer.Error {
	list := []json.RawMessage{m.raw}
	if kindOf(m.raw) == "an array" {
		var err *kvtransfer.Error
		if list, err = asList(m.name, m.raw, MaxStops); err != nil {
			return err
		}
	}
	stops := make([]string, 0, len(list))
	for i, raw := range list {
		s, err := asString(m.name, raw)
		if err != nil {
			return err
		}
		if s == "" || len(s) > MaxStopBytes {
			return fault(m.name, "entry %d has %d bytes, want 1 to %d", i, len(s), MaxStopBytes)
		}
		stops = append(stops, s)
	}
	p.req.Sampling.Stop = stops
	return nil
}

func setStopTokens(p *parser, m member) *kvtransfer.Error {
	list, err := asList(m.name, m.raw, MaxStopTokens)
	if err != nil {
		return err
	}
	p.req.Sampling.StopTokens, err = asTokens(m.name, list, p.rules.Vocab)
	return err
}

func setIgnoreEOS(p *parser, m member) (err *kvtransfer.Error) {
	p.req.Sampling.IgnoreEOS, err = asBool(m.name, m.raw)
	return err
}

// setLogitBias sorts by token id, so that the same bias is the same bytes.
func setLogitBias(p *parser, m member) *kvtransfer.Error {
	if kindOf(m.raw) != "an object" {
		return fault(m.name, "want an object, got %s", kindOf(m.raw))
	}
	var biases map[string]json.RawMessage
	if json.Unmarshal(m.raw, &biases) != nil {
		return fault(m.name, "malformed JSON")
	}
	if len(biases) > MaxBiases {
		return fault(m.name, "%d entries, at most %d are taken", len(biases), MaxBiases)
	}
	var list []kvtransfer.Bias
	for key, raw := range biases {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil || id < 0 || id >= int64(p.rules.Vocab) || strconv.FormatInt(id, 10) != key {
			return fault(m.name, "a key is no token id: they go from 0 to %d", p.rules.Vocab-1)
		}
		v, e := asFloat(m.name, raw, span{-100, 100, false})
		if e != nil {
			return e
		}
		list = append(list, kvtransfer.Bias{Token: int32(id), Value: v})
	}
	slices.SortFunc(list, func(a, b kvtransfer.Bias) int { return int(a.Token) - int(b.Token) })
	p.req.Sampling.LogitBias = list
	return nil
}

func setStream(p *parser, m member) (err *kvtransfer.Error) {
	p.req.Stream, err = asBool(m.name, m.raw)
	return err
}

// setTemplateArgs reads what a client sets of a chat template: the switch for thinking, and nothing else.
func setTemplateArgs(p *parser, m member) *kvtransfer.Error {
	if kindOf(m.raw) != "an object" {
		return fault(m.name, "want an object, got %s", kindOf(m.raw))
	}
	members, err := object(m.name, m.raw)
	if err != nil {
		return err
	}
	for _, o := range members {
		param := m.name + "." + clip(o.name)
		if o.name != "enable_thinking" {
			return unsupported(param, "not supported, and it would change the answer")
		}
		if o.isNull() {
			continue
		}
		on, err := asBool(param, o.raw)
		if err != nil {
			return err
		}
		p.req.Thinking = &on
	}
	return nil
}

func setStreamOptions(p *parser, m member) *kvtransfer.Error {
	if kindOf(m.raw) != "an object" {
		return fault(m.name, "want an object, got %s", kindOf(m.raw))
	}
	members, err := object(m.name, m.raw)
	if err != nil {
		return err
	}
	p.usageAsked = true
	for _, o := range members {
		param := m.name + "." + clip(o.name)
		switch {
		case o.isNull():
		case o.name == "include_usage":
			if p.req.IncludeUsage, err = asBool(param, o.raw); err != nil {
				return err
			}
		case o.name == "include_obfuscation":
			if _, err = asBool(param, o.raw); err != nil {
				return err
			}
		case o.name == "continuous_usage_stats" && string(o.raw) == "false":
		case o.name == "continuous_usage_stats":
			return unsupported(param, "not supported")
		default:
			return fault(param, "unknown field")
		}
	}
	return nil
}

func setChatLogprobs(p *parser, m member) (err *kvtransfer.Error) {
	p.logprobs, err = asBool(m.name, m.raw)
	return err
}

func setTopLogprobs(p *parser, m member) *kvtransfer.Error {
	n, err := asInt(m.name, m.raw, 0, MaxTopLogprobs)
	p.topLogprobs = int(n)
	return err
}

func setCompletionLogprobs(p *parser, m member) *kvtransfer.Error {
	n, err := asInt(m.name, m.raw, 0, MaxTopLogprobs)
	p.req.Sampling.Logprobs = int(n)
	return err
}

// setPrompt takes a string, token ids, or a list with exactly one of either.
func setPrompt(p *parser, m member) *kvtransfer.Error {
	p.hasPrompt = true
	raw := m.raw
	if inner := firstOf(raw); inner == "a string" || inner == "an array" {
		list, err := asList(m.name, raw, maxInt)
		if err != nil {
			return err
		}
		if len(list) > 1 {
			return unsupported(m.name, fmt.Sprintf("%d prompts in one request are not supported: send one", len(list)))
		}
		raw = list[0]
	}
	var err *kvtransfer.Error
	if kindOf(raw) == "a string" {
		p.req.Prompt, err = asString(m.name, raw)
		return err
	}
	p.req.PromptTokens, err = promptTokens(m.name, raw, p.rules.Vocab)
	return err
}

// firstOf is the kind of an array's first entry, "" for an empty array and for anything else.
func firstOf(raw json.RawMessage) string {
	if kindOf(raw) != "an array" {
		return ""
	}
	inner := bytes.TrimLeft(raw[1:], " \t\r\n")
	if len(inner) == 0 || inner[0] == ']' {
		return ""
	}
	return kindOf(inner)
}

// promptTokens reads a prompt's ids without one allocation for each: prompts may be long.
func promptTokens(param string, raw json.RawMessage, vocab int) ([]int32, *kvtransfer.Error) {
	if kindOf(raw) != "an array" {
		return nil, fault(param, "want text or token ids, got %s", kindOf(raw))
	}
	var ids []int32
	if json.Unmarshal(raw, &ids) != nil {
		return nil, fault(param, "want an array of token ids")
	}
	if len(ids) == 0 {
		return nil, fault(param, "empty")
	}
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return nil, fault(param, "entry %d is no token id: they go from 0 to %d", i, vocab-1)
		}
	}
	return ids, nil
}
