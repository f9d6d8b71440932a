package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"quire/kvtransfer"
)

var testRules = Rules{Model: "m", Aliases: []string{"other/m"}, Vocab: 100, Defaults: kvtransfer.Sampling{Temperature: 1}}

// asError gives the error of a parse; the zero Error when there is none.
func asError(t *testing.T, err error) kvtransfer.Error {
	t.Helper()
	var e kvtransfer.Error
	if err != nil && !errors.As(err, &e) {
		t.Fatalf("%v is no kvtransfer.Error", err)
	}
	return e
}

const hello = `"messages":[{"role":"user","content":"hi"}]`

// chatWith is a valid chat with more fields.
func chatWith(fields string) string {
	if fields == "" {
		return "{" + hello + "}"
	}
	return "{" + hello + "," + fields + "}"
}

func TestChatAccepts(t *testing.T) {
	user := []Message{{"user", "hi"}}
	base := kvtransfer.Sampling{Temperature: 1, Logprobs: -1}
	with := func(change func(*kvtransfer.Sampling)) kvtransfer.Sampling {
		s := base
		change(&s)
		return s
	}
	for _, c := range []struct {
		body string
		want Request
	}{
		{chatWith(""), Request{Sampling: base}},
		{chatWith(`"model":"m"`), Request{Model: "m", Sampling: base}},
		{chatWith(`"model":"other/m"`), Request{Model: "other/m", Sampling: base}},
		{chatWith(`"max_tokens":7`), Request{MaxTokens: 7, Sampling: base}},
		{chatWith(`"max_completion_tokens":7`), Request{MaxTokens: 7, Sampling: base}},
		{chatWith(`"max_completion_tokens":7,"max_tokens":7`), Request{MaxTokens: 7, Sampling: base}},
		{chatWith(`"max_tokens":7.0`), Request{MaxTokens: 7, Sampling: base}},
		{chatWith(`"max_tokens":null,"stop":null,"tools":null,"user":null`), Request{Sampling: base}},
		{chatWith(`"temperature":0`), Request{Sampling: with(func(s *kvtransfer.Sampling) { s.Temperature = 0 })}},
		{chatWith(`"temperature":2,"top_p":0.5,"top_k":-1,"min_p":1`), Request{Sampling: with(func(s *kvtransfer.Sampling) { s.Temperature, s.TopP, s.MinP = 2, 0.5, 1 })}},
		{chatWith(`"top_k":40,"repetition_penalty":1.1,"presence_penalty":-2,"frequency_penalty":2`), Request{Sampling: with(func(s *kvtransfer.Sampling) {
			s.TopK, s.RepetitionPenalty, s.PresencePenalty, s.FrequencyPenalty = 40, 1.1, -2, 2
		})}},
		{chatWith(`"seed":0`), Request{SeedSet: true, Sampling: base}},
		{chatWith(`"seed":-1`), Request{SeedSet: true, Sampling: with(func(s *kvtransfer.Sampling) { s.Seed = 1<<64 - 1 })}},
		{chatWith(`"stop":"x"`), Request{Sampling: with(func(s *kvtransfer.Sampling) { s.Stop = []string{"x"} })}},
		{chatWith(`"stop":["x","y"],"stop_token_ids":[0,99],"ignore_eos":true,"min_tokens":3`), Request{Sampling: with(func(s *kvtransfer.Sampling) {
			s.Stop, s.StopTokens, s.IgnoreEOS, s.MinTokens = []string{"x", "y"}, []int32{0, 99}, true, 3
		})}},
		{chatWith(`"logit_bias":{"7":-100,"3":1.5}`), Request{Sampling: with(func(s *kvtransfer.Sampling) {
			s.LogitBias = []kvtransfer.Bias{{Token: 3, Value: 1.5}, {Token: 7, Value: -100}}
		})}},
		{chatWith(`"logprobs":true`), Request{Sampling: with(func(s *kvtransfer.Sampling) { s.Logprobs = 0 })}},
		{chatWith(`"logprobs":true,"top_logprobs":20`), Request{Sampling: with(func(s *kvtransfer.Sampling) { s.Logprobs = 20 })}},
		{chatWith(`"logprobs":false,"top_logprobs":0`), Request{Sampling: base}},
		{chatWith(`"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false}`), Request{Stream: true, IncludeUsage: true, Sampling: base}},
		{chatWith(`"chat_template_kwargs":{}`), Request{Sampling: base}},
		{chatWith(`"chat_template_kwargs":{"enable_thinking":false}`), Request{Thinking: new(bool), Sampling: base}},
		{chatWith(`"n":1,"tools":[],"tool_choice":"none","response_format":{"type": "text"},"modalities":["text"]`), Request{Sampling: base}},
		{chatWith(`"user":"u","metadata":{"a":"b"},"store":false,"service_tier":"auto","parallel_tool_calls":true`), Request{Sampling: base}},
	} {
		got, err := ParseChat([]byte(c.body), testRules)
		if err != nil {
			t.Errorf("%s: %v", c.body, err)
			continue
		}
		c.want.Op, c.want.Messages = OpChat, user
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: (-want +got)\n%s", c.body, d)
		}
	}
}

func TestChatMessages(t *testing.T) {
	for _, c := range []struct {
		messages string
		want     []Message
	}{
		{`[{"role":"developer","content":"d"},{"role":"user","content":"u"}]`, []Message{{"system", "d"}, {"user", "u"}}},
		{`[{"role":"system","content":""},{"role":"assistant","content":"a","refusal":null,"tool_calls":[]}]`, []Message{{"system", ""}, {"assistant", "a"}}},
		{`[{"role":"user","name":"Ann","content":[{"type":"text","text":"a"},{"text":"b","type":"text"}]}]`, []Message{{"user", "a\nb"}}},
	} {
		got, err := ParseChat([]byte(`{"messages":`+c.messages+`}`), testRules)
		if err != nil {
			t.Errorf("%s: %v", c.messages, err)
			continue
		}
		if d := cmp.Diff(c.want, got.Messages); d != "" {
			t.Errorf("%s: (-want +got)\n%s", c.messages, d)
		}
	}
}

// TestChatRefuses is a table over what is wrong with a body, and the field that the error names.
func TestChatRefuses(t *testing.T) {
	const invalid, unsupported = kvtransfer.InvalidRequest, kvtransfer.UnsupportedField
	for _, c := range []struct {
		body  string
		code  kvtransfer.Code
		param string
	}{
		{``, invalid, "body"},
		{`[]`, invalid, "body"},
		{`{"messages"`, invalid, "body"},
		{chatWith("") + "x", invalid, "body"},
		{chatWith("") + "{}", invalid, "body"},
		{"{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", invalid, "body"},
		{chatWith(hello), invalid, "messages"},
		{`{}`, invalid, "messages"},
		{`{"messages":null}`, invalid, "messages"},
		{`{"messages":[]}`, invalid, "messages"},
		{`{"messages":"hi"}`, invalid, "messages"},
		{`{"messages":["hi"]}`, invalid, "messages[0]"},
		{`{"messages":[{"content":"hi"}]}`, invalid, "messages[0].role"},
		{`{"messages":[{"role":"user"}]}`, invalid, "messages[0].content"},
		{`{"messages":[{"role":"user","content":null}]}`, invalid, "messages[0].content"},
		{`{"messages":[{"role":"user","content":7}]}`, invalid, "messages[0].content"},
		{`{"messages":[{"role":"user","content":[]}]}`, invalid, "messages[0].content"},
		{`{"messages":[{"role":"wizard","content":"hi"}]}`, invalid, "messages[0].role"},
		{`{"messages":[{"role":"tool","content":"hi"}]}`, unsupported, "messages[0].role"},
		{`{"messages":[{"role":"user","content":"hi","extra":1}]}`, invalid, "messages[0].extra"},
		{`{"messages":[{"role":"assistant","content":"hi","tool_calls":[{}]}]}`, unsupported, "messages[0].tool_calls"},
		{`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`, unsupported, "messages[0].content[0].type"},
		{`{"messages":[{"role":"user","content":[{"text":"x"}]}]}`, invalid, "messages[0].content[0].type"},
		{`{"messages":[{"role":"user","content":[{"type":"text"}]}]}`, invalid, "messages[0].content[0].text"},
		{`{"messages":[{"role":"user","content":[{"type":"text","text":"a","x":1}]}]}`, invalid, "messages[0].content[0].x"},
		{chatWith(`"model":7`), invalid, "model"},
		{chatWith(`"model":"gpt"`), kvtransfer.ModelNotFound, "model"},
		{chatWith(`"max_tokens":0`), invalid, "max_tokens"},
		{chatWith(`"max_tokens":-1`), invalid, "max_tokens"},
		{chatWith(`"max_tokens":1.5`), invalid, "max_tokens"},
		{chatWith(`"max_tokens":"5"`), invalid, "max_tokens"},
		{chatWith(`"max_tokens":99999999999999999999`), invalid, "max_tokens"},
		{chatWith(`"max_tokens":5,"max_completion_tokens":6`), invalid, "max_completion_tokens"},
		{chatWith(`"max_tokens":5,"min_tokens":6`), invalid, "min_tokens"},
		{chatWith(`"temperature":2.1`), invalid, "temperature"},
		{chatWith(`"temperature":-0.1`), invalid, "temperature"},
		{chatWith(`"temperature":1e999`), invalid, "temperature"},
		{chatWith(`"temperature":true`), invalid, "temperature"},
		{chatWith(`"top_p":0`), invalid, "top_p"},
		{chatWith(`"top_p":1.01`), invalid, "top_p"},
		{chatWith(`"min_p":-1`), invalid, "min_p"},
		{chatWith(`"top_k":-2`), invalid, "top_k"},
		{chatWith(`"repetition_penalty":0`), invalid, "repetition_penalty"},
		{chatWith(`"presence_penalty":2.5`), invalid, "presence_penalty"},
		{chatWith(`"frequency_penalty":-2.5`), invalid, "frequency_penalty"},
		{chatWith(`"seed":1.5`), invalid, "seed"},
		{chatWith(`"seed":"1"`), invalid, "seed"},
		{chatWith(`"stop":""`), invalid, "stop"},
		{chatWith(`"stop":[7]`), invalid, "stop"},
		{chatWith(`"stop":["` + strings.Repeat(`x","`, 16) + `x"]`), invalid, "stop"},
		{chatWith(`"stop":"` + strings.Repeat("x", 257) + `"`), invalid, "stop"},
		{chatWith(`"stop_token_ids":[100]`), invalid, "stop_token_ids"},
		{chatWith(`"stop_token_ids":[-1]`), invalid, "stop_token_ids"},
		{chatWith(`"ignore_eos":1`), invalid, "ignore_eos"},
		{chatWith(`"logit_bias":{"100":1}`), invalid, "logit_bias"},
		{chatWith(`"logit_bias":{"07":1}`), invalid, "logit_bias"},
		{chatWith(`"logit_bias":{"x":1}`), invalid, "logit_bias"},
		{chatWith(`"logit_bias":{"1":101}`), invalid, "logit_bias"},
		{chatWith(`"logit_bias":[]`), invalid, "logit_bias"},
		{chatWith(`"logprobs":5`), invalid, "logprobs"},
		{chatWith(`"top_logprobs":1`), invalid, "top_logprobs"},
		{chatWith(`"logprobs":true,"top_logprobs":21`), invalid, "top_logprobs"},
		{chatWith(`"stream":"yes"`), invalid, "stream"},
		{chatWith(`"stream_options":{"include_usage":true}`), invalid, "stream_options"},
		{chatWith(`"stream":true,"stream_options":{"x":1}`), invalid, "stream_options.x"},
		{chatWith(`"stream":true,"stream_options":{"continuous_usage_stats":true}`), unsupported, "stream_options.continuous_usage_stats"},
		{chatWith(`"n":2`), unsupported, "n"},
		{chatWith(`"chat_template_kwargs":{"tools":[]}`), unsupported, "chat_template_kwargs.tools"},
		{chatWith(`"chat_template_kwargs":{"enable_thinking":1}`), invalid, "chat_template_kwargs.enable_thinking"},
		{chatWith(`"chat_template_kwargs":true`), invalid, "chat_template_kwargs"},
		{chatWith(`"tools":[{"type":"function"}]`), unsupported, "tools"},
		{chatWith(`"tool_choice":"required"`), unsupported, "tool_choice"},
		{chatWith(`"response_format":{"type":"json_object"}`), unsupported, "response_format"},
		{chatWith(`"reasoning_effort":"high"`), unsupported, "reasoning_effort"},
		{chatWith(`"audio":{}`), unsupported, "audio"},
		{chatWith(`"prompt":"x"`), invalid, "prompt"},
		{chatWith(`"temprature":1`), invalid, "temprature"},
		{chatWith(`"` + strings.Repeat("y", 100) + `":1`), invalid, strings.Repeat("y", 64) + "..."},
	} {
		_, err := ParseChat([]byte(c.body), testRules)
		e := asError(t, err)
		if e.Code != c.code || e.Param != c.param {
			t.Errorf("%s: code %q, param %q, want %q, %q (%v)", clip(c.body), e.Code, e.Param, c.code, c.param, err)
		}
	}
}

func TestCompletionPrompts(t *testing.T) {
	for _, c := range []struct {
		prompt string
		text   string
		tokens []int32
		code   kvtransfer.Code
	}{
		{`"hi"`, "hi", nil, ""},
		{`""`, "", nil, ""},
		{`["hi"]`, "hi", nil, ""},
		{`[1, 2]`, "", []int32{1, 2}, ""},
		{`[[1,2]]`, "", []int32{1, 2}, ""},
		{`[0,99]`, "", []int32{0, 99}, ""},
		{`["a","b"]`, "", nil, kvtransfer.UnsupportedField},
		{`[[1],[2]]`, "", nil, kvtransfer.UnsupportedField},
		{`[]`, "", nil, kvtransfer.InvalidRequest},
		{`[[]]`, "", nil, kvtransfer.InvalidRequest},
		{`[[[1]]]`, "", nil, kvtransfer.InvalidRequest},
		{`[1,"a"]`, "", nil, kvtransfer.InvalidRequest},
		{`[1.5]`, "", nil, kvtransfer.InvalidRequest},
		{`[100]`, "", nil, kvtransfer.InvalidRequest},
		{`[-1]`, "", nil, kvtransfer.InvalidRequest},
		{`[99999999999]`, "", nil, kvtransfer.InvalidRequest},
		{`7`, "", nil, kvtransfer.InvalidRequest},
		{`{}`, "", nil, kvtransfer.InvalidRequest},
	} {
		got, err := ParseCompletion([]byte(`{"prompt":`+c.prompt+`}`), testRules)
		e := asError(t, err)
		if e.Code != c.code || (e.Code != "" && e.Param != "prompt") {
			t.Errorf("%s: code %q, param %q, want %q", c.prompt, e.Code, e.Param, c.code)
		}
		if err == nil && (got.Prompt != c.text || !cmp.Equal(got.PromptTokens, c.tokens)) {
			t.Errorf("%s: %q %v, want %q %v", c.prompt, got.Prompt, got.PromptTokens, c.text, c.tokens)
		}
	}
}

func TestCompletionFields(t *testing.T) {
	for body, param := range map[string]string{
		`{"prompt":"x","echo":true}`:               "echo",
		`{"prompt":"x","best_of":2}`:               "best_of",
		`{"prompt":"x","suffix":"y"}`:              "suffix",
		`{"prompt":"x","messages":[]}`:             "messages",
		`{"prompt":"x","max_completion_tokens":4}`: "max_completion_tokens",
		`{"prompt":"x","logprobs":21}`:             "logprobs",
		`{"prompt":"x","logprobs":true}`:           "logprobs",
		`{}`:                                       "prompt",
	} {
		_, err := ParseCompletion([]byte(body), testRules)
		if e := asError(t, err); e.Param != param {
			t.Errorf("%s: param %q, want %q", body, e.Param, param)
		}
	}
	got, err := ParseCompletion([]byte(`{"prompt":"x","logprobs":5,"echo":false,"best_of":1,"suffix":"","max_tokens":3}`), testRules)
	if err != nil || got.Sampling.Logprobs != 5 || got.MaxTokens != 3 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestEveryRefusedField sends each with a value of its own, and with each neutral value.
func TestEveryRefusedField(t *testing.T) {
	for _, name := range Refused() {
		if _, err := ParseChat([]byte(chatWith(fmt.Sprintf(`%q:{"x":1}`, name))), testRules); asError(t, err).Code != kvtransfer.UnsupportedField {
			t.Errorf("%s: %v", name, err)
		}
		for _, v := range append(Neutral(name), "null") {
			if _, err := ParseChat([]byte(chatWith(fmt.Sprintf(`%q:%s`, name, v))), testRules); err != nil {
				t.Errorf("%s: %s: %v", name, v, err)
			}
		}
	}
	for _, name := range Ignored() {
		if _, err := ParseChat([]byte(chatWith(fmt.Sprintf(`%q:{"x":[1]}`, name))), testRules); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestListsAreDisjoint keeps a field from having two meanings.
func TestListsAreDisjoint(t *testing.T) {
	for _, op := range []Op{OpChat, OpCompletion} {
		seen := map[string]int{}
		for _, list := range [][]string{Served(op), Ignored(), Refused()} {
			for _, name := range list {
				if seen[name]++; seen[name] > 1 {
					t.Errorf("%s: %s is in two lists", op, name)
				}
			}
		}
	}
}

func TestTokenizeBodies(t *testing.T) {
	got, err := ParseTokenize([]byte(`{"prompt":"x","add_special_tokens":false,"model":"m"}`), testRules)
	if err != nil || got.Prompt != "x" || got.AddSpecialTokens {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = ParseTokenize([]byte(chatWith("")), testRules)
	if err != nil || len(got.Messages) != 1 || !got.Chat.GenerationPrompt {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, body := range []string{`{}`, chatWith(`"prompt":"x"`), `{"prompt":7}`, `{"prompt":"x","y":1}`, `{"prompt":"x","add_special_tokens":"no"}`} {
		if _, err := ParseTokenize([]byte(body), testRules); asError(t, err).Code != kvtransfer.InvalidRequest {
			t.Errorf("%s: %v", body, err)
		}
	}
	ids, err := ParseDetokenize([]byte(`{"tokens":[1,2,3]}`), testRules, 3)
	if err != nil || len(ids) != 3 {
		t.Errorf("got %v, %v", ids, err)
	}
	for _, body := range []string{`{}`, `{"tokens":[1,2,3,4]}`, `{"tokens":[100]}`, `{"tokens":null}`, `{"tokens":["a"]}`} {
		if _, err := ParseDetokenize([]byte(body), testRules, 3); asError(t, err).Code != kvtransfer.InvalidRequest {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestIDs(t *testing.T) {
	for body, want := range map[string]string{`{"id":"r-1-ab"}`: "r-1-ab", `{"id":"chatcmpl-r-1-ab"}`: "r-1-ab", `{"id":"cmpl-r-1-ab"}`: "r-1-ab"} {
		if got, err := ParseID([]byte(body)); got != want || err != nil {
			t.Errorf("%s: %q, %v", body, got, err)
		}
	}
	for _, body := range []string{`{}`, `{"id":""}`, `{"id":7}`, `{"id":"a","x":1}`} {
		if _, err := ParseID([]byte(body)); asError(t, err).Code != kvtransfer.InvalidRequest {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// FuzzParse: any bytes give a request within the limits, or an error with a code of the table.
func FuzzParse(f *testing.F) {
	f.Add([]byte(chatWith(`"stop":["a"],"logit_bias":{"1":2}`)))
	f.Add([]byte(`{"prompt":[1,2]}`))
	f.Add([]byte(`{"prompt":[[`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, op := range []Op{OpChat, OpCompletion} {
			req, err := Parse(op, body, testRules)
			if err != nil {
				if e := asError(t, err); kvtransfer.Lookup(e.Code).Class != kvtransfer.ClassRefused || e.Param == "" {
					t.Fatalf("%q: %+v", body, e)
				}
				continue
			}
			s := req.Sampling
			if s.Temperature < 0 || s.Temperature > 2 || s.TopP < 0 || s.TopP > 1 || len(s.Stop) > MaxStops || len(s.LogitBias) > MaxBiases ||
				s.Logprobs < -1 || s.Logprobs > MaxTopLogprobs || req.MaxTokens < 0 || !json.Valid(body) {
				t.Fatalf("%q: %+v", body, req)
			}
		}
		_, _ = ParseTokenize(body, testRules)
		_, _ = ParseDetokenize(body, testRules, 10)
		_, _ = ParseID(body)
	})
}
