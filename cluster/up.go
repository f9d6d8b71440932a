package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"quire/bus/jet"
	"quire/kvtransfer"
	"quire/model"
)

// Up runs every role in this process: the embedded server (unless the bus is external), prefill and decode workers that share
// one device and one copy of the weights, and the router with its doors. It returns when a request can be answered; whatever
// was started before an error is taken down again.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	var open atomic.Bool
	if o.Log != nil {
		o.Log = slog.New(quiet{o.Log.Handler(), &open})
	}
	c, err := start(ctx, o, func(c *Cluster) error { return c.up(ctx) })
	open.Store(err == nil)
	return c, err
}

func start(ctx context.Context, o Options, fn func(*Cluster) error) (*Cluster, error) {
	c := begin(o)
	err := c.startTraces()
	if err == nil {
		err = fn(c)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, c.abandon(err)
	}
	c.took = time.Since(c.began)
	return c, nil
}

func (c *Cluster) up(ctx context.Context) error {
	if err := c.checkJournal(); err != nil {
		return err
	}
	if err := c.o.checkExposure(true); err != nil {
		return err
	}
	var server *jet.Server
	var err error
	if !c.o.Bus.External() {
		if server, err = c.startServer(ctx); err != nil {
			return err
		}
	}
	// Before a model is loaded for nothing:
	if err := checkPort(ctx, "http", c.o.Door.HTTP); err != nil {
		return err
	}
	ring, err := c.ring(ctx, true)
	if err != nil {
		return err
	}
	l, err := c.load()
	if err != nil {
		return err
	}
	workers, err := c.plan(l, map[kvtransfer.Role][]string{
		kvtransfer.RolePrefill: number("p", c.o.Prefill), kvtransfer.RoleDecode: number("d", c.o.Decode)})
	if err != nil {
		return err
	}
	// One connection tells what happens to the bus; the others would only repeat it.
	first, err := c.connect(ctx, "bus", server, c.connectionLog(server))
	if err != nil {
		return err
	}
	if err := c.shared(ctx, first); err != nil {
		return err
	}
	for _, w := range workers {
		w.ring = ring
		if w.bus, err = c.connect(ctx, fmt.Sprintf("%s/%s", w.role, w.id), server, nil); err != nil {
			return err
		}
		if err := c.startWorker(ctx, l, w); err != nil {
			return err
		}
	}
	b, err := c.connect(ctx, "router/r1", server, nil)
	if err != nil {
		return err
	}
	r, err := c.startRouter(ctx, front{"r1", l.src, b, ring})
	if err != nil {
		return err
	}
	return c.ready(ctx, r)
}

// checkJournal refuses to serve several tenants without a record, and warns where nobody keeps one.
func (c *Cluster) checkJournal() error {
	if !c.o.Bus.JournalOff {
		return nil
	}
	if d := c.o.Door; len(d.Keys) > 0 || d.Accounts || len(d.Tape) > 0 {
		return errors.New("cluster: --journal=off is for measuring: it does not go with --api-key, --nats-accounts or --tape, whose tenants a record protects")
	}
	c.who("bus", "").Warn("the journal is off: nothing of what is served can be audited; this is for measuring alone")
	return nil
}

// connectionLog is quiet about a server of this process: it comes and goes with the process.
func (c *Cluster) connectionLog(server *jet.Server) *slog.Logger {
	if server != nil {
		return nil
	}
	return c.who("bus", "")
}

// number gives ids p1, p2, ...
func number(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%d", prefix, i+1)
	}
	return ids
}

// Bus runs the embedded server and keeps the shared streams.
func Bus(ctx context.Context, o Options) (*Cluster, error) {
	return start(ctx, o, func(c *Cluster) error {
		c.log = c.who("bus", "")
		server, err := c.startServer(ctx)
		if err != nil {
			return err
		}
		c.add("clients", func(ctx context.Context) error { return c.letGo(ctx, server) })
		if _, err := c.ring(ctx, true); err != nil {
			return err
		}
		b, err := c.connect(ctx, "bus", server, nil)
		if err != nil {
			return err
		}
		return c.shared(ctx, b)
	})
}

// letGo waits until every client has left: a process runner signals all roles at once, and those that drain still need the bus.
func (c *Cluster) letGo(ctx context.Context, server *jet.Server) error {
	ctx, cancel := earlier(ctx, 500*time.Millisecond)
	defer cancel()
	for told := false; server.Clients() > 0; told = true {
		if !told {
			c.log.Info("stopping: waiting for clients to leave", "clients", server.Clients())
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// Router runs a router and its doors against a bus elsewhere.
func Router(ctx context.Context, o Options) (*Cluster, error) {
	return start(ctx, o, func(c *Cluster) error {
		c.log = c.who("router", c.o.ID)
		if err := c.o.checkExposure(true); err != nil {
			return err
		}
		if err := checkPort(ctx, "http", c.o.Door.HTTP); err != nil {
			return err
		}
		src, err := model.OpenTokenizer(c.o.Model.Path, model.OpenOptions{Progress: c.o.progress("read model"), Name: c.o.Model.Name})
		if err != nil {
			return err
		}
		c.describe(src)
		if _, _, err := limit(c.o.Model.MaxLen, src.Config.Context, nil); err != nil {
			return err
		}
		ring, err := c.ring(ctx, false)
		if err != nil {
			return err
		}
		b, err := c.connect(ctx, "router/"+c.o.ID, nil, c.log)
		if err != nil {
			return err
		}
		_, err = c.startRouter(ctx, front{c.o.ID, src, b, ring})
		return err
	})
}

// Prefill runs a prefill worker against a bus elsewhere.
func Prefill(ctx context.Context, o Options) (*Cluster, error) {
	return work(ctx, o, kvtransfer.RolePrefill)
}

// Decode runs a decode worker against a bus elsewhere.
func Decode(ctx context.Context, o Options) (*Cluster, error) {
	return work(ctx, o, kvtransfer.RoleDecode)
}

func work(ctx context.Context, o Options, role kvtransfer.Role) (*Cluster, error) {
	return start(ctx, o, func(c *Cluster) error {
		c.log = c.who(string(role), c.o.ID)
		if err := c.o.checkExposure(false); err != nil {
			return err
		}
		l, err := c.load()
		if err != nil {
			return err
		}
		workers, err := c.plan(l, map[kvtransfer.Role][]string{role: {c.o.ID}})
		if err != nil {
			return err
		}
		w := workers[0]
		if w.ring, err = c.ring(ctx, false); err != nil {
			return err
		}
		if w.bus, err = c.connect(ctx, fmt.Sprintf("%s/%s", role, c.o.ID), nil, c.log); err != nil {
			return err
		}
		if c.o.Bus.Embed {
			if err := c.embed(ctx, &w); err != nil {
				return err
			}
		}
		return c.startWorker(ctx, l, w)
	})
}
