package router

import (
	"context"
	"io"
	"sync"

	"quire/kvtransfer"
	"quire/trace"
)

// stream is the way of one answer from the loop to its door. The loop never waits for it: it holds at most max_tokens tokens,
// which admission bounds.
type stream struct {
	s    *Service
	ref  uint64
	span *trace.Span // of the whole request; the loop's goroutine ends it
	stop func() bool // ends the watch on the client's context

	mu       sync.Mutex
	id       string
	accepted bool
	parts    []Part
	err      error // the terminal, when it is an error
	ended    bool  // nothing is added any more
	wake     chan struct{}
}

func newStream(s *Service, ref uint64) *stream {
	return &stream{s: s, ref: ref, wake: make(chan struct{}, 1)}
}

// ID implements Stream.
func (t *stream) ID() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.id
}

// TraceID is the trace of the request: 32 hexadecimal digits.
func (t *stream) TraceID() string { return t.span.Context().TraceID() }

// traceID is the trace of an answer's request, where its backend has one.
func traceID(st Stream) string {
	if t, ok := st.(interface{ TraceID() string }); ok {
		return t.TraceID()
	}
	return ""
}

func (t *stream) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *stream) accept(id string) {
	t.mu.Lock()
	t.id, t.accepted = id, true
	t.mu.Unlock()
	t.signal()
}

func (t *stream) add(p Part) {
	t.mu.Lock()
	if !t.ended {
		t.parts = append(t.parts, p)
		t.ended = p.End != nil
	}
	t.mu.Unlock()
	t.signal()
}

// fail ends the stream with an error, behind the parts that are there.
func (t *stream) fail(err error) {
	t.mu.Lock()
	if !t.ended {
		t.ended, t.err = true, err
	}
	t.mu.Unlock()
	t.signal()
}

// admitted waits until the loop has said yes or no.
func (t *stream) admitted(ctx context.Context) error {
	for {
		t.mu.Lock()
		accepted, ended, err := t.accepted, t.ended, t.err
		t.mu.Unlock()
		if accepted {
			return nil
		}
		if ended {
			return err
		}
		select {
		case <-t.wake:
		case <-t.s.ctx.Done():
			return kvtransfer.Errorf(kvtransfer.Draining, "router: stopped")
		case <-ctx.Done():
			return gone(ctx)
		}
	}
}

// Next implements Stream. Tokens that wait are given together.
func (t *stream) Next(ctx context.Context) (Part, error) {
	for {
		p, err, ok := t.take()
		if ok {
			return p, err
		}
		select {
		case <-t.wake:
		case <-ctx.Done():
			return Part{}, ctx.Err()
		}
	}
}

func (t *stream) take() (p Part, err error, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.parts) > 0 {
		p = t.parts[0]
		t.parts = t.parts[1:]
		for len(t.parts) > 0 && !p.Started && p.End == nil && t.parts[0].End == nil {
			p.Tokens = append(p.Tokens, t.parts[0].Tokens...)
			t.parts = t.parts[1:]
		}
		return p, nil, true
	}
	if !t.ended {
		return Part{}, nil, false
	}
	if err = t.err; err == nil {
		err = io.EOF
	}
	t.err = nil
	return Part{}, err, true
}

// Close implements Stream.
func (t *stream) Close() {
	t.mu.Lock()
	ended, stop := t.ended, t.stop
	t.mu.Unlock()
	if stop != nil {
		stop()
	}
	if !ended {
		t.s.post(ClientGone{Ref: t.ref})
	}
}

// gone is the error of a client that does not wait any more.
func gone(ctx context.Context) error {
	return kvtransfer.Errorf(kvtransfer.ClientGone, "router: the client is gone: %v", ctx.Err())
}

// Rejected is an error with the time after which to try again.
type Rejected struct {
	Cause      kvtransfer.Error
	RetryAfter kvtransfer.Tick // 0 = unknown
}

// Error implements error.
func (r Rejected) Error() string { return r.Cause.Error() }

// Unwrap gives the error itself, for errors.As.
func (r Rejected) Unwrap() error { return r.Cause }
