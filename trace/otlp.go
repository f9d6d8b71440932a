package trace

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
)

// The JSON form of opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest: ids are hexadecimal, 64-bit integers are
// text (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding).
type (
	export struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []keyValue `json:"attributes"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	scope struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	span struct {
		TraceID    string     `json:"traceId"`
		SpanID     string     `json:"spanId"`
		ParentID   string     `json:"parentSpanId,omitempty"`
		Name       string     `json:"name"`
		Kind       Kind       `json:"kind"`
		Start      string     `json:"startTimeUnixNano"`
		End        string     `json:"endTimeUnixNano"`
		Attributes []keyValue `json:"attributes,omitempty"`
		Status     *status    `json:"status,omitempty"`
	}
	status struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	keyValue struct {
		Key   string   `json:"key"`
		Value anyValue `json:"value"`
	}
	anyValue struct {
		String *string  `json:"stringValue,omitempty"`
		Int    *string  `json:"intValue,omitempty"`
		Double *float64 `json:"doubleValue,omitempty"`
		Bool   *bool    `json:"boolValue,omitempty"`
	}
)

// statusError is STATUS_CODE_ERROR.
const statusError = 2

// encode makes a request of spans, grouped by who made them.
func encode(list []*Span, version string, extra []Attr) ([]byte, error) {
	var out export
	at := map[*Tracer]int{}
	for _, s := range list {
		i, ok := at[s.tracer]
		if !ok {
			i = len(out.ResourceSpans)
			at[s.tracer] = i
			out.ResourceSpans = append(out.ResourceSpans, resourceSpans{Resource: resource{s.tracer.resource(version, extra)},
				ScopeSpans: []scopeSpans{{Scope: scope{"quire", version}}}})
		}
		spans := &out.ResourceSpans[i].ScopeSpans[0].Spans
		*spans = append(*spans, s.form())
	}
	return json.Marshal(out)
}

// resource says who makes spans. What the environment says wins.
func (t *Tracer) resource(version string, extra []Attr) []keyValue {
	attrs := []Attr{{"service.name", "quire-" + t.Role}, {"service.version", version}, {"service.instance.id", t.ID}, {"quire.role", t.Role}}
	for _, e := range extra {
		found := false
		for i := range attrs {
			if attrs[i].Key == e.Key {
				attrs[i], found = e, true
			}
		}
		if !found {
			attrs = append(attrs, e)
		}
	}
	return values(attrs)
}

func (s *Span) form() span {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := span{TraceID: s.context.TraceID(), SpanID: hex.EncodeToString(s.context.Span[:]), Name: s.name, Kind: s.kind,
		Start: strconv.FormatInt(s.start.UnixNano(), 10), End: strconv.FormatInt(s.end.UnixNano(), 10), Attributes: values(s.attrs)}
	if s.parent != [8]byte{} {
		f.ParentID = hex.EncodeToString(s.parent[:])
	}
	if s.fault != "" {
		f.Status = &status{statusError, s.fault}
	}
	return f
}

func values(attrs []Attr) []keyValue {
	out := make([]keyValue, 0, len(attrs))
	for _, a := range attrs {
		out = append(out, keyValue{a.Key, valueOf(a.Value)})
	}
	return out
}

func valueOf(v any) anyValue {
	whole := func(text string) anyValue { return anyValue{Int: &text} }
	switch v := v.(type) {
	case int:
		return whole(strconv.Itoa(v))
	case int64:
		return whole(strconv.FormatInt(v, 10))
	case uint32:
		return whole(strconv.FormatUint(uint64(v), 10))
	case float64:
		return anyValue{Double: &v}
	case bool:
		return anyValue{Bool: &v}
	}
	text := fmt.Sprint(v)
	return anyValue{String: &text}
}
