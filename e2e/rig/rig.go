// Package rig puts a whole cluster into one process for tests and demonstrations: the embedded NATS server and the router's
// doors as package cluster wires them, and workers over the real embedded model whose engines are watched. In the place of an
// honest prefill worker it takes one whose heartbeats lie, or a rogue that lies about everything.
package rig

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"quire/bus"
	"quire/bus/jet"
	"quire/cluster"
	"quire/decode"
	"quire/device"
	"quire/device/open"
	"quire/e2e/rogue"
	_ "quire/embedded" // the model that is served
	"quire/keys"
	"quire/model"
	"quire/prefill"
	"quire/router"
)

// Options of a rig.
type Options struct {
	Dir      string            // of JetStream's files and the keys
	PageSize int               // token slots of a page; 0 = 16
	MaxLen   int               // --max-model-len; 0 = auto
	Keys     map[string]string // API key -> tenant
	MaxOpen  int               // requests that a worker takes at once; 0 = its default
	Log      *slog.Logger
}

// Rig is a running cluster. Close takes it down.
type Rig struct {
	HTTP string      // base URL of the HTTP door
	NATS string      // URL of the server
	Text router.Text // what the router knows of the model
	Src  *model.Source

	Decode        *decode.Service
	DecodeEngine  *Engine
	Prefill       *prefill.Service // nil while there is none
	PrefillEngine *Engine

	o       Options
	client  *jet.Conn // of those who ask over NATS
	ring    *keys.Ring
	dev     device.Device
	weights *model.Weights
	stops   []func()
}

// pools numbers page pools: each engine of the process has its own.
var pools atomic.Uint64

// slug is the model's name in subjects.
const slug = "quire-tiny"

// New starts the server and the router, without any worker yet.
func New(ctx context.Context, o Options) (*Rig, error) {
	if o.PageSize == 0 {
		o.PageSize = 16
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Rig{o: o}
	if err := r.start(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Rig) start(ctx context.Context) error {
	co := cluster.Options{ID: "r1", Data: r.o.Dir, Keys: filepath.Join(r.o.Dir, "keys"), Log: r.o.Log,
		Bus:   cluster.BusOptions{Listen: "127.0.0.1:0"},
		Model: cluster.ModelOptions{MaxLen: r.o.MaxLen},
		Door:  cluster.DoorOptions{HTTP: "127.0.0.1:0", Keys: r.o.Keys}}
	server, err := cluster.Bus(ctx, co)
	if err != nil {
		return err
	}
	r.stop(func() { stop(server) })
	r.NATS = server.Info().NATS
	co.Bus.URLs = []string{r.NATS}
	front, err := cluster.Router(ctx, co)
	if err != nil {
		return err
	}
	r.stop(func() { stop(front) })
	r.HTTP = "http://" + front.Info().HTTP
	if r.ring, err = keys.Load(co.Keys); err != nil {
		return err
	}
	if r.client, err = r.connect(ctx, "client"); err != nil {
		return err
	}
	return r.load()
}

func stop(c *cluster.Cluster) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = c.Stop(ctx)
}

func (r *Rig) load() (err error) {
	if r.Src, err = model.Open("", model.OpenOptions{}); err != nil {
		return err
	}
	r.stop(func() { _ = r.Src.Close() })
	r.Text, _ = router.FromSource(r.Src)
	if r.dev, _, err = open.Device(open.Options{}); err != nil {
		return err
	}
	r.stop(func() { _ = r.dev.Close() })
	r.weights, err = model.LoadWeights(r.dev, r.Src, nil)
	return err
}

func (r *Rig) stop(fn func()) { r.stops = append(r.stops, fn) }

// Close takes everything down, last things first.
func (r *Rig) Close() error {
	for i := len(r.stops) - 1; i >= 0; i-- {
		r.stops[i]()
	}
	r.stops = nil
	return nil
}

// NewEngine makes a watched engine with a page pool of its own.
func (r *Rig) NewEngine(pages int) (*Engine, error) {
	pool := pools.Add(1)
	e, err := model.NewEngine(r.dev, r.weights, model.EngineOptions{Pages: pages, PageSize: r.o.PageSize, Pool: pool})
	if err != nil {
		return nil, err
	}
	return &Engine{Engine: e, Pool: pool}, nil
}

func (r *Rig) connect(ctx context.Context, name string) (*jet.Conn, error) {
	c, err := jet.Connect(ctx, jet.ConnectOptions{URLs: []string{r.NATS}, Name: name})
	if err != nil {
		return nil, err
	}
	r.stop(func() { _ = c.Close() })
	return c, nil
}

// AddDecode starts a decode worker with a pool of so many pages.
func (r *Rig) AddDecode(ctx context.Context, pages int) error {
	e, err := r.NewEngine(pages)
	if err != nil {
		return err
	}
	b, err := r.connect(ctx, "decode/d1")
	if err != nil {
		return err
	}
	s, err := decode.Start(ctx, decode.Config{ID: "d1", Model: r.Src.Name, ModelSlug: slug, Pool: e.Pool, MaxOpen: r.o.MaxOpen,
		MaxModelLen: r.o.MaxLen, Bus: b, Keys: r.ring, Engine: e, Tokenizer: r.Src.Tokenizer, Log: r.o.Log.With("role", "decode")})
	if err != nil {
		return err
	}
	r.Decode, r.DecodeEngine = s, e
	r.stop(func() { _ = s.Close() })
	return nil
}

// AddPrefill starts an honest prefill worker with a pool of so many pages. If forge is not nil, what it says about itself goes
// through it first: forge changes the heartbeats, signed again with the worker's own key.
func (r *Rig) AddPrefill(ctx context.Context, pages int, forge Forge) error {
	e, err := r.NewEngine(pages)
	if err != nil {
		return err
	}
	c, err := r.connect(ctx, "prefill/p1")
	if err != nil {
		return err
	}
	var b bus.Bus = c
	if forge != nil {
		if b, err = newForger(c, r.ring, forge); err != nil {
			return err
		}
	}
	s, err := prefill.Start(ctx, prefill.Config{ID: "p1", Model: r.Src.Name, ModelSlug: slug, PoolNumber: e.Pool, Slots: r.o.MaxOpen,
		MaxModelLen: r.o.MaxLen, Bus: b, Keys: r.ring, Engine: e, Log: r.o.Log.With("role", "prefill")})
	if err != nil {
		return err
	}
	r.Prefill, r.PrefillEngine = s, e
	r.stop(func() { _ = s.Close() })
	return nil
}

// AddRogue starts a worker that lies as planned, over an honest engine with a pool of so many pages.
func (r *Rig) AddRogue(ctx context.Context, pages int, plan func(rogue.Prompt) rogue.Plan) error {
	e, err := r.NewEngine(pages)
	if err != nil {
		return err
	}
	b, err := r.connect(ctx, "prefill/rogue")
	if err != nil {
		return err
	}
	w, err := rogue.Start(ctx, rogue.Config{ID: "rogue", Model: r.Src.Name, Slug: slug, Bus: b, Keys: r.ring, Info: e.Info(), Compute: r.Compute,
		Plan: plan, Log: r.o.Log.With("role", "rogue")})
	if err != nil {
		return err
	}
	r.stop(w.Close)
	return nil
}

// Compute gives the stored rows of a prompt and the last layer's output for the last one.
func (r *Rig) Compute(tokens []int32) (rogue.Rows, error) {
	e, err := r.NewEngine((len(tokens) + r.o.PageSize - 1) / r.o.PageSize)
	if err != nil {
		return rogue.Rows{}, err
	}
	s, err := e.NewSequence(len(tokens), 1)
	if err != nil {
		return rogue.Rows{}, err
	}
	res, err := s.Step(tokens, nil, true)
	return rogue.Rows{Bytes: s.Rows, Hidden: res.Hidden}, err
}

// Solo answers a prompt with a fresh engine, greedily: no bus, no hand-off, nobody else. It is what a request must get.
func (r *Rig) Solo(tokens []int32, maxTokens int) (Answer, error) {
	e, err := r.NewEngine((len(tokens) + maxTokens + r.o.PageSize - 1) / r.o.PageSize)
	if err != nil {
		return Answer{}, err
	}
	s, err := e.NewSequence(len(tokens)+maxTokens, 1)
	if err != nil {
		return Answer{}, err
	}
	return s.answer(r.Src.Tokenizer, tokens, maxTokens)
}

// wait polls until done says yes.
func wait(ctx context.Context, what string, done func() bool) error {
	for !done() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("rig: %s: %w", what, ctx.Err())
		}
	}
	return nil
}

// Wait waits until something holds; the error says what did not.
func Wait(ctx context.Context, what string, holds func() bool) error { return wait(ctx, what, holds) }
