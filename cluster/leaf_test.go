package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"quire/bus"
	"quire/bus/jet"
)

// freeAddress is one that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := Listen(t.Context(), "nats", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestEmbeddedBus: a decode with a server of its own answers as any other, and the frames are in that server alone; they come
// through the bus, or straight to it.
func TestEmbeddedBus(t *testing.T) {
	t.Run("through the bus", func(t *testing.T) { embeddedBus(t, "") })
	t.Run("straight", func(t *testing.T) { embeddedBus(t, "127.0.0.1:0") })
}

func embeddedBus(t *testing.T, frames string) {
	before := goleak.IgnoreCurrent()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o, l := options(t)
	o.Bus.User, o.Bus.Password = "quire", "a password"
	o.Bus.Listen, o.Bus.Leafs = freeAddress(t), freeAddress(t)
	start := func(id string, role func(context.Context, Options) (*Cluster, error), change func(*Options)) *Cluster {
		t.Helper()
		own := o
		own.ID = id
		if id != "" {
			own.Bus.URLs, own.Bus.Listen, own.Bus.Leafs = []string{"nats://" + o.Bus.Listen}, "", ""
		}
		if change != nil {
			change(&own)
		}
		c, err := role(ctx, own)
		if err != nil {
			t.Fatalf("%v\n%s", err, l)
		}
		return c
	}
	hub := start("", Bus, nil)
	d := start("d1", Decode, func(o *Options) {
		o.Bus.Embed, o.Bus.LeafURLs, o.Bus.Frames = true, []string{"nats-leaf://" + hub.o.Bus.Leafs}, frames
	})
	p := start("p1", Prefill, nil)
	r := start("r1", Router, nil)
	for got := ""; !strings.Contains(got, "The red key is under the bridge."); { // workers are heard of one by one
		if got = ask(t, r); ctx.Err() != nil {
			t.Fatalf("got %s\n%s", got, l)
		}
	}
	conn, err := jet.Connect(ctx, jet.ConnectOptions{URLs: []string{"nats://" + o.Bus.Listen}, User: o.Bus.User, Password: o.Bus.Password})
	if err != nil {
		t.Fatal(err)
	}
	names, err := conn.Streams().Names(ctx, "")
	if err != nil || slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, bus.Names{}.KVPrefix()) }) || len(names) == 0 {
		t.Errorf("streams of the bus: %v, %v", names, err)
	}
	_ = conn.Close()
	for _, c := range []*Cluster{r, p, d, hub} {
		stop(t, c)
	}
	goleak.VerifyNone(t, before)
}

func TestEmbeddedBusRefuses(t *testing.T) {
	o, _ := options(t)
	o.Bus.URLs, o.Bus.Token, o.Bus.Embed = []string{"nats://127.0.0.1:1"}, "t", true
	if err := begin(o).embed(t.Context(), &worker{id: "d1"}); err == nil || !strings.Contains(err.Error(), "not a token") {
		t.Errorf("a token: %v", err)
	}
	urls, err := BusOptions{URLs: []string{"nats://10.0.0.1", "nats://u:p@10.0.0.2:4333"}}.leafURLs()
	if err != nil || !slices.Equal(urls, []string{"nats-leaf://10.0.0.1:7422", "nats-leaf://10.0.0.2:7422"}) {
		t.Errorf("%v, %v", urls, err)
	}
}
