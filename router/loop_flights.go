package router

import (
	"cmp"
	"slices"

	"quire/kvtransfer"
)

// Flight is one request between Accept and Finish, for people to look at. No prompt, no token.
type Flight struct {
	ID      kvtransfer.HandoffID
	Tenant  string
	Step    string // queued, reserving, storing, prefill, running
	Attempt uint32 // 0 before the first
	Decode  string // id of the worker of this attempt; "" while it waits
	Prefill string // that claimed it, or that alone may; "" when that is not known
	Prompt  int
	Output  int             // tokens that the client has
	Max     int             // tokens that it may get
	Age     kvtransfer.Tick // since it came
}

// MaxFlights bounds how many requests Flights lists.
const MaxFlights = 512

// Flights lists the oldest requests first, at most MaxFlights, and says how many there are. It changes nothing.
func (l *Loop) Flights() (list []Flight, all int) {
	requests := make([]*request, 0, len(l.requests))
	for _, r := range l.requests {
		requests = append(requests, r)
	}
	slices.SortFunc(requests, func(a, b *request) int { return cmp.Compare(a.ref, b.ref) })
	for _, r := range requests[:min(len(requests), MaxFlights)] {
		f := Flight{ID: r.id, Tenant: r.tenant, Step: "queued", Attempt: r.attempts, Prompt: len(r.prompt), Output: len(r.output), Max: r.maxTokens,
			Age: l.now - r.submitted}
		if a := r.current; a != nil {
			f.Step, f.Attempt, f.Decode, f.Prefill = a.phase.String(), a.key.Attempt, a.decode.ID, a.served.ID
			if f.Prefill == "" && a.target != kvtransfer.AnyWorker {
				f.Prefill = a.target
			}
		}
		list = append(list, f)
	}
	return list, len(requests)
}
