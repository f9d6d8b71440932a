package jet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"quire/bus"
)

// nodes starts a NATS cluster of three servers.
func nodes(t *testing.T) []*server.Server {
	t.Helper()
	var ports []int
	var routes []*url.URL
	for range 3 { // a route must be known before its server listens
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
		must(t, l.Close())
	}
	var list []*server.Server
	for i, port := range ports {
		ns, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
			JetStream: true, StoreDir: t.TempDir(), MaxPayload: bus.DefaultPayload,
			Cluster: server.ClusterOpts{Name: "lab", Host: "127.0.0.1", Port: port}, Routes: routes,
		})
		must(t, err)
		ns.Start()
		t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
		list = append(list, ns)
	}
	for _, ns := range list {
		if !ns.ReadyForConnections(20 * time.Second) {
			t.Fatal("server not ready")
		}
	}
	return list
}

// TestNATSCluster kills the server to which Quire is connected; the two others go on with the shared streams.
func TestNATSCluster(t *testing.T) {
	t.Parallel()
	list := nodes(t)
	var urls []string
	for _, ns := range list {
		urls = append(urls, ns.ClientURL())
	}
	c := connect(t, ConnectOptions{URLs: urls})
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	var n bus.Names
	ensure(t, ctx, c)
	for _, spec := range bus.SharedStreams(n) {
		st, err := c.js.Stream(ctx, spec.Name)
		must(t, err)
		if got := st.CachedInfo().Config.Replicas; got != clustered {
			t.Errorf("%s has %d replicas", spec.Name, got)
		}
	}
	record := bus.Enqueue{Subject: n.Journal("verdict", "d1"), Data: []byte("fact"), ID: "one"}
	first, err := c.Enqueue(ctx, record)
	must(t, err)
	got := make(chan bus.Delivery, 10)
	_, err = c.Consume(ctx, bus.Consumer{Stream: n.JobsStream(), Name: "jobs", Subjects: []string{n.AllJobs("m", "p")}},
		func(d bus.Delivery) { got <- d })
	must(t, err)
	mine := c.nc.ConnectedServerId()
	for _, ns := range list {
		if ns.ID() == mine {
			ns.Shutdown()
			ns.WaitForShutdown()
		}
	}
	second := persist(t, ctx, c, bus.Enqueue{Subject: record.Subject, Data: []byte("later"), ID: "two"})
	if second <= first {
		t.Errorf("sequence %d after the loss of a server, %d before", second, first)
	}
	persist(t, ctx, c, bus.Enqueue{Subject: n.Job("m", "p", "a-1"), Data: []byte("job"), ID: "job"})
	must(t, await(t, "job", got).Ack())
}

// ensure waits for the cluster's first leader.
func ensure(t *testing.T, ctx context.Context, c *Conn) {
	t.Helper()
	for {
		try, cancel := context.WithTimeout(ctx, 3*time.Second)
		err := c.Streams().EnsureShared(try)
		cancel()
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		t.Logf("not yet: %v", err)
		if !c.pause(ctx.Done(), nil, 50*time.Millisecond) {
			t.Fatal(err)
		}
	}
}

// persist sends the same message until it is stored, as services do.
func persist(t *testing.T, ctx context.Context, c *Conn, e bus.Enqueue) uint64 {
	t.Helper()
	for {
		try, cancel := context.WithTimeout(ctx, time.Second)
		seq, err := c.Enqueue(try, e)
		cancel()
		if err == nil || errors.Is(err, bus.ErrDuplicate) {
			return seq
		}
		if !c.pause(ctx.Done(), nil, 50*time.Millisecond) {
			t.Fatal(err)
		}
	}
}
