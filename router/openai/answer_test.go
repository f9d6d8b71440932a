package openai

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"quire/kvtransfer"
)

func testAnswer(req Request) *Answer {
	return NewAnswer(Frame{ID: "id", Created: 9, Model: "m", Piece: func(id int32) []byte { return []byte{'t', byte('0' + id)} }}, req)
}

func tokensOf(texts ...string) []kvtransfer.Token {
	var list []kvtransfer.Token
	for i, s := range texts {
		list = append(list, kvtransfer.Token{ID: int32(i), Text: []byte(s), Logprob: -0.5,
			Top: []kvtransfer.TopLogprob{{ID: int32(i), Logprob: -0.5}, {ID: 9, Logprob: float32(math.Inf(-1))}}})
	}
	return list
}

var testEnd = kvtransfer.End{Finish: kvtransfer.FinishStop, Text: []byte("!"), Prompt: 3, Output: 2}

func lines(chunks [][]byte) string {
	var b strings.Builder
	for _, c := range chunks {
		b.Write(c)
		b.WriteByte('\n')
	}
	return b.String()
}

func TestChatStream(t *testing.T) {
	a := testAnswer(Request{Op: OpChat, IncludeUsage: true, Sampling: kvtransfer.Sampling{Logprobs: -1}})
	got := lines(a.Open()) + lines(a.Tokens(tokensOf("he", "llo"))) + lines(a.Tokens(tokensOf(""))) + lines(a.Close(testEnd))
	want := `{"id":"id","object":"chat.completion.chunk","created":9,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}
{"id":"id","object":"chat.completion.chunk","created":9,"model":"m","choices":[{"index":0,"delta":{"content":"hello"},"logprobs":null,"finish_reason":null}]}
{"id":"id","object":"chat.completion.chunk","created":9,"model":"m","choices":[{"index":0,"delta":{"content":"!"},"logprobs":null,"finish_reason":null}]}
{"id":"id","object":"chat.completion.chunk","created":9,"model":"m","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}
{"id":"id","object":"chat.completion.chunk","created":9,"model":"m","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTextStream(t *testing.T) {
	a := testAnswer(Request{Op: OpCompletion, Sampling: kvtransfer.Sampling{Logprobs: 2}})
	got := lines(a.Open()) + lines(a.Tokens(tokensOf("hé", ""))) + lines(a.Tokens(tokensOf("x"))) + lines(a.Close(testEnd))
	want := `{"id":"id","object":"text_completion","created":9,"model":"m","choices":[{"index":0,"text":"hé","logprobs":{"tokens":["t0","t1"],"token_logprobs":[-0.5,-0.5],"top_logprobs":[{"t0":-0.5,"t9":-9999},{"t1":-0.5,"t9":-9999}],"text_offset":[0,2]},"finish_reason":null}]}
{"id":"id","object":"text_completion","created":9,"model":"m","choices":[{"index":0,"text":"x","logprobs":{"tokens":["t0"],"token_logprobs":[-0.5],"top_logprobs":[{"t0":-0.5,"t9":-9999}],"text_offset":[2]},"finish_reason":null}]}
{"id":"id","object":"text_completion","created":9,"model":"m","choices":[{"index":0,"text":"!","logprobs":null,"finish_reason":"stop"}]}
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestWholeAnswers(t *testing.T) {
	a := testAnswer(Request{Op: OpChat, Sampling: kvtransfer.Sampling{Logprobs: 1}})
	a.Keep(tokensOf("he"))
	want := `{"id":"id","object":"chat.completion","created":9,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"he!","refusal":null},"logprobs":{"content":[{"token":"t0","logprob":-0.5,"bytes":[116,48],"top_logprobs":[{"token":"t0","logprob":-0.5,"bytes":[116,48]},{"token":"t9","logprob":-9999,"bytes":[116,57]}]}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`
	if got := string(a.Whole(testEnd)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	a = testAnswer(Request{Op: OpCompletion, Sampling: kvtransfer.Sampling{Logprobs: -1}})
	a.Keep(tokensOf("he", "y"))
	want = `{"id":"id","object":"text_completion","created":9,"model":"m","choices":[{"index":0,"text":"hey!","logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`
	if got := string(a.Whole(testEnd)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestErrorBodies: every row of the table gives an object with all four fields and no surprises.
func TestErrorBodies(t *testing.T) {
	for _, m := range kvtransfer.Table {
		e := kvtransfer.Error{Code: m.Code, Detail: "router: 1 of 2", Param: "max_tokens"}
		var got ErrorBody
		if err := json.Unmarshal(EncodeError(e), &got); err != nil {
			t.Fatal(err)
		}
		if got.Error.Code != string(m.Code) || got.Error.Type != m.Type || *got.Error.Param != "max_tokens" ||
			!strings.HasPrefix(got.Error.Message, "router: 1 of 2. ") {
			t.Errorf("%s: %+v", m.Code, got.Error)
		}
	}
	if got := string(EncodeError(kvtransfer.Error{Code: kvtransfer.NotFound})); !strings.Contains(got, `"param":null`) {
		t.Errorf("got %s", got)
	}
}
