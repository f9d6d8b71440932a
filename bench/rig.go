package bench

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"time"

	"quire/bus"
	"quire/bus/jet"
	"quire/cluster"
	"quire/decode"
	"quire/device"
	"quire/device/cpu"
	"quire/keys"
	"quire/model"
	"quire/prefill"
)

// Pools of a rig: each has a number of its own.
const (
	prefillPool = iota + 1
	decodePool
	alonePool
)

const rigSlug = "bench" // the model's name in subjects

// handoffRig is a cluster of one prefill and one decode worker in this process, watched, and an engine over the same device and
// weights that computes alone.
type handoffRig struct {
	o     HandoffOptions
	src   *model.Source
	dev   device.Device
	w     *model.Weights
	line  *timeline
	http  string
	alone *pool
	stops []func()
}

func newHandoffRig(ctx context.Context, o HandoffOptions) (*handoffRig, error) {
	r := &handoffRig{o: o, line: &timeline{zeroed: make(chan struct{}, 2)}}
	if err := r.load(); err != nil {
		r.close()
		return nil, err
	}
	if err := r.serve(ctx); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *handoffRig) stop(fn func()) { r.stops = append(r.stops, fn) }

// close takes everything down, last things first.
func (r *handoffRig) close() {
	for i := len(r.stops) - 1; i >= 0; i-- {
		r.stops[i]()
	}
	r.stops = nil
}

func (r *handoffRig) load() (err error) {
	if r.src, err = model.Open(r.o.Path, model.OpenOptions{Progress: label(r.o.Progress, "read model")}); err != nil {
		return err
	}
	r.stop(func() { _ = r.src.Close() })
	if r.dev, err = cpu.New(r.o.Device); err != nil {
		return err
	}
	r.stop(func() { _ = r.dev.Close() })
	if r.w, err = model.LoadWeights(r.dev, r.src, label(r.o.Progress, "load weights")); err != nil {
		return err
	}
	e, err := r.engine(alonePool)
	if err != nil {
		return err
	}
	r.alone = newPool(e, alonePool)
	return nil
}

// engine makes a pool for one prompt and what is still being zeroed of the last.
func (r *handoffRig) engine(number uint64) (model.Engine, error) {
	pages := 2 * ((r.o.Prompt+1+r.o.PageSize-1)/r.o.PageSize + 1)
	return model.NewEngine(r.dev, r.w, model.EngineOptions{Pages: pages, PageSize: r.o.PageSize, KVType: r.o.KVType, Pool: number})
}

// serve starts the bus, both workers and the router.
func (r *handoffRig) serve(ctx context.Context) error {
	server, err := jet.Serve(jet.ServerOptions{Addr: "127.0.0.1:0", Data: r.o.Dir})
	if err != nil {
		return err
	}
	r.stop(server.Stop)
	dir := filepath.Join(r.o.Dir, "keys")
	ring, err := keys.Ensure(dir)
	if err != nil {
		return err
	}
	first, err := r.connect(ctx, server, "bus")
	if err != nil {
		return err
	}
	if err := first.Streams().EnsureShared(ctx); err != nil {
		return err
	}
	if err := r.workers(ctx, server, ring); err != nil {
		return err
	}
	front, err := cluster.Router(ctx, cluster.Options{ID: "r1", Data: r.o.Dir, Keys: dir, Bus: cluster.BusOptions{URLs: []string{server.URL()}},
		Model: cluster.ModelOptions{Path: r.o.Path}, Door: cluster.DoorOptions{HTTP: "127.0.0.1:0"}})
	if err != nil {
		return err
	}
	r.stop(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = front.Stop(ctx)
	})
	r.http = "http://" + front.Info().HTTP
	return r.ready(ctx)
}

func (r *handoffRig) connect(ctx context.Context, s *jet.Server, name string) (*jet.Conn, error) {
	c, err := jet.Connect(ctx, jet.ConnectOptions{Server: s, Name: name})
	if err != nil {
		return nil, err
	}
	r.stop(func() { _ = c.Close() })
	return c, nil
}

func (r *handoffRig) workers(ctx context.Context, s *jet.Server, ring *keys.Ring) error {
	var taps [2]busTap
	var engines [2]model.Engine
	for i, role := range []string{"prefill/p1", "decode/d1"} {
		c, err := r.connect(ctx, s, role)
		if err != nil {
			return err
		}
		taps[i] = busTap{Bus: c, t: r.line, names: bus.Names{}}
		if engines[i], err = r.engine([]uint64{prefillPool, decodePool}[i]); err != nil {
			return err
		}
	}
	p, err := prefill.Start(ctx, prefill.Config{ID: "p1", Model: r.src.Name, ModelSlug: rigSlug, PoolNumber: prefillPool, Chunk: r.o.Chunk,
		Bus: prefillBusTap{taps[0]}, Keys: ring, Engine: prefillTap{engines[0], r.line}})
	if err != nil {
		return err
	}
	r.stop(func() { _ = p.Close() })
	d, err := decode.Start(ctx, decode.Config{ID: "d1", Model: r.src.Name, ModelSlug: rigSlug, Pool: decodePool, Bus: decodeBusTap{taps[1]}, Keys: ring,
		Engine: decodeTap{engines[1], r.line}, Tokenizer: r.src.Tokenizer})
	if err != nil {
		return err
	}
	r.stop(func() { _ = d.Close() })
	return nil
}

// ready waits until the router would admit a request.
func (r *handoffRig) ready(ctx context.Context) error {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.http+"/ready", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settle waits until both pools of the last request are zeroed: the next one begins on an idle machine.
func (r *handoffRig) settle(ctx context.Context) error {
	for range 2 {
		select {
		case <-r.line.zeroed:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Second):
			return errors.New("bench: hand-off: pages of the last request are not zeroed after 10 s")
		}
	}
	return nil
}
