package jet

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"quire/bus"
	"quire/bus/bustest"
)

// TestMain fails when a goroutine outlives the servers and connections of the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server of its own for a test.
func serve(t *testing.T, o ServerOptions) *Server {
	t.Helper()
	if o.Data == "" {
		o.Data = t.TempDir()
	}
	if o.Addr == "" && !o.DontListen {
		o.Addr = "127.0.0.1:0"
	}
	s, err := Serve(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// connect connects and closes at the end of the test.
func connect(t *testing.T, o ConnectOptions) *Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	o.reconnectWait = 20 * time.Millisecond
	c, err := Connect(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestContract(t *testing.T) {
	bustest.Run(t, func(t *testing.T) bus.Bus {
		t.Parallel()
		return connect(t, ConnectOptions{Server: serve(t, ServerOptions{DontListen: true})})
	})
}

func TestContractOverTCP(t *testing.T) {
	s := serve(t, ServerOptions{})
	for _, c := range bustest.Cases() {
		switch c.Name {
		case "a subject's window", "API", "request and its failures", "a caller that is gone":
			t.Run(c.Name, func(t *testing.T) { c.Test(t, connect(t, ConnectOptions{URLs: []string{s.URL()}})) })
		}
	}
}

// lines keeps what was logged.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.buf.Bytes(), []byte(text))
}

func logger() (*slog.Logger, *lines) {
	l := &lines{}
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelInfo})), l
}

func await[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: nothing within 20 s", what)
		panic("unreachable")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestRestart takes the server away under live connections and brings it back on the same directory and port.
func TestRestart(t *testing.T) {
	for _, inProcess := range []bool{true, false} {
		name := "tcp"
		if inProcess {
			name = "in process"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			restart(t, inProcess)
		})
	}
}

func restart(t *testing.T, inProcess bool) {
	s := serve(t, ServerOptions{})
	log, logged := logger()
	o := ConnectOptions{URLs: []string{s.URL()}, Log: log}
	if inProcess {
		o.Server = s
	}
	c := connect(t, o)
	other := connect(t, ConnectOptions{URLs: []string{s.URL()}})
	bustest.Restart(t, c, other, s.Stop, func() { must(t, s.Restart()) })
	for text, want := range map[string]int{"bus: connected\"": 1, "connection lost": 1, "connected again": 1} {
		if got := logged.count(text); got != want {
			t.Errorf("%d log lines with %q, want %d:\n%s", got, text, want, logged.buf.String())
		}
	}
}

func TestStartsBeforeTheServer(t *testing.T) {
	t.Parallel()
	first := serve(t, ServerOptions{})
	addr := first.Addr()
	first.Stop()
	log, logged := logger()
	connected := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		c, err := Connect(ctx, ConnectOptions{URLs: []string{"nats://" + addr}, Log: log, reconnectWait: 10 * time.Millisecond})
		if err == nil {
			err = c.Streams().EnsureShared(ctx)
			_ = c.Close()
		}
		connected <- err
	}()
	for end := time.Now().Add(20 * time.Second); logged.count("waiting for NATS") == 0; {
		if time.Now().After(end) {
			t.Fatal("no line says that it waits")
		}
		select {
		case err := <-connected:
			t.Fatalf("connected without a server: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	serve(t, ServerOptions{Addr: addr})
	must(t, await(t, "connection", connected))
	if n := logged.count("waiting for NATS"); n != 1 {
		t.Errorf("%d lines say that it waits", n)
	}
}

// TestConsumerLost deletes a consumer under its reader, as an operator or an idle minute would.
func TestConsumerLost(t *testing.T) {
	t.Parallel()
	c := connect(t, ConnectOptions{Server: serve(t, ServerOptions{DontListen: true})})
	ctx := context.Background()
	var n bus.Names
	must(t, c.Streams().EnsureShared(ctx))
	got := make(chan bus.Delivery, 10)
	_, err := c.Consume(ctx, bus.Consumer{Stream: n.JobsStream(), Name: "jobs", Subjects: []string{n.AllJobs("m", "p")}},
		func(d bus.Delivery) { got <- d })
	must(t, err)
	must(t, c.js.DeleteConsumer(ctx, n.JobsStream(), "jobs"))
	_, err = c.Enqueue(ctx, bus.Enqueue{Subject: n.Job("m", "p", "a-1"), Data: []byte("x")})
	must(t, err)
	must(t, await(t, "delivery by the new consumer", got).Ack())
}

func TestLargeFrames(t *testing.T) {
	t.Parallel()
	c := connect(t, ConnectOptions{Server: serve(t, ServerOptions{DontListen: true})})
	ctx := context.Background()
	var n bus.Names
	must(t, c.Streams().EnsureKV(ctx, "d1", 1))
	again := 0
	done := make(chan bool)
	const frames = 80 // 40 MiB: more than one pull may bring
	seen := 0
	_, err := c.Consume(ctx, bus.Consumer{Stream: n.KVStream("d1", 1), Name: "kv", Subjects: []string{n.AllKV("d1", 1)}, MaxPending: 256},
		func(d bus.Delivery) {
			if d.Delivered > 1 {
				again++
			}
			if err := d.Ack(); err != nil {
				t.Error(err)
			}
			if seen++; seen == frames {
				close(done)
			}
		})
	must(t, err)
	data := make([]byte, 512<<10)
	start := time.Now()
	for sent := 0; sent < frames; {
		_, err := c.Enqueue(ctx, bus.Enqueue{Subject: n.KV("d1", 1, "a-1"), Data: data})
		switch {
		case err == nil:
			sent++
		case !errors.Is(err, bus.ErrFull):
			t.Fatal(err)
		default:
			c.pause(nil, nil, time.Millisecond) // as senders do
		}
	}
	await(t, "all frames", done)
	if again > 0 {
		t.Errorf("%d redeliveries of %d frames", again, frames)
	}
	t.Logf("%d MiB in %v", frames/2, time.Since(start))
}

func TestDataDir(t *testing.T) {
	dir := t.TempDir()
	serve(t, ServerOptions{Data: dir, DontListen: true})
	if _, err := os.Stat(dir + "/jetstream"); err != nil {
		t.Fatal(err)
	}
}

// TestIdleWorker takes no job for longer than the server keeps a consumer, then gets the next one without waiting for
// heartbeats to miss.
func TestIdleWorker(t *testing.T) {
	t.Parallel()
	c := connect(t, ConnectOptions{Server: serve(t, ServerOptions{DontListen: true}), inactive: 200 * time.Millisecond})
	ctx := context.Background()
	var n bus.Names
	must(t, c.Streams().EnsureShared(ctx))
	got, want := make(chan bus.Delivery, 1), make(chan struct{})
	_, err := c.Consume(ctx, bus.Consumer{Stream: n.JobsStream(), Name: "jobs", Subjects: []string{n.AllJobs("m", "p")}, MaxDeliver: 1, Want: want},
		func(d bus.Delivery) { got <- d })
	must(t, err)
	for end := time.Now().Add(20 * time.Second); ; {
		_, err := c.js.Consumer(ctx, n.JobsStream(), "jobs")
		if err != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the server keeps the consumer")
		}
	}
	_, err = c.Enqueue(ctx, bus.Enqueue{Subject: n.Job("m", "p", "a-1"), Data: []byte("x")})
	must(t, err)
	start := time.Now()
	want <- struct{}{}
	must(t, await(t, "job", got).Ack())
	if d := time.Since(start); d > pullHeartbeat {
		t.Errorf("the job came after %v", d)
	}
}

func TestCloseWhileDown(t *testing.T) {
	t.Parallel()
	s := serve(t, ServerOptions{})
	c := connect(t, ConnectOptions{URLs: []string{s.URL()}})
	ctx := context.Background()
	var n bus.Names
	must(t, c.Streams().EnsureShared(ctx))
	_, err := c.Consume(ctx, bus.Consumer{Stream: n.JobsStream(), Name: "jobs", Subjects: []string{n.AllJobs("m", "p")}}, func(bus.Delivery) {})
	must(t, err)
	_, err = c.Subscribe("x", "", func(bus.Msg) {})
	must(t, err)
	states := make(chan bus.State, 10)
	c.Watch(func(s bus.State, _ error) { states <- s })
	await(t, "first state", states)
	s.Stop()
	if st := await(t, "state", states); st != bus.Down {
		t.Fatalf("state %v", st)
	}
	must(t, c.Close())
	if st := await(t, "state", states); st != bus.Closed {
		t.Fatalf("state %v", st)
	}
}
