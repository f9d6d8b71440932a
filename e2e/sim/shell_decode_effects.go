package sim

import (
	"errors"

	"quire/bus"
	"quire/decode"
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
	"quire/model"
)

// perform does one effect, or starts it.
func (s *decodeShell) perform(fx decode.Effect) {
	switch e := fx.(type) {
	case decode.Reserved:
		s.dev.shadow.reserve(s.p, e.M, s.dev.e)
		s.answer(e.ID, kvtransfer.KindReservation, e.Body)
	case decode.Refused:
		s.answer(e.ID, kvtransfer.KindRefused, s.w.encode(&e.M))
	case decode.Resent:
		s.resent(e)
	case decode.Control:
		s.sendControl(e)
	case decode.SendReply:
		s.control.push(func(done func()) {
			s.sendReply(e)
			done()
		})
	case decode.Journal:
		s.record(e)
	case decode.PurgeKV:
		s.control.push(func(done func()) {
			s.p.c.purge(s.w.names.KVStream(s.peer.ID, s.peer.Epoch), s.w.names.KV(s.peer.ID, s.peer.Epoch, e.Key.String()), storeTimeout,
				func(error) { done() })
		})
	case decode.Ack:
		s.settle(e.Delivery)
	case decode.Term:
		s.settle(e.Delivery)
	case decode.Beat:
		s.beat(e.M)
	case decode.Stop:
		s.w.stopped(s.peer, e.Err)
		s.stop(e.Err.Detail, false)
	default:
		s.compute(fx)
	}
}

// compute starts what the device does.
func (s *decodeShell) compute(fx decode.Effect) {
	switch e := fx.(type) {
	case decode.OpenFrame:
		s.job(&s.frames, func() decode.Event { return decode.OpenSealed(e) })
	case decode.CopyFrame:
		h := e.Header
		r := model.Range{LayerFrom: h.LayerFrom, LayerTo: h.LayerTo, RowFrom: h.RowFrom, RowTo: h.RowTo}
		if s.w.plant == plantLateWrite && s.w.dice.chance(0.3) {
			s.p.after(300*ms, func() { _ = s.dev.write(h.Key, e.Grant, r, e.Plain) })
		}
		s.job(&s.frames, func() decode.Event {
			err := s.dev.write(h.Key, e.Grant, r, e.Plain)
			return decode.FrameCopied{Delivery: e.Delivery, Header: h, Grant: e.Grant, Err: deviceError(err)}
		})
	case decode.Witness:
		s.job(&s.witnesses, func() decode.Event {
			row, err := s.dev.witness(e.Key, e.View, e.Tokens, e.From)
			if s.w.plant == plantBlindWitness && err == nil {
				row = -1
			}
			return decode.WitnessDone{Key: e.Key, Row: row, Err: deviceError(err)}
		})
	case decode.Step:
		s.job(&s.steps, func() decode.Event { return s.step(e) })
	case decode.Zero:
		s.job(&s.zeros, func() decode.Event {
			ids := append([]page.ID(nil), e.Pages...)
			return decode.Zeroed{Pages: ids, Err: deviceError(s.dev.zero(ids))}
		})
	}
}

// job does something on the device and tells the loop at its end.
func (s *decodeShell) job(c *crew, op func() decode.Event) {
	c.push(func(done func()) {
		if s.ended {
			done()
			return
		}
		var ev decode.Event
		s.dev.do(func() { ev = op() }, func() {
			if _, isZeroed := ev.(decode.Zeroed); !isZeroed || s.w.plant != plantLosePages {
				s.handle(ev)
			}
			done()
		})
	})
}

func deviceError(err error) kvtransfer.Error {
	if err == nil {
		return kvtransfer.Error{}
	}
	var e kvtransfer.Error
	if errors.As(err, &e) && !e.IsZero() {
		return e
	}
	return kvtransfer.Errorf(kvtransfer.DeviceFailed, "decode: engine: %v", err)
}

func (s *decodeShell) step(e decode.Step) decode.StepDone {
	work := make([]model.Work, len(e.Work))
	keys := make([]kvtransfer.Key, len(e.Work))
	for i, q := range e.Work {
		keys[i] = q.Key
		work[i] = model.Work{View: q.View, Grant: q.Grant, Tokens: q.Tokens, From: q.From, Pick: &model.Picker{}, Witness: q.Witness, Want: q.Want}
	}
	res, err := s.dev.step(keys, work)
	done := decode.StepDone{Err: deviceError(err)}
	for i, r := range res {
		q := decode.SeqResult{Key: keys[i], Token: r.Token, Finish: r.Finish, Stop: r.Stop, Held: r.Held, Mismatch: r.Mismatch}
		if s.w.plant == plantBlindWitness && q.Mismatch != "" {
			q.Mismatch = ""
			q.Token.ID = int32(s.w.dice.IntN(s.dev.info.Vocab))
		}
		done.Results = append(done.Results, q)
	}
	return done
}

func (s *decodeShell) settle(n uint64) {
	if d, ok := s.deliveries[n]; ok {
		delete(s.deliveries, n)
		_ = d.ack()
	}
}

func (s *decodeShell) answer(id uint64, kind kvtransfer.Kind, body []byte) {
	reply := s.asks[id]
	delete(s.asks, id)
	s.control.push(func(done func()) {
		_ = s.p.c.publish(bus.Msg{Subject: reply, Data: seal.Sign(s.w.keys.signer("decode"), s.peer, kind, body)})
		done()
	})
}

func (s *decodeShell) resent(e decode.Resent) {
	m := kvtransfer.Resent{Key: e.Key, Known: e.Known, Next: e.Next}
	for _, r := range e.Replies[:min(len(e.Replies), 3)] { // as much as one message holds
		sealed, err := decode.SealReply(r)
		if err != nil {
			break
		}
		m.Replies = append(m.Replies, sealed)
	}
	s.answer(e.ID, kvtransfer.KindResent, s.w.encode(&m))
}

func (s *decodeShell) sendReply(e decode.SendReply) {
	if r, err := decode.SealReply(e); err == nil {
		_ = s.p.c.publish(bus.Msg{Subject: s.w.names.Reply(e.To.ID, e.To.Epoch, e.Header.Key.String()), Data: wire.EncodeReply(r)})
	}
}

func (s *decodeShell) sendControl(e decode.Control) {
	if s.w.plant == plantMute && e.Kind == kvtransfer.KindClaimed {
		return
	}
	s.control.push(func(done func()) {
		s.p.c.enqueue(bus.Enqueue{
			Subject: s.w.names.Control(string(e.To.Role), e.To.ID, e.To.Epoch, e.Key.String()),
			Data:    seal.Sign(s.w.keys.signer("decode"), s.peer, e.Kind, s.w.encode(e.M)), Expect: s.w.names.ControlStream(),
		}, storeTimeout, func(uint64, error) { done() })
	})
}

// record gives a fact to the journal.
func (s *decodeShell) record(e decode.Journal) {
	f := e.Fact
	s.w.cov.fact(f)
	s.w.verdicts.verdict(s.peer, f)
	if !e.Must {
		s.journal.put(string(f.Kind), s.peer, f.Key)
		s.journalState()
		return
	}
	done := func(err error) {
		ev := decode.Journaled{Key: f.Key, Reservation: f.Reservation}
		if err != nil {
			ev.Err = kvtransfer.Errorf(kvtransfer.JournalDown, "%v", err)
		} else {
			s.w.verdicts.acked(s.peer, f)
		}
		s.handle(ev)
	}
	if s.w.plant == plantNoJournal {
		s.handle(decode.Journaled{Key: f.Key, Reservation: f.Reservation})
		return
	}
	s.journal.append(string(f.Kind), s.peer, f.Key, s.w.lease(), done)
}

func (s *decodeShell) journalState() {
	if full := s.journal.pending > s.journal.room/2; full != s.full {
		s.full = full
		s.handle(decode.JournalState{Full: full})
	}
}

func (s *decodeShell) beat(m kvtransfer.Heartbeat) {
	s.w.pages.beat(s.peer, m.Pages)
	s.journalState()
	_ = s.p.c.publish(bus.Msg{Subject: s.w.names.Heartbeat("decode", s.peer.ID),
		Data: seal.Sign(s.w.keys.signer("decode"), s.peer, kvtransfer.KindHeartbeat, s.w.encode(&m))})
}
