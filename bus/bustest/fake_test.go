package bustest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"quire/bus"
)

// TestMain fails when a goroutine of the broker outlives its test.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAckWaitOnTheBubblesClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{})
		defer b.Close()
		c := b.Connect()
		ctx := context.Background()
		if err := c.Streams().EnsureShared(ctx); err != nil {
			t.Fatal(err)
		}
		n := bus.Names{}
		var got []int
		sub, err := c.Consume(ctx, bus.Consumer{Stream: n.JobsStream(), Name: "p", Subjects: []string{n.AllJobs("m", "x")}, AckWait: time.Second}, func(d bus.Delivery) {
			got = append(got, d.Delivered)
			if d.Delivered == 3 {
				if err := d.Ack(); err != nil {
					t.Error(err)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := c.Enqueue(ctx, bus.Enqueue{Subject: n.Job("m", "x", "h-1"), Data: []byte("a")}); err != nil {
			t.Fatal(err)
		}
		for len(b.Stored(n.JobsStream())) > 0 {
			time.Sleep(100 * time.Millisecond)
		}
		if len(got) != 3 || time.Since(start) < 2*time.Second {
			t.Fatalf("deliveries %v after %v", got, time.Since(start))
		}
		if err := sub.Drain(); err != nil {
			t.Fatal(err)
		}
		b.Stop()
		if err := c.Publish("a.b", nil, nil); !errors.Is(err, bus.ErrDown) {
			t.Fatalf("publish while down: %v", err)
		}
	})
}

func TestContract(t *testing.T) {
	Run(t, func(t *testing.T) bus.Bus {
		b := New(Options{})
		t.Cleanup(b.Close)
		return b.Connect()
	})
}

func TestContractInABubble(t *testing.T) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := New(Options{})
				t.Cleanup(b.Close)
				c.Test(t, b.Connect())
			})
		})
	}
}

func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{})
		defer b.Close()
		Restart(t, b.Connect(), b.Connect(), b.Stop, b.Start)
	})
}
