package router

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"quire/kvtransfer"
	"quire/router/openai"
	"quire/trace"
)

func (h *handler) chat(w http.ResponseWriter, r *http.Request, tenant string) {
	h.generate(w, r, tenant, openai.OpChat)
}

func (h *handler) completion(w http.ResponseWriter, r *http.Request, tenant string) {
	h.generate(w, r, tenant, openai.OpCompletion)
}

// generate answers a chat or a completion. No status is sent before the gate and the witness have let the request run, so an
// error until then has a status of its own.
func (h *handler) generate(w http.ResponseWriter, r *http.Request, tenant string, op openai.Op) {
	req, err := h.request(w, r, tenant, op)
	if err != nil {
		h.fail(w, err)
		return
	}
	st, err := h.b.Submit(r.Context(), req)
	if err != nil {
		h.fail(w, err)
		return
	}
	defer st.Close()
	w.Header().Set(openai.HeaderRequest, st.ID())
	if id := traceID(st); id != "" {
		w.Header().Set(openai.HeaderTrace, id)
	}
	if w.Header().Get("X-Request-Id") == "" {
		w.Header().Set("X-Request-Id", st.ID())
	}
	if err := started(r.Context(), st); err != nil {
		h.fail(w, err)
		return
	}
	answer := newAnswer(h.b, req.Body, st.ID())
	if req.Body.Stream {
		h.stream(w, r, st, answer)
		return
	}
	end, err := collect(r.Context(), st, answer)
	if err != nil {
		h.fail(w, err)
		return
	}
	h.send(w, http.StatusOK, answer.Whole(end))
}

// request reads and validates.
func (h *handler) request(w http.ResponseWriter, r *http.Request, tenant string, op openai.Op) (Request, error) {
	deadline, err := timeout(r.Header.Get(openai.HeaderTimeout))
	if err != nil {
		return Request{}, err
	}
	body, err := h.read(w, r)
	if err != nil {
		return Request{}, err
	}
	parsed, err := openai.Parse(op, body, h.b.Rules())
	return Request{Tenant: tenant, Label: w.Header().Get("X-Request-Id"), Deadline: deadline, Body: parsed,
		Trace: trace.FromHeader(r.Header)}, err
}

func newAnswer(b Backend, req openai.Request, id string) *openai.Answer {
	name := req.Model
	if name == "" {
		name = b.Rules().Model
	}
	return openai.NewAnswer(openai.Frame{ID: openai.AnswerID(req.Op, id), Created: time.Now().Unix(), Model: name, Piece: b.Piece}, req)
}

// started waits for the verdict.
func started(ctx context.Context, st Stream) error {
	p, err := st.Next(ctx)
	if err != nil {
		return endOf(ctx, err)
	}
	if !p.Started {
		return kvtransfer.Errorf(kvtransfer.Invariant, "router: an answer began without a verdict")
	}
	return nil
}

// endOf turns what Next may return into the error that the client is told.
func endOf(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return kvtransfer.Errorf(kvtransfer.Invariant, "router: an answer ended without its end")
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return gone(ctx)
	}
	return err
}

// collect waits for the whole answer.
func collect(ctx context.Context, st Stream, answer *openai.Answer) (kvtransfer.End, error) {
	for {
		p, err := st.Next(ctx)
		if err != nil {
			return kvtransfer.End{}, endOf(ctx, err)
		}
		answer.Keep(p.Tokens)
		if p.End != nil {
			return *p.End, nil
		}
	}
}

// next waits for the next part, at most for the time between two keep-alives; quiet says that it was nothing but that time.
func next(ctx context.Context, st Stream, keepAlive time.Duration) (p Part, quiet bool, err error) {
	wait, cancel := context.WithTimeout(ctx, keepAlive)
	defer cancel()
	p, err = st.Next(wait)
	if err == nil {
		return p, false, nil
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return Part{}, true, nil
	}
	return Part{}, false, endOf(ctx, err)
}
