package router

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/http/pprof"
	"strings"

	"quire/kvtransfer"
)

// MinAdminKey is how many characters an admin key has at least.
const MinAdminKey = 16

// Admin is who may look behind the scenes: whoever shows the admin key. The zero value lets nobody in.
type Admin struct {
	hash [sha256.Size]byte
	set  bool
}

// NewAdmin takes the key; "" means that there is none. A key that is too short to be one is refused.
func NewAdmin(key string) (Admin, error) {
	if key == "" {
		return Admin{}, nil
	}
	if len(key) < MinAdminKey {
		return Admin{}, fmt.Errorf("router: admin key: %d characters, at least %d are wanted", len(key), MinAdminKey)
	}
	return Admin{hash: sha256.Sum256([]byte(key)), set: true}, nil
}

// Set says whether there is a key at all.
func (a Admin) Set() bool { return a.set }

// Is compares in constant time. Without a key nothing is it: no text has a hash of zeros.
func (a Admin) Is(key string) bool {
	sum := sha256.Sum256([]byte(key))
	return subtle.ConstantTimeCompare(a.hash[:], sum[:]) == 1
}

// Allows says whether a request shows the key: as "Authorization: Bearer KEY", or as the password of any user, which is how
// go tool pprof sends what stands in a URL.
func (a Admin) Allows(r *http.Request) bool {
	if _, password, ok := r.BasicAuth(); ok {
		return a.Is(password)
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && a.Is(strings.TrimSpace(key))
}

// inside serves what is not a client's: the console and the profiler. False means that the path is neither.
func (h *handler) inside(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case r.URL.Path == "/console" || strings.HasPrefix(r.URL.Path, "/console/"):
		if h.cfg.Console == nil {
			h.refuse(w, r, kvtransfer.Errorf(kvtransfer.NotFound, "router: http: this router has no console"))
			return true
		}
		h.cfg.Console.ServeHTTP(w, r)
	case r.URL.Path == "/debug/pprof" || strings.HasPrefix(r.URL.Path, "/debug/pprof/"):
		h.profile(w, r)
	default:
		return false
	}
	return true
}

// profile serves the Go profiler behind the admin key. The command line is not served: it may hold keys.
func (h *handler) profile(w http.ResponseWriter, r *http.Request) {
	switch {
	case !h.cfg.Admin.Set():
		h.refuse(w, r, kvtransfer.Errorf(kvtransfer.NotFound, "router: http: no profiles without an admin key (--admin-key)"))
		return
	case !h.cfg.Admin.Allows(r):
		h.refuse(w, r, kvtransfer.Errorf(kvtransfer.NotAllowed, "router: http: profiles want the admin key"))
		return
	}
	switch strings.TrimPrefix(r.URL.Path, "/debug/pprof/") {
	case "cmdline":
		h.refuse(w, r, kvtransfer.Errorf(kvtransfer.NotFound, "router: http: the command line is not served"))
	case "profile":
		pprof.Profile(w, r)
	case "trace":
		pprof.Trace(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "/debug/pprof": // without the slash its links would lead astray
		http.Redirect(w, r, "/debug/pprof/", http.StatusMovedPermanently)
	default:
		pprof.Index(w, r)
	}
}
