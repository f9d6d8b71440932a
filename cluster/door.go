package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"quire/bus/jet"
	"quire/keys"
	"quire/kvtransfer"
	"quire/model"
	"quire/router"
	"quire/router/console"
	"quire/tape"
)

// readyWithin is how long `up` waits for its own workers to be seen by its own router.
const readyWithin = 30 * time.Second

// front is what a router stands on.
type front struct {
	id   string
	src  *model.Source
	bus  *jet.Conn
	ring *keys.Ring
}

// startRouter runs a router with both doors. It is drained before its doors close, so that what runs can still answer.
func (c *Cluster) startRouter(ctx context.Context, f front) (*router.Service, error) {
	text, served := router.FromSource(f.src)
	d := c.o.Door
	log := c.who("router", f.id)
	var record func(tape.Take)
	if t, err := c.startTape(ctx, f.bus, log); err != nil {
		return nil, err
	} else if t != nil {
		record = t.Put
	}
	r, err := router.Start(ctx, router.Config{ID: f.id, Served: served, Text: text, Bus: f.bus, Names: c.o.names(), Keys: f.ring, Log: log, Trace: c.spans, Version: c.o.Version,
		JournalOff: c.o.Bus.JournalOff, Taped: d.Tape, Tape: record,
		Policy: router.Policy{MaxModelLen: c.o.Model.MaxLen, DefaultMaxTokens: d.DefaultMaxTokens, MixedCompute: d.MixedCompute,
			MaxQueue: d.Queue, MaxQueueTenant: d.TenantQueue, DefaultDeadline: kvtransfer.Tick(d.Deadline.Microseconds())}})
	if err != nil {
		return nil, err
	}
	if err := c.openDoors(ctx, f, r); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	c.run("router "+f.id, r, time.Second)
	return r, nil
}

// startTape records what the named tenants ask and get, and says so; nil when nobody is named.
func (c *Cluster) startTape(ctx context.Context, b *jet.Conn, log *slog.Logger) (*tape.Recorder, error) {
	tenants := c.o.Door.Tape
	if len(tenants) == 0 {
		return nil, nil
	}
	r, err := tape.Start(ctx, b, c.o.names(), log)
	if err != nil {
		return nil, err
	}
	c.add("tape", func(context.Context) error { r.Close(); return nil })
	log.Warn("the tape records content: prompts, answers and KV pages; quire tape erase --tenant destroys a tenant's key", "tenants", strings.Join(tenants, ","))
	return r, nil
}

func (c *Cluster) openDoors(ctx context.Context, f front, r *router.Service) error {
	d := c.o.Door
	log := c.who("router", f.id)
	admin, err := router.NewAdmin(d.AdminKey)
	if err != nil {
		return err
	}
	page := c.console(f, r, admin)
	http, err := router.OpenHTTP(r, router.HTTPConfig{Address: d.HTTP, Keys: d.Keys, Insecure: d.Insecure, Version: c.o.Version,
		MaxOpen: int64(d.Open), Metrics: r.WriteMetrics, Admin: admin, Console: page, Log: log})
	if err != nil {
		page.Close()
		return portError(ctx, "http", d.HTTP, err)
	}
	c.info.HTTP = http.Address()
	c.run("http door", http, 0)
	c.add("console", func(context.Context) error { page.Close(); return nil }) // before its door, which waits for the feeds
	nats, err := router.OpenNATS(ctx, r, router.NATSConfig{API: f.bus, Names: c.o.names(), Accounts: d.Accounts, MaxOpen: d.Open, Version: c.o.Version, ID: f.id, Log: log})
	if err != nil {
		return err
	}
	c.add("nats door", func(ctx context.Context) error {
		return errors.Join(ignore(nats.Drain(ctx), context.DeadlineExceeded), nats.Close()) // what is open when the time is up is cut
	})
	return nil
}

// console makes the web page of a router. The caller closes it.
func (c *Cluster) console(f front, r *router.Service, admin router.Admin) *console.Console {
	d := c.o.Door
	cfg := console.Config{Source: r, Admin: admin, Insecure: d.Insecure, Keyed: len(d.Keys) > 0, Version: c.o.Version, Log: c.who("router", f.id)}
	if open := c.o.Past; open != nil {
		cfg.Past = func() console.Past { return open(f.bus, c.o.names().JournalStream()) }
	}
	return console.New(cfg)
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// ready waits until the router sees a prefill and a decode that fit each other.
func (c *Cluster) ready(ctx context.Context, r *router.Service) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		missing := r.Health().Missing
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case err := <-c.dead:
			return err
		case <-ctx.Done():
			return fmt.Errorf("cluster: not ready after %s: %s missing", readyWithin, strings.Join(missing, ", "))
		}
	}
}
