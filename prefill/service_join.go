package prefill

import (
	"context"
	"fmt"
	"sync"
	"time"

	"quire/bus"
	"quire/kvtransfer"
)

// How the service listens: jobs, control messages, decodes' heartbeats, and its own epoch.

// join starts the consumers. Jobs come first in subs (those for all, then those for this worker), and last in time: whatever a job needs is listened to before.
func (s *Service) join(ctx context.Context) error {
	n, role := s.cfg.Names, string(kvtransfer.RolePrefill)
	beats, err := s.cfg.Bus.Subscribe(n.Heartbeat(string(kvtransfer.RoleDecode), "*"), "", s.onBeat)
	if err != nil {
		return fmt.Errorf("prefill: heartbeats: %w", err)
	}
	s.subs = append(s.subs, beats)
	pages, err := s.cfg.Bus.Subscribe(n.Pages(role, s.cfg.ID, s.peer.Epoch), "", s.onPages)
	if err != nil {
		return fmt.Errorf("prefill: pages: %w", err)
	}
	s.subs = append(s.subs, pages)
	err = s.retry(ctx, "watch of its epoch", func() (err error) {
		s.unwatch, err = s.cfg.Bus.Streams().WatchEpoch(ctx, role, s.cfg.ID, s.onEpoch)
		return err
	})
	if err != nil {
		return err
	}
	control := bus.Consumer{Stream: n.ControlStream(), Name: fmt.Sprintf("prefill-%s-%d", s.cfg.ID, s.peer.Epoch),
		Subjects: []string{n.AllControl(role, s.cfg.ID, s.peer.Epoch)}}
	if err := s.consume(ctx, control, s.onControl); err != nil {
		return err
	}
	pool := s.cfg.Engine.Info().Fingerprints.Pool()
	jobs := bus.Consumer{Stream: n.JobsStream(), Name: fmt.Sprintf("jobs-%s-%s", s.cfg.ModelSlug, pool),
		Subjects: []string{n.AllJobs(s.cfg.ModelSlug, pool)}, MaxDeliver: 1, AckWait: jobAckWait, MaxPending: jobPending, Want: s.want}
	own := jobs
	own.Name, own.Subjects, own.Want = jobs.Name+"-"+s.cfg.ID, []string{n.JobsFor(s.cfg.ModelSlug, pool, s.cfg.ID)}, s.wantDirect
	if err := s.consume(ctx, own, func(d bus.Delivery) { s.onJob(d, true) }); err != nil {
		return err
	}
	return s.consume(ctx, jobs, func(d bus.Delivery) { s.onJob(d, false) })
}

// consume starts a consumer as soon as its stream is there, and puts it first in subs.
func (s *Service) consume(ctx context.Context, c bus.Consumer, fn func(bus.Delivery)) error {
	return s.retry(ctx, c.Stream, func() error {
		sub, err := s.cfg.Bus.Consume(ctx, c, fn)
		if err == nil {
			s.subs = append([]bus.Sub{sub}, s.subs...)
		}
		return err
	})
}

// retry calls fn until it succeeds or ctx ends: processes start in any order. It logs the first failure, and returns the last
// one that had a reason of its own.
func (s *Service) retry(ctx context.Context, what string, fn func() error) error {
	var last error
	for {
		err := fn()
		if err == nil {
			return nil
		}
		if last == nil {
			s.cfg.Log.Info("prefill waits", "for", what, "error", err)
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-time.After(beatEvery):
		case <-ctx.Done():
			return fmt.Errorf("prefill: %s: %w", what, last)
		}
	}
}

// onJob verifies a job. One that nobody signed is terminated.
func (s *Service) onJob(d bus.Delivery, direct bool) {
	job, err := OpenJob(s.cfg.Keys, d.Data)
	if err != nil {
		s.unsigned.Add(1)
		s.warn("job refused", err)
		s.warn("job term", d.Term())
		s.post(JobRefused{Direct: direct})
		return
	}
	job.Direct = direct
	s.postInput(input{ev: job, delivery: &d})
}

func (s *Service) onControl(d bus.Delivery) {
	ev, err := OpenControl(s.cfg.Keys, d.Data)
	if err != nil {
		s.unsigned.Add(1)
		s.warn("control message refused", err)
		s.warn("control term", d.Term())
		return
	}
	s.post(ev)
	s.warn("control ack", d.Ack())
}

// onBeat notes a decode's heartbeat; what is not signed is no heartbeat.
func (s *Service) onBeat(m bus.Msg) {
	ev, err := OpenHeartbeat(s.cfg.Keys, m.Data)
	if err != nil {
		s.unsigned.Add(1)
		return
	}
	s.direct.heard(s.ctx, ev.From, ev.Frames, time.Now())
	s.post(ev)
}

// onEpoch stops this process when a younger one has its name.
func (s *Service) onEpoch(epoch uint64) {
	if epoch > s.peer.Epoch {
		s.stop(fmt.Errorf("prefill: %s: epoch %d has started", s.peer, epoch))
	}
}

// queue hands work to goroutines without ever making the sender wait. Its length is bounded by the loop's own bounds.
type queue[T func()] struct {
	mu     sync.Mutex
	cond   *sync.Cond
	items  []T
	closed bool
}

func (q *queue[T]) init() { q.cond = sync.NewCond(&q.mu) }

func (q *queue[T]) push(v T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.items = append(q.items, v)
		q.cond.Signal()
	}
}

// run does what comes until close; what is left then is dropped.
func (q *queue[T]) run() {
	for {
		q.mu.Lock()
		for len(q.items) == 0 && !q.closed {
			q.cond.Wait()
		}
		if q.closed {
			q.mu.Unlock()
			return
		}
		do := q.items[0]
		q.items = q.items[1:]
		q.mu.Unlock()
		do()
	}
}

func (q *queue[T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.cond.Broadcast()
}
