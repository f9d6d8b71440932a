// Package trace follows a request through router, prefill and decode: W3C trace contexts on their way over HTTP and NATS, spans,
// and their export as OTLP over HTTP in JSON.
//
// Spans are made where services perform effects, never in a loop and never for a token. A span says when something was and
// numbers about it; no prompt, no token, no tenant. Without an exporter contexts travel and ids stand in the logs all the same,
// and a span is one small allocation that nobody keeps.
package trace

import (
	"crypto/rand"
	"encoding/hex"
	"net/textproto"
	"strings"
)

// HeaderName is the header of a context, over HTTP and over NATS (https://www.w3.org/TR/trace-context/).
const HeaderName = "traceparent"

// Context names a span of a trace. The zero value is none.
type Context struct {
	Trace   [16]byte
	Span    [8]byte
	Sampled bool // whoever began the trace wants its spans
}

// Valid says whether it names a span.
func (c Context) Valid() bool { return c.Trace != [16]byte{} && c.Span != [8]byte{} }

// TraceID gives 32 hexadecimal digits; "" for none.
func (c Context) TraceID() string {
	if c.Trace == [16]byte{} {
		return ""
	}
	return hex.EncodeToString(c.Trace[:])
}

// String gives the value of a traceparent header; "" for none.
func (c Context) String() string {
	if !c.Valid() {
		return ""
	}
	flags := "-00"
	if c.Sampled {
		flags = "-01"
	}
	return "00-" + hex.EncodeToString(c.Trace[:]) + "-" + hex.EncodeToString(c.Span[:]) + flags
}

// Parse reads the value of a traceparent header. What is not one, by the letter, is none.
func Parse(text string) Context {
	parts := strings.Split(text, "-")
	if len(text) > 256 || len(parts) < 4 || len(parts[0]) != 2 || parts[0] == "ff" || parts[0] == "00" && len(parts) != 4 {
		return Context{}
	}
	var c Context
	var version, flags [1]byte
	if !unhex(version[:], parts[0]) || !unhex(c.Trace[:], parts[1]) || !unhex(c.Span[:], parts[2]) || !unhex(flags[:], parts[3]) || !c.Valid() {
		return Context{}
	}
	c.Sampled = flags[0]&1 == 1
	return c
}

// unhex reads exactly len(dst) bytes of lower-case digits.
func unhex(dst []byte, text string) bool {
	if len(text) != 2*len(dst) || strings.ToLower(text) != text {
		return false
	}
	_, err := hex.Decode(dst, []byte(text))
	return err == nil
}

// FromHeader finds the context in the headers of a message. NATS keeps a header's name as it was written; HTTP does not.
func FromHeader(h map[string][]string) Context {
	for _, name := range []string{HeaderName, textproto.CanonicalMIMEHeaderKey(HeaderName)} {
		if v := h[name]; len(v) == 1 {
			return Parse(v[0])
		}
	}
	return Context{}
}

// headerRoom is more than the header takes in a message.
const headerRoom = 128

// Header gives the headers that carry a context with a message of size bytes; nil for no context, and where the message would
// not fit into limit bytes any more: no message is ever lost for its trace.
func (c Context) Header(size, limit int) map[string][]string {
	if !c.Valid() || size+headerRoom > limit {
		return nil
	}
	return map[string][]string{HeaderName: {c.String()}}
}

func newSpanID() (id [8]byte) {
	for id == [8]byte{} {
		rand.Read(id[:])
	}
	return id
}

func newTraceID() (id [16]byte) {
	for id == [16]byte{} {
		rand.Read(id[:])
	}
	return id
}
