package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// team is the worker threads of a device. A worker runs a plan's tasks in order; it takes the items of a task one by one, its own and
// then those of others, so a worker whose processor is busy elsewhere delays only the item it holds. A task begins when all items of the
// one before have ended.
type team struct {
	workers []*worker
	stopped bool          // guarded by mu
	seq     atomic.Uint64 // plans started
	current *plan         // guarded by mu
	mu      sync.Mutex
	wake    *sync.Cond // a plan was started, a task or a plan ended, or the team stops
	ended   sync.WaitGroup
}

// Waiting for another worker costs a spin, then a turn for other goroutines, then sleep.
const (
	spins     = 8000
	spinPause = 2                     // PAUSE instructions each: what is waited for is often there within 100 ns
	patience  = 50 * time.Microsecond // of yielding, before sleep
)

func startTeam(n int) *team {
	t := &team{workers: make([]*worker, n)}
	t.wake = sync.NewCond(&t.mu)
	for i := range t.workers {
		t.workers[i] = &worker{id: i}
		t.ended.Add(1)
		go t.work(t.workers[i])
	}
	return t
}

// stop ends the workers. No plan may be running.
func (t *team) stop() {
	t.mu.Lock()
	t.stopped = true
	t.wake.Broadcast()
	t.mu.Unlock()
	t.ended.Wait()
}

// run lets the workers run a plan and returns when it has ended. One at a time.
func (t *team) run(p *plan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current = p
	t.seq.Add(1)
	t.wake.Broadcast()
	for !p.done() {
		t.wake.Wait()
	}
	t.current = nil
}

// left says whether no worker is in the plan any more, so that it may be written.
func (t *team) left(p *plan) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return p.inside == 0
}

func (t *team) work(w *worker) {
	runtime.LockOSThread()
	defer t.ended.Done()
	var seen uint64
	for {
		for i := 0; i < spins && t.seq.Load() == seen; i++ {
			pause(spinPause)
		}
		p := t.join(&seen)
		if p == nil {
			return
		}
		p.run(t, w)
		t.mu.Lock()
		p.inside--
		t.mu.Unlock()
	}
}

// join waits for a plan that the worker has not seen, or for the end: nil.
func (t *team) join(seen *uint64) *plan {
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.stopped {
		if p := t.current; p != nil && t.seq.Load() != *seen {
			*seen = t.seq.Load()
			p.inside++
			return p
		}
		t.wake.Wait()
	}
	return nil
}

// await waits until the task's items have ended.
func (t *team) await(k *task) {
	for range spins {
		if k.finished() {
			return
		}
		pause(spinPause)
	}
	for start := time.Now(); time.Since(start) < patience; {
		if k.finished() {
			return
		}
		runtime.Gosched()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	k.sleepers.Add(1)
	for !k.finished() {
		t.wake.Wait()
	}
	k.sleepers.Add(-1)
}

// worker is one thread and its scratch memory.
type worker struct {
	id     int
	acts   [2][]byte // rounded activations of a small batch, see task.activations
	acted  [2]int    // which task they are of, -1: none
	panel  []float32
	stored []byte // a row of keys and values as stored
	attn   attnScratch
}

// floats gives scratch for n numbers; what was in it is lost.
func (w *worker) floats(n int) []float32 {
	grow(&w.panel, n)
	return w.panel[:n]
}
