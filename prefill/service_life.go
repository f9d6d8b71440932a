package prefill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"quire/kvtransfer"
)

// What the owner of a service sees of it, and how it ends.

// Stats tells about the worker as of the last heartbeat.
func (s *Service) Stats() Snapshot { return *s.snap.Load() }

// Peer is this life of this worker.
func (s *Service) Peer() kvtransfer.Peer { return s.peer }

// Done is closed when the worker has stopped; Err says why. It stops by itself when an invariant broke, the device failed for
// good, or a younger process has its name.
func (s *Service) Done() <-chan struct{} { return s.ctx.Done() }

// Err is why the worker stopped, nil while it runs and after Close.
func (s *Service) Err() error {
	if err := context.Cause(s.ctx); err != nil && !errors.Is(err, errClosed) {
		return err
	}
	return nil
}

// Drain takes no more jobs and waits until the running hand-offs have ended and every page is free. When ctx ends first, it
// aborts those that are open, so that their decodes need not wait for a lease.
func (s *Service) Drain(ctx context.Context) error {
	err := errors.Join(s.subs[0].Drain(), s.subs[1].Drain())
	s.post(Drain{})
	select {
	case <-s.drained:
		return err
	case <-s.ctx.Done():
		return s.Err()
	case <-ctx.Done():
	}
	running, flushed := s.Stats().Figures.Running, make(chan struct{})
	s.postInput(input{ev: Abandon{}, flushed: flushed})
	select {
	case <-flushed:
	case <-time.After(abandonWait):
	}
	return fmt.Errorf("prefill: drain: %d hand-offs aborted: %w", running, ctx.Err())
}

// Close stops at once. What was open is Lost to its decodes. A second call does nothing.
func (s *Service) Close() error {
	s.cancel(errClosed)
	for _, q := range []*queue[func()]{&s.control, &s.frames, &s.steps, &s.zeros} {
		q.close()
	}
	var errs []error
	for _, sub := range s.subs {
		errs = append(errs, sub.Drain())
	}
	if s.unwatch != nil {
		s.unwatch()
	}
	s.wg.Wait()
	s.direct.close()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := s.journal.Close(ctx); err != nil {
		s.cfg.Log.Warn("prefill: journal", "error", err)
	}
	return errors.Join(errs...)
}

// leave stops the worker once no more jobs come and decodes know that what they wait for will not.
func (s *Service) leave(why error) {
	flushed := make(chan struct{})
	go func() {
		select {
		case <-s.joined:
		case <-s.ctx.Done():
			return
		}
		for _, sub := range s.subs[:2] {
			s.warn("drain", sub.Drain())
		}
		s.control.push(func() { close(flushed) })
	}()
	select {
	case <-flushed:
	case <-time.After(leaveWait):
	case <-s.ctx.Done():
	}
	s.stop(why)
}

// quiet says whether the worker is silent, and tells when that changes.
func (s *Service) quiet(now bool) bool {
	if now != s.silent {
		s.silent = now
		if now {
			s.cfg.Log.Error("prefill: the device does not answer: no heartbeat until it does", "id", s.cfg.ID, "epoch", s.peer.Epoch)
		} else {
			s.cfg.Log.Info("prefill: the device answers again", "id", s.cfg.ID, "epoch", s.peer.Epoch)
		}
	}
	return now
}

var errClosed = errors.New("prefill: closed")

// stop ends the worker for a reason.
func (s *Service) stop(err error) {
	s.cfg.Log.Error("prefill stops", "id", s.cfg.ID, "epoch", s.peer.Epoch, "error", err)
	s.cancel(err)
}
