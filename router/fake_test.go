package router

import (
	"context"
	"io"
	"strings"
	"sync"

	"quire/kvtransfer"
	"quire/router/openai"
)

// fakeBackend answers every request with what its script says, and remembers what it was asked.
type fakeBackend struct {
	mu       sync.Mutex
	script   func(r Request) ([]step, error) // what Submit does
	requests []Request
	closed   chan string // ids of streams that were closed before their end
	health   Health
	cancel   func(tenant, id string) error
}

// step is one thing that a fake stream does: a part, an error, or waiting until the reader has gone.
type step struct {
	part    Part
	err     error
	wait    <-chan struct{}
	reached chan<- struct{} // told when the reader waits here, if not nil
}

func newFake(script func(Request) ([]step, error)) *fakeBackend {
	return &fakeBackend{script: script, closed: make(chan string, 16)}
}

// said is a good answer in so many pieces.
func said(texts ...string) func(Request) ([]step, error) {
	return func(Request) ([]step, error) {
		steps := []step{{part: Part{Started: true}}}
		for i, s := range texts {
			steps = append(steps, step{part: Part{Tokens: []kvtransfer.Token{{ID: int32(i), Text: []byte(s), Logprob: -1}}}})
		}
		end := kvtransfer.End{Finish: kvtransfer.FinishStop, Prompt: 3, Output: len(texts)}
		return append(steps, step{part: Part{End: &end}}), nil
	}
}

func (f *fakeBackend) Submit(_ context.Context, r Request) (Stream, error) {
	f.mu.Lock()
	f.requests = append(f.requests, r)
	f.mu.Unlock()
	steps, err := f.script(r)
	if err != nil {
		return nil, err
	}
	return &fakeStream{f: f, steps: steps}, nil
}

// last is the newest request.
func (f *fakeBackend) last() Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests[len(f.requests)-1]
}

type fakeStream struct {
	f     *fakeBackend
	steps []step
	ended bool
}

const fakeID = "r-7-000102030405060708090a0b0c0d0e0f"

func (s *fakeStream) ID() string { return fakeID }

func (s *fakeStream) Next(ctx context.Context) (Part, error) {
	for len(s.steps) > 0 {
		next := s.steps[0]
		if next.wait != nil {
			if next.reached != nil {
				next.reached <- struct{}{}
			}
			select {
			case <-next.wait:
				s.steps = s.steps[1:]
				continue
			case <-ctx.Done():
				return Part{}, ctx.Err()
			}
		}
		s.steps = s.steps[1:]
		s.ended = next.err != nil || next.part.End != nil
		return next.part, next.err
	}
	return Part{}, io.EOF
}

func (s *fakeStream) Close() {
	if !s.ended {
		s.f.closed <- s.ID()
	}
}

func (f *fakeBackend) Cancel(_ context.Context, tenant, id string) error { return f.cancel(tenant, id) }

func (f *fakeBackend) Status(_ context.Context, tenant, id string) (Status, error) {
	if err := f.cancel(tenant, id); err != nil {
		return Status{}, err
	}
	return Status{ID: id, State: "running", Prompt: 3, Output: 1, Attempts: 1}, nil
}

func (f *fakeBackend) Tokenize(r openai.TokenizeRequest) (openai.Tokenized, error) {
	n := len(strings.Fields(r.Prompt))
	return openai.Tokenized{Tokens: make([]int32, n), Count: n, MaxModelLen: 64}, nil
}

func (f *fakeBackend) Detokenize(ids []int32) (string, error) {
	return strings.Repeat("x", len(ids)), nil
}

func (f *fakeBackend) Model() openai.Model {
	return openai.Model{ID: "org/m", Object: "model", OwnedBy: "quire", MaxModelLen: 64, VocabSize: 100}
}

func (f *fakeBackend) Rules() openai.Rules { return openai.Rules{Model: "org/m", Vocab: 100} }
func (f *fakeBackend) Piece(int32) []byte  { return []byte("p") }
func (f *fakeBackend) Health() Health      { return f.health }
