package console

import (
	"math"
	"slices"
	"sync"
	"time"

	"quire/kvtransfer"
	"quire/router"
)

// kept is how many samples a series holds: ten minutes, one a second.
const kept = 600

// point is what happened in one second. Latencies are 0 when nothing was measured in it.
type point struct {
	Time     int64   `json:"time"`     // Unix, milliseconds
	Tokens   float64 `json:"tokens"`   // generated, a second
	Prompt   float64 `json:"prompt"`   // admitted, a second
	Requests float64 `json:"requests"` // ended, a second
	Refused  float64 `json:"refused"`  // of them with an error, a second
	TTFT50   float64 `json:"ttft50"`   // seconds
	TTFT95   float64 `json:"ttft95"`
	ITL50    float64 `json:"itl50"`
	ITL95    float64 `json:"itl95"`
}

// reading is the counters at one moment.
type reading struct {
	at       time.Time
	stats    router.Stats
	measured router.Measures
}

// series keeps the points of the last minutes.
type series struct {
	mu     sync.Mutex
	points []point
	last   reading
}

func newSeries() *series { return &series{} }

// all copies the points, oldest first.
func (s *series) all() []point {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]point{}, s.points...) // never null
}

// newest is the last point; ok is false before the first.
func (s *series) newest() (p point, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.points) == 0 {
		return point{}, false
	}
	return s.points[len(s.points)-1], true
}

// add makes a point of two readings. The first reading only begins.
func (s *series) add(now reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.last
	s.last = now
	took := now.at.Sub(was.at).Seconds()
	if was.at.IsZero() || took <= 0 {
		return
	}
	a, b := was.stats, now.stats
	ends, errs := ended(a.Ends, b.Ends)
	p := point{Time: now.at.UnixMilli(), Tokens: float64(b.OutputTokens-a.OutputTokens) / took, Prompt: float64(now.measured.PromptTokens-was.measured.PromptTokens) / took,
		Requests: float64(ends) / took, Refused: float64(errs) / took}
	ttft, itl := between(was.measured.TTFT, now.measured.TTFT), between(was.measured.ITL, now.measured.ITL)
	p.TTFT50, p.TTFT95 = quantile(ttft, 0.5), quantile(ttft, 0.95)
	p.ITL50, p.ITL95 = quantile(itl, 0.5), quantile(itl, 0.95)
	if len(s.points) == kept {
		s.points = slices.Delete(s.points, 0, 1)
	}
	s.points = append(s.points, p)
}

// good says whether a reason is a good end.
func good(reason string) bool {
	return reason == string(kvtransfer.FinishStop) || reason == string(kvtransfer.FinishLength)
}

// ended counts the ends between two readings, and those of them that were errors.
func ended(was, now map[string]uint64) (all, errs uint64) {
	for reason, n := range now {
		n -= was[reason]
		all += n
		if !good(reason) {
			errs += n
		}
	}
	return all, errs
}

// between is what was counted from one reading to the next.
func between(was, now router.Buckets) router.Buckets {
	out := router.Buckets{Bounds: now.Bounds, Counts: slices.Clone(now.Counts)}
	for i := range was.Counts {
		out.Counts[i] -= was.Counts[i]
	}
	return out
}

// quantile estimates a quantile, straight between the bounds of its bucket; what lies above all bounds counts as the last one.
// 0 when nothing was counted.
func quantile(b router.Buckets, q float64) float64 {
	var all uint64
	for _, n := range b.Counts {
		all += n
	}
	if all == 0 {
		return 0
	}
	rank, below := q*float64(all), 0.0
	for i, n := range b.Counts {
		if below+float64(n) < rank || n == 0 {
			below += float64(n)
			continue
		}
		low := 0.0
		if i > 0 {
			low = b.Bounds[i-1]
		}
		if i == len(b.Bounds) {
			return low
		}
		return low + (b.Bounds[i]-low)*math.Min(1, (rank-below)/float64(n))
	}
	return b.Bounds[len(b.Bounds)-1]
}

// sample reads the source once a second until Close.
func (c *Console) sample() {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	read := func(at time.Time) {
		c.series.add(reading{at, c.cfg.Source.Stats(), c.cfg.Source.Measures()})
	}
	read(time.Now())
	for {
		select {
		case <-c.ctx.Done():
			return
		case at := <-every.C:
			read(at)
		}
	}
}
