package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// leaky is a server of 100 tokens that answers with a hash of the prompt, unless it is told to misbehave.
type leaky struct {
	mu     sync.Mutex
	last   string // what it was asked before, by another key
	by     string
	answer func(l *leaky, prompt string) string // nil = honest
	limit  int                                  // that it keeps
	busy   int                                  // times that it sends clients away first
	pools  func(l *leaky, asked int) (used int) // pages of its decode that are in use after so many questions; nil = it tells of none
	asked  int
	open   int // requests of others
}

func (l *leaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	switch r.URL.Path {
	case "/v1/models":
		io.WriteString(w, `{"data":[{"id":"m","max_model_len":100}]}`)
	case "/metrics":
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.pools != nil {
			used := l.pools(l, l.asked)
			fmt.Fprintf(w, "quire_pages{role=\"decode\",id=\"d1\",state=\"free\"} %d\nquire_pages{role=\"decode\",id=\"d1\",state=\"owned\"} %d\nquire_requests_running %d\n", 64-used, used, l.open)
		}
	case "/tokenize":
		var q struct{ Prompt string }
		_ = json.Unmarshal(b, &q)
		ids := make([]int32, len(q.Prompt))
		for i := range q.Prompt {
			ids[i] = int32(q.Prompt[i])
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"tokens": ids})
	default:
		l.complete(w, r, b)
	}
}

func (l *leaky) complete(w http.ResponseWriter, r *http.Request, b []byte) {
	var q struct {
		Prompt []int32 `json:"prompt"`
		Max    int     `json:"max_tokens"`
	}
	_ = json.Unmarshal(b, &q)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	if l.busy > 0 {
		l.busy--
		w.WriteHeader(http.StatusTooManyRequests)
		io.WriteString(w, `{"error":{"message":"later","code":"rate_limit_exceeded"}}`)
		return
	}
	if len(q.Prompt)+q.Max > l.limit {
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"error":{"message":"too long","code":"context_length_exceeded"}}`)
		return
	}
	text := make([]byte, len(q.Prompt))
	for i, id := range q.Prompt {
		text[i] = byte(id)
	}
	h := fnv.New32()
	h.Write(text)
	out := fmt.Sprintf("%08d", h.Sum32())
	if l.answer != nil {
		out = l.answer(l, string(text))
	}
	if key := r.Header.Get("Authorization"); strings.Contains(string(text), "canary-") {
		l.last, l.by = string(text), key
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]string{"text": out}}})
}

func TestSelftestLeak(t *testing.T) {
	long := func(prompt string) bool { return len(prompt) > 50 && !strings.Contains(prompt, "canary") }
	for _, c := range []struct {
		what string
		l    *leaky
		code int
		says string
	}{
		{"honest", &leaky{limit: 100}, exitOK, "verdict: no leak found"},
		{"honest and busy", &leaky{limit: 100, busy: 1}, exitOK, "1 told to come again"},
		{"answers with what it was asked before", &leaky{limit: 100, answer: func(l *leaky, p string) string {
			if long(p) && l.last != "" {
				return l.last
			}
			return "x"
		}}, exitFailed, "holds the other tenant's canary"},
		{"a part of it", &leaky{limit: 100, answer: func(l *leaky, p string) string {
			if i := strings.Index(l.last, "canary-"); long(p) && i >= 0 && len(l.last) > i+20 {
				return l.last[i+9 : i+17]
			}
			return "x"
		}}, exitFailed, "holds the other tenant's canary"},
		{"another answer after canaries", &leaky{limit: 100, answer: func(l *leaky, p string) string { return fmt.Sprint(l.last != "") }}, exitFailed, "differs from the one alone"},
		{"all pages come back", &leaky{limit: 100, pools: func(_ *leaky, asked int) int { return 7 }}, exitOK, "pages of 1 workers: as many free as before"},
		{"some pages do not", &leaky{limit: 100, pools: func(_ *leaky, asked int) int { return min(64, asked) }}, exitFailed, "FOUND: pages that do not come back: decode d1 has"},
		{"others ask too", &leaky{limit: 100, open: 3, pools: func(_ *leaky, asked int) int { return min(64, asked) }}, exitOK, "page counts not judged: 3 requests of others are open"},
		{"a limit that is not kept", &leaky{limit: 1000}, exitFailed, "was answered, the limit is 100"},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := httptest.NewServer(c.l)
			defer s.Close()
			out, errs, code := quire(t, nil, "", "selftest", "leak", "--http", s.URL, "--rounds", "2", "--settle", "300ms", "--api-key", "a", "--api-key", "b")
			if code != c.code || !strings.Contains(out, c.says) {
				t.Errorf("exit %d, want %d\n%s%s", code, c.code, out, errs)
			}
		})
	}
	if _, errs, code := quire(t, nil, "", "selftest", "leak", "--http", "127.0.0.1:1"); code != exitIncomplete || !strings.Contains(errs, "not carried out") {
		t.Errorf("nobody listens: exit %d %s", code, errs)
	}
	if _, _, code := quire(t, nil, "", "selftest", "leak", "--rounds", "0"); code != exitUsage {
		t.Errorf("no rounds: exit %d", code)
	}
}
