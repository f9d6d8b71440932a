package prefill

import (
	"time"

	"quire/kvtransfer"
	"quire/trace"
)

// tracks are the spans of the hand-offs that are worked on here. Of the loop's goroutine alone.
//
//	prefill       from the job to the end of this leg, below the router's job
//	  compute     until the last row was there
//	  send        from the first frame to the end
type tracks struct {
	tracer trace.Tracer
	job    trace.Context // of the job that the loop looks at now
	open   map[kvtransfer.Key]*track
}

type track struct {
	span  *trace.Span
	since time.Time
	sent  time.Time // when the first frame was on its way; zero before
}

func newTracks(t trace.Tracer) tracks {
	return tracks{tracer: t, open: map[kvtransfer.Key]*track{}}
}

// claiming begins a hand-off with its first claim.
func (t *tracks) claiming(key kvtransfer.Key) {
	if t.open[key] == nil {
		t.open[key] = &track{since: time.Now(), span: t.tracer.Start(t.job, "prefill", trace.Consumer, trace.Attr{Key: "quire.handoff", Value: key.String()})}
	}
}

func (t *tracks) sending(key kvtransfer.Key) {
	if k := t.open[key]; k != nil && k.sent.IsZero() {
		k.sent = time.Now()
	}
}

// of gives the context that messages of a hand-off carry; none when it is not known.
func (t *tracks) of(key kvtransfer.Key) trace.Context {
	if k := t.open[key]; k != nil {
		return k.span.Context()
	}
	return trace.Context{}
}

func (t *tracks) ended(fx Ended) {
	k := t.open[fx.Key]
	if k == nil {
		return
	}
	delete(t.open, fx.Key)
	below := k.span.Context()
	if fx.Computed > 0 {
		t.tracer.Record(below, "compute", k.since, k.since.Add(time.Duration(fx.Computed)*time.Microsecond), trace.Attr{Key: "quire.rows", Value: fx.Rows})
	}
	if !k.sent.IsZero() {
		t.tracer.Record(below, "send", k.sent, time.Now(), trace.Attr{Key: "quire.frames", Value: fx.Frames})
	}
	k.span.Set(trace.Attr{Key: "quire.state", Value: fx.State.String()})
	if !fx.Error.IsZero() {
		k.span.Fail(string(fx.Error.Code) + ": " + fx.Error.Detail)
		k.span.Set(trace.Attr{Key: "error.type", Value: string(fx.Error.Code)})
	}
	k.span.End()
}

// header carries a context with a message of size bytes, where it fits.
func (s *Service) header(of trace.Context, size int) map[string][]string {
	return of.Header(size, s.cfg.Bus.Limits().MaxPayload)
}
