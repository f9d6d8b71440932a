package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"quire/bus"
	"quire/router/openai"
)

func event(delta string) string {
	return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":null}]}\n\n", delta)
}

const (
	stopEvent  = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
	usageEvent = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\":5}}\n\n"
	done       = "data: [DONE]\n\n"
	errorEvent = "data: {\"error\":{\"message\":\"decode went away\",\"type\":\"service_unavailable_error\",\"param\":null,\"code\":\"worker_lost\"}}\n\n"
)

// served starts a door that answers each chat with the next of these bodies, and keeps what it was asked.
func serveChat(t *testing.T, status int, bodies ...string) (address string, asked *[]question) {
	t.Helper()
	asked = &[]question{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q question
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		*asked = append(*asked, q)
		w.WriteHeader(status)
		io.WriteString(w, bodies[(len(*asked)-1)%len(bodies)])
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

func TestChatExitCodes(t *testing.T) {
	cases := []struct {
		name   string
		status int
		body   string
		code   int
		out    string
		errs   string
	}{
		{"a whole answer", 200, ": ping\n\n" + event("Hel") + event("lo") + stopEvent + usageEvent + done, 0, "Hello\n", "stop · 3 tokens in, 2 out"},
		{"an empty answer", 200, stopEvent + usageEvent + done, 0, "", "stop"},
		{"cut in the middle", 200, event("Hel"), 3, "Hel\n", "not complete"},
		{"cut before [DONE]", 200, event("Hel") + stopEvent, 3, "Hel\n", "not complete"},
		{"[DONE] without a finish", 200, event("Hel") + done, 3, "Hel\n", "not complete"},
		{"an error in the middle", 200, event("Hel") + errorEvent, 1, "Hel\n", "decode went away"},
		{"an error and [DONE]", 200, event("Hel") + errorEvent + done, 1, "Hel\n", "worker_lost"},
		{"no JSON", 200, "data: {\n\n", 1, "", "no JSON"},
		{"refused", 400, `{"error":{"message":"too long","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, 1, "", "too long (400 context_length_exceeded)"},
		{"not our error", 502, "<html>bad gateway</html>", 1, "", "bad gateway"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			address, _ := serveChat(t, c.status, c.body)
			out, errs, code := quire(t, nil, "", "chat", "--http", address, "-m", "hi")
			if code != c.code || out != c.out || !strings.Contains(errs, c.errs) {
				t.Errorf("want %d, %q, %q; got %d, %q, %q", c.code, c.out, c.errs, code, out, errs)
			}
		})
	}
}

func TestChatSendsWhatWasSaid(t *testing.T) {
	address, asked := serveChat(t, 200, stopEvent+done)
	_, errs, code := quire(t, map[string]string{"QUIRE_MODEL": "/a/file.gguf"}, "", "chat", "--http", address, "-s", "Be brief.", "-m", "hi", "--temperature", "0.5",
		"--top-p", "0.9", "--seed", "7", "--max-tokens", "5", "--stop", "a,b", "--stop", "c", "--model", "quire-tiny", "--thinking", "off")
	if code != 0 {
		t.Fatal(errs)
	}
	q := (*asked)[0]
	if !q.Stream || q.Model != "quire-tiny" || *q.Temperature != 0.5 || *q.TopP != 0.9 || *q.Seed != 7 || q.MaxTokens != 5 ||
		len(q.Template) != 1 || q.Template["enable_thinking"] || len(q.Stop) != 2 || q.Stop[0] != "a,b" || len(q.Messages) != 2 || q.Messages[0] != (message{"system", "Be brief."}) {
		t.Errorf("asked %+v", q)
	}
	_, _, code = quire(t, map[string]string{"QUIRE_MODEL": "/a/file.gguf"}, "", "chat", "--http", address, "-m", "hi")
	if q := (*asked)[1]; code != 0 || q.Model != "" || q.Temperature != nil || q.Seed != nil || q.Template != nil {
		t.Errorf("what was not said was sent: %+v", q)
	}
	if _, errs, code := quire(t, nil, "  \n", "chat", "--http", address); code != exitUsage || !strings.Contains(errs, "no message") {
		t.Errorf("an empty message: %d, %q", code, errs)
	}
}

func TestChatTalksInTurns(t *testing.T) {
	address, asked := serveChat(t, 200, event("one")+stopEvent+done, event("two")+errorEvent, event("three")+stopEvent+done, event("four")+stopEvent+done)
	var out, errs bytes.Buffer
	c := &chatCmd{System: "S", Quiet: true}
	k := &talk{cmd: c, s: streams{in: strings.NewReader("a\n\nb\nc\n/new\nd\n/exit\nnever\n"), out: &out, err: &errs}, door: newHTTPDoor(address, ""),
		turns: []message{{"system", "S"}}}
	if err := k.loop(); err != nil {
		t.Fatal(err)
	}
	if want := "one\ntwo\nthree\nfour\n"; out.String() != want {
		t.Errorf("want %q, got %q", want, out.String())
	}
	var turns []string
	for _, q := range *asked {
		var line []string
		for _, m := range q.Messages {
			line = append(line, m.Content)
		}
		turns = append(turns, strings.Join(line, " "))
	}
	// The turn that failed is taken back; /new forgets all but the system message.
	if got, want := strings.Join(turns, "|"), "S a|S a one b|S a one c|S d"; got != want {
		t.Errorf("asked %q, want %q", got, want)
	}
	if !strings.Contains(errs.String(), "decode went away") {
		t.Errorf("the error is not shown: %q", errs.String())
	}
}

func frame(kind, seq, body string) bus.Msg {
	h := map[string][]string{openai.HeaderFrame: {kind}}
	if seq != "" {
		h[openai.HeaderSeq] = []string{seq}
	}
	return bus.Msg{Header: h, Data: []byte(body)}
}

func TestFrames(t *testing.T) {
	chunk := func(text string) string {
		return strings.TrimSpace(strings.TrimPrefix(event(text), "data: "))
	}
	sum := func(bodies ...string) string {
		h := sha256.Sum256([]byte(strings.Join(bodies, "")))
		return hex.EncodeToString(h[:])
	}
	final := func(frames int, digest string) bus.Msg {
		return frame(openai.FrameFinal, "", fmt.Sprintf(`{"type":"final","finish_reason":"stop","usage":{"prompt_tokens":3,"completion_tokens":2},"frames":%d,"digest":%q}`, frames, digest))
	}
	a, b := chunk("Hel"), chunk("lo")
	cases := []struct {
		name   string
		frames []bus.Msg
		whole  bool
	}{
		{"whole", []bus.Msg{frame(openai.FrameStatus, "", "{}"), frame(openai.FrameChunk, "0", a), frame(openai.FrameKeepAlive, "", "{}"),
			frame(openai.FrameChunk, "1", b), frame("new-kind", "", "?"), final(2, sum(a, b))}, true},
		{"a gap", []bus.Msg{frame(openai.FrameChunk, "0", a), frame(openai.FrameChunk, "2", b), final(3, sum(a, b))}, false},
		{"a repeat", []bus.Msg{frame(openai.FrameChunk, "0", a), frame(openai.FrameChunk, "0", a), final(2, sum(a, a))}, false},
		{"the last chunk lost", []bus.Msg{frame(openai.FrameChunk, "0", a), final(2, sum(a, b))}, false},
		{"other bytes", []bus.Msg{frame(openai.FrameChunk, "0", a), frame(openai.FrameChunk, "1", a), final(2, sum(a, b))}, false},
		{"no final", []bus.Msg{frame(openai.FrameChunk, "0", a), frame(openai.FrameChunk, "1", b)}, false},
	}
	for _, c := range cases {
		var text strings.Builder
		f := frameReader{fn: func(s string) { text.WriteString(s) }, digest: sha256.New()}
		var err error
		for _, m := range c.frames {
			if err = f.take(m); err != nil {
				break
			}
		}
		if whole := err == nil && f.final; whole != c.whole {
			t.Errorf("%s: whole %t, want %t (%v)", c.name, whole, c.whole, err)
		}
		if err != nil && !errors.Is(err, errCut) {
			t.Errorf("%s: %v is not a cut", c.name, err)
		}
		if c.whole && (text.String() != "Hello" || f.end.Finish != "stop" || f.end.Usage.Completion != 2) {
			t.Errorf("%s: %q, %+v", c.name, text.String(), f.end)
		}
	}
}

func TestLogLines(t *testing.T) {
	var b bytes.Buffer
	l := logFlags{LogFormat: "text", LogLevel: "info"}.logger(&b).With("role", "decode", "id", "d1")
	l.Debug("not this")
	l.Warn("hand-off refused", "reason", "token count: reserved 600, manifest 1", "n", 2, "empty", "")
	l.WithGroup("g").With("a", 1).Info("two\nlines", "b", "x=y")
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines: %q", len(lines), b.String())
	}
	if !strings.HasSuffix(lines[0], ` warn  decode d1  hand-off refused  reason="token count: reserved 600, manifest 1" n=2 empty=""`) {
		t.Errorf("%q", lines[0])
	}
	if !strings.HasSuffix(lines[1], ` info  decode d1  two lines  g.a=1 g.b="x=y"`) {
		t.Errorf("%q", lines[1])
	}
	b.Reset()
	logFlags{LogFormat: "json", LogLevel: "warn"}.logger(&b).Warn("x", "n", 2)
	var record map[string]any
	if err := json.Unmarshal(b.Bytes(), &record); err != nil || record["msg"] != "x" || record["n"] != 2.0 {
		t.Errorf("%q: %v", b.String(), err)
	}
}
