package router

import (
	"container/heap"
	"fmt"
	"slices"

	"quire/kvtransfer"
)

// never is later than any time.
const never = kvtransfer.Tick(1<<63 - 1)

// timer says that an attempt has to be looked at at a time; one whose attempt is looked at at another time by now is stale.
type timer struct {
	at kvtransfer.Tick
	a  *attempt
}

// timers is a heap by time, so that a tick costs what is due and not what is there.
//
// Invariant between events: every attempt has a timer for dueAt, and dueAt is not later than nextDue.
type timers []timer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at < t[j].at }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)        { *t = append(*t, x.(timer)) }
func (t *timers) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// nextDue is when due has something to do for the attempt, its decode's silence aside.
func (a *attempt) nextDue() kvtransfer.Tick {
	at := a.req.deadline
	if a.retryAt != 0 {
		at = min(at, a.retryAt)
	}
	if a.phase >= waiting && !a.asking {
		if a.behind {
			return 0
		}
		at = min(at, a.heard+silence)
	}
	return at
}

// watch has an attempt looked at when it is due, after it has changed. An attempt that is due later than it was is looked at
// too early once, which does nothing.
func (l *Loop) watch(k kvtransfer.Key) {
	a := l.attempts[k]
	if a == nil {
		return
	}
	if at := a.nextDue(); at < a.dueAt {
		a.dueAt = at
		heap.Push(&l.timers, timer{at, a})
	}
}

// takeDue takes the attempts whose time has come and those whose decode is silent, by key: nothing depends on a heap's order.
func (l *Loop) takeDue() []*attempt {
	if l.anySilent() {
		return l.attemptsInOrder()
	}
	var list []*attempt
	for len(l.timers) > 0 && l.timers[0].at <= l.now {
		t := heap.Pop(&l.timers).(timer)
		if l.attempts[t.a.key] == t.a && t.a.dueAt == t.at {
			t.a.dueAt = never
			list = append(list, t.a)
		}
	}
	slices.SortFunc(list, func(a, b *attempt) int { return compareKeys(a.key, b.key) })
	return list
}

// anySilent says that a decode which attempts of this router run on has been silent for too long.
func (l *Loop) anySilent() bool {
	for _, w := range l.roster.decodes {
		if w.slots.ours > 0 && l.silent(w) {
			return true
		}
	}
	return false
}

func (l *Loop) silent(w *worker) bool { return l.now-w.heard > l.policy.LostAfter }

// cloneTimers copies the timers for a loop whose attempts have been copied.
func cloneTimers(ts timers, of map[kvtransfer.Key]*attempt) timers {
	var c timers
	for _, t := range ts {
		if a := of[t.a.key]; a != nil && a.dueAt == t.at {
			c = append(c, timer{t.at, a})
		}
	}
	heap.Init(&c)
	return c
}

func (l *Loop) verifyTimers() error {
	set := map[*attempt]bool{}
	for _, t := range l.timers {
		set[t.a] = set[t.a] || t.at == t.a.dueAt
	}
	for key, a := range l.attempts {
		if !set[a] || a.dueAt > a.nextDue() {
			return fmt.Errorf("router: attempt %s: due at %d, looked at at %d, timer %t", key, a.nextDue(), a.dueAt, set[a])
		}
	}
	return nil
}
