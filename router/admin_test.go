package router

import (
	"net/http"
	"strings"
	"testing"
)

const adminKey = "correct-horse-battery"

func TestAdminKey(t *testing.T) {
	if _, err := NewAdmin("too-short"); err == nil || !strings.Contains(err.Error(), "9 characters, at least 16") {
		t.Errorf("%v", err)
	}
	none, err := NewAdmin("")
	if err != nil || none.Set() || none.Is("") {
		t.Errorf("no key: %v, set %t, let in %t", err, none.Set(), none.Is(""))
	}
	admin, err := NewAdmin(adminKey)
	if err != nil {
		t.Fatal(err)
	}
	for header, want := range map[string]bool{
		"Bearer " + adminKey: true, "bearer  " + adminKey: true, "Bearer x" + adminKey: false, adminKey: false, "": false,
		"Basic eDpjb3JyZWN0LWhvcnNlLWJhdHRlcnk=": true, "Basic eDp5": false, "Basic " + adminKey: false,
	} {
		r, err := http.NewRequest("GET", "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", header)
		if got := admin.Allows(r); got != want {
			t.Errorf("%q: %t", header, got)
		}
	}
}

// Profiles are there for who shows the admin key, and for nobody else.
func TestProfiles(t *testing.T) {
	admin, err := NewAdmin(adminKey)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{"sk-1": "acme"}
	open, closed := serve(t, newFake(said("x")), HTTPConfig{}), serve(t, newFake(said("x")), HTTPConfig{Admin: admin, Keys: keys})
	key := []string{"Authorization", "Bearer " + adminKey}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile?seconds=1", "/debug/pprof"} {
		if r := send(t, open, "GET", path, "", key...); r.status != 404 {
			t.Errorf("%s without an admin key set: %d", path, r.status)
		}
		if r := send(t, closed, "GET", path, ""); r.status != 403 || r.error(t).Code != "not_allowed" {
			t.Errorf("%s without the key: %d %s", path, r.status, r.body)
		}
		if r := send(t, closed, "GET", path, "", "Authorization", "Bearer sk-1"); r.status != 403 {
			t.Errorf("%s with a client's key: %d", path, r.status)
		}
	}
	for path, want := range map[string]string{"/debug/pprof/": "goroutine", "/debug/pprof": "goroutine", "/debug/pprof/goroutine?debug=1": "goroutine profile: total", "/debug/pprof/symbol": "num_symbols"} {
		if r := send(t, closed, "GET", path, "", key...); r.status != 200 || !strings.Contains(r.body, want) {
			t.Errorf("%s: %d, no %q in %.200s", path, r.status, want, r.body)
		}
	}
	if r := send(t, closed, "GET", "/debug/pprof/cmdline", "", key...); r.status != 404 {
		t.Errorf("the command line: %d", r.status)
	}
	if r := send(t, closed, "GET", "/metrics", "", key...); r.status != 200 {
		t.Errorf("metrics with the admin key: %d", r.status)
	}
	if r := send(t, closed, "GET", "/v1/models", "", key...); r.status != 401 {
		t.Errorf("the admin key as a client's: %d", r.status)
	}
	if r := send(t, open, "GET", "/console", ""); r.status != 404 {
		t.Errorf("a console that is not there: %d", r.status)
	}
}
