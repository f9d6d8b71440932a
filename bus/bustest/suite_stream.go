package bustest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"quire/bus"
)

func enqueueFailures(t *testing.T, b bus.Bus) {
	ctx := within(t)
	_, err := b.Enqueue(ctx, bus.Enqueue{Subject: job(1), Data: []byte("x")})
	is(t, "without stream", err, bus.ErrNoStream)
	_, err = b.Consume(ctx, jobs(), func(bus.Delivery) {})
	is(t, "consume without stream", err, bus.ErrNoStream)
	shared(t, b)
	shared(t, b) // again: nothing changes
	_, err = b.Enqueue(ctx, bus.Enqueue{Subject: job(1), Data: []byte("x"), Expect: names.ControlStream()})
	is(t, "of another stream", err, bus.ErrNoStream)
	first, err := b.Enqueue(ctx, bus.Enqueue{Subject: job(1), Data: []byte("x"), Expect: names.JobsStream()})
	ok(t, "enqueue", err)
	if second := enqueue(t, b, job(2), "y"); second != first+1 {
		t.Fatalf("sequences %d, %d", first, second)
	}
	for _, bad := range []string{"", "a..b", "a.*"} {
		if _, err := b.Enqueue(ctx, bus.Enqueue{Subject: bad}); err == nil {
			t.Errorf("enqueued to %q", bad)
		}
	}
}

func messageIDs(t *testing.T, b bus.Bus) {
	ctx := shared(t, b)
	put := func(id, data string) (uint64, error) {
		return b.Enqueue(ctx, bus.Enqueue{Subject: job(1), ID: id, Data: []byte(data), Header: map[string][]string{"Quire-A": {"b"}}})
	}
	first, err := put("one", "x")
	ok(t, "first", err)
	again, err := put("one", "x")
	is(t, "the same", err, bus.ErrDuplicate)
	if again != first {
		t.Fatalf("duplicate is sequence %d, first %d", again, first)
	}
	_, err = put("one", "other content")
	is(t, "the same id with other content", err, bus.ErrDuplicate)
	_, err = put("two", "x")
	ok(t, "another id", err)
	got, _ := collect(t, b, jobs())
	for _, want := range []string{"x", "x"} {
		d := get(t, "delivery", got)
		if string(d.Data) != want || d.Header["Quire-A"][0] != "b" {
			t.Fatalf("delivered %q with %v", d.Data, d.Header)
		}
		ok(t, "ack", d.Ack())
	}
	none(t, "a duplicate", got, 30*time.Millisecond)
	ok(t, "purge", b.Streams().Purge(ctx, names.JobsStream(), job(1)))
	_, err = put("two", "x")
	is(t, "an id after purge", err, bus.ErrDuplicate)
}

// enqueueCopies: what was enqueued is the caller's again, who writes the next message there.
func enqueueCopies(t *testing.T, b bus.Bus) {
	ctx := shared(t, b)
	data := make([]byte, 300<<10) // more than a connection's buffer
	for i := range 3 {
		for k := range data {
			data[k] = byte('a' + i)
		}
		_, err := b.Enqueue(ctx, bus.Enqueue{Subject: job(1), Data: data})
		ok(t, "enqueue", err)
	}
	clear(data)
	got, _ := collect(t, b, jobs())
	for i := range 3 {
		d := get(t, "delivery", got)
		if want := bytes.Repeat([]byte{byte('a' + i)}, len(data)); !bytes.Equal(d.Data, want) {
			t.Fatalf("message %d has changed after it was enqueued: begins with %q", i, d.Data[:min(8, len(d.Data))])
		}
		ok(t, "ack", d.Ack())
	}
}

func streamOrder(t *testing.T, b bus.Bus) {
	shared(t, b)
	const n = 50
	next := make([]int, 2)
	done := make(chan bool, 1)
	seen := 0
	consume(t, b, jobs(), func(d bus.Delivery) {
		var who, i int
		if _, err := fmt.Sscanf(string(d.Data), "%d %d", &who, &i); err != nil || next[who] != i || d.Delivered != 1 {
			t.Errorf("%q of subject %d, delivery %d, want %d", d.Data, who, d.Delivered, next[who])
		}
		next[who]++
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
		if seen++; seen == 2*n {
			done <- true
		}
	})
	for i := range n {
		for who := range 2 {
			enqueue(t, b, job(who), fmt.Sprintf("%d %d", who, i))
		}
	}
	get(t, "all messages", done)
}

func redelivery(t *testing.T, b bus.Bus) {
	shared(t, b)
	c := jobs()
	c.AckWait = 200 * time.Millisecond
	got, _ := collect(t, b, c)
	seq := enqueue(t, b, job(1), "x")
	first := get(t, "first", got)
	start := time.Now()
	second := get(t, "second", got)
	if first.Delivered != 1 || second.Delivered != 2 || second.Sequence != seq || first.Sequence != seq {
		t.Fatalf("deliveries %d, %d of sequences %d, %d", first.Delivered, second.Delivered, first.Sequence, second.Sequence)
	}
	if d := time.Since(start); d < 100*time.Millisecond {
		t.Fatalf("redelivered after %v", d)
	}
	ok(t, "ack", second.Ack())
	if second.Ack() == nil {
		t.Error("settled twice")
	}
	none(t, "delivery after the ack", got, 500*time.Millisecond)
}

func deliverOnce(t *testing.T, b bus.Bus) {
	ctx := shared(t, b)
	c := jobs()
	c.AckWait, c.MaxDeliver = 100*time.Millisecond, 1
	got, _ := collect(t, b, c)
	seq := enqueue(t, b, job(1), "x")
	d := get(t, "delivery", got)
	none(t, "second delivery", got, 400*time.Millisecond)
	ok(t, "delete what nobody acknowledged", b.Streams().DeleteMessage(ctx, c.Stream, seq))
	if b.Streams().DeleteMessage(ctx, c.Stream, seq) == nil {
		t.Fatal("deleted twice")
	}
	ok(t, "late ack", d.Ack())
}

func termAndNak(t *testing.T, b bus.Bus) {
	shared(t, b)
	c := jobs()
	got, _ := collect(t, b, c)
	enqueue(t, b, job(1), "refused")
	ok(t, "term", get(t, "delivery", got).Term())
	none(t, "delivery after term", got, 50*time.Millisecond)
	enqueue(t, b, job(2), "again")
	ok(t, "nak", get(t, "delivery", got).Nak(0))
	d := get(t, "delivery after nak", got)
	if d.Delivered != 2 {
		t.Fatalf("delivery %d after one nak", d.Delivered)
	}
	start := time.Now()
	ok(t, "nak with delay", d.Nak(200*time.Millisecond))
	d = get(t, "delivery after delay", got)
	if wait := time.Since(start); wait < 150*time.Millisecond || d.Delivered != 3 {
		t.Fatalf("delivery %d after %v", d.Delivered, wait)
	}
	ok(t, "ack", d.Ack())
}

func window(t *testing.T, b bus.Bus) {
	ctx := shared(t, b)
	ok(t, "EnsureKV", b.Streams().EnsureKV(ctx, "d1", 7))
	put := func(handoff string, i int) error {
		_, err := b.Enqueue(ctx, bus.Enqueue{
			Subject: names.KV("d1", 7, handoff), ID: fmt.Sprintf("%s.%d", handoff, i), Data: make([]byte, 1000), Expect: names.KVStream("d1", 7),
		})
		return err
	}
	for i := range bus.KVWindow {
		ok(t, "within the window", put("a-1", i))
	}
	is(t, "beyond the window", put("a-1", bus.KVWindow), bus.ErrFull)
	ok(t, "another hand-off", put("b-1", 0))
	got, _ := collect(t, b, bus.Consumer{
		Stream: names.KVStream("d1", 7), Name: "kv", Subjects: []string{names.AllKV("d1", 7)}, AckWait: 30 * time.Second, MaxPending: 1000,
	})
	ok(t, "ack", get(t, "frame", got).Ack())
	until(t, "the same bytes after an ack", func() bool { return put("a-1", bus.KVWindow) == nil })
	is(t, "stored now", put("a-1", bus.KVWindow), bus.ErrDuplicate)
	for range bus.KVWindow + 1 {
		ok(t, "ack", get(t, "frame", got).Ack())
	}
}

// until tries again until fn says true: acknowledgements are not acknowledged themselves.
func until(t *testing.T, what string, fn func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !fn(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

func want(t *testing.T, b bus.Bus) {
	shared(t, b)
	c := jobs()
	tokens := make(chan struct{})
	c.Want, c.MaxDeliver = tokens, 1
	got, sub := collect(t, b, c)
	for i := range 3 {
		enqueue(t, b, job(i), fmt.Sprint(i))
	}
	none(t, "delivery nobody wanted", got, 50*time.Millisecond)
	for i := range 3 {
		tokens <- struct{}{}
		d := get(t, "wanted delivery", got)
		if string(d.Data) != fmt.Sprint(i) {
			t.Fatalf("delivered %q, want %d", d.Data, i)
		}
		none(t, "a second for one value", got, 20*time.Millisecond)
		ok(t, "ack", d.Ack())
	}
	tokens <- struct{}{} // a pull that waits
	enqueue(t, b, job(4), "4")
	ok(t, "ack", get(t, "delivery", got).Ack())
	ok(t, "drain", sub.Drain())
}

func sharedConsumer(t *testing.T, b bus.Bus) {
	shared(t, b)
	idle, busy := jobs(), jobs()
	none1, tokens := make(chan struct{}), make(chan struct{}, 10)
	idle.Want, busy.Want = none1, tokens
	gotIdle, subIdle := collect(t, b, idle)
	gotBusy, subBusy := collect(t, b, busy)
	for i := range 4 {
		tokens <- struct{}{}
		enqueue(t, b, job(i), "x")
		ok(t, "ack", get(t, "delivery to the one with a free slot", gotBusy).Ack())
	}
	none(t, "delivery to the one without", gotIdle, 20*time.Millisecond)
	// A worker that waits and goes leaves no pull behind: the next message goes to the other at once.
	tokens <- struct{}{}
	none(t, "delivery of nothing", gotBusy, 20*time.Millisecond)
	ok(t, "drain", subBusy.Drain())
	start := time.Now()
	enqueue(t, b, job(9), "y")
	none1 <- struct{}{}
	ok(t, "ack", get(t, "delivery after the other left", gotIdle).Ack())
	if d := time.Since(start); d > patience/4 {
		t.Fatalf("delivered after %v", d)
	}
	ok(t, "drain", subIdle.Drain())
}

func maxPending(t *testing.T, b bus.Bus) {
	shared(t, b)
	c := jobs()
	c.MaxPending = 3
	got, _ := collect(t, b, c)
	for i := range 5 {
		enqueue(t, b, job(i), "x")
	}
	var out []bus.Delivery
	for range 3 {
		out = append(out, get(t, "delivery", got))
	}
	none(t, "delivery beyond MaxPending", got, 50*time.Millisecond)
	ok(t, "ack", out[1].Ack())
	ok(t, "ack", get(t, "delivery after an ack", got).Ack())
	ok(t, "ack", get(t, "delivery after an ack", got).Ack())
}

func consumeAgain(t *testing.T, b bus.Bus) {
	shared(t, b)
	got, sub := collect(t, b, jobs())
	enqueue(t, b, job(1), "one")
	ok(t, "ack", get(t, "delivery", got).Ack())
	ok(t, "drain", sub.Drain())
	ok(t, "second drain", sub.Drain())
	enqueue(t, b, job(2), "two")
	none(t, "delivery after drain", got, 30*time.Millisecond)
	got, _ = collect(t, b, jobs())
	d := get(t, "delivery to the new one", got)
	if string(d.Data) != "two" || d.Delivered != 1 {
		t.Fatalf("delivered %q for the %d. time", d.Data, d.Delivered)
	}
	ok(t, "ack", d.Ack())
}

func drainGivesBack(t *testing.T, b bus.Bus) {
	shared(t, b)
	started, release := make(chan bool, 10), make(chan bool)
	sub := consume(t, b, jobs(), func(d bus.Delivery) {
		started <- true
		<-release
		if err := d.Ack(); err != nil {
			t.Error(err)
		}
	})
	for i := range 4 {
		enqueue(t, b, job(i), fmt.Sprint(i))
	}
	get(t, "callback", started)
	drained := make(chan error, 1)
	go func() { drained <- sub.Drain() }()
	none(t, "Drain returned before the callback did", drained, 50*time.Millisecond)
	close(release)
	ok(t, "drain", get(t, "drain", drained))
	none(t, "callback after drain", started, 20*time.Millisecond)
	got, _ := collect(t, b, jobs())
	var rest []string
	for range 3 {
		d := get(t, "what was not delivered", got)
		rest = append(rest, string(d.Data))
		ok(t, "ack", d.Ack())
	}
	slices.Sort(rest)
	if fmt.Sprint(rest) != "[1 2 3]" {
		t.Fatalf("given back: %v", rest)
	}
}

func overlap(t *testing.T, b bus.Bus) {
	ctx := shared(t, b)
	consume(t, b, jobs(), func(bus.Delivery) {})
	c := jobs()
	c.Name, c.Subjects = "other", []string{names.AllJobs("m", "*")}
	if _, err := b.Consume(ctx, c, func(bus.Delivery) {}); err == nil {
		t.Fatal("two consumers with overlapping filters")
	}
	c.Subjects = []string{names.AllJobs("m", "p2"), names.AllJobs("m", "p3")}
	got, _ := collect(t, b, c)
	for _, pool := range []string{"p2", "p3"} {
		enqueue(t, b, names.Job("m", pool, "h-1"), pool)
		d := get(t, "delivery", got)
		if string(d.Data) != pool {
			t.Fatalf("delivered %q", d.Data)
		}
		ok(t, "ack", d.Ack())
	}
}

func deletePurge(t *testing.T, b bus.Bus) {
	ctx := shared(t, b)
	for _, e := range []uint64{3, 4} {
		ok(t, "EnsureKV", b.Streams().EnsureKV(ctx, "d1", e))
	}
	list, err := b.Streams().Names(ctx, names.KVPrefix())
	ok(t, "names", err)
	if fmt.Sprint(list) != fmt.Sprint([]string{names.KVStream("d1", 3), names.KVStream("d1", 4)}) {
		t.Fatalf("streams %v", list)
	}
	ok(t, "delete", b.Streams().Delete(ctx, names.KVStream("d1", 3)))
	is(t, "delete again", b.Streams().Delete(ctx, names.KVStream("d1", 3)), bus.ErrNoStream)
	_, err = b.Enqueue(ctx, bus.Enqueue{Subject: names.KV("d1", 3, "a-1")})
	is(t, "enqueue to a deleted stream", err, bus.ErrNoStream)
	for i := range 3 {
		enqueue(t, b, names.KV("d1", 4, "a-1"), fmt.Sprint(i))
	}
	enqueue(t, b, names.KV("d1", 4, "b-1"), "stays")
	ok(t, "purge", b.Streams().Purge(ctx, names.KVStream("d1", 4), names.KV("d1", 4, "a-1")))
	got, _ := collect(t, b, bus.Consumer{Stream: names.KVStream("d1", 4), Name: "kv", Subjects: []string{names.AllKV("d1", 4)}})
	if d := get(t, "what the purge left", got); string(d.Data) != "stays" {
		t.Fatalf("delivered %q", d.Data)
	}
	none(t, "purged message", got, 30*time.Millisecond)
	is(t, "purge without stream", b.Streams().Purge(ctx, "NONE", "x"), bus.ErrNoStream)
}

func journalKeeps(t *testing.T, b bus.Bus) {
	ctx := shared(t, b)
	subject := names.Journal("verdict", "d1")
	seq, err := b.Enqueue(ctx, bus.Enqueue{Subject: subject, Data: []byte("fact"), Expect: names.JournalStream()})
	ok(t, "record", err)
	if b.Streams().DeleteMessage(ctx, names.JournalStream(), seq) == nil {
		t.Fatal("a record was deleted")
	}
	if b.Streams().Purge(ctx, names.JournalStream(), subject) == nil {
		t.Fatal("records were purged")
	}
	for _, reader := range []string{"one", "two"} {
		got, sub := collect(t, b, bus.Consumer{Stream: names.JournalStream(), Name: reader, Subjects: []string{names.Journal("*", "*")}})
		d := get(t, "record", got)
		if string(d.Data) != "fact" || d.Sequence != seq {
			t.Fatalf("record %q, sequence %d", d.Data, d.Sequence)
		}
		ok(t, "ack", d.Ack())
		ok(t, "drain", sub.Drain())
	}
}

func emptyKV(t *testing.T, b bus.Bus) {
	ctx := shared(t, b)
	subject := names.KV("d1", 5, "a-1")
	for range 2 {
		ok(t, "EnsureKV", b.Streams().EnsureKV(ctx, "d1", 5))
		_, err := b.Enqueue(ctx, bus.Enqueue{Subject: subject, ID: "frame-0", Data: []byte("left over")})
		ok(t, "the same id in a fresh stream", err)
	}
	ok(t, "EnsureKV", b.Streams().EnsureKV(ctx, "d1", 5))
	got, _ := collect(t, b, bus.Consumer{Stream: names.KVStream("d1", 5), Name: "kv", Subjects: []string{names.AllKV("d1", 5)}})
	none(t, "what an earlier life left", got, 30*time.Millisecond)
}

// staleAck settles a message of a stream that was made again: the message that has its sequence now must not be touched.
func staleAck(t *testing.T, b bus.Bus) {
	ctx := shared(t, b)
	c := bus.Consumer{
		Stream: names.KVStream("d1", 5), Name: "kv", Subjects: []string{names.AllKV("d1", 5)}, AckWait: 200 * time.Millisecond,
	}
	ok(t, "EnsureKV", b.Streams().EnsureKV(ctx, "d1", 5))
	first := enqueue(t, b, names.KV("d1", 5, "a-1"), "old")
	got, sub := collect(t, b, c)
	old := get(t, "delivery", got)
	ok(t, "drain", sub.Drain())
	ok(t, "EnsureKV", b.Streams().EnsureKV(ctx, "d1", 5))
	got, _ = collect(t, b, c)
	if again := enqueue(t, b, names.KV("d1", 5, "b-1"), "new"); again != first {
		t.Fatalf("sequence %d in the new stream, %d in the old", again, first)
	}
	get(t, "delivery", got)
	is(t, "stale ack", old.Ack(), bus.ErrDown)
	d := get(t, "redelivery of what nobody acknowledged", got)
	if string(d.Data) != "new" || d.Delivered != 2 {
		t.Fatalf("delivered %q for the %d. time", d.Data, d.Delivered)
	}
	ok(t, "ack", d.Ack())
}
