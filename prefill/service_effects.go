package prefill

import (
	"context"
	"errors"
	"fmt"

	"quire/bus"
	"quire/kvtransfer"
	"quire/kvtransfer/wire"
	"quire/model"
	"quire/trace"
)

// How the service performs effects. Whatever may wait runs on a goroutine of its own kind, in order: control messages and
// acknowledgements, frames and manifests (on several), steps, zeroing.

// work starts the goroutines. Each ends when its queue is closed.
func (s *Service) work() {
	for _, q := range []*queue[func()]{&s.control, &s.steps, &s.zeros} {
		s.wg.Go(func() { q.run() })
	}
	for range senders {
		s.wg.Go(func() { s.frames.run() })
	}
}

func (s *Service) perform(fx Effect) {
	switch fx := fx.(type) {
	case PullJob:
		want := s.want
		if fx.Direct {
			want = s.wantDirect
		}
		select {
		case want <- struct{}{}:
		default: // the one asked for before came without its signal: that one still stands
		}
	case AckJob:
		if d, ok := s.jobs[fx.Delivery]; ok {
			delete(s.jobs, fx.Delivery)
			s.control.push(func() { s.warn("job ack", d.Ack()) })
		}
	case SendClaim:
		s.tracks.claiming(fx.Msg.Key)
		s.sendControl(fx.To, kvtransfer.KindClaim, fx.Msg.Key, &fx.Msg)
	case SendProgress:
		s.sendControl(fx.To, kvtransfer.KindProgress, fx.Msg.Key, &fx.Msg)
	case SendAbort:
		s.sendControl(fx.To, kvtransfer.KindAbort, fx.Msg.Key, &fx.Msg)
	case Compute:
		s.steps.push(func() { s.compute(fx) })
	case SealAndSend:
		s.tracks.sending(fx.Header.Key)
		of := s.tracks.of(fx.Header.Key)
		s.frames.push(func() { s.sendFrame(fx, of) })
	case SendManifest:
		of := s.tracks.of(fx.Msg.Key)
		s.frames.push(func() { s.sendManifest(fx, of) })
	case Zero:
		s.zeros.push(func() { s.post(Zeroed{Pages: fx.Pages, Err: s.cfg.Engine.Zero(fx.Pages)}) })
	case Ended:
		s.logEnd(fx)
		s.tracks.ended(fx)
		s.record(sent(fx))
	case Freed:
		s.record(zeroed(fx))
	case Drained:
		close(s.drained)
	case Halt:
		s.beat() // routers hear that it takes no more
		s.wg.Go(func() { s.leave(fx.Error) })
	}
}

// logEnd writes one line for each hand-off: no prompt, no ids of tokens.
func (s *Service) logEnd(fx Ended) {
	args := []any{"handoff", fx.Key.String(), "trace", s.tracks.of(fx.Key).TraceID(), "state", fx.State.String(), "rows", fx.Rows, "frames", fx.Frames,
		"ms", int64(fx.Took / kvtransfer.Millisecond)}
	if fx.Error.IsZero() {
		s.cfg.Log.Debug("hand-off sent", args...)
		return
	}
	s.cfg.Log.Warn("hand-off ended", append(args, "code", string(fx.Error.Code), "error", fx.Error.Detail)...)
}

// sendControl signs and stores a control message. It has no message id: a claim is sent again as it is. One that is lost is
// covered by decode's lease.
func (s *Service) sendControl(to kvtransfer.Peer, kind kvtransfer.Kind, k kvtransfer.Key, m any) {
	of := s.tracks.of(k)
	s.control.push(func() {
		body, err := wire.Encode(m)
		if err == nil {
			data := s.sign(kind, body)
			err = s.store(bus.Enqueue{Subject: s.cfg.Names.Control(string(to.Role), to.ID, to.Epoch, k.String()),
				Data: data, Header: s.header(of, len(data)), Expect: s.cfg.Names.ControlStream()})
		}
		s.warn("control message", err)
	})
}

// compute runs one step.
func (s *Service) compute(fx Compute) {
	done := ChunkDone{Step: fx.Step}
	var results []model.Result
	if results, done.Err = s.cfg.Engine.Step(fx.Work); done.Err == nil {
		done.Hidden = make([][]float32, len(results))
		for i, r := range results {
			done.Hidden[i] = r.Hidden
		}
	}
	s.post(done)
}

// sendFrame reads a frame's rows, seals and stores them.
func (s *Service) sendFrame(fx SealAndSend, of trace.Context) {
	h := fx.Header
	scratch, _ := s.scratch.Get().(*[]byte)
	if scratch == nil {
		scratch = new([]byte)
	}
	start := wire.StartFrame((*scratch)[:0], h)
	data, err := s.cfg.Engine.Read(fx.View, model.Range{LayerFrom: h.LayerFrom, LayerTo: h.LayerTo, RowFrom: h.RowFrom, RowTo: h.RowTo}, start)
	if err != nil {
		s.post(FrameFailed{Frame: fx.Frame, Error: kvtransfer.Errorf(kvtransfer.DeviceFailed, "prefill: read frame %d: %v", h.Index, err)})
		return
	}
	data, tag := sealFrameIn(fx, data, len(start))
	s.post(FrameSealed{Frame: fx.Frame})
	err = s.storeKV(fx.To, s.toKV(fx.To, h.Key, fx.MsgID, data, of))
	*scratch = data // the bus has copied it
	s.scratch.Put(scratch)
	switch {
	case err == nil:
		s.post(FrameStored{Frame: fx.Frame, Tag: tag})
	case errors.Is(err, bus.ErrTooLarge):
		s.post(FrameFailed{Frame: fx.Frame, Sealed: true,
			Error: kvtransfer.Errorf(kvtransfer.BusFailed, "prefill: frame %d of %d bytes: %v", h.Index, len(data), err)})
	default:
		s.post(FrameFull{Frame: fx.Frame})
	}
}

// sendManifest signs and stores a manifest.
func (s *Service) sendManifest(fx SendManifest, of trace.Context) {
	k, c := fx.Msg.Key, fx.Msg.Claim
	body, err := wire.Encode(&fx.Msg)
	if err != nil {
		s.post(ManifestFailed{Key: k, Claim: c, Error: kvtransfer.Errorf(kvtransfer.PrefillFailed, "prefill: manifest: %v", err)})
		return
	}
	err = s.storeKV(fx.To, s.toKV(fx.To, k, fx.MsgID, s.sign(kvtransfer.KindManifest, body), of))
	switch {
	case err == nil:
		s.post(ManifestStored{Key: k, Claim: c})
	case errors.Is(err, bus.ErrTooLarge):
		s.post(ManifestFailed{Key: k, Claim: c, Error: kvtransfer.Errorf(kvtransfer.BusFailed, "prefill: manifest: %v", err)})
	default:
		s.post(ManifestFull{Key: k, Claim: c})
	}
}

func (s *Service) toKV(to kvtransfer.Peer, k kvtransfer.Key, id string, data []byte, of trace.Context) bus.Enqueue {
	return bus.Enqueue{Subject: s.cfg.Names.KV(to.ID, to.Epoch, k.String()), ID: id, Data: data, Header: s.header(of, len(data)), Expect: s.cfg.Names.KVStream(to.ID, to.Epoch)}
}

// store publishes to a stream. A message that the stream has already, under the same id, is stored: equal ids here mean equal
// bytes.
func (s *Service) store(m bus.Enqueue) error {
	ctx, cancel := context.WithTimeout(s.ctx, storeTimeout)
	defer cancel()
	return stored(s.cfg.Bus.Enqueue(ctx, m))
}

func stored(_ uint64, err error) error {
	if errors.Is(err, bus.ErrDuplicate) {
		return nil
	}
	return err
}

// storeKV publishes to a decode's KV stream: straight to the server that has it where there is a connection, else through the
// bus, and through the bus too what failed on that connection.
func (s *Service) storeKV(to kvtransfer.Peer, m bus.Enqueue) error {
	if b := s.direct.to(to); b != nil {
		ctx, cancel := context.WithTimeout(s.ctx, directWait)
		defer cancel()
		err := stored(b.Enqueue(ctx, m))
		if err == nil || errors.Is(err, bus.ErrFull) || errors.Is(err, bus.ErrTooLarge) {
			return err
		}
	}
	return s.store(m)
}

// warn logs what the protocol mends by itself.
func (s *Service) warn(what string, err error) {
	if err != nil && s.ctx.Err() == nil {
		s.cfg.Log.Warn(fmt.Sprintf("prefill: %s", what), "error", err)
	}
}
