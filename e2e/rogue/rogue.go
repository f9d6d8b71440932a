// Package rogue is a prefill worker that lies. It speaks the protocol as package prefill does, with a valid key, and a plan for
// each job says in what it departs from the truth: in the prompt that it computes, in how much of it it sends, in the bytes, in
// the manifest. With the zero plan it is honest. Tests of the gate and the witness put it in prefill's place.
package rogue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"quire/bus"
	"quire/keys"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
	"quire/model"
	"quire/prefill"
)

// Plan says in what one hand-off departs from the truth.
type Plan struct {
	// Tokens are computed instead of the prompt; nil = the prompt.
	Tokens []int32
	// Rows is how many of the rows are computed and sent, from the first; 0 = all.
	Rows int
	// Frame changes the opened bytes of a frame, without its hidden vector, before they are sealed.
	Frame func(h kvtransfer.FrameHeader, plain []byte)
	// Manifest changes the manifest before it is signed.
	Manifest func(*kvtransfer.Manifest)
}

// Prompt is what a rogue knows of a job when it plans.
type Prompt struct {
	Tenant string
	Tokens []int32
}

// Rows are the stored keys and values of a prompt, as Compute gives them.
type Rows struct {
	// Bytes gives rows [from, to) of layers [layerFrom, layerTo) in the order of a frame.
	Bytes  func(layerFrom, layerTo, from, to int) ([]byte, error)
	Hidden []float32 // the last layer's output for the last row
}

// Config is what a rogue runs with.
type Config struct {
	ID      string
	Model   string
	Slug    string
	Bus     bus.Bus
	Names   bus.Names
	Keys    *keys.Ring
	Info    model.Info // of the engine that it has or pretends to have
	Compute func(tokens []int32) (Rows, error)
	Plan    func(Prompt) Plan // nil = honest
	Log     *slog.Logger
}

// Worker is a running rogue. It works on one job at a time, and holds one more.
type Worker struct {
	cfg    Config
	peer   kvtransfer.Peer
	signer seal.Signer

	mu      sync.Mutex
	claimed map[kvtransfer.Key]chan struct{} // closed when decode answers Claimed

	want   chan struct{} // of jobs for all
	direct chan struct{} // of jobs for this worker
	jobs   chan job
	subs   []bus.Sub
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

type job struct {
	prefill.Job
	ack  func() error
	want chan struct{} // where to ask for the next one
}

const (
	beatEvery = 200 * time.Millisecond
	patience  = 5 * time.Second // for Claimed, and for one publish
)

// Start takes an epoch and waits for jobs.
func Start(ctx context.Context, cfg Config) (*Worker, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	w := &Worker{cfg: cfg, peer: kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: cfg.ID}, claimed: map[kvtransfer.Key]chan struct{}{},
		want: make(chan struct{}, 1), direct: make(chan struct{}, 1), jobs: make(chan job, 2)}
	var err error
	if w.signer, err = cfg.Keys.Signer(kvtransfer.RolePrefill); err != nil {
		return nil, err
	}
	if w.peer.Epoch, err = cfg.Bus.Streams().NextEpoch(ctx, string(kvtransfer.RolePrefill), cfg.ID); err != nil {
		return nil, err
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	if err := w.join(ctx); err != nil {
		w.Close()
		return nil, err
	}
	w.wg.Go(w.beat)
	w.wg.Go(w.work)
	return w, nil
}

func (w *Worker) join(ctx context.Context) error {
	n, role := w.cfg.Names, string(kvtransfer.RolePrefill)
	control, err := w.cfg.Bus.Consume(ctx, bus.Consumer{Stream: n.ControlStream(), Name: fmt.Sprintf("rogue-%s-%d", w.cfg.ID, w.peer.Epoch),
		Subjects: []string{n.AllControl(role, w.cfg.ID, w.peer.Epoch)}}, w.onControl)
	if err != nil {
		return err
	}
	w.subs = append(w.subs, control)
	pool := w.cfg.Info.Fingerprints.Pool()
	name := fmt.Sprintf("jobs-%s-%s", w.cfg.Slug, pool)
	for _, c := range []struct {
		name, filter string
		want         chan struct{}
	}{{name, n.AllJobs(w.cfg.Slug, pool), w.want}, {name + "-" + w.cfg.ID, n.JobsFor(w.cfg.Slug, pool, w.cfg.ID), w.direct}} {
		jobs, err := w.cfg.Bus.Consume(ctx, bus.Consumer{Stream: n.JobsStream(), Name: c.name, Subjects: []string{c.filter},
			MaxDeliver: 1, AckWait: 30 * time.Second, MaxPending: 1024, Want: c.want}, func(d bus.Delivery) { w.onJob(d, c.want) })
		if err != nil {
			return err
		}
		w.subs = append(w.subs, jobs)
		c.want <- struct{}{}
	}
	return nil
}

func (w *Worker) onJob(d bus.Delivery, want chan struct{}) {
	j, err := prefill.OpenJob(w.cfg.Keys, d.Data)
	if err != nil {
		w.cfg.Log.Warn("rogue: job", "error", errors.Join(err, d.Term()))
		return
	}
	select {
	case w.jobs <- job{j, d.Ack, want}:
	case <-w.ctx.Done():
	}
}

func (w *Worker) onControl(d bus.Delivery) {
	if ev, err := prefill.OpenControl(w.cfg.Keys, d.Data); err == nil {
		if c, ok := ev.(prefill.Claimed); ok {
			close(w.answer(c.Msg.Key, true))
		}
	}
	_ = d.Ack()
}

// answer is the channel that Claimed closes; it is forgotten once it is closed.
func (w *Worker) answer(k kvtransfer.Key, forget bool) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.claimed[k]
	if !ok {
		c = make(chan struct{})
		w.claimed[k] = c
	}
	if forget {
		delete(w.claimed, k)
	}
	return c
}

// beat says what every prefill worker says: that it is there, has room and computes as decode does.
func (w *Worker) beat() {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	i := w.cfg.Info
	hb := kvtransfer.Heartbeat{Peer: w.peer, Model: w.cfg.Model, ModelSlug: w.cfg.Slug, Pool: i.Fingerprints.Pool(),
		Fingerprints: i.Fingerprints, MaxModelLen: min(i.Context, i.Pages*i.PageSize), PageSize: i.PageSize, Slots: 1, SlotsFree: 1}
	hb.Pages.Total, hb.Pages.Free = i.Pages, i.Pages
	for {
		if body, err := wire.Encode(&hb); err == nil {
			_ = w.cfg.Bus.Publish(w.cfg.Names.Heartbeat(string(kvtransfer.RolePrefill), w.cfg.ID), nil,
				seal.Sign(w.signer, w.peer, kvtransfer.KindHeartbeat, body))
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			return
		}
	}
}

func (w *Worker) work() {
	for {
		select {
		case j := <-w.jobs:
			if err := w.serve(j); err != nil && w.ctx.Err() == nil {
				w.cfg.Log.Warn("rogue: hand-off", "key", j.Reservation.Key.String(), "error", err)
			}
			j.want <- struct{}{}
		case <-w.ctx.Done():
			return
		}
	}
}

// Close stops at once.
func (w *Worker) Close() {
	w.cancel()
	for _, s := range w.subs {
		_ = s.Drain()
	}
	w.wg.Wait()
}
