package rig

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"quire/decode"
	"quire/kvtransfer"
	"quire/prefill"
)

// WorkerOptions describe one of several workers of a role.
type WorkerOptions struct {
	Role  kvtransfer.Role // prefill or decode
	ID    string
	Pages int
	Lease kvtransfer.Tick // 0 = its default
	// Before, if set, is called before each call of the engine that computes or changes something: step, witness, write, zero. While it
	// waits, the device hangs; an error of it is the call's.
	Before func(call string) error
	// Claims, if above Pages, is how many pages the engine says that it has. It has no more than Pages.
	Claims int
}

// Worker is a running one.
type Worker struct {
	Engine *Engine
	// Done is closed when it has stopped; Err says why.
	Done func() <-chan struct{}
	Err  func() error
	// Kill stops it at once. What it had is lost to its routers and decodes: it says goodbye to nobody.
	Kill func() error
}

// AddWorker starts a worker beside those that are there.
func (r *Rig) AddWorker(ctx context.Context, o WorkerOptions) (*Worker, error) {
	e, err := r.NewEngine(o.Pages)
	if err != nil {
		return nil, err
	}
	e.before, e.claims = o.Before, o.Claims
	b, err := r.connect(ctx, fmt.Sprintf("%s/%s", o.Role, o.ID))
	if err != nil {
		return nil, err
	}
	log := r.o.Log.With("role", string(o.Role), "id", o.ID)
	if o.Role == kvtransfer.RolePrefill {
		s, err := prefill.Start(ctx, prefill.Config{ID: o.ID, Model: r.Src.Name, ModelSlug: slug, PoolNumber: e.Pool, Slots: r.o.MaxOpen,
			MaxModelLen: r.o.MaxLen, Lease: o.Lease, Bus: b, Keys: r.ring, Engine: e, Log: log})
		if err != nil {
			return nil, err
		}
		r.stop(func() { _ = s.Close() })
		return &Worker{e, s.Done, s.Err, s.Close}, nil
	}
	s, err := decode.Start(ctx, decode.Config{ID: o.ID, Model: r.Src.Name, ModelSlug: slug, Pool: e.Pool, MaxOpen: r.o.MaxOpen,
		MaxModelLen: r.o.MaxLen, Lease: o.Lease, Bus: b, Keys: r.ring, Engine: e, Tokenizer: r.Src.Tokenizer, Log: log})
	if err != nil {
		return nil, err
	}
	r.stop(func() { _ = s.Close() })
	return &Worker{e, s.Done, s.Err, s.Close}, nil
}

// Workers waits until the router can use so many of a role.
func (r *Rig) Workers(ctx context.Context, role kvtransfer.Role, n int) error {
	return wait(ctx, fmt.Sprintf("%d workers of role %s", n, role), func() bool {
		res, err := http.Get(r.HTTP + "/metrics")
		if err != nil {
			return false
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		return err == nil && strings.Contains(string(b), fmt.Sprintf("\nquire_%s_workers %d\n", role, n))
	})
}
