package router

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"quire/kvtransfer"
	"quire/router/openai"
)

const chatBody = `{"messages":[{"role":"user","content":"hi"}]}`
const streamBody = `{"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}`

// serve opens a door over a backend for one test.
func serve(t *testing.T, b Backend, cfg HTTPConfig) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(NewHandler(b, cfg))
	t.Cleanup(s.Close)
	return s
}

type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) error(t *testing.T) openai.ErrorObject {
	t.Helper()
	var e openai.ErrorBody
	if err := json.Unmarshal([]byte(r.body), &e); err != nil {
		t.Fatalf("status %d, no error object: %s", r.status, r.body)
	}
	return e.Error
}

func send(t *testing.T, s *httptest.Server, method, path, body string, headers ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(b)}
}

func TestHTTPChat(t *testing.T) {
	b := newFake(said("he", "llo"))
	s := serve(t, b, HTTPConfig{})
	r := send(t, s, "POST", "/v1/chat/completions", chatBody, "X-Request-Id", "mine", "Quire-Timeout", "1.5")
	if r.status != 200 || !strings.Contains(r.body, `"content":"hello"`) || !strings.Contains(r.body, `"id":"chatcmpl-`+fakeID+`"`) {
		t.Fatalf("%d %s", r.status, r.body)
	}
	if r.header.Get("X-Request-Id") != "mine" || r.header.Get("Quire-Request-Id") != fakeID {
		t.Errorf("headers %v", r.header)
	}
	if got := b.last(); got.Tenant != DefaultTenant || got.Deadline != 1500*time.Millisecond || got.Body.Op != openai.OpChat {
		t.Errorf("request %+v", got)
	}
	r = send(t, s, "POST", "/v1/completions", `{"prompt":[1,2]}`, "X-Request-Id", "bad\tlabel")
	if r.status != 200 || !strings.Contains(r.body, `"text":"hello"`) || r.header.Get("X-Request-Id") != fakeID {
		t.Errorf("%d %s %v", r.status, r.body, r.header)
	}
}

func TestHTTPStream(t *testing.T) {
	s := serve(t, newFake(said("he", "llo")), HTTPConfig{})
	r := send(t, s, "POST", "/v1/chat/completions", streamBody)
	if r.status != 200 || r.header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", r.status, r.header)
	}
	events := strings.Split(strings.TrimSuffix(r.body, "\n\n"), "\n\n")
	if len(events) != 6 || events[5] != "data: [DONE]" || !strings.Contains(events[0], `"role":"assistant"`) ||
		!strings.Contains(events[1], `"content":"he"`) || !strings.Contains(events[3], `"finish_reason":"stop"`) || !strings.Contains(events[4], `"total_tokens":5`) {
		t.Errorf("events:\n%s", strings.Join(events, "\n"))
	}
}

// TestHTTPErrorsHaveAStatus: whatever goes wrong before the verdict has its own status, streaming or not.
func TestHTTPErrorsHaveAStatus(t *testing.T) {
	for _, m := range kvtransfer.Table {
		for _, late := range []bool{false, true} {
			err := error(Rejected{Cause: kvtransfer.Error{Code: m.Code, Detail: "router: 7 of 8"}, RetryAfter: 2500 * ms})
			s := serve(t, newFake(func(Request) ([]step, error) {
				if late {
					return []step{{err: err}}, nil
				}
				return nil, err
			}), HTTPConfig{})
			for _, body := range []string{chatBody, streamBody} {
				r := send(t, s, "POST", "/v1/chat/completions", body)
				if e := r.error(t); r.status != m.HTTP || e.Code != string(m.Code) || r.header.Get("Retry-After") != "3" || r.header.Get("Content-Type") != "application/json" {
					t.Errorf("%s: status %d, want %d, %+v, %v", m.Code, r.status, m.HTTP, e, r.header)
				}
			}
		}
	}
}

// TestHTTPErrorMidStream: after the first byte an error is an event, and [DONE] does not follow.
func TestHTTPErrorMidStream(t *testing.T) {
	b := newFake(func(Request) ([]step, error) {
		return []step{{part: Part{Started: true}}, {part: Part{Tokens: []kvtransfer.Token{{Text: []byte("he")}}}},
			{err: kvtransfer.Errorf(kvtransfer.WorkerLost, "router: gone")}}, nil
	})
	s := serve(t, b, HTTPConfig{})
	r := send(t, s, "POST", "/v1/chat/completions", streamBody)
	if r.status != 200 || strings.Contains(r.body, "[DONE]") || !strings.Contains(r.body, `data: {"error":{"message":"router: gone`) || strings.Contains(r.body, "finish_reason\":\"") {
		t.Errorf("%d %s", r.status, r.body)
	}
	r = send(t, s, "POST", "/v1/chat/completions", chatBody)
	if r.status != 503 || r.error(t).Code != "worker_lost" {
		t.Errorf("%d %s", r.status, r.body)
	}
	// A stream that just stops is no success either.
	b.script = func(Request) ([]step, error) { return []step{{part: Part{Started: true}}}, nil }
	for _, body := range []string{chatBody, streamBody} {
		if r = send(t, s, "POST", "/v1/chat/completions", body); strings.Contains(r.body, "[DONE]") || !strings.Contains(r.body, "internal_error") {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	// Nor is an answer without a verdict.
	b.script = func(Request) ([]step, error) {
		return []step{{part: Part{Tokens: []kvtransfer.Token{{Text: []byte("leak")}}}}}, nil
	}
	for _, body := range []string{chatBody, streamBody} {
		if r = send(t, s, "POST", "/v1/chat/completions", body); r.status != 500 || strings.Contains(r.body, "leak") {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
}

// wroteWriter notes whether anything was sent.
type wroteWriter struct {
	http.ResponseWriter
	wrote *atomic.Bool
}

func (w wroteWriter) WriteHeader(status int) {
	w.wrote.Store(true)
	w.ResponseWriter.WriteHeader(status)
}

func (w wroteWriter) Write(b []byte) (int, error) {
	w.wrote.Store(true)
	return w.ResponseWriter.Write(b)
}

func (w wroteWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestHTTPNothingBeforeTheVerdict: a client sees no byte while the verdict is open, and a ping afterwards.
func TestHTTPNothingBeforeTheVerdict(t *testing.T) {
	verdict, more, reached := make(chan struct{}), make(chan struct{}), make(chan struct{})
	b := newFake(func(Request) ([]step, error) {
		return append([]step{{wait: verdict, reached: reached}, {part: Part{Started: true}}, {wait: more}}, mustSay("x")[1:]...), nil
	})
	var wrote atomic.Bool
	h := NewHandler(b, HTTPConfig{KeepAlive: 5 * time.Millisecond})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(wroteWriter{w, &wrote}, r) }))
	defer s.Close()
	type result struct {
		resp *http.Response
		err  error
	}
	got := make(chan result, 1)
	go func() {
		resp, err := s.Client().Post(s.URL+"/v1/chat/completions", "application/json", strings.NewReader(streamBody))
		got <- result{resp, err}
	}()
	<-reached // the door waits for the verdict: what it did until now is all it will do
	if wrote.Load() {
		t.Fatal("something was sent before the verdict")
	}
	close(verdict)
	r := <-got
	if r.err != nil {
		t.Fatal(r.err)
	}
	defer r.resp.Body.Close()
	buf := make([]byte, 4096)
	seen := ""
	for !strings.Contains(seen, ": ping\n\n") {
		n, err := r.resp.Body.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
		seen += string(buf[:n])
	}
	close(more)
	rest, err := io.ReadAll(r.resp.Body)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("%v %q", err, rest)
	}
}

func mustSay(texts ...string) []step {
	steps, _ := said(texts...)(Request{})
	return steps
}

// TestHTTPDisconnect: a client that goes away cancels, before the verdict and after it.
func TestHTTPDisconnect(t *testing.T) {
	never := make(chan struct{})
	for name, steps := range map[string][]step{
		"waiting":   {{wait: never}},
		"streaming": {{part: Part{Started: true}}, {part: Part{Tokens: []kvtransfer.Token{{Text: []byte("x")}}}}, {wait: never}},
	} {
		for _, body := range []string{chatBody, streamBody} {
			asked := make(chan struct{})
			b := newFake(func(Request) ([]step, error) { close(asked); return slices.Clone(steps), nil })
			s := serve(t, b, HTTPConfig{})
			ctx, cancel := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/v1/chat/completions", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				<-asked
				cancel()
			}()
			if resp, err := s.Client().Do(req); err == nil {
				_, _ = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			select {
			case <-b.closed:
			case <-time.After(10 * time.Second):
				t.Errorf("%s: the request was not cancelled", name)
			}
		}
	}
}

func TestHTTPKeys(t *testing.T) {
	b := newFake(said("x"))
	s := serve(t, b, HTTPConfig{Keys: map[string]string{"ka": "ann", "kb": "bob"}})
	for _, c := range []struct {
		auth   string
		status int
		tenant string
	}{
		{"Bearer ka", 200, "ann"}, {"Bearer kb", 200, "bob"}, {"bearer ka", 200, "ann"}, {"Bearer kc", 401, ""}, {"Bearer ", 401, ""},
		{"", 401, ""}, {"Basic ka", 401, ""}, {"ka", 401, ""},
	} {
		r := send(t, s, "POST", "/v1/chat/completions", chatBody, "Authorization", c.auth)
		if r.status != c.status || (c.tenant != "" && b.last().Tenant != c.tenant) {
			t.Errorf("%q: %d, tenant %q", c.auth, r.status, b.last().Tenant)
		}
		if r.status == 401 && (r.error(t).Code != "invalid_api_key" || r.header.Get("WWW-Authenticate") == "") {
			t.Errorf("%q: %s %v", c.auth, r.body, r.header)
		}
	}
	for path, status := range map[string]int{"/health": 200, "/ready": 200, "/version": 200, "/v1/models": 401, "/metrics": 401} {
		if r := send(t, s, "GET", path, ""); r.status != status {
			t.Errorf("%s: %d, want %d", path, r.status, status)
		}
	}
	for _, path := range []string{"/tokenize", "/detokenize", "/v1/completions"} {
		if r := send(t, s, "POST", path, "{}"); r.status != 401 {
			t.Errorf("%s: %d", path, r.status)
		}
	}
}

// TestHTTPForeignPage: without keys, a page of another origin in the user's browser cannot ask.
func TestHTTPForeignPage(t *testing.T) {
	s := serve(t, newFake(said("x")), HTTPConfig{})
	if r := send(t, s, "POST", "/v1/chat/completions", chatBody, "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"); r.status != 403 || r.error(t).Code != "not_allowed" {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestHTTPExposure(t *testing.T) {
	for address, ok := range map[string]bool{"127.0.0.1:0": true, "localhost:0": true, "[::1]:0": true, "0.0.0.0:0": false, ":0": false, "10.0.0.1:0": false} {
		err := exposure(HTTPConfig{Address: address})
		if (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
		if exposure(HTTPConfig{Address: address, Insecure: true}) != nil || exposure(HTTPConfig{Address: address, Keys: map[string]string{"k": "t"}}) != nil {
			t.Errorf("%s: refused with a key or with insecure", address)
		}
	}
}

func TestHTTPPaths(t *testing.T) {
	s := serve(t, newFake(said("x")), HTTPConfig{Version: "1.2.3", Metrics: func(w io.Writer) { fmt.Fprintln(w, "quire_x 1") }})
	for _, c := range []struct {
		method, path, body string
		status             int
		contains           string
	}{
		{"GET", "/nope", "", 404, `"code":"not_found"`},
		{"GET", "/v1/chat/completions", "", 405, `"code":"method_not_allowed"`},
		{"POST", "/v1/models", "", 405, "use GET"},
		{"GET", "/v1/models", "", 200, `"max_model_len":64`},
		{"GET", "/v1/models", "", 200, `"vocab_size":100`},
		{"GET", "/v1/models/org/m", "", 200, `"id":"org/m"`},
		{"GET", "/v1/models/org/n", "", 404, `"code":"model_not_found"`},
		{"GET", "/v1/models/", "", 404, ""},
		{"POST", "/tokenize", `{"prompt":"a b c"}`, 200, `{"tokens":[0,0,0],"count":3,"max_model_len":64}`},
		{"POST", "/tokenize", `{"prompt":7}`, 400, `"param":"prompt"`},
		{"POST", "/detokenize", `{"tokens":[1,2]}`, 200, `{"prompt":"xx"}`},
		{"POST", "/detokenize", `{"tokens":[100]}`, 400, `"param":"tokens"`},
		{"GET", "/health", "", 200, `"ok"`},
		{"HEAD", "/health", "", 200, ""},
		{"GET", "/ready", "", 200, `"ready"`},
		{"GET", "/version", "", 200, `"version":"1.2.3"`},
		{"GET", "/metrics", "", 200, "quire_x 1"},
		{"POST", "/v1/chat/completions", `{"messages":[]}`, 400, `"param":"messages"`},
		{"POST", "/v1/chat/completions", `{"model":"x","messages":[{"role":"user","content":"hi"}]}`, 404, `"code":"model_not_found"`},
		{"POST", "/v1/completions", `{"prompt":"x","echo":true}`, 400, `"param":"echo"`},
	} {
		r := send(t, s, c.method, c.path, c.body)
		if r.status != c.status || !strings.Contains(r.body, c.contains) {
			t.Errorf("%s %s: %d %s, want %d with %s", c.method, c.path, r.status, r.body, c.status, c.contains)
		}
		if c.status == 405 && r.header.Get("Allow") == "" {
			t.Errorf("%s %s: no Allow", c.method, c.path)
		}
	}
	for _, text := range []string{"0", "-1", "x", "NaN", "1e9"} {
		if r := send(t, s, "POST", "/v1/chat/completions", chatBody, "Quire-Timeout", text); r.status != 400 || *r.error(t).Param != "Quire-Timeout" {
			t.Errorf("%s: %d %s", text, r.status, r.body)
		}
	}
}

func TestHTTPTooLarge(t *testing.T) {
	s := serve(t, newFake(said("x")), HTTPConfig{MaxBody: 100})
	long := `{"prompt":"` + strings.Repeat("x", 100) + `"}`
	r := send(t, s, "POST", "/v1/completions", long)
	if e := r.error(t); r.status != 413 || e.Code != "payload_too_large" || !strings.Contains(e.Message, "113") || !strings.Contains(e.Message, "100") {
		t.Errorf("%d %s", r.status, r.body)
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/v1/completions", io.MultiReader(strings.NewReader(long))) // chunked: no length
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 413 {
		t.Errorf("chunked: %d", resp.StatusCode)
	}
}

func TestHTTPTooMany(t *testing.T) {
	wait, asked := make(chan struct{}), make(chan struct{})
	b := newFake(func(Request) ([]step, error) { close(asked); return append([]step{{wait: wait}}, mustSay("x")...), nil })
	s := serve(t, b, HTTPConfig{MaxOpen: 1})
	done := make(chan reply)
	go func() { done <- send(t, s, "POST", "/v1/chat/completions", chatBody) }()
	<-asked
	if r := send(t, s, "GET", "/version", ""); r.status != 429 || r.header.Get("Retry-After") == "" {
		t.Errorf("%d %v", r.status, r.header)
	}
	close(wait)
	if r := <-done; r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestHTTPHealth(t *testing.T) {
	b := newFake(said("x"))
	s := serve(t, b, HTTPConfig{})
	b.health = Health{Missing: []string{"prefill", "decode"}}
	if r := send(t, s, "GET", "/ready", ""); r.status != 503 || !strings.Contains(r.body, `"missing":["prefill","decode"]`) {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := send(t, s, "GET", "/health", ""); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	b.health = Health{Stuck: "nothing moves"}
	for _, path := range []string{"/health", "/ready"} {
		if r := send(t, s, "GET", path, ""); r.status != 503 || !strings.Contains(r.body, "nothing moves") {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
}

func TestHTTPCancelAndStatus(t *testing.T) {
	b := newFake(said("x"))
	b.cancel = func(tenant, id string) error {
		if tenant != "ann" || id != fakeID {
			return kvtransfer.Errorf(kvtransfer.NotFound, "router: no such request")
		}
		return nil
	}
	s := serve(t, b, HTTPConfig{Keys: map[string]string{"ka": "ann", "kb": "bob"}})
	for _, method := range []string{"DELETE", "GET"} {
		for _, id := range []string{fakeID, "chatcmpl-" + fakeID} {
			if r := send(t, s, method, "/v1/requests/"+id, "", "Authorization", "Bearer ka"); r.status != 200 || !strings.Contains(r.body, fakeID) {
				t.Errorf("%s %s: %d %s", method, id, r.status, r.body)
			}
		}
		if r := send(t, s, method, "/v1/requests/"+fakeID, "", "Authorization", "Bearer kb"); r.status != 404 {
			t.Errorf("%s: another tenant's: %d %s", method, r.status, r.body)
		}
		if r := send(t, s, method, "/v1/requests/"+fakeID[:10], "", "Authorization", "Bearer ka"); r.status != 404 {
			t.Errorf("%s: a part of an id: %d %s", method, r.status, r.body)
		}
	}
}

// TestHTTPDoor opens a real listener and closes it.
func TestHTTPDoor(t *testing.T) {
	d, err := OpenHTTP(newFake(said("x")), HTTPConfig{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get("http://" + d.Address() + "/version")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := d.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil || d.Err() != nil {
		t.Error(err, d.Err())
	}
	if _, err := OpenHTTP(newFake(nil), HTTPConfig{Address: "0.0.0.0:0"}); err == nil {
		t.Error("a door for everybody without keys")
	}
}
