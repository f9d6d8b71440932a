package decode

import (
	"time"

	"quire/kvtransfer"
	tracing "quire/trace"
)

// tracks are the spans of the hand-offs that are open here, made of the facts. Of the loop's goroutine alone.
//
//	decode                from the reservation to the end, below the router's reserve
//	  frames              from the claim to the manifest, below prefill's span where its manifest brought one
//	  gate                until the verdict
//	  journal, witness    until the journal has it; until the rows were compared
//	  generate            from the first token to the end
type tracks struct {
	tracer tracing.Tracer
	start  time.Time // tick 0
	asks   map[uint64]tracing.Context
	open   map[kvtransfer.Key]*track
}

// track is one hand-off's spans. Ticks are 0 while the thing has not happened.
type track struct {
	span                      *tracing.Span
	prefill                   tracing.Context
	claimed, verdict, witness kvtransfer.Tick
}

func newTracks(t tracing.Tracer, start time.Time) tracks {
	return tracks{tracer: t, start: start, asks: map[uint64]tracing.Context{}, open: map[kvtransfer.Key]*track{}}
}

// asked notes which span asks for a reservation.
func (t *tracks) asked(id uint64, of tracing.Context) {
	if of.Valid() {
		t.asks[id] = of
	}
}

// reserved begins a hand-off. The same answer may be given again.
func (t *tracks) reserved(id uint64, r kvtransfer.Reservation) {
	of := t.asks[id]
	delete(t.asks, id)
	if t.open[r.Key] != nil {
		return
	}
	t.open[r.Key] = &track{span: t.tracer.Start(of, "decode", tracing.Server, tracing.Attr{Key: "quire.handoff", Value: r.Key.String()},
		tracing.Attr{Key: "quire.pages", Value: len(r.Pages)}, tracing.Attr{Key: "quire.rows", Value: r.N})}
}

func (t *tracks) refused(id uint64) { delete(t.asks, id) }

// stated notes the span that sent a manifest, if it is of the same trace: nobody signs it.
func (t *tracks) stated(key kvtransfer.Key, of tracing.Context) {
	if k := t.open[key]; k != nil && of.Valid() && of.Trace == k.span.Context().Trace {
		k.prefill = of
	}
}

// fact makes spans of what has happened.
func (t *tracks) fact(f Fact, now kvtransfer.Tick) {
	k := t.open[f.Key]
	if k == nil {
		return
	}
	below := k.span.Context()
	switch f.Kind {
	case FactClaimed:
		k.claimed = now
		k.span.Set(tracing.Attr{Key: "quire.prefill", Value: f.Prefill.ID})
	case FactVerdict:
		from := below
		if k.prefill.Valid() {
			from = k.prefill
		}
		t.record(from, "frames", k.claimed, f.StatedAt, tracing.Attr{Key: "quire.frames", Value: f.Frames}, tracing.Attr{Key: "quire.frames.refused", Value: int64(f.Refused)})
		gate := t.record(below, "gate", f.StatedAt, now, tracing.Attr{Key: "quire.gate.ok", Value: f.OK})
		if !f.OK {
			gate.Set(tracing.Attr{Key: "quire.gate.check", Value: f.Check})
		}
		k.verdict = now
	case FactWitness:
		t.record(below, "journal", k.verdict, f.OwnedAt)
		t.record(below, "witness", f.OwnedAt, now, tracing.Attr{Key: "quire.witness", Value: f.Witness})
		k.witness = now
	case FactFinished:
		t.finished(k, f, now)
	}
}

func (t *tracks) finished(k *track, f Fact, now kvtransfer.Tick) {
	delete(t.open, f.Key)
	if k.witness > 0 {
		t.record(k.span.Context(), "generate", k.witness, now, tracing.Attr{Key: "gen_ai.usage.output_tokens", Value: f.Output})
	}
	if !f.Error.IsZero() {
		k.span.Fail(string(f.Error.Code) + ": " + f.Error.Detail)
		k.span.Set(tracing.Attr{Key: "error.type", Value: string(f.Error.Code)})
	}
	k.span.EndAt(t.at(now))
}

// record makes a span that is over; nothing when it never began.
func (t *tracks) record(below tracing.Context, name string, from, to kvtransfer.Tick, attrs ...tracing.Attr) *tracing.Span {
	if from == 0 || to == 0 {
		return nil
	}
	return t.tracer.Record(below, name, t.at(from), t.at(to), attrs...)
}

func (t *tracks) at(tick kvtransfer.Tick) time.Time {
	return t.start.Add(time.Duration(tick) * time.Microsecond)
}

// traceOf is the trace of a hand-off that is open; "" when it is not.
func (t *tracks) traceOf(key kvtransfer.Key) string {
	if k := t.open[key]; k != nil {
		return k.span.Context().TraceID()
	}
	return ""
}
