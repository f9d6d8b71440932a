package sim

import "math/rand/v2"

// Time is simulated true time, in microseconds. Processes see it through clocks of their own.
type Time int64

// Durations.
const (
	ms  Time = 1000
	sec Time = 1000 * ms
)

// timer is one event to come.
type timer struct {
	fn   func() // nil once it was stopped or run
	p    *proc  // in which it happens; nil = in the world
	once bool   // nobody holds it: it is used again
}

func (t *timer) stop() {
	if t != nil {
		t.fn = nil
	}
}

// run does what is to be done, unless it was stopped.
func (t *timer) run() {
	if fn := t.fn; fn != nil {
		t.fn = nil
		fn()
	}
}

// due is a timer's place in the queue.
type due struct {
	at  Time
	seq uint64 // among equal times, first made is first run
	t   *timer
}

func (a due) before(b due) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// queue runs events in order of time.
type queue struct {
	now  Time
	seq  uint64
	heap []due // each but the first stands behind heap[(i-1)/4]
	free []*timer
	runs uint64 // events run
}

// after has fn run in the world after a while.
func (q *queue) after(d Time, fn func()) *timer {
	t := &timer{fn: fn}
	q.add(d, t)
	return t
}

// post has fn run in a process, or in the world when p is nil. It cannot be stopped.
func (q *queue) post(d Time, p *proc, fn func()) {
	var t *timer
	if n := len(q.free); n > 0 {
		t, q.free = q.free[n-1], q.free[:n-1]
	} else {
		t = &timer{once: true}
	}
	t.fn, t.p = fn, p
	q.add(d, t)
}

func (q *queue) add(d Time, t *timer) {
	q.seq++
	x := due{q.now + max(d, 0), q.seq, t}
	q.heap = append(q.heap, x)
	i := len(q.heap) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !x.before(q.heap[up]) {
			break
		}
		q.heap[i] = q.heap[up]
		i = up
	}
	q.heap[i] = x
}

// pop takes the first event out.
func (q *queue) pop() due {
	first, n := q.heap[0], len(q.heap)-1
	x := q.heap[n]
	q.heap[n] = due{}
	q.heap = q.heap[:n]
	for i := 0; n > 0; {
		least := 4*i + 1
		for k := least + 1; k < min(4*i+5, n); k++ {
			if q.heap[k].before(q.heap[least]) {
				least = k
			}
		}
		if least >= n || !q.heap[least].before(x) {
			q.heap[i] = x
			break
		}
		q.heap[i] = q.heap[least]
		i = least
	}
	return first
}

// next runs one event; false when there is none until then.
func (q *queue) next(until Time) bool {
	for len(q.heap) > 0 && q.heap[0].at <= until {
		x := q.pop()
		if x.t.fn == nil {
			continue
		}
		q.now = x.at
		q.runs++
		q.run(x.t)
		return true
	}
	q.now = max(q.now, until)
	return false
}

func (q *queue) run(t *timer) {
	switch {
	case t.p == nil:
		t.run()
	case t.p.dead:
	case t.p.paused:
		if t.once {
			t.p.backlog = append(t.p.backlog, t.fn)
		} else {
			t.p.backlog = append(t.p.backlog, t.run)
		}
	default:
		t.run()
	}
	if t.once {
		t.fn, t.p = nil, nil
		q.free = append(q.free, t)
	}
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
