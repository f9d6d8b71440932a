package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"quire/kvtransfer"
)

const (
	cookieName = "quire_console"
	maxForm    = 4096 // bytes of a sign-in
)

// admit says whether a request may look. With an admin key in force it must show it, or the cookie that it got for it. Without
// one, only this machine may look, at its own name: another name would mean that a page elsewhere has pointed itself here.
func (c *Console) admit(r *http.Request) error {
	if c.cfg.Admin.Set() {
		if c.cfg.Admin.Allows(r) || c.signedIn(r) {
			return nil
		}
		return kvtransfer.Errorf(kvtransfer.InvalidAPIKey, "console: the admin key is wanted")
	}
	if c.cfg.Insecure || local(r) {
		return nil
	}
	return kvtransfer.Errorf(kvtransfer.NotAllowed, "console: without an admin key (--admin-key) only the router's own machine may look, at a loopback address")
}

// local says whether a request comes from this machine and asked for it by a loopback name, with no proxy between.
func local(r *http.Request) bool {
	for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip"} {
		if r.Header.Get(h) != "" {
			return false
		}
	}
	return loopback(r.RemoteAddr) && loopback(r.Host)
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// names says whether tenants may be named: only to whoever showed the admin key.
func (c *Console) names() bool { return c.cfg.Admin.Set() }

// turnAway answers who may not look: the page with a form, the interface with an error.
func (c *Console) turnAway(w http.ResponseWriter, path string, err error) {
	if path == "" && c.cfg.Admin.Set() {
		sendPage(w, http.StatusUnauthorized, "sign-in.html")
		return
	}
	fail(w, err)
}

// post takes the admin key or gives the cookie back.
func (c *Console) post(w http.ResponseWriter, r *http.Request) {
	if err := c.foreign.Check(r); err != nil {
		fail(w, kvtransfer.Errorf(kvtransfer.NotAllowed, "console: a web page of another origin asked"))
		return
	}
	switch r.URL.Path {
	case "/console/sign-in":
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if !c.cfg.Admin.Is(r.PostFormValue("key")) {
			sendPage(w, http.StatusUnauthorized, "sign-in-again.html")
			return
		}
		c.setCookie(w, r, c.ticket(time.Now().Add(signedInFor)), int(signedInFor.Seconds()))
	case "/console/sign-out":
		c.setCookie(w, r, "", -1)
	default:
		fail(w, kvtransfer.Errorf(kvtransfer.NotFound, "console: no such page"))
		return
	}
	http.Redirect(w, r, "/console", http.StatusSeeOther)
}

func (c *Console) setCookie(w http.ResponseWriter, r *http.Request, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: value, Path: "/console", MaxAge: maxAge, HttpOnly: true,
		Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
}

// ticket is a cookie's value: when it ends, and this process's word for it.
func (c *Console) ticket(until time.Time) string {
	when := strconv.FormatInt(until.Unix(), 10)
	return when + "." + hex.EncodeToString(c.mac("ticket", when))
}

func (c *Console) signedIn(r *http.Request) bool {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return false
	}
	when, _, _ := strings.Cut(cookie.Value, ".")
	unix, _ := strconv.ParseInt(when, 10, 64) // what is no number is 0, which is over
	if time.Now().Unix() >= unix {
		return false
	}
	return subtle.ConstantTimeCompare([]byte(c.ticket(time.Unix(unix, 0))), []byte(cookie.Value)) == 1
}

func (c *Console) mac(what, text string) []byte {
	m := hmac.New(sha256.New, c.secret[:])
	m.Write([]byte(what + "\x00" + text))
	return m.Sum(nil)
}
