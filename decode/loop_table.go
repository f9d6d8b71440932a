package decode

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"

	"quire/kvtransfer"
)

// table is what the loop asks of all its attempts, kept as they change, so that no event costs a walk through those that
// it has nothing to do with.
//
// Invariant between events: everything here is what a walk through handoffs would find (Loop.verifyTable).
type table struct {
	seq           uint64     // of the youngest attempt
	open, running int        // attempts that are not over; those of them that run
	ready         []*handoff // that could step now, oldest first
	byID          map[kvtransfer.HandoffID][]*handoff
	of            map[kvtransfer.Peer]int // attempts by router epoch
	due           dueHeap                 // one entry for each attempt; those of forgotten ones until their time comes
	touched       []*handoff              // looked up in this event: they may have changed
}

// standing is what the table counts of one attempt.
type standing struct{ open, running, ready bool }

func (h *handoff) standing() standing {
	s := h.in.State
	return standing{
		open: !s.Over(), running: s == kvtransfer.InRunning,
		ready: s == kvtransfer.InRunning || s == kvtransfer.InWitnessing && h.in.RowsAgree(),
	}
}

// due is a time at which an attempt has to be looked at. It never lies after the time at which something is due.
type due struct {
	at kvtransfer.Tick
	h  *handoff
}

type dueHeap []due

func (d dueHeap) Len() int           { return len(d) }
func (d dueHeap) Less(i, j int) bool { return d[i].at < d[j].at }
func (d dueHeap) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *dueHeap) Push(x any)        { *d = append(*d, x.(due)) }
func (d *dueHeap) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

func newTable() table {
	return table{byID: map[kvtransfer.HandoffID][]*handoff{}, of: map[kvtransfer.Peer]int{}}
}

// get finds an attempt, whose standing is looked at again before the table is asked next.
func (l *Loop) get(k kvtransfer.Key) (*handoff, bool) {
	h, ok := l.handoffs[k]
	if ok {
		l.table.touched = append(l.table.touched, h)
	}
	return h, ok
}

// add takes a new attempt into the table.
func (l *Loop) add(h *handoff) {
	t, k := &l.table, h.key()
	t.seq++
	h.seq = t.seq
	l.handoffs[k] = h
	t.byID[k.ID] = append(t.byID[k.ID], h)
	t.of[h.router]++
	heap.Push(&t.due, due{h.nextDue(l.now), h})
	t.touched = append(t.touched, h)
}

// forget takes an ended attempt out of the table.
func (l *Loop) forget(h *handoff) {
	t, k := &l.table, h.key()
	if l.handoffs[k] != h {
		return
	}
	delete(l.handoffs, k)
	if t.byID[k.ID] = slices.DeleteFunc(t.byID[k.ID], func(o *handoff) bool { return o == h }); len(t.byID[k.ID]) == 0 {
		delete(t.byID, k.ID)
	}
	if t.of[h.router]--; t.of[h.router] == 0 {
		delete(t.of, h.router)
	}
	t.count(h, standing{})
}

// settled brings the table up to date with what this event has changed so far.
func (l *Loop) settled() *table {
	t := &l.table
	for _, h := range t.touched {
		if l.handoffs[h.key()] == h {
			t.count(h, h.standing())
		}
	}
	clear(t.touched)
	t.touched = t.touched[:0]
	return t
}

// count takes an attempt's new standing.
func (t *table) count(h *handoff, now standing) {
	was := h.counted
	h.counted = now
	t.open += one(now.open) - one(was.open)
	t.running += one(now.running) - one(was.running)
	if now.ready == was.ready {
		return
	}
	i, _ := slices.BinarySearchFunc(t.ready, h.seq, func(o *handoff, seq uint64) int { return cmp.Compare(o.seq, seq) })
	if now.ready {
		t.ready = slices.Insert(t.ready, i, h)
	} else {
		t.ready = slices.Delete(t.ready, i, i+1)
	}
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// nextDue is when the attempt has to be looked at next: its lease or its deadline ends, or its replies need not be kept.
// It only grows: a lease is restarted, never shortened.
func (h *handoff) nextDue(now kvtransfer.Tick) kvtransfer.Tick {
	switch {
	case h.in.State.Over():
		return h.keepUntil
	case now < h.in.Lease.End:
		return h.in.Lease.End
	}
	return h.in.Lease.Deadline
}

// takeDue takes the attempts whose time has come, oldest first. Those that stay are to be given to later.
func (l *Loop) takeDue() []*handoff {
	var out []*handoff
	t := &l.table
	for len(t.due) > 0 && t.due[0].at <= l.now {
		if h := heap.Pop(&t.due).(due).h; l.handoffs[h.key()] == h {
			out = append(out, h)
			t.touched = append(t.touched, h)
		}
	}
	slices.SortFunc(out, bySeq)
	return out
}

// later has an attempt looked at again when it is due next.
func (l *Loop) later(h *handoff) { heap.Push(&l.table.due, due{h.nextDue(l.now), h}) }

func bySeq(a, b *handoff) int { return cmp.Compare(a.seq, b.seq) }

// oldestFirst walks through all attempts: for what happens rarely.
func (l *Loop) oldestFirst() []*handoff {
	out := make([]*handoff, 0, len(l.handoffs))
	for _, h := range l.handoffs {
		out = append(out, h)
	}
	slices.SortFunc(out, bySeq)
	l.table.touched = append(l.table.touched, out...)
	return out
}

// clone copies the table for a loop whose attempts have been copied.
func (t *table) clone(of map[kvtransfer.Key]*handoff) table {
	c := newTable()
	c.seq, c.open, c.running = t.seq, t.open, t.running
	for _, h := range t.ready {
		c.ready = append(c.ready, of[h.key()])
	}
	for id, list := range t.byID {
		for _, h := range list {
			c.byID[id] = append(c.byID[id], of[h.key()])
		}
	}
	for p, n := range t.of {
		c.of[p] = n
	}
	for _, d := range t.due { // the order of a heap is a heap
		if h := of[d.h.key()]; h != nil && h.seq == d.h.seq {
			c.due = append(c.due, due{d.at, h})
		}
	}
	heap.Init(&c.due)
	return c
}

// verifyTable compares the table with what a walk finds.
func (l *Loop) verifyTable() error {
	t := l.settled()
	var want table
	entries := map[*handoff]int{}
	for _, d := range t.due {
		if l.handoffs[d.h.key()] == d.h {
			entries[d.h]++
			if n := d.h.nextDue(l.now); n > l.now && d.at > n {
				return fmt.Errorf("decode: table: %s is due at %d and looked at only at %d", d.h.key(), n, d.at)
			}
		}
	}
	attempts := 0
	for k, h := range l.handoffs {
		s := h.standing()
		want.open, want.running = want.open+one(s.open), want.running+one(s.running)
		want.ready = append(want.ready, make([]*handoff, one(s.ready))...)
		if h.key() != k || !slices.Contains(t.byID[k.ID], h) || entries[h] != 1 {
			return fmt.Errorf("decode: table: %s: is %s, in the index %t, due %d times", k, h.key(), slices.Contains(t.byID[k.ID], h), entries[h])
		}
	}
	for _, n := range t.of {
		attempts += n
	}
	if t.open != want.open || t.running != want.running || len(t.ready) != len(want.ready) || attempts != len(l.handoffs) || !slices.IsSortedFunc(t.ready, bySeq) {
		return fmt.Errorf("decode: table: open %d of %d, running %d of %d, ready %d of %d, by router %d of %d", t.open, want.open, t.running, want.running,
			len(t.ready), len(want.ready), attempts, len(l.handoffs))
	}
	return nil
}
