package router

import (
	"slices"

	"quire/kvtransfer"
)

// queue holds requests that wait: first come, first served within a tenant, tenants in turn.
//
// Invariants: every list in waiting has an entry; turn names exactly the tenants in waiting, once each; n is the sum of the
// lists' lengths.
type queue struct {
	waiting map[string][]*request
	turn    []string // whose turn is next, first
	n       int
}

func newQueue() queue { return queue{waiting: map[string][]*request{}} }

// push puts a request at the end of its tenant's list.
func (q *queue) push(r *request) { q.put(r, len(q.waiting[r.tenant])) }

// pushFront puts a request that had its turn before at the front.
func (q *queue) pushFront(r *request) { q.put(r, 0) }

func (q *queue) put(r *request, at int) {
	list, there := q.waiting[r.tenant]
	if !there {
		q.turn = append(q.turn, r.tenant)
	}
	q.waiting[r.tenant] = slices.Insert(list, at, r)
	q.n++
}

// remove takes a request out; it says whether it was there.
func (q *queue) remove(r *request) bool {
	list := q.waiting[r.tenant]
	i := slices.Index(list, r)
	if i < 0 {
		return false
	}
	q.n--
	list = slices.Delete(list, i, i+1)
	if len(list) > 0 {
		q.waiting[r.tenant] = list
		return true
	}
	delete(q.waiting, r.tenant)
	q.turn = slices.DeleteFunc(q.turn, func(t string) bool { return t == r.tenant })
	return true
}

// pass sends a tenant to the end of the turns, if it still waits.
func (q *queue) pass(tenant string) {
	if i := slices.Index(q.turn, tenant); i >= 0 {
		q.turn = append(slices.Delete(q.turn, i, i+1), tenant)
	}
}

// oldest is the head that has waited longest.
func (q *queue) oldest() *request {
	var old *request
	for _, t := range q.turn {
		if r := q.waiting[t][0]; old == nil || r.submitted < old.submitted {
			old = r
		}
	}
	return old
}

// all lists every request that waits, in order of turn.
func (q *queue) all() []*request {
	var list []*request
	for _, t := range q.turn {
		list = append(list, q.waiting[t]...)
	}
	return list
}

// room says whether one more request of a tenant may wait.
func (q *queue) room(p Policy, tenant string) kvtransfer.Error {
	if n := len(q.waiting[tenant]); n >= p.MaxQueueTenant {
		return kvtransfer.Errorf(kvtransfer.Overloaded, "router: queue: %d requests of this tenant wait, at most %d may", n, p.MaxQueueTenant)
	}
	if q.n >= p.MaxQueue {
		return kvtransfer.Errorf(kvtransfer.Overloaded, "router: queue: %d requests wait, at most %d may", q.n, p.MaxQueue)
	}
	return kvtransfer.Error{}
}
