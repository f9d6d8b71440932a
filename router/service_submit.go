package router

import (
	"context"
	"fmt"
	"time"

	"quire/kvtransfer"
	"quire/kvtransfer/wire"
	"quire/router/openai"
	"quire/trace"
)

// Submit implements Backend.
func (s *Service) Submit(ctx context.Context, r Request) (Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, gone(ctx)
	}
	if err := checkTenant(r.Tenant); err != nil {
		return nil, err
	}
	span := s.tracks.begin(r, s.cfg.Served.Name)
	tokens, err := s.tokens(r.Body)
	if err != nil {
		span.Fail(err.Error())
		span.End()
		return nil, err
	}
	t := s.newStream(span)
	ok := s.post(Submitted{
		Ref: t.ref, Tenant: r.Tenant, Tokens: tokens, MaxTokens: r.Body.MaxTokens, Sampling: r.Body.Sampling,
		SeedSet: r.Body.SeedSet, Deadline: kvtransfer.Tick(r.Deadline.Microseconds()),
	})
	if !ok {
		s.dropStream(t.ref)
		span.End()
		return nil, kvtransfer.Errorf(kvtransfer.Draining, "router: stopped")
	}
	stop := context.AfterFunc(ctx, func() { s.post(ClientGone{Ref: t.ref}) })
	t.mu.Lock()
	t.stop = stop
	t.mu.Unlock()
	if err := t.admitted(ctx); err != nil {
		stop()
		return nil, err
	}
	return t, nil
}

// checkTenant refuses names that cannot stand in a subject or a journal record.
func checkTenant(name string) error {
	for i := range len(name) {
		if c := name[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
			return kvtransfer.Errorf(kvtransfer.NotAllowed, "router: tenant %s: want 1 to %d characters of a-z, 0-9 and -", clipText(name), wire.MaxSlug)
		}
	}
	if name == "" || len(name) > wire.MaxSlug {
		return kvtransfer.Errorf(kvtransfer.NotAllowed, "router: tenant %s: %d characters, want 1 to %d", clipText(name), len(name), wire.MaxSlug)
	}
	return nil
}

// tokens gives the prompt's ids: this is where they are made, once.
func (s *Service) tokens(r openai.Request) ([]int32, error) {
	switch {
	case r.Op == openai.OpChat:
		return s.cfg.Text.Chat(r.Messages, openai.ChatOptions{GenerationPrompt: true, Thinking: r.Thinking})
	case r.PromptTokens != nil:
		return r.PromptTokens, nil
	}
	return s.cfg.Text.Encode(r.Prompt, true), nil
}

func (s *Service) newStream(span *trace.Span) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastRef++
	t := newStream(s, s.lastRef)
	t.span = span
	s.streams[t.ref] = t
	return t
}

func (s *Service) stream(ref uint64) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[ref]
}

func (s *Service) dropStream(ref uint64) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.streams[ref]
	delete(s.streams, ref)
	return t
}

// Tokenize implements Backend.
func (s *Service) Tokenize(r openai.TokenizeRequest) (openai.Tokenized, error) {
	var ids []int32
	if r.Messages != nil {
		var err error
		if ids, err = s.cfg.Text.Chat(r.Messages, r.Chat); err != nil {
			return openai.Tokenized{}, err
		}
	} else {
		ids = s.cfg.Text.Encode(r.Prompt, r.AddSpecialTokens)
	}
	if ids == nil {
		ids = []int32{}
	}
	out := openai.Tokenized{Tokens: ids, Count: len(ids), MaxModelLen: s.Stats().Limit.Tokens}
	if r.ReturnTokenString {
		for _, id := range ids {
			out.TokenStrs = append(out.TokenStrs, string(s.cfg.Text.Piece(id)))
		}
	}
	return out, nil
}

// Detokenize implements Backend.
func (s *Service) Detokenize(ids []int32) (string, error) { return s.cfg.Text.Decode(ids), nil }

// Model implements Backend.
func (s *Service) Model() openai.Model {
	st := s.Stats()
	return openai.Model{
		ID: s.cfg.Served.Name, Object: "model", Created: s.created.Unix(), OwnedBy: "quire", MaxModelLen: st.Limit.Tokens,
		LimitedBy: st.Limit.By, VocabSize: s.cfg.Text.Vocab(), ContextLength: s.cfg.Served.Context,
	}
}

// Health implements Backend.
func (s *Service) Health() Health {
	var h Health
	if s.cfg.JournalOff {
		h.Off = "journal"
	}
	now := time.Since(s.start)
	st := s.Stats()
	if idle := now - time.Duration(s.turned.Load()); idle > loopStuck {
		h.Stuck = fmt.Sprintf("the router's loop has not turned for %d ms", idle.Milliseconds())
	}
	if err := s.Err(); err != nil {
		h.Stuck = err.Error()
	}
	if quiet := now - time.Duration(s.progress.Load()); quiet > s.cfg.StuckAfter && st.Prefilling+st.Running > 0 {
		h.Stuck = fmt.Sprintf("%d requests run and nothing has happened to any for %d s", st.Prefilling+st.Running, int(quiet.Seconds()))
	}
	switch st.Missing.Code {
	case kvtransfer.OK:
	case kvtransfer.BusDown:
		h.Missing = append(h.Missing, "bus")
	case kvtransfer.NoPrefill:
		h.Missing = append(h.Missing, "prefill")
		if st.Decodes == 0 {
			h.Missing = append(h.Missing, "decode")
		}
	case kvtransfer.NoDecode:
		h.Missing = append(h.Missing, "decode")
	default:
		h.Missing = append(h.Missing, st.Missing.Detail)
	}
	if s.journal.Stats().Failing != nil {
		h.Missing = append(h.Missing, "journal")
	}
	if st.Draining {
		h.Missing = append(h.Missing, "draining")
	}
	return h
}
