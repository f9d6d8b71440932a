package bustest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"quire/bus"
)

// Case is one thing that the services rely on.
type Case struct {
	Name string
	Test func(t *testing.T, b bus.Bus)
}

// Run runs every case on a fresh bus, which open closes by t.Cleanup. The bus has no streams yet, uses the default prefix and
// implements bus.API too.
func Run(t *testing.T, open func(t *testing.T) bus.Bus) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) { c.Test(t, open(t)) })
	}
}

// Cases are what Run runs; a test inside a synctest bubble takes them one by one.
func Cases() []Case {
	return []Case{
		{"core order, wildcards and headers", coreOrder},
		{"a queue group shares", coreQueue},
		{"request and its failures", coreRequest},
		{"max payload", maxPayload},
		{"a drained subscription is gone", coreDrain},
		{"enqueue and its failures", enqueueFailures},
		{"message ids", messageIDs},
		{"enqueued bytes are copied", enqueueCopies},
		{"order per subject", streamOrder},
		{"redelivery after AckWait", redelivery},
		{"MaxDeliver 1", deliverOnce},
		{"Term and Nak", termAndNak},
		{"a subject's window", window},
		{"Want", want},
		{"workers share a consumer", sharedConsumer},
		{"MaxPending", maxPending},
		{"a consumer made again", consumeAgain},
		{"a drained consumer gives back", drainGivesBack},
		{"overlapping filters", overlap},
		{"delete, purge and names", deletePurge},
		{"the journal keeps", journalKeeps},
		{"an empty KV stream", emptyKV},
		{"an acknowledgement for an earlier stream", staleAck},
		{"epochs", epochs},
		{"states", states},
		{"API", apiDoor},
		{"API failures", apiFailures},
		{"a caller that is gone", apiGone},
	}
}

const patience = 10 * time.Second

var names bus.Names

func get[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: nothing within %v", what, patience)
		panic("unreachable")
	}
}

// none waits a little for what must not come.
func none[T any](t *testing.T, what string, ch <-chan T, d time.Duration) {
	t.Helper()
	select {
	case v := <-ch:
		t.Fatalf("%s: got %v", what, v)
	case <-time.After(d):
	}
}

func ok(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func is(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: error %v, want %v", what, err, want)
	}
}

// within gives a context for operations that must be quick.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func shared(t *testing.T, b bus.Bus) context.Context {
	t.Helper()
	ctx := within(t)
	ok(t, "EnsureShared", b.Streams().EnsureShared(ctx))
	return ctx
}

func enqueue(t *testing.T, b bus.Bus, subject, data string) uint64 {
	t.Helper()
	seq, err := b.Enqueue(within(t), bus.Enqueue{Subject: subject, Data: []byte(data)})
	ok(t, "enqueue "+data, err)
	return seq
}

// jobs is a consumer of one model's and pool's jobs.
func jobs() bus.Consumer {
	return bus.Consumer{
		Stream: names.JobsStream(), Name: "jobs-m-p", Subjects: []string{names.AllJobs("m", "p")}, AckWait: 30 * time.Second,
	}
}

func job(n int) string { return names.Job("m", "p", fmt.Sprintf("h%d-1", n)) }

func consume(t *testing.T, b bus.Bus, c bus.Consumer, fn func(bus.Delivery)) bus.Sub {
	t.Helper()
	s, err := b.Consume(within(t), c, fn)
	ok(t, "consume", err)
	return s
}

// collect sends deliveries to a channel, unsettled.
func collect(t *testing.T, b bus.Bus, c bus.Consumer) (<-chan bus.Delivery, bus.Sub) {
	t.Helper()
	ch := make(chan bus.Delivery, 1000)
	return ch, consume(t, b, c, func(d bus.Delivery) { ch <- d })
}
