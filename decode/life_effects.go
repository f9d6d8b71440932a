package decode

import (
	"context"
	"errors"
	"time"

	"quire/bus"
	"quire/journal"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
	"quire/model"
)

// How a life performs effects. Whatever may wait runs on a goroutine of its own kind, in order: acknowledgements, replies
// and answers, control messages and purges, frames (on several), steps, witnesses, zeroing.

func (l *life) perform(e Effect) {
	switch e := e.(type) {
	case Reserved:
		l.checkZero(e.M)
		l.tracks.reserved(e.ID, e.M)
		l.answer(e.ID, kvtransfer.KindReservation, e.Body)
	case Refused:
		l.tracks.refused(e.ID)
		l.answerWith(e.ID, kvtransfer.KindRefused, &e.M)
	case Resent:
		l.resent(e)
	case Control:
		l.control.push(func() { l.sendControl(e) })
	case SendReply:
		l.outbox.push(func() { l.sendReply(e) })
	case OpenFrame:
		l.frames.push(func() { l.openFrame(e) })
	case CopyFrame:
		l.frames.push(func() { l.copyFrame(e) })
	case Journal:
		l.record(e)
	case Tape:
		l.tape(e)
	case Witness:
		l.witnesses.push(func() {
			row, err := l.cfg.Engine.WitnessRows(e.View, e.Tokens, e.From)
			l.post(WitnessDone{Key: e.Key, Row: row, Err: device(err)})
		})
	case Step:
		l.steps.push(func() { l.post(l.step(e)) })
	case Forget:
		l.mu.Lock()
		delete(l.pickers, e.Key)
		l.mu.Unlock()
	case Zero:
		l.zeros.push(func() { l.post(Zeroed{Pages: e.Pages, Err: device(l.zero(e.Pages))}) })
	case PurgeKV:
		l.control.push(func() { l.purge(e.Key) })
	case Ack:
		l.settle(e.Delivery, func(d bus.Delivery) error { return d.Ack() })
	case Term:
		l.settle(e.Delivery, func(d bus.Delivery) error { return d.Term() })
	case Beat:
		l.beat(e.M)
	case Stop:
		l.stop(e.Err)
	}
}

// device makes the engine's error one that travels.
func device(err error) kvtransfer.Error {
	var e kvtransfer.Error
	switch {
	case err == nil:
		return e
	case errors.As(err, &e) && !e.IsZero():
		return e
	}
	return kvtransfer.Errorf(kvtransfer.DeviceFailed, "decode: engine: %v", err)
}

func (l *life) settle(n uint64, how func(bus.Delivery) error) {
	if d, ok := l.deliveries[n]; ok {
		delete(l.deliveries, n)
		l.acks.push(func() { l.warn("acknowledgement", how(d)) })
	}
}

// answer signs and sends the answer to a request.
func (l *life) answer(id uint64, kind kvtransfer.Kind, body []byte) {
	reply := l.asks[id]
	delete(l.asks, id)
	l.outbox.push(func() {
		l.warn("answer", l.cfg.Bus.Publish(reply, nil, seal.Sign(l.s.signer, l.peer, kind, body)))
	})
}

func (l *life) answerWith(id uint64, kind kvtransfer.Kind, m any) {
	body, err := wire.Encode(m)
	if err != nil {
		delete(l.asks, id)
		l.warn("answer", err)
		return
	}
	l.answer(id, kind, body)
}

// resent seals again what the router has not got, as much as one message holds.
func (l *life) resent(e Resent) {
	m := kvtransfer.Resent{Key: e.Key, Known: e.Known, Next: e.Next}
	room := l.cfg.Bus.Limits().MaxPayload / 2
	for _, r := range e.Replies {
		sealed, err := SealReply(r)
		if err != nil {
			l.warn("reply", err)
			break
		}
		if room -= len(sealed.Sealed) + wire.MaxHeader; room < 0 && len(m.Replies) > 0 {
			break
		}
		m.Replies = append(m.Replies, sealed)
	}
	l.answerWith(e.ID, kvtransfer.KindResent, &m)
}

// SealReply does what SendReply asks for. The same effect gives the same bytes.
func SealReply(e SendReply) (kvtransfer.Reply, error) {
	body, err := wire.Encode(&e.Body)
	if err != nil {
		return kvtransfer.Reply{}, err
	}
	return kvtransfer.Reply{Header: e.Header, Sealed: seal.SealReply(e.ReplyKey, e.Header, body)}, nil
}

// sendReply publishes a reply. One that does not arrive is asked for again.
func (l *life) sendReply(e SendReply) {
	r, err := SealReply(e)
	if err == nil {
		err = l.cfg.Bus.Publish(l.cfg.Names.Reply(e.To.ID, e.To.Epoch, e.Header.Key.String()), nil, wire.EncodeReply(r))
	}
	if !errors.Is(err, bus.ErrDown) { // told once, by the connection
		l.warn("reply", err)
	}
}

// sendControl signs and stores a control message. One that is lost is covered by leases.
func (l *life) sendControl(e Control) {
	body, err := wire.Encode(e.M)
	if err == nil {
		ctx, cancel := context.WithTimeout(l.ctx, storeTimeout)
		defer cancel()
		n := l.cfg.Names
		_, err = l.cfg.Bus.Enqueue(ctx, bus.Enqueue{
			Subject: n.Control(string(e.To.Role), e.To.ID, e.To.Epoch, e.Key.String()),
			Data:    seal.Sign(l.s.signer, l.peer, e.Kind, body), Expect: n.ControlStream(),
		})
	}
	l.warn("control message", err)
}

func (l *life) purge(k kvtransfer.Key) {
	ctx, cancel := context.WithTimeout(l.ctx, storeTimeout)
	defer cancel()
	n := l.cfg.Names
	l.warn("purge", l.cfg.KV.Streams().Purge(ctx, n.KVStream(l.peer.ID, l.peer.Epoch), n.KV(l.peer.ID, l.peer.Epoch, k.String())))
}

// openFrame opens a frame in scratch: nothing else changes when it does not open.
func (l *life) openFrame(e OpenFrame) {
	scratch, _ := l.scratch.Get().(*[]byte)
	if scratch == nil {
		scratch = new([]byte)
	}
	l.post(openSealed(e, *scratch))
}

func (l *life) copyFrame(e CopyFrame) {
	h := e.Header
	r := model.Range{LayerFrom: h.LayerFrom, LayerTo: h.LayerTo, RowFrom: h.RowFrom, RowTo: h.RowTo}
	err := device(l.cfg.Engine.Write(e.Grant, r, e.Plain))
	l.scratch.Put(&e.Plain) // nothing else has it
	l.post(FrameCopied{Delivery: e.Delivery, Header: h, Grant: e.Grant, Err: err})
}

// step runs one batch. A sequence's picker is made at its first step, which is its witness.
func (l *life) step(e Step) StepDone {
	work := make([]model.Work, len(e.Work))
	for i, w := range e.Work {
		work[i] = model.Work{
			View: w.View, Grant: w.Grant, Tokens: w.Tokens, From: w.From, Pick: l.picker(w), Witness: w.Witness, Want: w.Want,
		}
	}
	res, err := l.cfg.Engine.Step(work)
	if err != nil {
		return StepDone{Err: device(err)}
	}
	done := StepDone{Results: make([]SeqResult, len(res))}
	for i, r := range res {
		if e.Work[i].Last && r.Finish == "" && work[i].Pick != nil && l.cfg.Tokenizer != nil {
			r.Held = work[i].Pick.Flush()
		}
		done.Results[i] = SeqResult{
			Key: e.Work[i].Key, Token: r.Token, Finish: r.Finish, Stop: r.Stop, Held: r.Held, Mismatch: r.Mismatch,
		}
	}
	return done
}

func (l *life) picker(w SeqWork) *model.Picker {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.Start == nil {
		if p, ok := l.pickers[w.Key]; ok {
			return p
		}
		return l.newPicker(Picking{}) // forgotten while the step waited: its result is dropped
	}
	p := l.newPicker(*w.Start)
	l.watch(w.Key, p)
	l.pickers[w.Key] = p
	return p
}

func (l *life) newPicker(s Picking) *model.Picker {
	if l.cfg.NewPicker != nil {
		return l.cfg.NewPicker(s)
	}
	return model.NewPicker(s.Sampling, l.cfg.Tokenizer, s.Prompt, s.Output)
}

// record gives a fact to the journal: with Must it waits, on a goroutine of its own, until the journal has acknowledged it.
func (l *life) record(e Journal) {
	r := e.Fact.record(l.now())
	if f := e.Fact; f.Kind == FactFinished {
		l.cfg.Log.Debug("hand-off over", "handoff", f.Key.String(), "trace", l.tracks.traceOf(f.Key), "prompt", f.N, "output", f.Output, "code", string(f.Error.Code))
	}
	l.tracks.fact(e.Fact, r.At)
	if !e.Must {
		if err := l.journal.Put(r); !errors.Is(err, journal.ErrFull) { // what is turned away is counted, and told when it begins
			l.warn("journal", err)
		}
		l.journalState()
		return
	}
	l.wg.Go(func() {
		ctx, cancel := context.WithTimeout(l.ctx, time.Duration(l.cfg.Lease)*time.Microsecond)
		defer cancel()
		ev := Journaled{Key: e.Fact.Key, Reservation: e.Fact.Reservation}
		if err := l.journal.Append(ctx, r); err != nil {
			ev.Err = kvtransfer.Errorf(kvtransfer.JournalDown, "%v", err)
		}
		l.post(ev)
	})
}

// journalState tells the loop when half of the journal's buffer is taken, so that the other half is left for the facts of
// what is running.
func (l *life) journalState() {
	buffer := l.cfg.JournalBuffer
	if buffer == 0 {
		buffer = 1024
	}
	full := l.journal.Stats().Pending > buffer/2
	if full != l.full {
		l.full = full
		for _, e := range l.loop.Handle(JournalState{Full: full}) {
			l.perform(e)
		}
	}
}

// onJournal logs when facts are not taken, and when they are again.
func (l *life) onJournal(err error) {
	if err != nil {
		l.cfg.Log.Warn("decode: journal does not take facts", "error", err)
		return
	}
	l.cfg.Log.Info("decode: journal takes facts again")
}

// beat publishes a heartbeat. One that does not go out is silence, which is what it means.
func (l *life) beat(m kvtransfer.Heartbeat) {
	l.journalState()
	m.Refused.Unsigned = l.unsigned.Load()
	l.snap.Store(&Snapshot{Peer: l.peer, Heartbeat: m, Counters: l.loop.Counters(), Unsigned: l.unsigned.Load(), Journal: l.journal.Stats()})
	body, err := wire.Encode(&m)
	if err != nil {
		l.stop(err)
		return
	}
	_ = l.cfg.Bus.Publish(l.cfg.Names.Heartbeat(string(kvtransfer.RoleDecode), l.peer.ID), nil, seal.Sign(l.s.signer, l.peer, kvtransfer.KindHeartbeat, body))
}
