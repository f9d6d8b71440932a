package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"quire/trace"
)

// service is what prefill, decode and router have in common once they run.
type service interface {
	Drain(ctx context.Context) error
	Close() error
	// Done is closed when the service stopped by itself; Err says why.
	Done() <-chan struct{}
	Err() error
}

// Cluster is the roles of this process, running.
type Cluster struct {
	o     Options
	log   *slog.Logger // of this process: with its role where it has only one
	began time.Time
	took  time.Duration // from the start to ready
	dead  chan error
	once  sync.Once

	spans *trace.Exporter // nil = nobody takes spans
	info  Info
	parts []part // in order of start; they are taken down in reverse
}

// part is something that was started and has to be stopped.
type part struct {
	name string
	stop func(ctx context.Context) error
}

// Info is what a cluster tells about itself once it is ready, for the banner and the log.
type Info struct {
	Model     ModelInfo
	Device    string // "cpu: avx2, 2 threads"
	NATS      string // URL without credentials
	Server    string // its version
	External  bool
	HTTP      string // HOST:PORT as bound
	Workers   []WorkerInfo
	Limit     int
	LimitedBy string // "model context", "prefill p1's pool", "--max-model-len", ...
}

// ModelInfo describes what is served.
type ModelInfo struct {
	Name    string
	BuiltIn bool
	Bytes   int64
	Context int
}

// WorkerInfo is a prefill or decode worker.
type WorkerInfo struct {
	Role, ID        string
	Pages, PageSize int
}

// Tokens is what the worker's pool holds.
func (w WorkerInfo) Tokens() int { return w.Pages * w.PageSize }

func begin(o Options) *Cluster {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Cluster{o: o, log: o.Log, began: time.Now(), dead: make(chan error, 1)}
}

// startTraces begins to send spans where the environment says so. What it sends last are those of the parts that stop first.
func (c *Cluster) startTraces() error {
	if c.o.Env == nil {
		return nil
	}
	e, err := trace.FromEnv(c.o.Env, c.o.Version, c.log)
	if err != nil || e == nil {
		return err
	}
	c.spans = e
	c.add("traces", func(ctx context.Context) error {
		if err := e.Close(ctx); err != nil {
			c.log.Warn("spans are lost", "error", err)
		}
		return nil
	})
	return nil
}

// who is the log of a role. A single role's process has one all through.
func (c *Cluster) who(role, id string) *slog.Logger {
	l := c.o.Log.With("role", role)
	if id != "" {
		l = l.With("id", id)
	}
	return l
}

// Dead gets one error when a role stopped by itself: then the process has to end.
func (c *Cluster) Dead() <-chan error { return c.dead }

// Info is only complete once the cluster was returned by Up or one of its siblings.
func (c *Cluster) Info() Info { return c.info }

func (c *Cluster) die(err error) { c.once.Do(func() { c.dead <- err }) }

// add notes what has to be taken down later.
func (c *Cluster) add(name string, stop func(context.Context) error) {
	c.parts = append(c.parts, part{name, stop})
}

// earlier ends a context so much sooner, that what stops later has that time too.
func earlier(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	if until, ok := ctx.Deadline(); ok {
		return context.WithDeadline(ctx, until.Add(-by))
	}
	return context.WithCancel(ctx)
}

// run notes a service and watches it. leave is how much of the time to stop it leaves to those that stop after it: workers to
// the bus, routers to workers.
func (c *Cluster) run(name string, s service, leave time.Duration) {
	ended := make(chan struct{})
	go func() {
		select {
		case <-s.Done():
			if err := s.Err(); err != nil {
				c.die(fmt.Errorf("cluster: %s stopped: %w", name, err))
			}
		case <-ended:
		}
	}()
	c.add(name, func(ctx context.Context) error {
		close(ended)
		ctx, cancel := earlier(ctx, leave)
		defer cancel()
		drained := s.Drain(ctx)
		if errors.Is(drained, context.DeadlineExceeded) {
			c.log.Warn("stopped before its work had ended", "part", name, "error", drained)
			drained = nil // it was told; the work is Lost and its owners know
		}
		return errors.Join(drained, s.Close())
	})
}

// Stop drains and takes everything down in the reverse order of start; what has not ended when ctx ends is cut off. Nothing of
// the cluster is left when it returns.
func (c *Cluster) Stop(ctx context.Context) error {
	if len(c.parts) > 0 && c.took > 0 {
		c.log.Info("stopping: no new requests, running ones may end")
	}
	var errs []error
	for i := len(c.parts) - 1; i >= 0; i-- {
		p := c.parts[i]
		if err := p.stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", p.name, err))
		}
	}
	c.parts = nil
	return errors.Join(errs...)
}

// abandon takes down what was started before an error.
func (c *Cluster) abandon(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return errors.Join(err, c.Stop(ctx))
}

// LogReady says in one line that a single role serves.
func (c *Cluster) LogReady() {
	args := []any{"took", c.took.Round(time.Millisecond)}
	if c.info.HTTP != "" {
		args = append(args, "http", c.info.HTTP)
	}
	if c.info.NATS != "" {
		args = append(args, "nats", c.info.NATS, "server", c.info.Server)
	}
	if w := c.info.Workers; len(w) == 1 {
		args = append(args, "pool_tokens", w[0].Tokens(), "page_size", w[0].PageSize)
	} else if len(w) > 1 {
		args = append(args, "workers", len(w))
	}
	if c.info.Limit > 0 {
		args = append(args, "limit", c.info.Limit, "limited_by", c.info.LimitedBy)
	}
	c.log.Info("ready", args...)
}
