package router

import (
	"quire/kvtransfer"
	"quire/router/openai"
	"quire/trace"
)

// tracks are the spans of the requests that are open. Of the loop's goroutine alone, but for what Submit begins.
//
//	chat                     from Submit to the end, below what the client's header names
//	  queue                  until the first Reserve
//	  hand-off               an attempt, from Reserve until it is forgotten; decode's and prefill's spans are below it
//	    reserve, job         the calls over the bus
//	  answer                 from the outcome to the end
type tracks struct {
	tracer trace.Tracer
	byRef  map[uint64]*track
	byID   map[kvtransfer.HandoffID]*track
	last   *track // that ended last: its record comes behind its end
}

// begin is the span of a request that comes in.
func (t *tracks) begin(r Request, model string) *trace.Span {
	op := "chat"
	if r.Body.Op != openai.OpChat {
		op = "text_completion"
	}
	return t.tracer.Start(r.Trace, op+" "+model, trace.Server, trace.Attr{Key: "gen_ai.operation.name", Value: op},
		trace.Attr{Key: "gen_ai.request.model", Value: model}, trace.Attr{Key: "quire.stream", Value: r.Body.Stream})
}

// track is one request's spans.
type track struct {
	root, queue, answer *trace.Span
	id                  kvtransfer.HandoffID
	attempt             *trace.Span
	key                 kvtransfer.Key // of the attempt
}

func newTracks(t trace.Tracer) tracks {
	return tracks{tracer: t, byRef: map[uint64]*track{}, byID: map[kvtransfer.HandoffID]*track{}}
}

// accepted takes the span that Submit began.
func (t *tracks) accepted(e Accept, root *trace.Span, request string) {
	root.Set(trace.Attr{Key: "quire.request", Value: request}, trace.Attr{Key: "gen_ai.usage.input_tokens", Value: e.Prompt},
		trace.Attr{Key: "gen_ai.request.max_tokens", Value: e.MaxTokens})
	k := &track{root: root, id: e.ID, queue: t.tracer.Start(root.Context(), "queue", trace.Internal)}
	t.byRef[e.Ref], t.byID[e.ID] = k, k
}

// reserving begins an attempt and gives its context.
func (t *tracks) reserving(e SendReserve) trace.Context {
	k := t.byID[e.Key.ID]
	if k == nil {
		return trace.Context{}
	}
	k.queue.End()
	if k.key != e.Key || k.attempt == nil { // the same Reserve may be sent again
		k.attempt.End()
		k.key = e.Key
		k.attempt = t.tracer.Start(k.root.Context(), "hand-off", trace.Internal, trace.Attr{Key: "quire.handoff", Value: e.Key.String()},
			trace.Attr{Key: "quire.attempt", Value: e.Key.Attempt}, trace.Attr{Key: "quire.decode", Value: e.To.ID})
	}
	return k.attempt.Context()
}

// of gives the context of an attempt; none when it is not traced.
func (t *tracks) of(key kvtransfer.Key) trace.Context {
	if k := t.byID[key.ID]; k != nil && k.key == key {
		return k.attempt.Context()
	}
	return trace.Context{}
}

func (t *tracks) began(e Begin) {
	if k := t.byRef[e.Ref]; k != nil && k.answer == nil {
		k.answer = t.tracer.Start(k.root.Context(), "answer", trace.Internal)
	}
}

// forgotten ends an attempt.
func (t *tracks) forgotten(key kvtransfer.Key) {
	if k := t.byID[key.ID]; k != nil && k.key == key {
		k.attempt.End()
	}
}

// finished ends a request's spans. root is that of a request that was not admitted.
func (t *tracks) finished(e Finish, root *trace.Span) {
	k := t.byRef[e.Ref]
	if k == nil {
		k = &track{root: root}
	}
	delete(t.byRef, e.Ref)
	delete(t.byID, k.id)
	t.last = k
	if err := e.End.Error; !err.IsZero() {
		k.root.Fail(string(err.Code) + ": " + err.Detail)
		k.root.Set(trace.Attr{Key: "error.type", Value: string(err.Code)})
	} else {
		k.root.Set(trace.Attr{Key: "quire.finish", Value: string(e.End.Finish)}, trace.Attr{Key: "gen_ai.usage.output_tokens", Value: e.End.Output})
	}
	k.queue.End()
	k.attempt.End()
	k.answer.End()
	k.root.End()
}

// traceOf is the trace of a request that is open or was the last one to end; "" when it is not known.
func (t *tracks) traceOf(id kvtransfer.HandoffID) string {
	k := t.byID[id]
	if k == nil && t.last != nil && t.last.id == id {
		k = t.last
	}
	if k == nil {
		return ""
	}
	return k.root.Context().TraceID()
}
