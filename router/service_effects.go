package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"quire/bus"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
	"quire/trace"
)

// perform does one effect, or starts it: whatever waits for the bus runs in a goroutine of its own, of which the loop's tables
// bound the number, and posts its outcome.
func (s *Service) perform(fx Effect) {
	switch e := fx.(type) {
	case Accept, Begin, Give, Finish:
		s.tell(fx)
	case SendReserve:
		e.Reserve.RouterKey = s.box.add(e.Key, e.Seed)
		of := s.tracks.reserving(e)
		s.wg.Go(func() { s.post(s.reserve(e, of)) })
	case StoreJob:
		of := s.tracks.of(e.Key)
		s.wg.Go(func() { s.post(s.storeJob(e, of)) })
	case DropJob:
		s.wg.Go(func() { s.dropJob(e) })
	case AskResend:
		s.wg.Go(func() { s.post(s.resend(e)) })
	case SendCancel:
		s.wg.Go(func() { s.sendCancel(e) })
	case Forget:
		s.box.drop(e.Key)
		s.tracks.forgotten(e.Key)
	case Record:
		s.record(e.Finished)
	case RecordJob:
		s.put(placed(e.Placed))
	case Tape:
		s.cfg.Tape(s.take(e))
	case CancelAnswered:
		s.answer(e.Ask, e)
	case StatusAnswered:
		s.answer(e.Ask, e)
	case Drained:
		close(s.drained)
	}
}

// tell passes on what a client is to know.
func (s *Service) tell(fx Effect) {
	now := s.now()
	s.progress.Store(int64(time.Since(s.start)))
	switch e := fx.(type) {
	case Accept:
		if t := s.stream(e.Ref); t != nil {
			s.meter.accepted(e, now)
			s.tracks.accepted(e, t.span, s.requestID(e.ID))
			t.accept(s.requestID(e.ID))
		}
	case Begin:
		s.tracks.began(e)
		if t := s.stream(e.Ref); t != nil {
			t.add(Part{Started: true})
		}
	case Give:
		s.meter.gave(e, now)
		if t := s.stream(e.Ref); t != nil {
			t.add(Part{Tokens: e.Tokens})
		}
	case Finish:
		s.meter.finished(e, now)
		t := s.dropStream(e.Ref)
		var span *trace.Span
		if t != nil {
			span = t.span
		}
		s.tracks.finished(e, span)
		if t != nil {
			if e.End.Error.IsZero() {
				end := e.End
				t.add(Part{End: &end})
			} else {
				t.fail(Rejected{Cause: e.End.Error, RetryAfter: e.RetryAfter})
			}
		}
	}
}

func (s *Service) sign(kind kvtransfer.Kind, m any) ([]byte, error) {
	body, err := wire.Encode(m)
	if err != nil {
		return nil, err
	}
	return seal.Sign(s.signer, s.peer, kind, body), nil
}

// ask sends a signed request to a decode and gives its answer, if that decode signed it.
func (s *Service) ask(to kvtransfer.Peer, subject string, kind kvtransfer.Kind, m any, of trace.Context) (wire.Envelope, BusFault) {
	b, err := s.sign(kind, m)
	if err != nil {
		s.cfg.Log.Error("router: message not encoded", "kind", kind, "error", err)
		return wire.Envelope{}, FaultTooLarge
	}
	ctx, cancel := context.WithTimeout(s.ctx, callTimeout)
	defer cancel()
	msg, err := s.cfg.Bus.Request(bus.WithHeader(ctx, of.Header(len(b), s.cfg.Bus.Limits().MaxPayload)), subject, b)
	if err != nil {
		return wire.Envelope{}, fault(err)
	}
	env, err := seal.OpenEnvelope(s.cfg.Keys, msg.Data)
	if err != nil || env.From != to {
		s.meter.ignored.Inc()
		return wire.Envelope{}, FaultInvalid
	}
	return env, FaultNone
}

func fault(err error) BusFault {
	switch {
	case errors.Is(err, bus.ErrNoResponders):
		return FaultNobody
	case errors.Is(err, bus.ErrTooLarge):
		return FaultTooLarge
	case errors.Is(err, bus.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return FaultTimeout
	}
	return FaultFailed
}

func (s *Service) reserve(e SendReserve, of trace.Context) Reserved {
	out := Reserved{Key: e.Key}
	span := s.tracks.tracer.Start(of, "reserve", trace.Client)
	defer span.End()
	env, bad := s.ask(e.To, s.cfg.Names.Reserve(e.To.ID, e.To.Epoch), kvtransfer.KindReserve, e.Reserve, span.Context())
	if bad != FaultNone {
		span.Fail(string(bad))
		out.Err = bad
		return out
	}
	switch env.Kind {
	case kvtransfer.KindRefused:
		r, err := wire.Decode[kvtransfer.Refused](env.Body)
		if err != nil || r.Key != e.Key || r.Error.IsZero() {
			out.Err = FaultInvalid
		}
		out.Refused = r.Error
		span.Fail(string(r.Error.Code) + ": " + r.Error.Detail)
	case kvtransfer.KindReservation:
		rv, err := wire.Decode[kvtransfer.Reservation](env.Body)
		if err == nil {
			err = s.box.bind(e.Key, seal.HashReservation(env.Body), rv.DecodeKey)
		}
		if err != nil && (rv.Key != e.Key || !errors.Is(err, errNoAttempt)) { // of an attempt that is over the loop gives the pages back
			out.Err = FaultInvalid
			return out
		}
		out.Reservation, out.Envelope = &rv, append(append([]byte(nil), env.Signed...), env.Sig...)
	default:
		out.Err = FaultInvalid
	}
	return out
}

func (s *Service) storeJob(e StoreJob, of trace.Context) JobStored {
	out := JobStored{Key: e.Key}
	span := s.tracks.tracer.Start(of, "job", trace.Producer)
	defer span.End()
	b, err := s.sign(kvtransfer.KindJob, kvtransfer.Job{Reservation: e.Reservation, Tokens: e.Tokens})
	if err != nil {
		out.Err = FaultTooLarge
		return out
	}
	ctx, cancel := context.WithTimeout(s.ctx, storeTimeout)
	defer cancel()
	out.Sequence, err = s.cfg.Bus.Enqueue(ctx, bus.Enqueue{
		Subject: s.cfg.Names.JobFor(e.Model, e.Pool, e.Target, e.Key.String()), ID: "job." + e.Key.String(), Data: b, Expect: s.cfg.Names.JobsStream(),
		Header: span.Context().Header(len(b), s.cfg.Bus.Limits().MaxPayload),
	})
	if err != nil && !errors.Is(err, bus.ErrDuplicate) { // a duplicate is the same job, stored before
		out.Err = fault(err)
		span.Fail(string(out.Err))
	}
	return out
}

func (s *Service) dropJob(e DropJob) {
	ctx, cancel := context.WithTimeout(s.ctx, storeTimeout)
	defer cancel()
	// One that was claimed is gone already, and what stays behind ends with the stream's MaxAge.
	_ = s.cfg.Bus.Streams().DeleteMessage(ctx, s.cfg.Names.JobsStream(), e.Sequence)
}

func (s *Service) resend(e AskResend) Resent {
	out := Resent{Key: e.Key}
	env, bad := s.ask(e.To, s.cfg.Names.Resend(e.To.ID, e.To.Epoch), kvtransfer.KindResend, kvtransfer.Resend{Key: e.Key, From: e.From, Ack: e.Ack}, trace.Context{})
	if bad != FaultNone {
		out.Err = bad
		return out
	}
	m, err := wire.Decode[kvtransfer.Resent](env.Body)
	if err != nil || env.Kind != kvtransfer.KindResent || m.Key != e.Key {
		out.Err = FaultInvalid
		return out
	}
	out.Known, out.Next = m.Known, m.Next
	for _, r := range m.Replies {
		body, err := s.box.open(r)
		if err != nil || r.Header.Key != e.Key {
			s.meter.ignored.Inc()
			continue
		}
		out.Replies = append(out.Replies, Replied{Key: r.Header.Key, Number: r.Header.Number, Body: body})
	}
	return out
}

func (s *Service) sendCancel(e SendCancel) {
	b, err := s.sign(kvtransfer.KindCancel, kvtransfer.Cancel{Key: e.Key, Error: e.Error})
	if err != nil {
		s.cfg.Log.Error("router: cancel not encoded", "key", e.Key, "error", err)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), storeTimeout)
	defer cancel()
	// One that does not arrive is made good by the acknowledgement, the lease and the router's heartbeat.
	_, _ = s.cfg.Bus.Enqueue(ctx, bus.Enqueue{
		Subject: s.cfg.Names.Control(string(e.To.Role), e.To.ID, e.To.Epoch, e.Key.String()), Data: b, Expect: s.cfg.Names.ControlStream(),
	})
}

// record puts the fact "finished" into the journal's buffer.
func (s *Service) record(f Finished) {
	s.cfg.Log.Log(s.ctx, level(f.Error), "finished", "request", s.requestID(f.Key.ID), "trace", s.tracks.traceOf(f.Key.ID), "attempts", f.Attempts, "decode", f.Decode.String(), "prompt", f.Prompt,
		"output", f.Output, "finish", string(f.Finish), "code", string(f.Error.Code), "detail", f.Error.Detail,
		"queued_ms", int(f.Queued/kvtransfer.Millisecond), "took_ms", int(f.Took/kvtransfer.Millisecond))
	s.put(finished(f))
}

// level is how loud an end is: only what the system did wrong concerns the operator.
func level(e kvtransfer.Error) slog.Level {
	switch e.Class() {
	case kvtransfer.ClassLost, kvtransfer.ClassCorrupt, kvtransfer.ClassFailed, kvtransfer.ClassBug:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

func (s *Service) journalChanged(err error) {
	if err != nil {
		s.cfg.Log.Warn("journal takes no records", "error", err)
		return
	}
	s.cfg.Log.Info("journal takes records again")
}

func (s *Service) requestID(id kvtransfer.HandoffID) string {
	return fmt.Sprintf("%s-%d-%s", s.peer.ID, s.peer.Epoch, id)
}
