package trace

import (
	"encoding/binary"
	"sync"
	"time"
)

// Kind says what a span is to the one above it. Numbers are OTLP's.
type Kind int

// Kinds of span.
const (
	Internal Kind = 1
	Server   Kind = 2 // answers a request
	Client   Kind = 3 // asks somebody
	Producer Kind = 4 // puts a message somewhere
	Consumer Kind = 5 // works on a message that was put there
)

// Tracer makes the spans of one process of one role. The zero value makes contexts alone.
type Tracer struct {
	Role, ID string
	Export   *Exporter // nil = nothing is exported
}

// Attr is a number or a text about a span. Values are int, int64, uint32, float64, bool or string.
type Attr struct {
	Key   string
	Value any
}

// Span is something that takes time. A nil Span does nothing. Its methods may be called from any goroutine.
type Span struct {
	tracer  *Tracer
	context Context
	parent  [8]byte
	name    string
	kind    Kind
	start   time.Time

	mu    sync.Mutex
	attrs []Attr
	fault string
	end   time.Time // zero until End
}

// maxAttrs bounds what one span can hold.
const maxAttrs = 64

// Start begins a span below parent; below none it begins a trace. The span is recorded when somebody exports and the trace is
// sampled; its context is good either way.
func (t *Tracer) Start(parent Context, name string, kind Kind, attrs ...Attr) *Span {
	return t.startAt(parent, name, kind, time.Now(), attrs)
}

// Record is a span that is over already.
func (t *Tracer) Record(parent Context, name string, from, to time.Time, attrs ...Attr) *Span {
	s := t.startAt(parent, name, Internal, from, attrs)
	s.EndAt(to)
	return s
}

func (t *Tracer) startAt(parent Context, name string, kind Kind, at time.Time, attrs []Attr) *Span {
	s := &Span{tracer: t, parent: parent.Span, name: name, kind: kind, start: at, attrs: attrs}
	s.context = Context{Trace: parent.Trace, Span: newSpanID(), Sampled: parent.Sampled}
	if !parent.Valid() {
		s.parent = [8]byte{}
		s.context.Trace = newTraceID()
		s.context.Sampled = t.Export != nil && t.Export.samples(s.context.Trace)
	} else if t.Export != nil && !t.Export.follow {
		s.context.Sampled = t.Export.samples(s.context.Trace)
	}
	return s
}

// Context is what to hand to those below; none for a nil span.
func (s *Span) Context() Context {
	if s == nil {
		return Context{}
	}
	return s.context
}

// Set adds something about the span.
func (s *Span) Set(attrs ...Attr) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.attrs)+len(attrs) <= maxAttrs {
		s.attrs = append(s.attrs, attrs...)
	}
}

// Fail says that it went wrong, and how.
func (s *Span) Fail(text string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = text
}

// End ends the span now. A second end does nothing.
func (s *Span) End() { s.EndAt(time.Now()) }

// EndAt ends the span at a time.
func (s *Span) EndAt(at time.Time) {
	if s == nil {
		return
	}
	s.mu.Lock()
	if !s.end.IsZero() {
		s.mu.Unlock()
		return
	}
	if s.end = at; at.Before(s.start) {
		s.end = s.start
	}
	s.mu.Unlock()
	if e := s.tracer.Export; e != nil && s.context.Sampled {
		e.take(s)
	}
}

// samples says whether a new trace is wanted: its id is the lot that is drawn.
func (e *Exporter) samples(id [16]byte) bool {
	return float64(binary.BigEndian.Uint64(id[8:])>>1) < e.ratio*float64(1<<63)
}
