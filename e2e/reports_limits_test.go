package e2e

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"quire/e2e/rig"
	"quire/kvtransfer"
)

// Reports about limits and admission.

const tooLong = "context_length_exceeded"

// refusedAs fails unless a client got one error of this status and code, and nothing else.
func refusedAs(t *testing.T, what string, a rig.Answer, status int, code string) {
	t.Helper()
	if a.Status != status || a.Error != code {
		t.Errorf("%s: %d %s, want %d %s", what, a.Status, a.Body, status, code)
	}
	onlyAnError(t, what, a)
}

func overLong(t *testing.T, c *reports) {
	canary, err := c.Padded("The secret word is zorvane.", "What is the secret word?", c.limit-20)
	if err != nil {
		t.Fatal(err)
	}
	if a := c.as(t, acmeKey, "/v1/chat/completions", canary.Chat(20, false)); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	<-time.After(time.Second) // decode's counters are of its last heartbeat, 300 ms apart
	before := c.Decode.Stats().Counters.Reserved
	a := c.ask(t, "/v1/chat/completions", c.prompt(t, c.limit).Chat(1, false))
	refusedAs(t, "a token too many", a, 400, tooLong)
	if !strings.Contains(a.Detail, "prefill pool") || !strings.Contains(a.Detail, strconv.Itoa(c.limit)) || strings.Contains(a.Body, "zorvane") {
		t.Errorf("%s", a.Body)
	}
	c.idle(t)
	if n := c.Decode.Stats().Counters.Reserved; n != before {
		t.Errorf("%d reservations for it", n-before)
	}
}

func betweenPoolAndContext(t *testing.T, c *reports) {
	refusedAs(t, "between pool and context", c.ask(t, "/v1/chat/completions", c.prompt(t, c.limit+200).Chat(1, false)), 400, tooLong)
	if a := c.ask(t, "/v1/chat/completions", c.prompt(t, 40).Chat(4, false)); a.Status != 200 || a.Text == "" {
		t.Errorf("the short one: %d %s", a.Status, a.Body)
	}
}

func exactLimit(t *testing.T, c *reports) {
	for _, x := range []struct {
		prompt, max int
		ok          bool
	}{{c.limit - 2, 1, true}, {c.limit - 1, 1, true}, {c.limit, 1, false}, {c.limit + 1, 1, false}, {c.limit - 30, 30, true}, {c.limit - 30, 31, false}} {
		p := c.prompt(t, x.prompt)
		for _, stream := range []bool{false, true} {
			body := p.Completion(x.max, stream)
			body["ignore_eos"] = true
			overNATS, err := c.AskNATS(t.Context(), "completions", body)
			if err != nil {
				t.Error(err)
			}
			for door, a := range map[string]rig.Answer{"HTTP": c.ask(t, "/v1/completions", body), "NATS": overNATS} {
				what := door + " " + strconv.Itoa(x.prompt) + "+" + strconv.Itoa(x.max) + " stream " + strconv.FormatBool(stream)
				if !x.ok {
					refusedAs(t, what, a, 400, tooLong)
				} else if a.Status != 200 || a.Finish != "length" {
					t.Errorf("%s: %d %s", what, a.Status, a.Body)
				}
			}
		}
	}
}

func truncation(t *testing.T, c *reports) {
	for _, extra := range []map[string]any{nil, {"truncate_prompt_tokens": 100}, {"truncation": "auto"}} {
		body := c.prompt(t, c.limit+100).Chat(8, false)
		for k, v := range extra {
			body[k] = v
		}
		if a := c.ask(t, "/v1/chat/completions", body); a.Status != 400 {
			t.Errorf("%v: %d %s", extra, a.Status, a.Body)
		} else {
			onlyAnError(t, "truncation", a)
		}
	}
	p := c.prompt(t, 300)
	if a := c.ask(t, "/v1/chat/completions", p.Chat(4, false)); a.Usage.Prompt != len(p.Tokens) {
		t.Errorf("usage says %d prompt tokens of %d", a.Usage.Prompt, len(p.Tokens))
	}
}

func readableCode(t *testing.T, c *reports) {
	body := c.prompt(t, c.limit).Chat(1, false)
	a := c.ask(t, "/v1/chat/completions", body)
	var e struct {
		Error struct{ Code, Type, Message string }
	}
	if err := json.Unmarshal([]byte(a.Body), &e); err != nil || e.Error.Code != tooLong || e.Error.Type != "invalid_request_error" || e.Error.Message == "" {
		t.Errorf("%v, %s", err, a.Body)
	}
	over, err := c.AskNATS(t.Context(), "chat", body)
	if err != nil {
		t.Fatal(err)
	}
	refusedAs(t, "over NATS", over, 400, tooLong)
	if kvtransfer.Lookup(kvtransfer.ContextLengthExceeded).HTTP != 400 {
		t.Error("the table of errors says otherwise")
	}
}

func manyAtOnce(t *testing.T, c *reports) {
	const requests, max = 10, 40 // 10 x 240 tokens, decode has 1024
	p := c.prompt(t, 200)
	body := p.Completion(max, false)
	body["ignore_eos"] = true
	answers := make([]rig.Answer, requests)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i], _ = c.Ask(t.Context(), "/v1/completions", umbraKey, body) })
	}
	wg.Wait()
	for i, a := range answers {
		if a.Status != 200 || a.Finish != "length" || a.Usage.Output != max || a.Text != answers[0].Text {
			t.Errorf("request %d: %d %s", i, a.Status, a.Body)
		}
	}
}

// odd posts a body with one odd value after another; want says with what status.
func odd(t *testing.T, c *reports, path, field string, values []any, want int) {
	t.Helper()
	for _, v := range values {
		body := c.prompt(t, 40).Chat(4, false)
		if path == "/v1/completions" {
			body = c.prompt(t, 40).Completion(4, false)
		}
		body[field] = v
		if field == "top_logprobs" {
			body["logprobs"] = true
		}
		a := c.ask(t, path, body)
		if a.Status != want || want == 400 && a.Error == "" {
			t.Errorf("%s %s %v: %d %s, want %d", path, field, v, a.Status, a.Body, want)
		}
	}
}

func oddMaxTokens(t *testing.T, c *reports) {
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		odd(t, c, path, "max_tokens", []any{0, -1, math.MaxInt32 + 1, 1.5, "10", 1e300}, 400)
		odd(t, c, path, "max_tokens", []any{1, 2.0}, 200)
	}
}

func oddN(t *testing.T, c *reports) {
	odd(t, c, "/v1/chat/completions", "n", []any{0, 3, 1_000_000, -1}, 400)
	odd(t, c, "/v1/chat/completions", "n", []any{1}, 200)
}

func oddLogprobs(t *testing.T, c *reports) {
	odd(t, c, "/v1/chat/completions", "top_logprobs", []any{25, -1, 1 << 20}, 400)
	odd(t, c, "/v1/chat/completions", "top_logprobs", []any{5}, 200)
	odd(t, c, "/v1/completions", "logprobs", []any{25, -1, 1 << 20}, 400)
}
