package jet

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"quire/bus"
)

// plain starts a nats-server as an operator would who has not read our manual.
func plain(t *testing.T, o server.Options) string {
	t.Helper()
	o.Host, o.Port, o.NoSigs, o.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	if o.JetStream {
		o.StoreDir = t.TempDir()
	}
	ns, err := server.NewServer(&o)
	must(t, err)
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("server not ready")
	}
	return ns.ClientURL()
}

func TestChecksAtStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, c := range []struct {
		name   string
		server server.Options
		want   []string
	}{
		{"no JetStream", server.Options{}, []string{"JetStream is not enabled", "-js"}},
		{"small payload", server.Options{JetStream: true, MaxPayload: 1024}, []string{"max_payload is 1024", "65536", "max_payload: 8388608"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Connect(ctx, ConnectOptions{URLs: []string{plain(t, c.server)}})
			for _, text := range c.want {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("error %v does not say %q", err, text)
				}
			}
		})
	}
}

// How much of the journal is kept, and for how long, is the operator's: what Quire made may be changed, and is used as it is.
func TestJournalLimitsAreTheOperators(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := connect(t, ConnectOptions{Server: serve(t, ServerOptions{DontListen: true})})
	must(t, c.Streams().EnsureShared(ctx))
	cfg := config(bus.SharedStreams(bus.Names{})[2], 1)
	cfg.MaxBytes, cfg.MaxAge = 2<<30, 400*24*time.Hour
	_, err := c.js.UpdateStream(ctx, cfg)
	must(t, err)
	must(t, c.Streams().EnsureShared(ctx))
	st, err := c.js.Stream(ctx, cfg.Name)
	must(t, err)
	if got := st.CachedInfo().Config; got.MaxBytes != cfg.MaxBytes || got.MaxAge != cfg.MaxAge || !got.DenyDelete || !got.DenyPurge || got.Replicas != 1 {
		t.Errorf("%+v", got)
	}
	for _, f := range c.Inspect(ctx) {
		if f.Name == "stream QUIRE_JOURNAL" && (!f.OK || !strings.Contains(f.Text, "bytes of 2147483648, kept for 9600h")) {
			t.Errorf("%+v", f)
		}
	}
	// Nobody takes anything out of it, not even who made it.
	seq, err := c.Enqueue(ctx, bus.Enqueue{Subject: bus.Names{}.Journal("verdict", "decode-d1"), Data: []byte("fact")})
	must(t, err)
	if err := c.Streams().DeleteMessage(ctx, cfg.Name, seq); err == nil {
		t.Error("a record is deleted")
	}
	if err := c.Streams().Purge(ctx, cfg.Name, ">"); err == nil {
		t.Error("the journal is purged")
	}
	cfg.DenyDelete, cfg.DenyPurge = false, false
	if _, err := c.js.UpdateStream(ctx, cfg); err == nil {
		t.Error("the journal's protection is taken away")
	}
}

func TestStreamConfiguredOtherwise(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	var n bus.Names
	for _, change := range []struct {
		spec  int
		edit  func(*jetstream.StreamConfig)
		names []string
	}{
		{0, func(s *jetstream.StreamConfig) { s.Retention = jetstream.LimitsPolicy }, []string{"QUIRE_JOBS", "retention is Limits", "needs WorkQueue"}},
		{1, func(s *jetstream.StreamConfig) { s.MaxAge = time.Hour }, []string{"QUIRE_CTL", "max_age is 1h0m0s", "needs 1m0s"}},
		{2, func(s *jetstream.StreamConfig) { s.DenyPurge = false }, []string{"QUIRE_JOURNAL", "deny_purge is false", "nats stream"}},
		{2, func(s *jetstream.StreamConfig) { s.Storage = jetstream.MemoryStorage }, []string{"storage is Memory", "needs File"}},
	} {
		c := connect(t, ConnectOptions{Server: serve(t, ServerOptions{DontListen: true})})
		cfg := config(bus.SharedStreams(n)[change.spec], 1)
		change.edit(&cfg)
		_, err := c.js.CreateStream(ctx, cfg)
		must(t, err)
		err = c.Streams().EnsureShared(ctx)
		for _, text := range change.names {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("error %v does not say %q", err, text)
			}
		}
		must(t, c.js.DeleteStream(ctx, cfg.Name))
		must(t, c.Streams().EnsureShared(ctx))
	}
}

func TestForeignStream(t *testing.T) {
	t.Parallel()
	c := connect(t, ConnectOptions{Server: serve(t, ServerOptions{DontListen: true})})
	ctx := context.Background()
	must(t, c.Streams().EnsureShared(ctx))
	for _, f := range c.Inspect(ctx) {
		if !f.OK {
			t.Errorf("%s: %s", f.Name, f.Text)
		}
	}
	_, err := c.js.CreateStream(ctx, jetstream.StreamConfig{Name: "AUDIT", Subjects: []string{"quire.v1.>"}})
	must(t, err)
	if err := c.Streams().EnsureShared(ctx); err == nil || !strings.Contains(err.Error(), "nats stream rm AUDIT") {
		t.Errorf("a stream over the API's subjects: %v", err)
	}
	bad := 0
	for _, f := range c.Inspect(ctx) {
		if !f.OK {
			bad++
		}
	}
	if bad != 1 {
		t.Errorf("%d findings, want 1", bad)
	}
	_, err = c.js.UpdateStream(ctx, jetstream.StreamConfig{Name: "AUDIT", Subjects: []string{"quire.v1.>"}, NoAck: true})
	must(t, err)
	must(t, c.Streams().EnsureShared(ctx))
}

func TestBucketThatForgets(t *testing.T) {
	c := connect(t, ConnectOptions{Server: serve(t, ServerOptions{DontListen: true})})
	ctx := context.Background()
	_, err := c.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: bus.Names{}.EpochBucket(), Storage: jetstream.MemoryStorage})
	must(t, err)
	if err := c.Streams().EnsureShared(ctx); err == nil || !strings.Contains(err.Error(), "storage is Memory") {
		t.Errorf("epochs in memory: %v", err)
	}
}

func TestNoRoomForTheJournal(t *testing.T) {
	t.Parallel()
	c := connect(t, ConnectOptions{Server: serve(t, ServerOptions{DontListen: true, MaxStore: 100 << 20})})
	err := c.Streams().EnsureShared(context.Background())
	if !errors.Is(err, bus.ErrFull) || !strings.Contains(err.Error(), "max_file_store") || !strings.Contains(err.Error(), "1073741824") {
		t.Errorf("error %v", err)
	}
	small := connect(t, ConnectOptions{Server: serve(t, ServerOptions{DontListen: true, MaxStore: 100 << 20}), JournalBytes: 10 << 20})
	must(t, small.Streams().EnsureShared(context.Background()))
}

func TestVersions(t *testing.T) {
	for version, want := range map[string]bool{
		"2.14.0": true, "2.15.2": true, "3.0.0": true, "2.12.7": true, "2.12.10": true, "2.11.16": true, "2.14.1-RC.1": true,
		"2.13.9": false, "2.12.6": false, "2.11.15": false, "2.10.29": false, "2.9.10": false, "1.99.99": false, "": false, "x.y.z": false,
		"2.12.7-RC.2": false,
	} {
		if got := safeVersion(version); got != want {
			t.Errorf("version %q: safe %v, want %v", version, got, want)
		}
	}
}

func TestPortInUse(t *testing.T) {
	s := serve(t, ServerOptions{})
	_, err := Serve(ServerOptions{Addr: s.Addr(), Data: t.TempDir()})
	var used InUse
	if !errors.As(err, &used) || used.Version != s.Version() || used.Addr != s.Addr() {
		t.Fatalf("error %#v", err)
	}
	want := s.Addr() + " is in use (a NATS server " + s.Version() + " answers there). Use it with --nats-url nats://" + s.Addr() +
		", or pick a free port with --nats 127.0.0.1:0."
	if used.Error() != want {
		t.Errorf("says\n%s, want\n%s", used, want)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_ = conn.Close()
		}
	}()
	_, err = Serve(ServerOptions{Addr: l.Addr().String(), Data: t.TempDir()})
	must(t, l.Close())
	<-served
	if !errors.As(err, &used) || used.Version != "" || !strings.Contains(used.Error(), "not by a NATS server") {
		t.Fatalf("error %#v", err)
	}
}

func TestOpenServerBeyondLoopback(t *testing.T) {
	_, err := Serve(ServerOptions{Addr: "0.0.0.0:0", Data: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "--insecure") {
		t.Fatalf("error %v", err)
	}
	serve(t, ServerOptions{Addr: "0.0.0.0:0", Insecure: true})
	serve(t, ServerOptions{Addr: "0.0.0.0:0", Token: "secret"})
	for _, addr := range []string{"nonsense", "127.0.0.1:x", "127.0.0.1:70000"} {
		if _, err := Serve(ServerOptions{Addr: addr, Data: t.TempDir()}); err == nil {
			t.Errorf("address %q was accepted", addr)
		}
	}
}
