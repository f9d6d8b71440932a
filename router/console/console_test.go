package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/router"
	"quire/router/openai"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const adminKey = "correct-horse-battery"

// scene is a source with one decode, one hand-off of tenant "umbra" and some ends.
type scene struct {
	mu   sync.Mutex
	ends map[string]uint64
}

func (s *scene) pages() kvtransfer.Pages {
	return kvtransfer.Pages{Worker: kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 4}, PageSize: 16, Counts: page.Counts{Total: 8, Free: 5, Owned: 3},
		Owners: []kvtransfer.PageOwner{{Key: kvtransfer.Key{ID: kvtransfer.HandoffID{0xab, 0xcd}, Attempt: 2}, Tenant: "umbra", State: page.Owned, Step: "running",
			Rows: 40, Prompt: 33, Output: 7, Runs: []page.Run{{From: 2, To: 5}}}}}
}

func (s *scene) Inside(context.Context) router.Inside {
	return router.Inside{Time: time.UnixMilli(1000), Router: kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: "r1", Epoch: 3}, Stats: s.Stats(), InFlight: 1,
		Flights: []router.Flight{{ID: kvtransfer.HandoffID{0xab, 0xcd}, Tenant: "umbra", Step: "running", Attempt: 2, Decode: "d1", Prefill: "p1", Prompt: 33, Output: 6, Max: 20, Age: kvtransfer.Second}},
		Pools:   []kvtransfer.Pages{s.pages()}}
}

func (s *scene) Stats() router.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	hb := kvtransfer.Heartbeat{Peer: s.pages().Worker, Refused: kvtransfer.Refusals{Frame: 9, Unsigned: 2}}
	return router.Stats{Submitted: 9, Running: 1, Workers: []kvtransfer.Heartbeat{hb}, Ends: map[string]uint64{"stop": 4, "length": 1, "context_length_exceeded": 2, "handoff_count": s.ends["handoff_count"]}}
}
func (s *scene) Measures() router.Measures { return router.Measures{Unsigned: 4} }
func (s *scene) Model() openai.Model {
	return openai.Model{ID: "m", MaxModelLen: 64, LimitedBy: "model context"}
}
func (s *scene) Health() router.Health { return router.Health{Missing: []string{"prefill"}} }

// memory is a past of three messages.
type memory struct{ fail error }

func (m *memory) Follow(context.Context) error { return m.fail }
func (m *memory) Range() (first, last uint64)  { return 5, 7 }
func (m *memory) At(n uint64) (time.Time, []kvtransfer.Pages, error) {
	return time.UnixMilli(int64(n) * 1000), []kvtransfer.Pages{(&scene{}).pages()}, nil
}

func begin(t *testing.T, change func(*Config)) *Console {
	t.Helper()
	cfg := Config{Source: &scene{ends: map[string]uint64{"handoff_count": 3}}, Version: "1.2.3", Past: func() Past { return &memory{} }}
	if change != nil {
		change(&cfg)
	}
	c := New(cfg)
	t.Cleanup(c.Close)
	return c
}

func locked(t *testing.T) func(*Config) {
	admin, err := router.NewAdmin(adminKey)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Admin = admin }
}

// do asks the console as this machine would; with may change the request.
func do(c *Console, method, path string, with func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1:8080"+path, nil)
	r.RemoteAddr = "127.0.0.1:50000"
	if with != nil {
		with(r)
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w
}

func signIn(c *Console, key string) *httptest.ResponseRecorder {
	return do(c, "POST", "/console/sign-in", func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Body = io.NopCloser(strings.NewReader(url.Values{"key": {key}}.Encode()))
	})
}

// Without an admin key this machine may look, under its own name and directly; nobody else.
func TestWithoutAKeyOnlyThisMachineLooks(t *testing.T) {
	c := begin(t, nil)
	for what, with := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"this machine":    {nil, 200},
		"by name":         {func(r *http.Request) { r.Host = "localhost:8080" }, 200},
		"without a port":  {func(r *http.Request) { r.Host = "localhost" }, 200},
		"IPv6 alone":      {func(r *http.Request) { r.Host = "[::1]" }, 200},
		"over IPv6":       {func(r *http.Request) { r.Host, r.RemoteAddr = "[::1]:8080", "[::1]:1" }, 200},
		"another machine": {func(r *http.Request) { r.RemoteAddr = "10.0.0.9:1" }, 403},
		"a name of a page elsewhere that was pointed here": {func(r *http.Request) { r.Host = "evil.example" }, 403},
		"through a proxy": {func(r *http.Request) { r.Header.Set("X-Forwarded-For", "10.0.0.9") }, 403},
	} {
		for _, path := range []string{"/console", "/console/api/state", "/console/api/past"} {
			if w := do(c, "GET", path, with.change); w.Code != with.status {
				t.Errorf("%s: %s: %d, want %d: %s", what, path, w.Code, with.status, w.Body)
			}
		}
	}
	open := begin(t, func(c *Config) { c.Insecure = true })
	if w := do(open, "GET", "/console/api/state", func(r *http.Request) { r.RemoteAddr = "10.0.0.9:1" }); w.Code != 200 || strings.Contains(w.Body.String(), "umbra") {
		t.Errorf("insecure: %d %s", w.Code, w.Body)
	}
}

// With an admin key in force nothing is told without it; it is shown as a bearer's, or once for a cookie.
func TestWithAKey(t *testing.T) {
	c := begin(t, locked(t))
	if w := do(c, "GET", "/console", nil); w.Code != 401 || !strings.Contains(w.Body.String(), `action="/console/sign-in"`) || strings.Contains(w.Body.String(), "not the admin key") {
		t.Errorf("the page: %d %s", w.Code, w.Body)
	}
	for _, path := range []string{"/console/api/state", "/console/api/feed", "/console/api/past", "/console/api/past?at=6", "/console/other"} {
		if w := do(c, "GET", path, nil); w.Code != 401 || strings.Contains(w.Body.String(), "d1") || !strings.Contains(w.Body.String(), `"code":"invalid_api_key"`) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := do(c, "GET", "/console/api/state", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+adminKey) }); w.Code != 200 {
		t.Errorf("with the key: %d %s", w.Code, w.Body)
	}
	if w := signIn(c, "wrong"); w.Code != 401 || len(w.Result().Cookies()) != 0 || !strings.Contains(w.Body.String(), "not the admin key") {
		t.Errorf("a wrong key: %d %s", w.Code, w.Body)
	}
	w := signIn(c, adminKey)
	cookies := w.Result().Cookies()
	if w.Code != 303 || w.Header().Get("Location") != "/console" || len(cookies) != 1 {
		t.Fatalf("sign-in: %d %v", w.Code, w.Header())
	}
	if k := cookies[0]; !k.HttpOnly || k.SameSite != http.SameSiteStrictMode || k.Path != "/console" || strings.Contains(k.Value, adminKey) {
		t.Errorf("cookie %+v", k)
	}
	with := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookieName, Value: value}) }
	}
	if w := do(c, "GET", "/console/api/state", with(cookies[0].Value)); w.Code != 200 {
		t.Errorf("with the cookie: %d", w.Code)
	}
	other := begin(t, locked(t))
	when, mac, _ := strings.Cut(cookies[0].Value, ".")
	for what, value := range map[string]string{
		"of the past": c.ticket(time.Now().Add(-time.Second)), "of another process": other.ticket(time.Now().Add(time.Hour)),
		"made longer": "9" + when + "." + mac, "unsigned": when, "nonsense": "x.y", "empty": "",
	} {
		if w := do(c, "GET", "/console/api/state", with(value)); w.Code != 401 {
			t.Errorf("a ticket %s: %d", what, w.Code)
		}
	}
	if w := do(c, "POST", "/console/sign-out", with(cookies[0].Value)); w.Code != 303 || w.Result().Cookies()[0].MaxAge >= 0 {
		t.Errorf("sign-out: %d %v", w.Code, w.Result().Cookies())
	}
	if w := do(c, "POST", "/console/sign-in", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }); w.Code != 403 {
		t.Errorf("a form elsewhere: %d", w.Code)
	}
}

// Tenants have names for whoever showed the admin key, and digests that differ from process to process for others.
func TestNames(t *testing.T) {
	open, locked := begin(t, nil), begin(t, locked(t))
	key := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+adminKey) }
	for _, path := range []string{"/console/api/state", "/console/api/past?at=6"} {
		if got := do(open, "GET", path, nil).Body.String(); strings.Contains(got, "umbra") || !strings.Contains(got, `"name":"t-`) || !strings.Contains(got, `"abcd0000"`) {
			t.Errorf("without the key, %s: %s", path, got)
		}
		if got := do(locked, "GET", path, key).Body.String(); !strings.Contains(got, `"name":"umbra"`) || !strings.Contains(got, `"abcd0000000000000000000000000000"`) {
			t.Errorf("with the key, %s: %s", path, got)
		}
	}
	if w := open.tenant(""); w != (who{}) {
		t.Errorf("a tenant that is not known: %v", w)
	}
	if a, b := open.tenant("umbra"), begin(t, nil).tenant("umbra"); a == b || a != open.tenant("umbra") || a == open.tenant("acme") {
		t.Errorf("digests %v and %v", a, b)
	}
}

func TestState(t *testing.T) {
	var v view
	if err := json.Unmarshal(do(begin(t, nil), "GET", "/console/api/state", nil).Body.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	if v.Router != "r1" || v.Model != "m" || v.Limit != 64 || v.Version != "1.2.3" || v.Missing[0] != "prefill" || !v.Slider || v.Counts.Good != 5 || v.Counts.Running != 1 {
		t.Errorf("%+v", v)
	}
	if len(v.Refusals) != 2 || v.Refusals[0].Code != "handoff_count" || v.Refusals[0].Count != 3 || v.Refusals[0].Class != "corrupt" || v.Refusals[0].Help == "" {
		t.Errorf("refusals %+v", v.Refusals)
	}
	if want := []turned{{"decode d1", "frame", 9}, {"router r1", "unsigned", 4}, {"decode d1", "unsigned", 2}}; !slices.Equal(v.Turned, want) {
		t.Errorf("turned away: %v, want %v", v.Turned, want)
	}
	o := v.Pools[0].Owners[0]
	if v.Pools[0].Pages != 8 || v.Pools[0].States[3] != 3 || o.State != "owned" || o.Runs[0] != [2]uint32{2, 5} || o.Handoff.Hue < 0 {
		t.Errorf("pools %+v", v.Pools)
	}
	if f := v.Flights[0]; f.Step != "running" || f.Rows != 33 || f.Prompt != 33 || f.Output != 6 || f.Age != 1000 || f.Attempt != 2 {
		t.Errorf("flights %+v", v.Flights)
	}
}

func TestPast(t *testing.T) {
	c := begin(t, nil)
	for path, want := range map[string]string{
		"/console/api/past": `{"first":5,"last":7}`, "/console/api/past?at=6": `"at":6,"time":6000,"pools":[{"role":"decode"`,
		"/console/api/past?at=4": "from 5 to 7", "/console/api/past?at=8": "from 5 to 7", "/console/api/past?at=x": "a number from 1",
	} {
		if got := do(c, "GET", path, nil).Body.String(); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if w := do(begin(t, func(c *Config) { c.Past = nil }), "GET", "/console/api/past", nil); w.Code != 404 {
		t.Errorf("without a journal: %d", w.Code)
	}
	broken := begin(t, func(c *Config) { c.Past = func() Past { return &memory{fail: errors.New("no such stream")} } })
	if w := do(broken, "GET", "/console/api/past", nil); w.Code != 503 || !strings.Contains(w.Body.String(), "no such stream") {
		t.Errorf("a journal that cannot be read: %d %s", w.Code, w.Body)
	}
}

// The feed sends what was before and then what is, to a bounded number of pages, and ends with the console.
func TestFeed(t *testing.T) {
	c := begin(t, nil)
	s := httptest.NewServer(c)
	defer s.Close()
	resp, err := s.Client().Get(s.URL + "/console/api/feed")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%v", resp.Header)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	var events []string
	for len(events) < 3 && lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			events = append(events, name)
		}
	}
	if strings.Join(events, " ") != "series state state" {
		t.Errorf("events %v, %v", events, lines.Err())
	}
	c.viewers.Store(MaxViewers)
	if w := do(c, "GET", "/console/api/feed", nil); w.Code != 429 {
		t.Errorf("one too many: %d", w.Code)
	}
	c.Close()
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Errorf("the end of the feed: %v", err)
	}
}

func TestMethodsAndPaths(t *testing.T) {
	c := begin(t, nil)
	for _, q := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/console/", 200}, {"HEAD", "/console", 200}, {"PUT", "/console", 405}, {"POST", "/console", 404}, {"GET", "/console/nope", 404},
		{"GET", "/console/assets/app.js", 200}, {"GET", "/console/assets/index.html", 404}, {"GET", "/console/assets/../console.go", 404}, {"GET", "/console/assets/", 404},
	} {
		if w := do(c, q.method, q.path, nil); w.Code != q.status {
			t.Errorf("%s %s: %d, want %d", q.method, q.path, w.Code, q.status)
		}
	}
}
