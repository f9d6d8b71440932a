package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"quire/bus"
	"quire/bus/jet"
	"quire/decode"
	"quire/keys"
	"quire/kvtransfer"
	"quire/model"
	"quire/prefill"
	"quire/tape"
)

// worker is what prefill and decode services are made of.
type worker struct {
	role   kvtransfer.Role
	id     string
	pages  int
	engine model.Engine
	pool   uint64
	bus    *jet.Conn
	kv     bus.Bus // of a decode with a server of its own; nil otherwise
	frames string  // where to send frames to that server directly; "" = nowhere
	ring   *keys.Ring
	log    *slog.Logger
}

// plan sizes the pools of the workers of this process and finds the limit, before anything is allocated.
func (c *Cluster) plan(l *loaded, ids map[kvtransfer.Role][]string) ([]worker, error) {
	var workers []worker
	for _, r := range []struct {
		role            kvtransfer.Role
		contexts, share int
	}{{kvtransfer.RolePrefill, prefillContexts, prefillShare}, {kvtransfer.RoleDecode, decodeContexts, decodeShare}} {
		s := sizing{context: l.src.Config.Context, bytesPerRow: l.rowBytes(c.o), memory: l.memory(), workers: len(ids[r.role])}
		for _, id := range ids[r.role] {
			w := worker{role: r.role, id: id, pages: s.pages(c.o.Pool, r.contexts, r.share), log: c.who(string(r.role), id)}
			workers = append(workers, w)
			c.info.Workers = append(c.info.Workers, WorkerInfo{string(r.role), id, w.pages, c.o.Pool.PageSize})
		}
	}
	var err error
	c.info.Limit, c.info.LimitedBy, err = limit(c.o.Model.MaxLen, l.src.Config.Context, c.info.Workers)
	return workers, err
}

// startWorker gives a worker its engine and runs it.
func (c *Cluster) startWorker(ctx context.Context, l *loaded, w worker) error {
	var err error
	if w.engine, w.pool, err = l.engine(c.o, w); err != nil {
		return err
	}
	name := fmt.Sprintf("%s %s", w.role, w.id)
	model, slug := l.src.Name, slug(l.src.Name, l.src.Fingerprint)
	if w.role == kvtransfer.RolePrefill {
		s, err := prefill.Start(ctx, prefill.Config{ID: w.id, Model: model, ModelSlug: slug, PoolNumber: w.pool, Slots: c.o.Pool.Running,
			Chunk: c.o.Pool.Chunk, Lease: kvtransfer.Tick(c.o.Pool.Lease.Microseconds()), MaxModelLen: c.o.Model.MaxLen, MixedCompute: c.o.Door.MixedCompute, Bus: w.bus, Names: c.o.names(),
			Keys: w.ring, Engine: w.engine, Log: w.log, Trace: c.spans, Version: c.o.Version, JournalOff: c.o.Bus.JournalOff, DialFrames: c.dialFrames(w.id)})
		if err != nil {
			return err
		}
		c.run(name, s, 200*time.Millisecond)
		return nil
	}
	var record func(tape.Part)
	if t, err := c.startTape(ctx, w.bus, w.log); err != nil {
		return err
	} else if t != nil {
		record = t.PutPart
	}
	s, err := decode.Start(ctx, decode.Config{ID: w.id, Model: model, ModelSlug: slug, Pool: w.pool, MaxOpen: c.o.Pool.Running,
		MaxModelLen: c.o.Model.MaxLen, Lease: kvtransfer.Tick(c.o.Pool.Lease.Microseconds()), Bus: w.bus, KV: w.kv, Frames: w.frames, Names: c.o.names(), Keys: w.ring,
		Engine: w.engine, Tokenizer: l.src.Tokenizer, Log: w.log, Trace: c.spans, Version: c.o.Version, JournalOptional: c.o.Bus.JournalOpen, JournalOff: c.o.Bus.JournalOff,
		Taped: c.o.Door.Tape, Tape: record})
	if err != nil {
		return err
	}
	c.run(name, s, 200*time.Millisecond)
	return nil
}
