package cluster

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quire/keys"
)

func find(t *testing.T, list []Finding, name string) Finding {
	t.Helper()
	for _, f := range list {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no finding %q in %+v", name, list)
	return Finding{}
}

func TestCheckOfAFreshMachine(t *testing.T) {
	o, _ := options(t)
	for _, f := range Check(t.Context(), o) {
		if f.State == Fail {
			t.Errorf("%s: %s", f.Name, f.Text)
		}
	}
	if _, err := os.Stat(o.Data); err == nil {
		t.Error("the check made the data directory")
	}
}

func TestCheckOfARunningCluster(t *testing.T) {
	o, _ := options(t)
	c, err := Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, c)
	o.Door.HTTP, o.Bus.Listen = c.Info().HTTP, strings.TrimPrefix(c.Info().NATS, "nats://")
	list := Check(t.Context(), o)
	for _, f := range list {
		if f.State == Fail {
			t.Errorf("%s: %s", f.Name, f.Text)
		}
	}
	for name, want := range map[string]string{"http": "Quire 0.0.0 answers", "nats": "a NATS server 2.15.2 answers", "bus": "JetStream on",
		"streams": "all as they should be", "router": "is ready", "keys": "may sign as bus, router, prefill, decode"} {
		if f := find(t, list, name); !strings.Contains(f.Text, want) {
			t.Errorf("%s: want %q, got %q", name, want, f.Text)
		}
	}
}

func TestCheckFindsWhatWouldStopServing(t *testing.T) {
	stranger := httptest.NewServer(nil)
	defer stranger.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(t.TempDir(), "keys")
	if _, err := keys.Ensure(open); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(open, "router.seed"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		change     func(*Options)
	}{
		{"http", "an HTTP server answers there", func(o *Options) { o.Door.HTTP = stranger.Listener.Addr().String() }},
		{"nats", "is in use", func(o *Options) { o.Bus.Listen = stranger.Listener.Addr().String() }},
		{"data", "is no directory", func(o *Options) { o.Data = filepath.Join(file, "q") }},
		{"keys", "chmod 600", func(o *Options) { o.Keys = open }},
		{"bus", "connect to", func(o *Options) { o.Bus.URLs = []string{"nats://127.0.0.1:1"} }},
		{"model", "none.gguf", func(o *Options) { o.Model.Path = "none.gguf" }},
		{"model", "file", func(o *Options) { o.Model.Path = file }},
		{"limit", "--max-model-len 1025", func(o *Options) { o.Model.MaxLen = 1025 }},
		{"doors", "--api-key", func(o *Options) { o.Door.HTTP = "0.0.0.0:0" }},
		{"cpu", "none", func(o *Options) { o.Pool.Variant = "none" }},
	} {
		o, _ := options(t)
		c.change(&o)
		if f := find(t, Check(t.Context(), o), c.name); f.State != Fail || !strings.Contains(f.Text, c.want) {
			t.Errorf("%s: want a failure with %q, got %v %q", c.name, c.want, f.State, f.Text)
		}
	}
}
