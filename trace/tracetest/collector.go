// Package tracetest is an OpenTelemetry collector for tests: it takes OTLP over HTTP in JSON, strictly, and keeps the spans.
package tracetest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"sync"
	"testing"
)

// Span is a span as it was sent.
type Span struct {
	Service, Trace, ID, Parent, Name string
	Kind                             int
	Start, End                       int64 // Unix, nanoseconds
	Attrs                            map[string]string
	Fault                            string // "" = it went well
}

// Collector is a running collector.
type Collector struct {
	URL string // for OTEL_EXPORTER_OTLP_ENDPOINT

	t      *testing.T
	mu     sync.Mutex
	spans  []Span
	busy   int // requests that are still to be answered with 503
	header http.Header
}

// New starts a collector for one test. Anything that is not by the book fails the test.
func New(t *testing.T) *Collector {
	t.Helper()
	c := &Collector{t: t}
	s := httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(s.Close)
	c.URL = s.URL
	return c
}

// Busy lets the next n requests be refused with 503.
func (c *Collector) Busy(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = n
}

// Spans are those that came so far, in the order in which they came.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Header is that of the last request.
func (c *Collector) Header() http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.header
}

type value struct {
	String *string  `json:"stringValue"`
	Int    *string  `json:"intValue"`
	Double *float64 `json:"doubleValue"`
	Bool   *bool    `json:"boolValue"`
}

func (v value) text() string {
	switch {
	case v.String != nil:
		return *v.String
	case v.Int != nil:
		return *v.Int
	case v.Double != nil:
		return strconv.FormatFloat(*v.Double, 'g', -1, 64)
	case v.Bool != nil:
		return strconv.FormatBool(*v.Bool)
	}
	return ""
}

type attribute struct {
	Key   string `json:"key"`
	Value value  `json:"value"`
}

type request struct {
	ResourceSpans []struct {
		Resource struct {
			Attributes []attribute `json:"attributes"`
		} `json:"resource"`
		ScopeSpans []struct {
			Scope struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			} `json:"scope"`
			Spans []struct {
				TraceID    string      `json:"traceId"`
				SpanID     string      `json:"spanId"`
				ParentID   string      `json:"parentSpanId"`
				Name       string      `json:"name"`
				Kind       int         `json:"kind"`
				Start      string      `json:"startTimeUnixNano"`
				End        string      `json:"endTimeUnixNano"`
				Attributes []attribute `json:"attributes"`
				Status     struct {
					Code    int    `json:"code"`
					Message string `json:"message"`
				} `json:"status"`
			} `json:"spans"`
		} `json:"scopeSpans"`
	} `json:"resourceSpans"`
}

func (c *Collector) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" {
		c.t.Errorf("collector: %s %s, %s, %v", r.Method, r.URL.Path, r.Header.Get("Content-Type"), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.header = r.Header.Clone()
	if c.busy > 0 {
		c.busy--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var req request
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil {
		c.t.Errorf("collector: %v in %s", err, body)
	}
	c.keep(req)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("{}"))
}

var traceForm, spanForm = regexp.MustCompile(`^[0-9a-f]{32}$`), regexp.MustCompile(`^[0-9a-f]{16}$`)

func (c *Collector) keep(req request) {
	for _, rs := range req.ResourceSpans {
		service := ""
		for _, a := range rs.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.text()
			}
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				out := Span{Service: service, Trace: s.TraceID, ID: s.SpanID, Parent: s.ParentID, Name: s.Name, Kind: s.Kind, Attrs: map[string]string{}}
				var e1, e2 error
				out.Start, e1 = strconv.ParseInt(s.Start, 10, 64)
				out.End, e2 = strconv.ParseInt(s.End, 10, 64)
				if e1 != nil || e2 != nil || out.End < out.Start || !traceForm.MatchString(out.Trace) || !spanForm.MatchString(out.ID) ||
					out.Parent != "" && !spanForm.MatchString(out.Parent) || out.Kind < 1 || out.Kind > 5 || service == "" {
					c.t.Errorf("collector: span %+v", out)
				}
				for _, a := range s.Attributes {
					out.Attrs[a.Key] = a.Value.text()
				}
				if s.Status.Code == 2 {
					out.Fault = s.Status.Message
				}
				c.spans = append(c.spans, out)
			}
		}
	}
}
