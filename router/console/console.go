package console

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"quire/kvtransfer"
	"quire/router"
	"quire/router/openai"
)

// Source is what the console looks at; a router.Service is one.
type Source interface {
	Inside(ctx context.Context) router.Inside
	Stats() router.Stats
	Measures() router.Measures
	Model() openai.Model
	Health() router.Health
}

// Past tells pools as they were. It is used by one goroutine at a time.
type Past interface {
	// Follow reads what the journal has stored since the last time.
	Follow(ctx context.Context) error
	// Range is the first and the last message of the journal that can be told; zeros when there is none.
	Range() (first, last uint64)
	// At tells when a message was stored and every pool after it.
	At(message uint64) (time.Time, []kvtransfer.Pages, error)
}

// Config is what a console is made with.
type Config struct {
	Source   Source
	Admin    router.Admin
	Insecure bool        // let other machines look though there is no admin key
	Keyed    bool        // the chat endpoint asks for API keys
	Version  string      // of the build
	Past     func() Past // begins to read the journal anew; nil = there is no slider
	Log      *slog.Logger
}

// Bounds.
const (
	MaxViewers  = 32                     // feeds at a time
	feedEvery   = 500 * time.Millisecond // between two states of a feed
	writeWithin = 10 * time.Second       // of one event to a page that does not read
	signedInFor = 12 * time.Hour
)

// Console serves the page. It is an http.Handler.
type Console struct {
	cfg     Config
	secret  [32]byte // of digests and cookies; of this process alone
	series  *series
	past    pastKeeper
	tenants hues
	owners  hues // of hand-offs
	viewers atomic.Int64
	foreign *http.CrossOriginProtection
	stop    context.CancelFunc
	ended   chan struct{}
	ctx     context.Context
}

// New makes a console and begins to sample the source once a second, until Close.
func New(cfg Config) *Console {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Console{cfg: cfg, series: newSeries(), foreign: http.NewCrossOriginProtection(), ended: make(chan struct{})}
	c.past.open = cfg.Past
	rand.Read(c.secret[:])
	c.ctx, c.stop = context.WithCancel(context.Background())
	go func() {
		defer close(c.ended)
		c.sample()
	}()
	return c
}

// Close ends the sampling and every feed.
func (c *Console) Close() {
	c.stop()
	<-c.ended
}

// policy lets the page load its own scripts, style and figures, and nothing else from anywhere.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if r.Method == http.MethodPost {
		c.post(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		fail(w, kvtransfer.Errorf(kvtransfer.MethodNotAllowed, "console: use GET"))
		return
	}
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/console"), "/")
	if name, ok := strings.CutPrefix(path, "assets/"); ok {
		asset(w, r, name)
		return
	}
	if err := c.admit(r); err != nil {
		c.turnAway(w, path, err)
		return
	}
	switch path {
	case "":
		sendPage(w, http.StatusOK, "index.html")
	case "api/state":
		sendJSON(w, c.view(r.Context()))
	case "api/feed":
		c.feed(w, r)
	case "api/past":
		c.servePast(w, r)
	default:
		fail(w, kvtransfer.Errorf(kvtransfer.NotFound, "console: no such page"))
	}
}

func sendJSON(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n')) // who does not read his answer does not get it
}

func fail(w http.ResponseWriter, err error) {
	e, _ := router.AsError(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(kvtransfer.Lookup(e.Code).HTTP)
	_, _ = w.Write(append(openai.EncodeError(e), '\n'))
}
