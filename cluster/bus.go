package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"quire/bus"
	"quire/bus/jet"
	"quire/keys"
)

// waitEvery is how often a process looks again for what another one makes.
const waitEvery = 250 * time.Millisecond

func (o Options) names() bus.Names { return bus.Names{Prefix: o.Bus.Prefix} }

// startServer locks the data directory and starts the embedded server in it.
func (c *Cluster) startServer(ctx context.Context) (*jet.Server, error) {
	if err := checkPort(ctx, "nats", c.o.Bus.Listen); err != nil {
		return nil, err
	}
	l, err := lockDir(c.o.Data)
	if err != nil {
		return nil, err
	}
	c.add("lock", func(context.Context) error { return l.release() })
	b := c.o.Bus
	if b.Accounts != "" {
		if b.Config, err = jet.WriteAccounts(b.Accounts, c.o.names(), b.Tenants); err != nil {
			return nil, err
		}
	}
	s, err := jet.Serve(jet.ServerOptions{Addr: b.Listen, Data: c.o.Data, Config: b.Config, User: b.User, Password: b.Password,
		Token: b.Token, TLSCA: b.CA, TLSCert: b.Cert, TLSKey: b.CertKey, Insecure: c.o.Door.Insecure, LeafAddr: b.Leafs, Log: c.who("bus", "")})
	if err != nil {
		return nil, err
	}
	c.add("server", func(context.Context) error { s.Stop(); return nil })
	return s, nil
}

// connect gives one role its connection; server is the one of this process, or nil.
func (c *Cluster) connect(ctx context.Context, name string, server *jet.Server, log *slog.Logger) (*jet.Conn, error) {
	b := c.o.Bus
	if server != nil && b.Accounts != "" {
		b.NKey = jet.SeedFile(b.Accounts, bus.UserBus)
	}
	o := jet.ConnectOptions{URLs: b.URLs, Server: server, Name: name, Creds: b.Creds, NKey: b.NKey, User: b.User, Password: b.Password,
		Token: b.Token, TLSCA: b.CA, Context: b.Context, InboxPrefix: b.Inbox, Names: c.o.names(), Replicas: b.Replicas, Log: log}
	if server == nil {
		o.TLSCert, o.TLSKey = b.Cert, b.CertKey
	}
	conn, err := jet.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	c.add("connection of "+name, func(context.Context) error { return conn.Close() })
	limits := conn.Limits()
	if c.info.NATS = limits.URL; server != nil {
		c.info.NATS = server.URL()
	}
	c.info.Server, c.info.External = limits.Server, server == nil
	return conn, nil
}

// shared makes the streams that every role uses, as soon as JetStream lets it.
func (c *Cluster) shared(ctx context.Context, b bus.Bus) error {
	return c.wait(ctx, "the shared streams", func() error { return b.Streams().EnsureShared(ctx) }, func(err error) bool {
		return errors.Is(err, bus.ErrDown) || errors.Is(err, bus.ErrTimeout) || errors.Is(err, bus.ErrNoResponders)
	})
}

// ring loads the keys. Where this process has the bus it makes them; elsewhere it waits until the bus role has.
func (c *Cluster) ring(ctx context.Context, mayMake bool) (*keys.Ring, error) {
	dir := c.o.keysDir()
	if mayMake {
		return keys.Ensure(dir)
	}
	var ring *keys.Ring
	err := c.wait(ctx, "the keys in "+dir, func() (err error) { ring, err = keys.Load(dir); return err },
		func(err error) bool { return errors.Is(err, fs.ErrNotExist) })
	return ring, err
}

// wait calls fn until it succeeds or fails for good, and says once that it waits: processes start in any order.
func (c *Cluster) wait(ctx context.Context, what string, fn func() error, passing func(error) bool) error {
	for first := true; ; first = false {
		err := fn()
		if err == nil || !passing(err) {
			return err
		}
		if first {
			c.log.Info("waiting for "+what, "error", err)
		}
		select {
		case <-time.After(waitEvery):
		case <-ctx.Done():
			return fmt.Errorf("cluster: %s: %w", what, context.Cause(ctx))
		}
	}
}
