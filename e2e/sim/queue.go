package sim

import (
	"container/heap"
	"math/rand/v2"
)

// Time is simulated true time, in microseconds. Processes see it through clocks of their own.
type Time int64

// Durations.
const (
	ms  Time = 1000
	sec Time = 1000 * ms
)

// timer is one event to come.
type timer struct {
	at  Time
	seq uint64 // among equal times, first made is first run
	fn  func() // nil once it was stopped
}

func (t *timer) stop() {
	if t != nil {
		t.fn = nil
	}
}

type timers []*timer

func (h timers) Len() int { return len(h) }
func (h timers) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h timers) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *timers) Push(x any)   { *h = append(*h, x.(*timer)) }
func (h *timers) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return t
}

// queue runs events in order of time.
type queue struct {
	now  Time
	seq  uint64
	heap timers
	runs uint64 // events run
}

func (q *queue) after(d Time, fn func()) *timer {
	q.seq++
	t := &timer{at: q.now + max(d, 0), seq: q.seq, fn: fn}
	heap.Push(&q.heap, t)
	return t
}

// next runs one event; false when there is none until then.
func (q *queue) next(until Time) bool {
	for len(q.heap) > 0 {
		if q.heap[0].at > until {
			break
		}
		t := heap.Pop(&q.heap).(*timer)
		if t.fn == nil {
			continue
		}
		q.now = t.at
		q.runs++
		t.fn()
		return true
	}
	q.now = max(q.now, until)
	return false
}

// dice are all the chance there is in a run.
type dice struct{ *rand.Rand }

func newDice(seed, stream uint64) dice { return dice{rand.New(rand.NewPCG(seed, stream))} }

func (d dice) chance(p float64) bool { return p > 0 && d.Float64() < p }

// between gives a value of [lo, hi].
func (d dice) between(lo, hi Time) Time {
	if hi <= lo {
		return lo
	}
	return lo + Time(d.Int64N(int64(hi-lo)+1))
}

func (d dice) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(d.Uint64())
	}
	return b
}

// pick gives one of several values.
func pick[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }
