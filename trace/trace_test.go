package trace

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"quire/trace/tracetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		parent:                       parent,
		parent[:len(parent)-1] + "0": parent[:len(parent)-1] + "0",
		"00" + parent[2:53] + "ff":   parent,
		"cc" + parent[2:]:            parent, // a version to come: its first parts are ours
		"cc" + parent[2:] + "-more":  parent,
		parent + "-more":             "",
		"ff" + parent[2:]:            "",
		strings.ToUpper(parent):      "",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": "",
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": "",
		"00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01":  "",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g": "",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331":    "",
		"cc" + parent[2:] + strings.Repeat("-x", 200):             "",
		"": "", "-": "", "---": "",
	} {
		if got := Parse(text).String(); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	c := Parse(parent)
	if c.TraceID() != "0af7651916cd43dd8448eb211c80319c" || (Context{}).TraceID() != "" || (Context{}).String() != "" {
		t.Errorf("%s", c.TraceID())
	}
}

// The header is found over HTTP and over NATS, once; and left out where it would not fit.
func TestHeaders(t *testing.T) {
	c := Parse(parent)
	for _, name := range []string{"traceparent", "Traceparent"} {
		if got := FromHeader(map[string][]string{name: {parent}}); got != c {
			t.Errorf("%s: %v", name, got)
		}
		if got := FromHeader(map[string][]string{name: {parent, parent}}); got.Valid() {
			t.Errorf("two of %s: %v", name, got)
		}
	}
	if h := c.Header(872, 1000); FromHeader(h) != c {
		t.Errorf("%v", h)
	}
	if c.Header(873, 1000) != nil || (Context{}).Header(0, 1000) != nil {
		t.Error("a header that does not fit, or none at all, is sent")
	}
}

func exporter(t *testing.T, vars map[string]string) (*Exporter, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	e, err := FromEnv(func(k string) string { return vars[k] }, "1.2.3", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if e != nil {
			e.client.CloseIdleConnections()
		}
	})
	return e, &log
}

func closed(t *testing.T, e *Exporter) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		t.Error(err)
	}
}

func TestExport(t *testing.T) {
	c := tracetest.New(t)
	e, _ := exporter(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL + "/", "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b,other=1",
		"OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test"})
	router, decode := &Tracer{"router", "r1", e}, &Tracer{"decode", "d1", e}
	root := router.Start(Parse(parent), "chat", Server, Attr{"n", 5}, Attr{"f", 0.5}, Attr{"yes", true}, Attr{"big", int64(1) << 60}, Attr{"text", "x"})
	child := decode.Start(root.Context(), "decode", Consumer)
	child.Fail("handoff_count: reserved 600, manifest 1")
	child.Set(Attr{"rows", uint32(7)})
	child.End()
	child.End()
	at := time.Now()
	decode.Record(child.Context(), "gate", at, at.Add(-time.Second)) // a clock that was set back
	root.End()
	alone := router.Start(Context{}, "chat", Server)
	alone.End()
	closed(t, e)
	spans := c.Spans()
	if len(spans) != 4 {
		t.Fatalf("%+v", spans)
	}
	by := map[string]tracetest.Span{}
	for _, s := range spans {
		by[s.Name+s.Parent[:min(4, len(s.Parent))]] = s
	}
	r, d := by["chatb7ad"], by["decode"+by["chatb7ad"].ID[:4]]
	if r.Service != "quire-router" || r.Trace != "0af7651916cd43dd8448eb211c80319c" || r.Kind != 2 || r.Attrs["n"] != "5" || r.Attrs["f"] != "0.5" ||
		r.Attrs["yes"] != "true" || r.Attrs["big"] != "1152921504606846976" || r.Attrs["text"] != "x" || r.Fault != "" {
		t.Errorf("%+v", r)
	}
	if d.Service != "quire-decode" || d.Trace != r.Trace || d.Parent != r.ID || d.Fault == "" || d.Attrs["rows"] != "7" {
		t.Errorf("%+v", d)
	}
	if a := by["chat"]; a.Trace == r.Trace || a.Trace != alone.Context().TraceID() {
		t.Errorf("%+v", a)
	}
	if h := c.Header(); h.Get("X-Key") != "a b" || h.Get("Other") != "1" {
		t.Errorf("%v", h)
	}
}

// A collector that is busy gets the spans later; one that refuses gets no more, and that is said once.
func TestExportTriesAgain(t *testing.T) {
	c := tracetest.New(t)
	e, log := exporter(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL})
	c.Busy(1)
	tracer := &Tracer{"router", "r1", e}
	tracer.Start(Context{}, "a", Server).End()
	e.Flush(t.Context())
	if len(c.Spans()) != 1 || e.Dropped() != 0 {
		t.Errorf("%d spans, %d dropped", len(c.Spans()), e.Dropped())
	}
	c.Busy(100)
	for range 2 {
		tracer.Start(Context{}, "b", Server).End()
		go closed(t, e) // closing, it does not wait for the collector
		<-e.ended
	}
	if n := strings.Count(log.String(), "traces are not taken"); n != 1 || e.Dropped() == 0 {
		t.Errorf("%d dropped: %s", e.Dropped(), log)
	}
}

func TestSampling(t *testing.T) {
	for _, s := range []struct {
		sampler, arg, parent string
		want                 bool
	}{
		{"", "", "", true}, {"", "", parent, true}, {"", "", parent[:len(parent)-1] + "0", false},
		{"parentbased_always_off", "", "", false}, {"parentbased_always_off", "", parent, true},
		{"always_off", "", parent, false}, {"always_on", "", parent[:len(parent)-1] + "0", true},
		{"traceidratio", "0", "", false}, {"traceidratio", "1", "", true}, {"parentbased_traceidratio", "0", parent, true},
	} {
		e, _ := exporter(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_SAMPLER": s.sampler, "OTEL_TRACES_SAMPLER_ARG": s.arg})
		span := (&Tracer{Export: e}).Start(Parse(s.parent), "x", Server)
		if got := span.Context().Sampled; got != s.want || !span.Context().Valid() {
			t.Errorf("%+v: %v", s, span.Context())
		}
		closed(t, e)
	}
	e := &Exporter{settings: settings{ratio: 0.25}}
	n := 0
	for range 4000 {
		if e.samples(newTraceID()) {
			n++
		}
	}
	if n < 800 || n > 1200 {
		t.Errorf("%d of 4000 at a quarter", n)
	}
}

// Without an exporter ids are made and handed on, and nothing else happens; a nil span takes everything.
func TestWithoutExporter(t *testing.T) {
	for _, vars := range []map[string]string{{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "TRUE"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}} {
		if e, _ := exporter(t, vars); e != nil {
			t.Errorf("%v: an exporter", vars)
		}
	}
	s := (&Tracer{}).Start(Context{}, "x", Server)
	if !s.Context().Valid() || s.Context().Sampled {
		t.Errorf("%v", s.Context())
	}
	s.End()
	if c := (&Tracer{}).Start(Parse(parent), "x", Server).Context(); c.TraceID() != Parse(parent).TraceID() || !c.Sampled || c.Span == Parse(parent).Span {
		t.Errorf("%v", c)
	}
	var none *Span
	none.Set(Attr{"a", 1})
	none.Fail("x")
	none.End()
	if none.Context().Valid() {
		t.Error("a context of nothing")
	}
	var nobody *Exporter
	if err := nobody.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSettingsThatAreWrong(t *testing.T) {
	for _, vars := range []map[string]string{
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "127.0.0.1:4318"}, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "ftp://x/y"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_HEADERS": "secret"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_TIMEOUT": "soon"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_BSP_SCHEDULE_DELAY": "0"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_SAMPLER": "sometimes"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "1.5"},
	} {
		_, err := FromEnv(func(k string) string { return vars[k] }, "", slog.New(slog.DiscardHandler))
		if err == nil || !strings.HasPrefix(err.Error(), "trace: OTEL_") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: %v", vars, err)
		}
	}
}

func TestAttributesAreBounded(t *testing.T) {
	s := (&Tracer{}).Start(Context{}, "x", Server)
	for i := range 3 * maxAttrs {
		s.Set(Attr{fmt.Sprint(i), i})
	}
	if len(s.attrs) != maxAttrs {
		t.Errorf("%d", len(s.attrs))
	}
}
