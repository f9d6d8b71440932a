package router

import (
	"net/http"
	"time"

	"quire/kvtransfer"
	"quire/router/openai"
)

// events writes server-sent events.
type events struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

// openEvents sends the status and the headers.
func openEvents(w http.ResponseWriter) events {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("X-Accel-Buffering", "no") // or a proxy would keep the tokens to itself
	w.WriteHeader(http.StatusOK)
	return events{w, http.NewResponseController(w)}
}

// write sends lines and flushes them. A client that does not read for writeTimeout is gone.
func (e events) write(parts ...[]byte) error {
	_ = e.rc.SetWriteDeadline(time.Now().Add(writeTimeout)) // a test's recorder cannot
	for _, p := range parts {
		if _, err := e.w.Write(p); err != nil {
			return err
		}
	}
	return e.rc.Flush()
}

// data sends one event for each body.
func (e events) data(bodies ...[]byte) error {
	parts := make([][]byte, 0, 3*len(bodies))
	for _, b := range bodies {
		parts = append(parts, []byte("data: "), b, []byte("\n\n"))
	}
	return e.write(parts...)
}

// stream sends an answer as it comes. After an error there is no [DONE]: its absence is how clients know.
func (h *handler) stream(w http.ResponseWriter, r *http.Request, st Stream, answer *openai.Answer) {
	out := openEvents(w)
	if out.data(answer.Open()...) != nil {
		return
	}
	for {
		p, quiet, err := next(r.Context(), st, h.cfg.KeepAlive)
		if err != nil {
			e, _ := AsError(err)
			if kvtransfer.Lookup(e.Code).Class != kvtransfer.ClassRefused { // not cancelled, gone or late: something broke
				h.cfg.Log.Warn("stream ends with an error", "request", st.ID(), "code", string(e.Code), "detail", e.Detail)
			}
			_ = out.data(openai.EncodeError(e)) // the answer is over either way
			return
		}
		switch {
		case quiet:
			err = out.write([]byte(": ping\n\n"))
		case p.End != nil:
			if out.data(answer.Tokens(p.Tokens)...) == nil && out.data(answer.Close(*p.End)...) == nil {
				_ = out.data([]byte("[DONE]"))
			}
			return
		default:
			err = out.data(answer.Tokens(p.Tokens)...)
		}
		if err != nil {
			return // Close cancels
		}
	}
}
