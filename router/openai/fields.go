package openai

import (
	"slices"

	"quire/kvtransfer"
)

// parser is a Request on its way.
type parser struct {
	rules       Rules
	req         Request
	logprobs    bool // chat: logprobs is true
	topLogprobs int  // chat: top_logprobs; -1 = absent
	maxTokens   int  // of max_tokens
	maxNew      int  // of max_completion_tokens
	usageAsked  bool
	hasPrompt   bool
	hasMessages bool
}

// setter reads one field into the parser.
type setter func(p *parser, m member) *kvtransfer.Error

// sampled are the served fields that chat and completions share.
var sampled = map[string]setter{
	"model":              setModel,
	"max_tokens":         setMaxTokens,
	"temperature":        number(span{0, 2, false}, func(s *kvtransfer.Sampling) *float32 { return &s.Temperature }),
	"top_p":              number(span{0, 1, true}, func(s *kvtransfer.Sampling) *float32 { return &s.TopP }),
	"min_p":              number(span{0, 1, false}, func(s *kvtransfer.Sampling) *float32 { return &s.MinP }),
	"presence_penalty":   number(span{-2, 2, false}, func(s *kvtransfer.Sampling) *float32 { return &s.PresencePenalty }),
	"frequency_penalty":  number(span{-2, 2, false}, func(s *kvtransfer.Sampling) *float32 { return &s.FrequencyPenalty }),
	"repetition_penalty": number(span{0, 2, true}, func(s *kvtransfer.Sampling) *float32 { return &s.RepetitionPenalty }),
	"top_k":              setTopK,
	"min_tokens":         setMinTokens,
	"seed":               setSeed,
	"stop":               setStop,
	"stop_token_ids":     setStopTokens,
	"ignore_eos":         setIgnoreEOS,
	"logit_bias":         setLogitBias,
	"stream":             setStream,
	"stream_options":     setStreamOptions,
}

// chatOnly and completionOnly are the served fields of one operation.
var (
	chatOnly = map[string]setter{
		"messages":              setMessages,
		"max_completion_tokens": setMaxNew,
		"logprobs":              setChatLogprobs,
		"top_logprobs":          setTopLogprobs,
		"chat_template_kwargs":  setTemplateArgs,
	}
	completionOnly = map[string]setter{
		"prompt":   setPrompt,
		"logprobs": setCompletionLogprobs,
	}
)

// ignored are fields without which the answer is the same.
var ignored = []string{
	"cache_salt", "metadata", "parallel_tool_calls", "priority", "prompt_cache_key", "prompt_cache_retention", "request_id",
	"safety_identifier", "service_tier", "store", "user",
}

// refused are fields that would change the answer, each with the values that do not.
var refused = map[string][]string{
	"add_generation_prompt":         {"true"},
	"add_special_tokens":            {"true"},
	"allowed_token_ids":             {"[]"},
	"audio":                         nil,
	"bad_words":                     {"[]"},
	"best_of":                       {"1"},
	"chat_template":                 nil,
	"continue_final_message":        {"false"},
	"documents":                     {"[]"},
	"early_stopping":                {"false"},
	"echo":                          {"false"},
	"function_call":                 {`"none"`, `"auto"`},
	"functions":                     {"[]"},
	"grammar":                       {`""`},
	"guided_choice":                 {"[]"},
	"guided_grammar":                nil,
	"guided_json":                   nil,
	"guided_regex":                  nil,
	"include_stop_str_in_output":    {"false"},
	"kv_transfer_params":            nil,
	"length_penalty":                {"1", "1.0"},
	"logits_processors":             {"[]"},
	"mirostat":                      {"0"},
	"modalities":                    {`["text"]`},
	"n":                             {"1"},
	"prediction":                    nil,
	"prompt_embeds":                 nil,
	"prompt_logprobs":               nil,
	"reasoning_effort":              {`"none"`},
	"response_format":               {`{"type":"text"}`},
	"return_token_ids":              {"false"},
	"return_tokens_as_token_ids":    {"false"},
	"skip_special_tokens":           {"true"},
	"spaces_between_special_tokens": {"true"},
	"structured_outputs":            nil,
	"suffix":                        {`""`},
	"tool_choice":                   {`"none"`, `"auto"`},
	"tools":                         {"[]"},
	"truncate_prompt_tokens":        nil,
	"typical_p":                     {"1", "1.0"},
	"use_beam_search":               {"false"},
	"verbosity":                     nil,
	"web_search_options":            nil,
}

// Served lists the fields that an operation acts on, sorted.
func Served(op Op) []string {
	only := completionOnly
	if op == OpChat {
		only = chatOnly
	}
	names := make([]string, 0, len(sampled)+len(only))
	for name := range sampled {
		names = append(names, name)
	}
	for name := range only {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Ignored lists the fields that are accepted and have no effect, sorted.
func Ignored() []string { return slices.Clone(ignored) }

// Refused lists the fields that get 400 unless their value is a neutral one, sorted.
func Refused() []string {
	names := make([]string, 0, len(refused))
	for name := range refused {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Neutral lists the JSON values of a refused field that are let pass; null always is.
func Neutral(name string) []string { return slices.Clone(refused[name]) }
