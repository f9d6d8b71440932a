package router

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"quire/kvtransfer"
	"quire/router/openai"
)

// route is one operation of the HTTP door.
type route struct {
	method string
	path   string // a "/" at its end takes whatever follows
	public bool   // no key is asked for
	serve  func(h *handler, w http.ResponseWriter, r *http.Request, tenant string)
}

// routes are looked through in order.
var routes = []route{
	{"POST", "/v1/chat/completions", false, (*handler).chat},
	{"POST", "/v1/completions", false, (*handler).completion},
	{"GET", "/v1/models", false, (*handler).models},
	{"GET", "/v1/models/", false, (*handler).model},
	{"POST", "/tokenize", false, (*handler).tokenize},
	{"POST", "/detokenize", false, (*handler).detokenize},
	{"GET", "/v1/requests/", false, (*handler).status},
	{"DELETE", "/v1/requests/", false, (*handler).cancel},
	{"GET", "/metrics", false, (*handler).metrics},
	{"GET", "/health", true, (*handler).health},
	{"GET", "/ready", true, (*handler).ready},
	{"GET", "/version", true, (*handler).version},
}

// find gives the route of a request: 404 for an unknown path, 405 for a known one's other methods.
func find(r *http.Request) (route, error) {
	var allowed []string
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for _, rt := range routes {
		if r.URL.Path != rt.path && (!strings.HasSuffix(rt.path, "/") || !strings.HasPrefix(r.URL.Path, rt.path) || r.URL.Path == rt.path) {
			continue
		}
		if rt.method == method {
			return rt, nil
		}
		allowed = append(allowed, rt.method)
	}
	if len(allowed) > 0 {
		slices.Sort(allowed)
		return route{}, notAllowed{kvtransfer.Errorf(kvtransfer.MethodNotAllowed, "router: http: %s: use %s", clipText(r.Method), strings.Join(allowed, " or ")), allowed}
	}
	return route{}, kvtransfer.Errorf(kvtransfer.NotFound, "router: http: no such path: %s", clipText(r.URL.Path))
}

// notAllowed is a 405 and the methods that are.
type notAllowed struct {
	cause   kvtransfer.Error
	methods []string
}

func (e notAllowed) Error() string { return e.cause.Error() }
func (e notAllowed) Unwrap() error { return e.cause }

func clipText(s string) string {
	if len(s) > 80 {
		s = s[:80]
	}
	return strconv.QuoteToASCII(s)
}

// read takes the body of a request, up to the limit.
func (h *handler) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	tooLarge := func(size string) error {
		return kvtransfer.Errorf(kvtransfer.PayloadTooLarge, "router: http: body of %s bytes, at most %d are taken", size, h.cfg.MaxBody)
	}
	if r.ContentLength > h.cfg.MaxBody {
		return nil, tooLarge(strconv.FormatInt(r.ContentLength, 10))
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(readTimeout)) // a test's recorder cannot
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.cfg.MaxBody))
	_ = rc.SetReadDeadline(time.Time{})
	if err == nil {
		return body, nil
	}
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return nil, tooLarge("more than " + strconv.FormatInt(h.cfg.MaxBody, 10))
	}
	return nil, kvtransfer.Errorf(kvtransfer.InvalidRequest, "body: broke off after %d bytes", len(body))
}

// AsError finds the kvtransfer.Error in an error, and when to come again; anything else is an internal error.
func AsError(err error) (kvtransfer.Error, kvtransfer.Tick) {
	var rejected Rejected
	if errors.As(err, &rejected) {
		return rejected.Cause, rejected.RetryAfter
	}
	var e kvtransfer.Error
	if errors.As(err, &e) {
		return e, 0
	}
	return kvtransfer.Errorf(kvtransfer.Invariant, "router: %v", err), 0
}

// refuse answers with an error before a body was read: what is left of it is not waited for.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var e notAllowed
	if errors.As(err, &e) {
		w.Header().Set("Allow", strings.Join(e.methods, ", "))
	}
	if r.ContentLength != 0 && r.Body != nil {
		w.Header().Set("Connection", "close")
	}
	h.fail(w, err)
}

// fail answers with an error's own status.
func (h *handler) fail(w http.ResponseWriter, err error) {
	e, after := AsError(err)
	meaning := kvtransfer.Lookup(e.Code)
	switch {
	case after > 0:
		w.Header().Set("Retry-After", strconv.FormatInt(int64((after+kvtransfer.Second-1)/kvtransfer.Second), 10))
	case meaning.HTTP == http.StatusTooManyRequests || meaning.HTTP == http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case meaning.HTTP == http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if meaning.Class == kvtransfer.ClassCorrupt || meaning.Class == kvtransfer.ClassBug {
		h.cfg.Log.Error("refused", "code", string(e.Code), "detail", e.Detail)
	}
	h.send(w, meaning.HTTP, openai.EncodeError(e))
}

func (h *handler) send(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // who does not read his answer does not get it
}

func (h *handler) sendJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		h.fail(w, err)
		return
	}
	h.send(w, status, b)
}

// timeout reads Quire-Timeout, in seconds; 0 when it is not there.
func timeout(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	s, err := strconv.ParseFloat(text, 64)
	if err != nil || !(s > 0) || s > 86400 {
		e := kvtransfer.Errorf(kvtransfer.InvalidRequest, "%s: want seconds, above 0 and up to 86400", openai.HeaderTimeout)
		e.Param = openai.HeaderTimeout
		return 0, e
	}
	return time.Duration(s * float64(time.Second)), nil
}

func (h *handler) models(w http.ResponseWriter, _ *http.Request, _ string) {
	h.sendJSON(w, http.StatusOK, openai.ModelList{Object: "list", Data: []openai.Model{h.b.Model()}})
}

func (h *handler) model(w http.ResponseWriter, r *http.Request, _ string) {
	name := strings.TrimPrefix(r.URL.Path, "/v1/models/")
	rules := h.b.Rules()
	if name != rules.Model && !slices.Contains(rules.Aliases, name) {
		h.fail(w, kvtransfer.Errorf(kvtransfer.ModelNotFound, "router: model %s is not served here", clipText(name)))
		return
	}
	h.sendJSON(w, http.StatusOK, h.b.Model())
}

func (h *handler) tokenize(w http.ResponseWriter, r *http.Request, _ string) {
	body, err := h.read(w, r)
	if err != nil {
		h.fail(w, err)
		return
	}
	out, err := tokenize(h.b, body)
	if err != nil {
		h.fail(w, err)
		return
	}
	h.sendJSON(w, http.StatusOK, out)
}

func (h *handler) detokenize(w http.ResponseWriter, r *http.Request, _ string) {
	body, err := h.read(w, r)
	if err != nil {
		h.fail(w, err)
		return
	}
	out, err := detokenize(h.b, body)
	if err != nil {
		h.fail(w, err)
		return
	}
	h.sendJSON(w, http.StatusOK, out)
}

// tokenize and detokenize are the same at both doors.
func tokenize(b Backend, body []byte) (openai.Tokenized, error) {
	req, err := openai.ParseTokenize(body, b.Rules())
	if err != nil {
		return openai.Tokenized{}, err
	}
	return b.Tokenize(req)
}

// maxDetokenize bounds the ids of one detokenize.
const maxDetokenize = 2 << 20

func detokenize(b Backend, body []byte) (openai.Detokenized, error) {
	ids, err := openai.ParseDetokenize(body, b.Rules(), maxDetokenize)
	if err != nil {
		return openai.Detokenized{}, err
	}
	text, err := b.Detokenize(ids)
	return openai.Detokenized{Prompt: text}, err
}

func (h *handler) status(w http.ResponseWriter, r *http.Request, tenant string) {
	id, err := openai.BareID(strings.TrimPrefix(r.URL.Path, "/v1/requests/"))
	var st Status
	if err == nil {
		st, err = h.b.Status(r.Context(), tenant, id)
	}
	if err != nil {
		h.fail(w, err)
		return
	}
	h.sendJSON(w, http.StatusOK, st)
}

func (h *handler) cancel(w http.ResponseWriter, r *http.Request, tenant string) {
	id, err := openai.BareID(strings.TrimPrefix(r.URL.Path, "/v1/requests/"))
	if err == nil {
		err = h.b.Cancel(r.Context(), tenant, id)
	}
	if err != nil {
		h.fail(w, err)
		return
	}
	h.sendJSON(w, http.StatusOK, openai.Cancelled{ID: id, Cancelled: true})
}

func (h *handler) metrics(w http.ResponseWriter, _ *http.Request, _ string) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	if h.cfg.Metrics != nil {
		h.cfg.Metrics(w)
	}
	exposition{w}.gauge("quire_http_requests_open", "HTTP requests being answered now, this one included.", h.open.Load())
}

// health is about life: it fails when nothing moves, not when a worker is missing.
func (h *handler) health(w http.ResponseWriter, _ *http.Request, _ string) {
	health := h.b.Health()
	if health.Stuck != "" {
		h.sendJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "stuck", "reason": health.Stuck})
		return
	}
	answer := map[string]string{"status": "ok"}
	if health.Off != "" {
		answer[health.Off] = "off"
	}
	h.sendJSON(w, http.StatusOK, answer)
}

// ready is about use: it fails while a request would be refused, and names what is missing.
func (h *handler) ready(w http.ResponseWriter, _ *http.Request, _ string) {
	health := h.b.Health()
	missing := health.Missing
	if health.Stuck != "" {
		missing = append(missing, health.Stuck)
	}
	if len(missing) > 0 {
		w.Header().Set("Retry-After", "1")
		h.sendJSON(w, http.StatusServiceUnavailable, map[string]any{"status": "not ready", "missing": missing})
		return
	}
	m := h.b.Model()
	answer := map[string]any{"status": "ready", "model": m.ID, "max_model_len": m.MaxModelLen, "max_model_len_by": m.LimitedBy}
	if health.Off != "" {
		answer[health.Off] = "off"
	}
	h.sendJSON(w, http.StatusOK, answer)
}

func (h *handler) version(w http.ResponseWriter, _ *http.Request, _ string) {
	h.sendJSON(w, http.StatusOK, map[string]string{"version": h.cfg.Version, "api": "v1"})
}
