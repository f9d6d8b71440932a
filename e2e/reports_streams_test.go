package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"quire/e2e/rig"
	"quire/kvtransfer"
)

// Reports about text, streams, aborts and leaks.

// both asks once whole and once streamed, and gives the whole answer after comparing.
func both(t *testing.T, c *reports, path string, body map[string]any) rig.Answer {
	t.Helper()
	body["stream"] = false
	whole := c.ask(t, path, body)
	body["stream"] = true
	streamed := c.ask(t, path, body)
	if whole.Status != 200 || streamed.Text != whole.Text || streamed.Finish != whole.Finish || !strings.HasSuffix(strings.TrimSpace(streamed.Body), "data: [DONE]") {
		t.Errorf("whole %q %s, streamed %q %s", whole.Text, whole.Finish, streamed.Text, streamed.Finish)
	}
	return whole
}

func splitCharacters(t *testing.T, c *reports) {
	for _, text := range []string{"😀🎉", "日本語", "👩‍👩‍👧", "é"} {
		ids := c.Text.Encode(text, false)
		bias := map[string]int{}
		for _, id := range ids {
			b, _ := json.Marshal(id)
			bias[string(b)] = 100
		}
		for seed := range 3 { // whatever comes of those bytes, cut anywhere
			a := both(t, c, "/v1/completions", map[string]any{"prompt": text, "max_tokens": 4*len(ids) + 1, "temperature": 1.5, "seed": seed, "logit_bias": bias, "ignore_eos": true})
			if !utf8.ValidString(a.Text) {
				t.Errorf("%q: %q is no UTF-8", text, a.Text)
			}
		}
	}
	p := c.prompt(t, 40)
	p.User = "Say 日本語 😀 é."
	if a := both(t, c, "/v1/chat/completions", p.Chat(16, false)); strings.ContainsRune(a.Text, utf8.RuneError) {
		t.Errorf("%q", a.Text)
	}
}

func stopStrings(t *testing.T, c *reports) {
	p := c.prompt(t, 60)
	full := c.ask(t, "/v1/chat/completions", p.Chat(24, false))
	words := strings.Fields(full.Text)
	if len(words) < 3 {
		t.Fatalf("%q has too few words", full.Text)
	}
	stop := " " + words[2]
	body := p.Chat(24, false)
	body["stop"] = []string{stop}
	want, _, _ := strings.Cut(full.Text, stop)
	if a := both(t, c, "/v1/chat/completions", body); a.Text != want || a.Finish != "stop" {
		t.Errorf("%q %s, want %q, of %q", a.Text, a.Finish, want, full.Text)
	}
}

func streamedLimit(t *testing.T, c *reports) {
	a := c.ask(t, "/v1/chat/completions", c.prompt(t, c.limit).Chat(1, true))
	refusedAs(t, "streamed", a, 400, tooLong)
	if strings.Contains(a.Body, "data:") {
		t.Errorf("%s", a.Body)
	}
}

// openStream asks for a streamed answer and reads until its first event.
func (c *reports) openStream(t *testing.T, ctx context.Context, body map[string]any) (id string, rest io.ReadCloser, err error) {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		return "", nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.HTTP+"/v1/completions", bytes.NewReader(b))
	if err != nil {
		return "", nil, err
	}
	req.Header.Set("Authorization", "Bearer "+umbraKey)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", nil, err
	}
	lines := bufio.NewReader(res.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return "", nil, err
		}
		var chunk struct{ ID string }
		if data, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(data), &chunk) == nil {
			return chunk.ID, struct {
				io.Reader
				io.Closer
			}{lines, res.Body}, nil
		}
	}
}

// long is a streamed request that takes a while.
func (c *reports) long(t *testing.T) map[string]any {
	body := c.prompt(t, 60).Completion(c.limit-60, true)
	body["ignore_eos"] = true
	return body
}

// cancel asks for the end of a request by an id.
func (c *reports) cancel(t *testing.T, key, id string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, c.HTTP+"/v1/requests/"+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

func cancelled(t *testing.T, c *reports) {
	id, rest, err := c.openStream(t, t.Context(), c.long(t))
	if err != nil {
		t.Fatal(err)
	}
	if status := c.cancel(t, umbraKey, id); status != 200 {
		t.Errorf("cancel: %d", status)
	}
	all, err := io.ReadAll(rest)
	_ = rest.Close()
	if text := string(all); err != nil || !strings.Contains(text, `"code":"cancelled"`) || strings.Contains(text, "[DONE]") || strings.Contains(text, `"finish_reason":"length"`) {
		t.Errorf("%v: %s", err, text[max(0, len(text)-400):])
	}
}

func cancelNobody(t *testing.T, c *reports) {
	id, rest, err := c.openStream(t, t.Context(), c.long(t))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan string)
	go func() {
		all, _ := io.ReadAll(rest)
		ended <- string(all)
	}()
	unknown := id[:len(id)-4] + "0000"
	for what, ask := range map[string]struct{ key, id string }{"no id": {umbraKey, ""}, "a prefix": {umbraKey, id[:len(id)-8]}, "another tenant": {acmeKey, id}, "unknown": {umbraKey, unknown}, "all": {umbraKey, "*"}} {
		if status := c.cancel(t, ask.key, ask.id); status != 400 && status != 404 {
			t.Errorf("%s: %d", what, status)
		}
	}
	if all := <-ended; !strings.Contains(all, "[DONE]") {
		t.Errorf("the request was affected: %s", all[max(0, len(all)-300):])
	}
	_ = rest.Close()
}

// leave asks so many times at once and is gone before any answer.
func (c *reports) leave(t *testing.T, times int) {
	t.Helper()
	body, err := json.Marshal(c.prompt(t, 400).Completion(40, true))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range times {
		wg.Go(func() {
			before := c.Decode.Stats().Counters.Reserved
			ctx, gone := context.WithCancel(t.Context())
			defer gone()
			go func() { // half of them as soon as pages are promised, the others at once
				if i%2 == 0 {
					_ = rig.Wait(ctx, "a reservation", func() bool { return c.Decode.Stats().Counters.Reserved > before })
				}
				gone()
			}()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.HTTP+"/v1/completions", bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Authorization", "Bearer "+umbraKey)
			if res, err := http.DefaultClient.Do(req); err == nil {
				_ = res.Body.Close()
			}
		})
	}
	wg.Wait()
}

func leaveAndAsk(t *testing.T, c *reports) {
	p := c.prompt(t, 500)
	alone := c.ask(t, "/v1/completions", p.Completion(12, false))
	for range 3 {
		c.leave(t, 2)
		if a := c.ask(t, "/v1/completions", p.Completion(12, false)); a.Text != alone.Text || a.Status != 200 {
			t.Errorf("%d %q, alone %q", a.Status, a.Text, alone.Text)
		}
	}
}

func leaveOften(t *testing.T, c *reports) {
	for range 10 {
		c.leave(t, 10)
	}
}

func prefillFree(t *testing.T, c *reports) { c.leave(t, 6) }

func badSchema(t *testing.T, c *reports) {
	for field, v := range map[string]any{
		"response_format": map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "x", "schema": map[string]any{"type": "nonsense"}}},
		"guided_regex":    "([",
		"grammar":         "root ::=",
	} {
		odd(t, c, "/v1/chat/completions", field, []any{v}, 400)
	}
}

// mismatch needs a prefill that lies about its layout, so it has a cluster of its own.
func mismatch(t *testing.T, _ *reports) {
	r := newRig(t, rig.Options{})
	ctx := t.Context()
	otherwise := func(hb *kvtransfer.Heartbeat) {
		hb.Fingerprints.Layout[0]++
		hb.Pool = hb.Fingerprints.Pool()
	}
	if err := r.AddDecode(ctx, 64); err != nil {
		t.Fatal(err)
	}
	if err := r.AddPrefill(ctx, 40, otherwise); err != nil {
		t.Fatal(err)
	}
	body := map[string]any{"prompt": "hello", "max_tokens": 4}
	var a rig.Answer
	if err := rig.Wait(ctx, "both workers to be seen", func() bool {
		var err error
		a, err = r.Ask(ctx, "/v1/completions", "", body)
		return err == nil && a.Error != string(kvtransfer.NoPrefill) && a.Error != string(kvtransfer.NoDecode)
	}); err != nil {
		t.Fatal(err)
	}
	if a.Status != 503 || a.Error != string(kvtransfer.Mismatch) || !strings.Contains(a.Detail, "layout") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}
