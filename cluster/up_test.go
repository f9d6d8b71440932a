package cluster

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// log keeps what is logged.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func options(t *testing.T) (Options, *log) {
	l := &log{}
	return Options{Version: "0.0.0", Data: filepath.Join(t.TempDir(), "q"), Bus: BusOptions{Listen: "127.0.0.1:0", Prefix: "quire"},
		Pool: PoolOptions{PageSize: 16, Pages: 64, Threads: 2, Lease: 10 * time.Second}, Door: DoorOptions{HTTP: "127.0.0.1:0"}, Prefill: 1, Decode: 1,
		Log: slog.New(slog.NewTextHandler(l, nil))}, l
}

func stop(t *testing.T, c *Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := c.Stop(ctx); err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

const body = `{"messages":[{"role":"system","content":"` + askSystem + `"},{"role":"user","content":"` + askUser + `"}],"temperature":0}`

func ask(t *testing.T, c *Cluster) string {
	t.Helper()
	resp, err := http.Post("http://"+c.Info().HTTP+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestUpAnswersAndLeavesNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	o, l := options(t)
	o.Prefill, o.Decode = 2, 2
	c, err := Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, c); !strings.Contains(got, "The red key is under the bridge.") {
		t.Errorf("got %s", got)
	}
	if i := c.Info(); i.Limit != 1024 || i.LimitedBy != "prefill pool of p1" || len(i.Workers) != 4 {
		t.Errorf("%+v", i)
	}
	stop(t, c)
	goleak.VerifyNone(t, before)
	if strings.Contains(l.String(), "red key") {
		t.Errorf("the prompt is in the log:\n%s", l)
	}
	// The directory can be used again at once, journal, keys and all.
	again, err := Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, again)
	goleak.VerifyNone(t, before)
}

// Wherever a start fails, what had been started is gone: the next start in the same directory works.
func TestFailedStartLeavesNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	o, _ := options(t)
	for name, change := range map[string]func(*Options){
		"model":    func(o *Options) { o.Model.Path = filepath.Join(o.Data, "none.gguf") },
		"limit":    func(o *Options) { o.Model.MaxLen = 1025 },
		"exposure": func(o *Options) { o.Door.HTTP = "0.0.0.0:0" },
		"http":     func(o *Options) { o.Door.HTTP = "256.0.0.1:0" },
		"nats":     func(o *Options) { o.Bus.Listen = "256.0.0.1:0" },
		"variant":  func(o *Options) { o.Pool.Variant = "none" },
		"keys":     func(o *Options) { o.Keys = filepath.Join(o.Data, "lock") },
	} {
		bad := o
		change(&bad)
		c, err := Up(t.Context(), bad)
		if err == nil {
			t.Errorf("%s: it started", name)
			stop(t, c)
		}
		goleak.VerifyNone(t, before)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Up(cancelled, o); err == nil {
		t.Error("cancelled: it started")
	}
	c, err := Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, c)
	goleak.VerifyNone(t, before)
}

// Single roles in one process, the bus last: each waits for what it needs.
func TestRolesWait(t *testing.T) {
	before := goleak.IgnoreCurrent()
	o, l := options(t)
	busAt := o
	listener, err := Listen(t.Context(), "nats", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	busAt.Bus.Listen = listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	type result struct {
		c   *Cluster
		err error
	}
	started := make(chan result, 3)
	for _, r := range []struct {
		id    string
		start func(context.Context, Options) (*Cluster, error)
	}{{"d1", Decode}, {"p1", Prefill}, {"r1", Router}} {
		role := o
		role.ID, role.Bus = r.id, BusOptions{URLs: []string{"nats://" + busAt.Bus.Listen}, Prefix: "quire"}
		go func() {
			c, err := r.start(t.Context(), role)
			started <- result{c, err}
		}()
	}
	b, err := Bus(t.Context(), busAt)
	if err != nil {
		t.Fatal(err)
	}
	var roles []*Cluster
	var router *Cluster
	for range 3 {
		r := <-started
		if r.err != nil {
			t.Fatal(r.err)
		}
		r.c.LogReady()
		if r.c.Info().HTTP != "" {
			router = r.c
		}
		roles = append(roles, r.c)
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		got := ask(t, router)
		if strings.Contains(got, "The red key is under the bridge.") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %s\n%s", got, l)
		}
	}
	for _, c := range append(roles, b) {
		stop(t, c)
	}
	goleak.VerifyNone(t, before)
}

func TestSlug(t *testing.T) {
	for name, want := range map[string]string{
		"quire-tiny":      "quire-tiny-01020304",
		"Qwen/Qwen3-0.6B": "qwen-qwen3-0-6b-01020304",
		"SmolLM2-135M-Instruct.Q4_1-and-much-more": "smollm2-135m-instruct-q-01020304",
		"模型": "model-01020304",
		"--": "model-01020304",
	} {
		got := slug(name, [32]byte{1, 2, 3, 4})
		if got != want || len(got) > 32 {
			t.Errorf("%s: want %s, got %s", name, want, got)
		}
	}
}

func TestBanner(t *testing.T) {
	o, _ := options(t)
	o.Door.Keys = map[string]string{"sk-secret": "acme"}
	c := begin(o)
	c.took = 400 * time.Millisecond
	c.info = Info{Model: ModelInfo{Name: "m", BuiltIn: true, Bytes: 2.6e6, Context: 2048}, Device: "cpu", NATS: "nats://127.0.0.1:4222", Server: "2.15.2",
		HTTP: "127.0.0.1:8080", Workers: []WorkerInfo{{"prefill", "p1", 512, 16}}, Limit: 2048, LimitedBy: "model context"}
	var b bytes.Buffer
	c.Banner(&b, false)
	for _, want := range []string{"quire 0.0.0   m (built in, 2.6 MB)   context 2,048", "pool 8,192 tokens (512 pages of 16)", "set by: model context",
		"ready in 0.4 s", "API keys asked for: 1", `-H "Authorization: Bearer $KEY"`, "quire chat --key", "a bigger model"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "sk-secret") || strings.Contains(b.String(), "\x1b") {
		t.Errorf("a key or a colour is in\n%s", b.String())
	}
}
