package router

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"quire/kvtransfer"
)

// HTTPConfig says how the HTTP door is opened. Zero values of numbers and durations are replaced by their defaults.
type HTTPConfig struct {
	Address   string            // HOST:PORT; port 0 = a free one
	Keys      map[string]string // API key -> tenant; empty = no key is asked for and everybody is tenant "default"
	Insecure  bool              // allow other machines in without keys
	Version   string
	MaxBody   int64         // bytes of a body; default 16 MiB
	MaxOpen   int64         // requests at a time; default 4096
	KeepAlive time.Duration // silence in a stream after which ": ping" is sent; default 15 s
	Metrics   func(io.Writer)
	Admin     Admin        // who may see profiles; the console has its own copy
	Console   http.Handler // of /console and below; nil = there is none
	Log       *slog.Logger
}

// DefaultTenant is whose requests those are that carry no key, where none is asked for.
const DefaultTenant = "default"

const (
	readTimeout  = time.Minute      // of a body
	writeTimeout = 30 * time.Second // of one write to a client that does not read
)

func (c HTTPConfig) withDefaults() HTTPConfig {
	if c.MaxBody <= 0 {
		c.MaxBody = 16 << 20
	}
	if c.MaxOpen <= 0 {
		c.MaxOpen = 4096
	}
	if c.KeepAlive <= 0 {
		c.KeepAlive = 15 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// HTTPDoor is an open HTTP door.
type HTTPDoor struct {
	server   *http.Server
	listener net.Listener
	ended    chan struct{}
	err      error // of the server, once ended is closed
}

// OpenHTTP listens and serves until Close. Without keys it refuses any address but the loopback's, unless Insecure.
func OpenHTTP(b Backend, cfg HTTPConfig) (*HTTPDoor, error) {
	if err := exposure(cfg); err != nil {
		return nil, err
	}
	for key, tenant := range cfg.Keys {
		if err := checkTenant(tenant); err != nil {
			return nil, err
		}
		if key == "" {
			return nil, fmt.Errorf("router: http: API key of tenant %s: 0 characters", tenant)
		}
	}
	listener, err := net.Listen("tcp", cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("router: http: %w", err)
	}
	d := &HTTPDoor{listener: listener, ended: make(chan struct{})}
	d.server = &http.Server{
		Handler:           NewHandler(b, cfg),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(cfg.withDefaults().Log.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(d.ended)
		if err := d.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			d.err = fmt.Errorf("router: http: %w", err)
		}
	}()
	return d, nil
}

// exposure refuses a door through which any machine could ask without a key.
func exposure(cfg HTTPConfig) error {
	if cfg.Insecure || len(cfg.Keys) > 0 {
		return nil
	}
	host, _, err := net.SplitHostPort(cfg.Address)
	if err != nil {
		return fmt.Errorf("router: http: %w", err)
	}
	if ip := net.ParseIP(host); host == "localhost" || (ip != nil && ip.IsLoopback()) {
		return nil
	}
	return fmt.Errorf("router: http: %s is reachable from other machines and no API key is set: give --api-key KEY=TENANT, or --insecure", cfg.Address)
}

// Address is HOST:PORT as bound.
func (d *HTTPDoor) Address() string { return d.listener.Addr().String() }

// Done is closed when the server has ended; Err says why, nil after Drain and Close.
func (d *HTTPDoor) Done() <-chan struct{} { return d.ended }

// Err is the server's error.
func (d *HTTPDoor) Err() error {
	select {
	case <-d.ended:
		return d.err
	default:
		return nil
	}
}

// Drain takes no new connections and waits for the answers under way: drain the Service first or at the same time, for it is
// the Service that ends them.
func (d *HTTPDoor) Drain(ctx context.Context) error {
	d.server.SetKeepAlivesEnabled(false)
	if err := d.server.Shutdown(ctx); err != nil {
		return fmt.Errorf("router: http: drain: %w", err)
	}
	return nil
}

// Close cuts what is open.
func (d *HTTPDoor) Close() error {
	err := d.server.Close()
	<-d.ended
	return err
}

// handler answers the HTTP door's requests.
type handler struct {
	b       Backend
	cfg     HTTPConfig
	keys    []apiKey
	open    atomic.Int64
	foreign *http.CrossOriginProtection
}

type apiKey struct {
	hash   [sha256.Size]byte
	tenant string
}

// NewHandler gives the door's handler without a listener.
func NewHandler(b Backend, cfg HTTPConfig) http.Handler {
	h := &handler{b: b, cfg: cfg.withDefaults(), foreign: http.NewCrossOriginProtection()}
	for key, tenant := range cfg.Keys {
		h.keys = append(h.keys, apiKey{sha256.Sum256([]byte(key)), tenant})
	}
	slices.SortFunc(h.keys, func(a, b apiKey) int { return slices.Compare(a.hash[:], b.hash[:]) })
	return h
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer h.open.Add(-1)
	if n := h.open.Add(1); n > h.cfg.MaxOpen {
		h.fail(w, kvtransfer.Errorf(kvtransfer.Overloaded, "router: http: %d requests are open, at most %d may be", n, h.cfg.MaxOpen))
		return
	}
	if label := r.Header.Get("X-Request-Id"); goodLabel(label) {
		w.Header().Set("X-Request-Id", label)
	}
	if h.inside(w, r) {
		return
	}
	route, err := find(r)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	tenant := DefaultTenant
	if !route.public && (route.path != "/metrics" || !h.cfg.Admin.Allows(r)) {
		if tenant, err = h.tenant(r); err != nil {
			h.refuse(w, r, err)
			return
		}
	}
	route.serve(h, w, r, tenant)
}

// tenant finds whose request it is. Every key is compared, each in constant time.
func (h *handler) tenant(r *http.Request) (string, error) {
	if len(h.keys) == 0 {
		if err := h.foreign.Check(r); err != nil {
			return "", kvtransfer.Errorf(kvtransfer.NotAllowed, "router: http: a web page of another origin asked")
		}
		return DefaultTenant, nil
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(key)))
	tenant, found := "", 0
	for _, k := range h.keys {
		if subtle.ConstantTimeCompare(k.hash[:], sum[:]) == 1 {
			tenant, found = k.tenant, 1
		}
	}
	if found == 0 || !strings.EqualFold(scheme, "Bearer") {
		return "", kvtransfer.Errorf(kvtransfer.InvalidAPIKey, "router: http: no valid API key")
	}
	return tenant, nil
}

// goodLabel says whether a client's own id may be sent back: short and printable.
func goodLabel(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
