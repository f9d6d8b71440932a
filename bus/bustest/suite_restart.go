package bustest

import (
	"testing"

	"quire/bus"
)

// Restart takes the server away under two live connections, c and other, and brings it back with its disk: what the services
// rely on then. c makes the streams, other works on jobs.
func Restart(t *testing.T, c, other bus.Bus, stop, start func()) {
	ctx := shared(t, c)
	ok(t, "EnsureKV", c.Streams().EnsureKV(ctx, "d1", 1))
	epoch, err := c.Streams().NextEpoch(ctx, "decode", "d1")
	ok(t, "epoch", err)
	epochs := make(chan uint64, 10)
	_, err = c.Streams().WatchEpoch(ctx, "decode", "d1", func(e uint64) { epochs <- e })
	ok(t, "watch epoch", err)
	get(t, "epoch", epochs)
	frames, _ := collect(t, c, bus.Consumer{Stream: names.KVStream("d1", 1), Name: "kv", Subjects: []string{names.AllKV("d1", 1)}})
	want := make(chan struct{}, 1)
	want <- struct{}{} // a pull that waits through the restart
	worker := jobs()
	worker.Want, worker.MaxDeliver = want, 1
	work, _ := collect(t, other, worker)
	_, err = c.Subscribe("ping", "", func(m bus.Msg) { _ = c.Publish(m.Reply, nil, []byte("pong")) })
	ok(t, "subscribe", err)
	record := enqueue(t, c, names.Journal("verdict", "d1"), "before")
	enqueue(t, c, names.KV("d1", 1, "a-1"), "before")
	stale := get(t, "frame", frames)
	states, otherStates := watch(t, c), watch(t, other)

	stop()
	for _, ch := range []<-chan bus.State{states, otherStates} {
		if s := get(t, "state", ch); s != bus.Down {
			t.Fatalf("state %v, want down", s)
		}
	}
	is(t, "publish while down", c.Publish("ping", nil, nil), bus.ErrDown)
	_, err = c.Enqueue(ctx, bus.Enqueue{Subject: job(1)})
	is(t, "enqueue while down", err, bus.ErrDown)
	_, err = c.Request(ctx, "ping", nil)
	is(t, "request while down", err, bus.ErrDown)
	start()
	for _, ch := range []<-chan bus.State{states, otherStates} {
		if s := get(t, "state", ch); s != bus.Up {
			t.Fatalf("state %v, want up", s)
		}
	}

	// The streams are there when c says Up; the consumers follow.
	enqueue(t, c, names.KV("d1", 1, "b-1"), "after")
	d := get(t, "frame after restart", frames)
	if string(d.Data) != "after" || d.Sequence != 1 {
		t.Fatalf("delivered %q, sequence %d, of a stream that is empty after a restart", d.Data, d.Sequence)
	}
	is(t, "ack of a message of the stream's earlier life", stale.Ack(), bus.ErrDown)
	ok(t, "ack", d.Ack())
	enqueue(t, c, job(1), "job")
	ok(t, "ack", get(t, "job after restart", work).Ack())
	m, err := other.Request(ctx, "ping", nil)
	ok(t, "request", err)
	if string(m.Data) != "pong" {
		t.Fatalf("answer %q", m.Data)
	}
	if seq := enqueue(t, c, names.Journal("verdict", "d1"), "after"); seq != record+1 {
		t.Fatalf("journal sequence %d after restart, %d before: the disk must survive", seq, record)
	}
	next, err := c.Streams().NextEpoch(ctx, "decode", "d1")
	ok(t, "epoch", err)
	if next <= epoch {
		t.Fatalf("epoch %d after restart, %d before", next, epoch)
	}
	for e := epoch; e != next; e = get(t, "epoch after restart", epochs) {
	}
}

// watch collects changes of state; the present one is Up.
func watch(t *testing.T, b bus.Bus) <-chan bus.State {
	t.Helper()
	ch := make(chan bus.State, 10)
	b.Watch(func(s bus.State, _ error) { ch <- s })
	if s := get(t, "first state", ch); s != bus.Up {
		t.Fatalf("first state %v, want up", s)
	}
	return ch
}
