package cpu

import (
	"fmt"
	"sync/atomic"

	"quire/device"
)

// plan is a step made ready to run: its ops checked and split into items.
type plan struct {
	dev    *Device
	batch  *device.Batch
	pool   *pool
	tasks  []*task
	parts  []part  // of the MatMul tasks, see task.parts
	seqOf  []int32 // [rows] index into batch.Seqs
	attn   []attnItem
	group  int // query heads to a key/value head that attn was made for
	inside int // workers in it; guarded by team.mu
}

// task is one op, or one phase of it. Which fields count depends on run.
type task struct {
	run      func(p *plan, t *task, w *worker, item int)
	items    int
	lanes    []lane // [workers] items that are each worker's first
	ahead    *task  // MatMul: the next one, whose weights a worker that has done its items begins to fetch
	ended    atomic.Int64
	sleepers atomic.Int32

	index        int
	rows         int
	rowsPerItem  int
	out, in, aux *buffer
	sin, cos     *buffer
	table        *matrix
	parts        []part
	layer        int
	scale        float32 // Attend's factor, Norm's epsilon
	dims         int
	flag         bool // MatMul: add; Rotate: interleaved
	small        bool // MatMul: workers round activations for themselves
	rounding     rounding
	heads        headOps
	chosen       []int
	to           [][]float32
	differs      []int32 // Compare's result
}

// lane is a run of items that one worker takes in order, so that it streams over weights that lie one after another; others take from
// it when theirs are done.
type lane struct {
	next  atomic.Int64 // the first item that nobody has taken
	first int
	end   int64
	_     [40]byte // a line of the cache each
}

// deal shares the items out.
func (t *task) deal(workers int) {
	if len(t.lanes) != workers {
		t.lanes = make([]lane, workers)
	}
	for i := range t.lanes {
		l := &t.lanes[i]
		l.first, l.end = t.items*i/workers, int64(t.items*(i+1)/workers)
		l.next.Store(int64(l.first))
	}
}

// work does the worker's own items and then what others have not begun; it returns how many.
func (t *task) work(p *plan, w *worker) (done int) {
	for i := range t.lanes {
		l := &t.lanes[(w.id+i)%len(t.lanes)]
		for l.next.Load() < l.end {
			item := l.next.Add(1) - 1
			if item >= l.end {
				break
			}
			t.run(p, t, w, int(item))
			done++
		}
	}
	return done
}

// part is one matrix of a product, and which items are its.
type part struct {
	w             *matrix
	out           *buffer
	panelsPerItem int
	firstItem     int
}

func (t *task) finished() bool { return t.ended.Load() == int64(t.items) }

// done says whether all tasks have ended.
func (p *plan) done() bool { return len(p.tasks) == 0 || p.tasks[len(p.tasks)-1].finished() }

// run takes part in all tasks.
func (p *plan) run(tm *team, w *worker) {
	w.acted = [2]int{-1, -1}
	for i := range p.tasks {
		t := p.tasks[i]
		mine := t.work(p, w)
		last := mine > 0 && t.ended.Add(int64(mine)) == int64(t.items)
		if last && (t.sleepers.Load() > 0 || i == len(p.tasks)-1) {
			tm.mu.Lock()
			tm.wake.Broadcast()
			tm.mu.Unlock()
		}
		if !last {
			t.fetchAhead(p, w)
			tm.await(t)
		}
	}
}

// compile checks a step and lays its tasks out.
func (p *plan) compile(d *Device, s *device.Step) error {
	if s == nil {
		return fmt.Errorf("device/cpu: run: no step")
	}
	if err := device.CheckBatch(s.Batch); err != nil {
		return err
	}
	p.dev, p.batch, p.pool = d, s.Batch, nil
	if s.Batch.Pool != nil {
		pl, ok := s.Batch.Pool.(*pool)
		if !ok || pl.dev != d || pl.data == nil {
			return fmt.Errorf("device/cpu: run: the pool is not one of this device, or was freed")
		}
		p.pool = pl
	}
	p.seqOf, p.group = p.seqOf[:0], 0
	for i := range s.Batch.Seqs {
		for range s.Batch.Seqs[i].Rows {
			p.seqOf = append(p.seqOf, int32(i))
		}
	}
	p.parts = p.parts[:0]
	p.tasks = p.tasks[:0]
	for i, op := range s.Ops {
		if err := p.lay(op); err != nil {
			return fmt.Errorf("%w (op %d)", err, i)
		}
	}
	var product *task
	for _, t := range p.tasks {
		t.deal(len(d.team.workers))
		if len(t.parts) > 0 {
			if product != nil {
				product.ahead = t
			}
			product = t
		}
	}
	return nil
}

// add appends a task of so many items. Tasks of earlier steps are used again.
func (p *plan) add(items int, run func(*plan, *task, *worker, int)) *task {
	n := len(p.tasks)
	if n == cap(p.tasks) || p.tasks[:n+1][n] == nil {
		p.tasks = append(p.tasks, &task{})
	} else {
		p.tasks = p.tasks[:n+1]
	}
	t := p.tasks[n]
	*t = task{lanes: t.lanes}
	t.index, t.items, t.run = n, items, run
	return t
}

// rows is how many rows an op with the given limit computes.
func (p *plan) rows(limit int) (int, error) {
	n := len(p.batch.Tokens)
	if limit < 0 || limit > n {
		return 0, fmt.Errorf("device/cpu: run: %d rows of a batch of %d", limit, n)
	}
	if limit > 0 {
		n = limit
	}
	return n, nil
}

// buffer checks that it is the device's and has room for rows of cols; cols 0: any.
func (p *plan) buffer(b device.Buffer, rows, cols int) (*buffer, error) {
	buf, err := p.dev.buffer(b)
	if err != nil {
		return nil, err
	}
	if buf.rows < rows || (cols > 0 && buf.cols != cols) {
		return nil, fmt.Errorf("device/cpu: run: buffer of %d rows of %d, need %d of %d", buf.rows, buf.cols, rows, cols)
	}
	return buf, nil
}
