package cluster

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"quire/bus"
	"quire/bus/jet"
	"quire/router/openai"
	"quire/trace"
	"quire/trace/tracetest"
)

const theirs = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// above says that spans stand below each other as the names say, from the first to the last, in one trace.
func above(t *testing.T, spans []tracetest.Span, of string, names ...string) {
	t.Helper()
	parent := ""
	for i, name := range names {
		found := false
		for _, s := range spans {
			if s.Trace == of && strings.HasPrefix(s.Service+"/"+s.Name, name) && (i == 0 || s.Parent == parent) {
				parent, found = s.ID, true
				break
			}
		}
		if !found {
			t.Errorf("trace %s: no %s below %v", of, name, names[:i])
			return
		}
	}
}

// One request is one trace through router, prefill, frames and decode, below the client's span where it names one; its id is in
// the answer and in every role's log; and nothing of the prompt or the tenant is in it.
func TestTraces(t *testing.T) {
	before := goleak.IgnoreCurrent()
	collector := tracetest.New(t)
	o, l := options(t)
	o.Log = slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.Env = func(name string) string { return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL}[name] }
	o.Door.Keys = map[string]string{"key": "acme-the-tenant", "other": "default"}
	c, err := Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	post := func(traceparent, what string) (id string) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+c.Info().HTTP+"/v1/chat/completions", strings.NewReader(what))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer key")
		if traceparent != "" {
			req.Header.Set("traceparent", traceparent)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.Header.Get(openai.HeaderTrace)
	}
	given, made := post(theirs, body), post("", body)
	overNATS := askOverNATS(t, c, "00-11111111111111111111111111111111-2222222222222222-01")
	post("00-33333333333333333333333333333333-2222222222222222-01", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":99999}`)
	post("00-44444444444444444444444444444444-2222222222222222-00", body)
	stop(t, c)
	goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("net/http/httptest.(*Server).goServe.func1"))

	if given != trace.Parse(theirs).TraceID() || len(made) != 32 || made == given || overNATS != strings.Repeat("1", 32) {
		t.Errorf("trace ids of the answers: %q, %q, %q", given, made, overNATS)
	}
	spans := collector.Spans()
	for _, id := range []string{given, made, overNATS} {
		above(t, spans, id, "quire-router/chat quire-tiny", "quire-router/queue")
		above(t, spans, id, "quire-router/chat quire-tiny", "quire-router/answer")
		above(t, spans, id, "quire-router/chat quire-tiny", "quire-router/hand-off", "quire-router/job", "quire-prefill/prefill", "quire-decode/frames")
		above(t, spans, id, "quire-router/chat quire-tiny", "quire-router/hand-off", "quire-router/job", "quire-prefill/prefill", "quire-prefill/compute")
		for _, step := range []string{"gate", "journal", "witness", "generate"} {
			above(t, spans, id, "quire-router/chat quire-tiny", "quire-router/hand-off", "quire-router/reserve", "quire-decode/decode", "quire-decode/"+step)
		}
		for _, role := range []string{"router", "prefill", "decode"} {
			if !logged(l.String(), `"role":"`+role+`"`, id) {
				t.Errorf("trace %s is not in the log of %s", id, role)
			}
		}
	}
	for _, s := range spans {
		switch {
		case s.Name == "chat quire-tiny" && s.Trace == given && s.Parent != "b7ad6b7169203331", s.Name == "chat quire-tiny" && s.Trace == made && s.Parent != "":
			t.Errorf("parent of %+v", s)
		case s.Trace == strings.Repeat("3", 32) && (s.Name != "chat quire-tiny" || s.Attrs["error.type"] != "context_length_exceeded" || s.Fault == ""):
			t.Errorf("a refused request: %+v", s)
		case s.Trace == strings.Repeat("4", 32):
			t.Errorf("a span of a trace that nobody samples: %+v", s)
		}
		if text := s.Name + s.Fault + strings.Join(values(s.Attrs), " "); strings.Contains(text, "acme") || strings.Contains(text, "red key") {
			t.Errorf("a tenant or a prompt in %+v", s)
		}
	}
}

func values(m map[string]string) (out []string) {
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// logged says whether a line has all parts.
func logged(log string, parts ...string) bool {
next:
	for line := range strings.Lines(log) {
		for _, p := range parts {
			if !strings.Contains(line, p) {
				continue next
			}
		}
		return true
	}
	return false
}

// askOverNATS streams an answer over the NATS door and gives the trace that its first frame names.
func askOverNATS(t *testing.T, c *Cluster, traceparent string) (id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := jet.Connect(ctx, jet.ConnectOptions{URLs: []string{c.Info().NATS}, Name: "client"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	streamed := strings.TrimSuffix(body, "}") + `,"stream":true}`
	a := bus.Ask{Subject: bus.Names{}.API("default", "chat"), Header: map[string][]string{"traceparent": {traceparent}}, Data: []byte(streamed)}
	err = conn.Stream(ctx, a, func(m bus.Msg) error {
		if v := m.Header[openai.HeaderTrace]; len(v) > 0 {
			id = v[0]
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A variable that is wrong is said at the start, and nothing is left of it.
func TestTracesThatCannotBeSent(t *testing.T) {
	o, _ := options(t)
	o.Env = func(name string) string { return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "nonsense"}[name] }
	if c, err := Up(t.Context(), o); err == nil || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_ENDPOINT") {
		t.Errorf("%v", err)
		if err == nil {
			stop(t, c)
		}
	}
}
