package bustest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"quire/bus"
)

func coreOrder(t *testing.T, b bus.Bus) {
	got := make(chan bus.Msg, 1000)
	_, err := b.Subscribe("a.*.c", "", func(m bus.Msg) { got <- m })
	ok(t, "subscribe", err)
	ok(t, "publish", b.Publish("a.b", nil, []byte("other depth")))
	ok(t, "publish", b.Publish("a.b.d", nil, []byte("other token")))
	for i := range 200 {
		ok(t, "publish", b.Publish("a.b.c", map[string][]string{"Quire-N": {fmt.Sprint(i), "x"}}, []byte{byte(i)}))
	}
	for i := range 200 {
		m := get(t, "message", got)
		if m.Data[0] != byte(i) || m.Subject != "a.b.c" || len(m.Header["Quire-N"]) != 2 || m.Header["Quire-N"][0] != fmt.Sprint(i) {
			t.Fatalf("message %d: %v on %s, header %v", i, m.Data, m.Subject, m.Header)
		}
	}
	for _, bad := range []string{"", "a..b", "a.*", "a.>", "a b"} {
		if b.Publish(bad, nil, nil) == nil {
			t.Errorf("published to %q", bad)
		}
	}
}

func coreQueue(t *testing.T, b bus.Bus) {
	got := make(chan string, 100)
	for _, who := range []string{"x", "y"} {
		_, err := b.Subscribe("work", "q", func(bus.Msg) { got <- who })
		ok(t, "subscribe", err)
	}
	_, err := b.Subscribe("work", "", func(bus.Msg) { got <- "all" })
	ok(t, "subscribe", err)
	const n = 20
	for range n {
		ok(t, "publish", b.Publish("work", nil, []byte("w")))
	}
	count := map[string]int{}
	for range 2 * n {
		count[get(t, "message", got)]++
	}
	none(t, "message too many", got, 20*time.Millisecond)
	if count["all"] != n || count["x"]+count["y"] != n {
		t.Fatalf("deliveries %v of %d messages", count, n)
	}
}

func coreRequest(t *testing.T, b bus.Bus) {
	ctx := within(t)
	start := time.Now()
	_, err := b.Request(ctx, "nobody.here", []byte("?"))
	is(t, "request to nobody", err, bus.ErrNoResponders)
	if d := time.Since(start); d > patience/4 {
		t.Fatalf("no responders took %v", d)
	}
	_, err = b.Subscribe("echo", "", func(m bus.Msg) { _ = b.Publish(m.Reply, m.Header, append([]byte("re: "), m.Data...)) })
	ok(t, "subscribe", err)
	m, err := b.Request(ctx, "echo", []byte("hello"))
	ok(t, "request", err)
	if string(m.Data) != "re: hello" || len(m.Header) != 0 {
		t.Fatalf("answer %q, header %v", m.Data, m.Header)
	}
	m, err = b.Request(bus.WithHeader(ctx, map[string][]string{"Quire-N": {"1"}}), "echo", []byte("hello"))
	ok(t, "request with a header", err)
	if string(m.Data) != "re: hello" || len(m.Header["Quire-N"]) != 1 {
		t.Fatalf("answer %q, header %v", m.Data, m.Header)
	}
	_, err = b.Subscribe("silent", "", func(bus.Msg) {})
	ok(t, "subscribe", err)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = b.Request(short, "silent", nil)
	is(t, "request to one who is silent", err, bus.ErrTimeout)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err = b.Request(gone, "silent", nil)
	is(t, "cancelled request", err, context.Canceled)
}

func maxPayload(t *testing.T, b bus.Bus) {
	ctx := shared(t, b)
	big := make([]byte, b.Limits().MaxPayload+1)
	is(t, "publish", b.Publish("big", nil, big), bus.ErrTooLarge)
	_, err := b.Request(ctx, "big", big)
	is(t, "request", err, bus.ErrTooLarge)
	_, err = b.Enqueue(ctx, bus.Enqueue{Subject: job(1), Data: big})
	is(t, "enqueue", err, bus.ErrTooLarge)
	header := map[string][]string{"Quire-X": {"headers count too"}}
	is(t, "publish with header", b.Publish("big", header, big[:len(big)-1]), bus.ErrTooLarge)
	got := make(chan bus.Msg, 1)
	_, err = b.Subscribe("big", "", func(m bus.Msg) { got <- m })
	ok(t, "subscribe", err)
	ok(t, "publish the largest", b.Publish("big", nil, big[:len(big)-1]))
	if m := get(t, "the largest", got); len(m.Data) != len(big)-1 {
		t.Fatalf("received %d of %d bytes", len(m.Data), len(big)-1)
	}
}

func coreDrain(t *testing.T, b bus.Bus) {
	started, release, ended := make(chan bool), make(chan bool), make(chan bool, 1)
	sub, err := b.Subscribe("svc", "", func(bus.Msg) { started <- true; <-release; ended <- true })
	ok(t, "subscribe", err)
	ok(t, "publish", b.Publish("svc", nil, []byte("x")))
	get(t, "callback", started)
	drained := make(chan error, 1)
	go func() { drained <- sub.Drain() }()
	none(t, "Drain returned before the callback did", drained, 20*time.Millisecond)
	close(release)
	ok(t, "drain", get(t, "drain", drained))
	select {
	case <-ended:
	default:
		t.Fatal("Drain returned while the callback ran")
	}
	_, err = b.Request(within(t), "svc", nil)
	is(t, "request after drain", err, bus.ErrNoResponders)
	ok(t, "second drain", sub.Drain())
}

func states(t *testing.T, b bus.Bus) {
	got := make(chan bus.State, 10)
	b.Watch(func(s bus.State, _ error) { got <- s })
	select {
	case s := <-got:
		if s != bus.Up {
			t.Fatalf("first state %v, want up", s)
		}
	default:
		t.Fatal("Watch returned before its first call")
	}
	silent := make(chan bus.State, 10)
	b.Watch(func(s bus.State, _ error) { silent <- s })()
	<-silent
	l := b.Limits()
	if l.MaxPayload < bus.MinPayload || l.Server == "" || l.URL == "" {
		t.Fatalf("limits %+v", l)
	}
	ok(t, "close", b.Close())
	if s := get(t, "state", got); s != bus.Closed {
		t.Fatalf("state %v after Close", s)
	}
	none(t, "a cancelled watch", silent, 10*time.Millisecond)
	is(t, "publish", b.Publish("x", nil, nil), bus.ErrClosed)
	_, err := b.Enqueue(within(t), bus.Enqueue{Subject: job(1)})
	is(t, "enqueue", err, bus.ErrClosed)
	_, err = b.Request(within(t), "x", nil)
	is(t, "request", err, bus.ErrClosed)
	_, err = b.Subscribe("x", "", func(bus.Msg) {})
	is(t, "subscribe", err, bus.ErrClosed)
	is(t, "streams", b.Streams().EnsureShared(within(t)), bus.ErrClosed)
	ok(t, "second close", b.Close())
}

func epochs(t *testing.T, b bus.Bus) {
	ctx := within(t)
	_, err := b.Streams().NextEpoch(ctx, "decode", "d1")
	is(t, "without bucket", err, bus.ErrNoStream)
	shared(t, b)
	first, err := b.Streams().NextEpoch(ctx, "decode", "d1")
	ok(t, "epoch", err)
	seen := make(chan uint64, 10)
	cancel, err := b.Streams().WatchEpoch(ctx, "decode", "d1", func(e uint64) { seen <- e })
	ok(t, "watch", err)
	if got := get(t, "present epoch", seen); got != first || first == 0 {
		t.Fatalf("watch says %d, taken %d", got, first)
	}
	other, err := b.Streams().NextEpoch(ctx, "decode", "d2")
	ok(t, "epoch", err)
	second, err := b.Streams().NextEpoch(ctx, "decode", "d1")
	ok(t, "epoch", err)
	if second <= first || other == 0 {
		t.Fatalf("epochs %d, %d, of another id %d", first, second, other)
	}
	if got := get(t, "later epoch", seen); got != second {
		t.Fatalf("watch says %d, taken %d", got, second)
	}
	cancel()
	_, err = b.Streams().NextEpoch(ctx, "decode", "d1")
	ok(t, "epoch", err)
	none(t, "epoch after cancel", seen, 50*time.Millisecond)
}

func apiDoor(t *testing.T, b bus.Bus) {
	api := b.(bus.API)
	spec := bus.ServiceSpec{
		Name: "quire", Version: "1.0.0", Queue: "router",
		Endpoints: []bus.Endpoint{{Name: "chat", Subject: names.API("*", "chat")}, {Name: "models", Subject: names.API("*", "models")}},
		Stats:     func() any { return map[string]int{"requests": 1} },
	}
	calls := make(chan *bus.Call, 10)
	sub, err := api.Serve(within(t), spec, func(c *bus.Call) { calls <- c })
	ok(t, "serve", err)
	go func() {
		for c := range calls {
			if c.Endpoint == "models" {
				_ = c.Reply([]byte(c.Tenant))
				continue
			}
			for i := range 500 {
				_ = c.Send(map[string][]string{"Quire-N": {fmt.Sprint(i)}}, append(c.Data, byte(i)))
			}
			_ = c.End()
		}
	}()
	defer close(calls)
	m, err := b.Request(within(t), names.API("acme", "models"), nil)
	ok(t, "models", err)
	if string(m.Data) != "acme" {
		t.Fatalf("tenant %q", m.Data)
	}
	n := 0
	err = api.Stream(within(t), bus.Ask{Subject: names.API("acme", "chat"), Data: []byte("p")}, func(m bus.Msg) error {
		if m.Header["Quire-N"][0] != fmt.Sprint(n) || m.Data[1] != byte(n) {
			return fmt.Errorf("frame %d: %v", n, m)
		}
		n++
		return nil
	})
	ok(t, "stream", err)
	if n != 500 {
		t.Fatalf("%d frames of 500", n)
	}
	ok(t, "drain", sub.Drain())
	err = api.Stream(within(t), bus.Ask{Subject: names.API("acme", "chat")}, nil)
	is(t, "stream after drain", err, bus.ErrNoResponders)
}

func apiFailures(t *testing.T, b bus.Bus) {
	api := b.(bus.API)
	spec := bus.ServiceSpec{
		Name: "quire", Version: "1.0.0", Queue: "router", Endpoints: []bus.Endpoint{{Name: "chat", Subject: names.API("*", "chat")}},
	}
	_, err := api.Serve(within(t), spec, func(c *bus.Call) {
		if string(c.Data) == "silent" {
			return
		}
		if c.Send(nil, nil) == nil || !errors.Is(c.Send(nil, make([]byte, c.Room+1)), bus.ErrTooLarge) {
			t.Error("an empty or too large frame was sent")
		}
		_ = c.Send(nil, []byte("received"))
		_ = c.Fail(429, "too many\r\nrequests", []byte(`{"error":{}}`), true)
	})
	ok(t, "serve", err)
	frames := 0
	err = api.Stream(within(t), bus.Ask{Subject: names.API("acme", "chat"), Data: []byte("x")}, func(bus.Msg) error { frames++; return nil })
	var se *bus.ServiceError
	if !errors.As(err, &se) || se.Code != 429 || se.Text != "too many  requests" || string(se.Data) != `{"error":{}}` || frames != 1 {
		t.Fatalf("error %#v after %d frames", err, frames)
	}
	mine := errors.New("mine")
	err = api.Stream(within(t), bus.Ask{Subject: names.API("acme", "chat"), Data: []byte("x")}, func(bus.Msg) error { return mine })
	is(t, "the callback's error", err, mine)
	err = api.Stream(within(t), bus.Ask{Subject: names.API("acme", "chat"), Data: []byte("silent"), Idle: 50 * time.Millisecond}, nil)
	is(t, "silence", err, bus.ErrTimeout)
	bad := spec
	bad.Queue = ""
	if _, err := api.Serve(within(t), bad, nil); err == nil {
		t.Fatal("a service without a queue group of its own was accepted")
	}
}
