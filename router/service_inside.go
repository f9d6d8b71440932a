package router

import (
	"context"
	"slices"
	"sync"
	"time"

	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
)

// Inside is a cluster at one moment as a router sees it, for people to look at. Pools and flights come from different processes,
// so they may be a few milliseconds apart.
type Inside struct {
	Time     time.Time
	Router   kvtransfer.Peer
	Stats    Stats
	Flights  []Flight
	InFlight int                // requests; Flights may list fewer
	Pools    []kvtransfer.Pages // of the workers that answered, in the order of Stats.Workers
}

// Measures are what was measured since the start.
type Measures struct {
	TTFT, ITL    Buckets // to the first token, between tokens
	PromptTokens uint64  // that were admitted
	Unsigned     uint64  // messages to this router that nobody with a key signed, or that cannot be read
}

// Buckets are the counts of a histogram. Counts[i] is what lies in (Bounds[i-1], Bounds[i]], the last one what lies above all.
type Buckets struct {
	Bounds []float64 // seconds; not to be written
	Counts []uint64
}

func (h *histogram) buckets() Buckets {
	b := Buckets{Bounds: h.bounds, Counts: make([]uint64, len(h.counts))}
	for i := range h.counts {
		b.Counts[i] = h.counts[i].Load()
	}
	return b
}

// Measures gives what was measured so far.
func (s *Service) Measures() Measures {
	return Measures{s.meter.ttft.buckets(), s.meter.itl.buckets(), s.meter.prompts.Get(), s.meter.ignored.Get()}
}

// Bounds of looking.
const (
	lookAge     = 200 * time.Millisecond // what was seen so lately is not asked for again
	lookTimeout = 500 * time.Millisecond // for all workers
	maxPools    = 64                     // workers that are asked
)

// looker remembers what was seen last, so that many who look cost no more than one.
type looker struct {
	mu   sync.Mutex
	seen Inside
}

// Inside looks at the loop and asks the workers. Those that do not answer in time are left out.
func (s *Service) Inside(ctx context.Context) Inside {
	s.looks.mu.Lock()
	defer s.looks.mu.Unlock()
	if time.Since(s.looks.seen.Time) < lookAge {
		return s.looks.seen
	}
	in := Inside{Router: s.peer, Stats: s.Stats()}
	s.look(ctx, func() { in.Flights, in.InFlight = s.loop.Flights() })
	in.Pools = s.pools(ctx, in.Stats.Workers)
	in.Time = time.Now()
	if ctx.Err() == nil {
		s.looks.seen = in
	}
	return in
}

// look runs fn on the loop's goroutine between two events; not at all when ctx ends or the router stops first.
func (s *Service) look(ctx context.Context, fn func()) {
	done := make(chan struct{})
	select {
	case s.asked <- func() { fn(); close(done) }:
		<-done
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
}

// pools asks every worker at once who has which of its pages.
func (s *Service) pools(ctx context.Context, workers []kvtransfer.Heartbeat) []kvtransfer.Pages {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	workers = workers[:min(len(workers), maxPools)]
	answers := make([]*kvtransfer.Pages, len(workers))
	var wg sync.WaitGroup
	for i, hb := range workers {
		wg.Go(func() { answers[i] = s.pool(ctx, hb.Peer) })
	}
	wg.Wait()
	answers = slices.DeleteFunc(answers, func(p *kvtransfer.Pages) bool { return p == nil })
	out := make([]kvtransfer.Pages, len(answers))
	for i, p := range answers {
		out[i] = *p
	}
	return out
}

// pool asks one worker; nil when it does not answer as itself.
func (s *Service) pool(ctx context.Context, of kvtransfer.Peer) *kvtransfer.Pages {
	b, err := s.sign(kvtransfer.KindPagesAsk, kvtransfer.PagesAsk{Worker: of})
	if err != nil {
		return nil
	}
	msg, err := s.cfg.Bus.Request(ctx, s.cfg.Names.Pages(string(of.Role), of.ID, of.Epoch), b)
	if err != nil {
		return nil // away, or of a version that does not know the question
	}
	env, err := seal.OpenEnvelope(s.cfg.Keys, msg.Data)
	if err != nil || env.From != of || env.Kind != kvtransfer.KindPages {
		s.meter.ignored.Inc()
		return nil
	}
	p, err := wire.Decode[kvtransfer.Pages](env.Body)
	if err != nil || p.Worker != of {
		s.meter.ignored.Inc()
		return nil
	}
	return &p
}
