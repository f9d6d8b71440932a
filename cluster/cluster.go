package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"quire/keys"
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
	began time.Time
	took  time.Duration // from the start to ready
	dead  chan error
	once  sync.Once

	keys  *keys.Ring
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

func begin(o Options) (*Cluster, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Cluster{o: o, began: time.Now(), dead: make(chan error, 1)}, nil
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

// run notes a service and watches it.
func (c *Cluster) run(name string, s service) {
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
		drained := s.Drain(ctx)
		if errors.Is(drained, context.DeadlineExceeded) {
			c.o.Log.Warn("stopped before its work had ended", "part", name, "error", drained)
			drained = nil // it was told; the work is Lost and its owners know
		}
		return errors.Join(drained, s.Close())
	})
}

// Stop drains and takes everything down in the reverse order of start; what has not ended when ctx ends is cut off. Nothing of
// the cluster is left when it returns.
func (c *Cluster) Stop(ctx context.Context) error {
	if len(c.parts) > 0 && c.took > 0 {
		c.o.Log.Info("stopping: no new requests, running ones may end")
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
	for _, w := range c.info.Workers {
		args = append(args, "pool_tokens", w.Tokens(), "page_size", w.PageSize)
	}
	if c.info.Limit > 0 {
		args = append(args, "limit", c.info.Limit, "limited_by", c.info.LimitedBy)
	}
	c.o.Log.Info("ready", args...)
}
