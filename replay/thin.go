package replay

import (
	"context"
	"slices"

	"quire/journal"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
)

// Audit is Read and Verify in memory that does not grow with the record: a request that is over is held to the rules and forgotten
// once so many records have come since. Of a page only the last owner is kept.
func Audit(ctx context.Context, src Source, keys seal.Verifier) (Verification, error) {
	return audit(ctx, src, keys, auditSlack)
}

const (
	auditSlack = 20_000  // records that a straggler may come behind
	auditTries = 4       // times that a request which is not over everywhere is looked at again, after as many records each
	maxRetired = 1 << 25 // requests whose ids are remembered: about 2 GB
)

func audit(ctx context.Context, src Source, keys seal.Verifier, slack int) (Verification, error) {
	p := newPast(keys)
	p.thin = &thin{slack: slack, retired: map[kvtransfer.HandoffID]uint64{}, seen: map[string]int{}}
	if err := p.readAll(ctx, src); err != nil {
		return Verification{}, err
	}
	return p.Verify(), nil
}

// thin is what a Past keeps that forgets.
type thin struct {
	slack    int
	ended    []ended                         // in order of their end
	retired  map[kvtransfer.HandoffID]uint64 // with the sequence of the end
	seen     map[string]int                  // cases of each rule among what is forgotten
	requests int
	attempts int
	gone     int // that still lie in the Past's lists
	pages    int // intervals that are forgotten
}

// ended is a request that its router has ended, when there were so many records.
type ended struct {
	q     *Request
	at    int
	tries int
}

// over notes that a request has ended.
func (t *thin) over(q *Request, records int) { t.ended = append(t.ended, ended{q: q, at: records}) }

// forget retires requests that ended long enough ago. One that is not over everywhere gets some more time, and stays for good if
// that does not help: what is missing of it is for the end of the record to say.
func (p *Past) forget() {
	t := p.thin
	for len(t.ended) > 0 && p.Records-t.ended[0].at > t.slack {
		e := t.ended[0]
		t.ended = t.ended[1:]
		whole, sent := e.q.whole()
		switch {
		case whole && (sent || e.tries >= auditTries):
			p.retire(e.q)
		case e.tries < auditTries:
			t.ended = append(t.ended, ended{e.q, p.Records, e.tries + 1})
		}
	}
	if t.gone > 1024 && t.gone > len(p.Attempts)/2 {
		p.compact()
	}
}

// compact takes what is forgotten out of the lists.
func (p *Past) compact() {
	if t := p.thin; t != nil && t.gone > 0 {
		p.Requests = slices.DeleteFunc(p.Requests, func(q *Request) bool { return q.gone })
		p.Attempts = slices.DeleteFunc(p.Attempts, func(a *Attempt) bool { return a.gone })
		t.gone = 0
	}
}

// whole says that decode has ended every attempt and cleared its pages; sent, that prefill has told of every claim, too.
func (q *Request) whole() (whole, sent bool) {
	sent = true
	for _, a := range q.Attempts {
		if a.Reserved == nil && a.Job == nil {
			continue
		}
		if a.Reserved == nil || a.Finished == nil || !a.free() {
			return false, false
		}
		sent = sent && (a.Claimed == nil || a.Sent != nil)
	}
	return q.Finished != nil, sent
}

// free says that every page of an attempt has been cleared.
func (a *Attempt) free() bool {
	for _, i := range a.intervals {
		if i.Until == nil {
			return false
		}
	}
	return true
}

// retire holds a request to the rules and forgets it.
func (p *Past) retire(q *Request) {
	t := p.thin
	for _, r := range rules {
		c := &checker{p: p, name: r.name}
		if r.request != nil {
			r.request(c, q)
		}
		for _, a := range q.Attempts {
			if r.attempt != nil {
				r.attempt(c, a)
			}
		}
		t.seen[r.name] += c.seen
	}
	for _, a := range q.Attempts {
		p.retireAttempt(a)
	}
	delete(p.requests, q.ID)
	t.retired[q.ID] = q.Finished.Sequence
	if len(t.retired) > maxRetired {
		p.find(Incomplete, "complete", q.Finished.Sequence, kvtransfer.Key{ID: q.ID}, "more than %d requests: from here on a record that comes after its request's end may not be noticed", maxRetired)
		clear(t.retired)
	}
	t.requests++
	q.gone, q.Attempts = true, nil
}

// retireAttempt forgets an attempt. Pages of which it is the last owner keep it, without its facts.
func (p *Past) retireAttempt(a *Attempt) {
	t := p.thin
	last := &Attempt{Key: a.Key, Tenant: a.Tenant}
	if a.Finished != nil {
		f := a.Finished.Facts.(journal.Finished)
		last.Finished = &Event{Sequence: a.Finished.Sequence, Life: a.Finished.Life, Facts: journal.Finished{Quarantined: f.Quarantined}}
	}
	for _, i := range a.intervals {
		l := i.From.Life
		is := l.pages[i.Page]
		if len(is) > 0 && is[len(is)-1] == i {
			until := *i.Until
			*i = Interval{Page: i.Page, Gen: i.Gen, Owner: last, Position: i.Position, From: &Event{Sequence: i.From.Sequence, Life: l}, Until: &Event{Sequence: until.Sequence, Life: l}}
			continue
		}
		l.pages[i.Page] = slices.DeleteFunc(is, func(o *Interval) bool { return o == i })
		p.intervals--
		t.pages++
	}
	delete(p.attempts, a.Key)
	t.attempts++
	t.gone++
	*a = Attempt{gone: true}
}

// late is a record of a request that was forgotten.
func (p *Past) late(r journal.Record, ev Event, end uint64) {
	switch r.Facts.(type) {
	case journal.Sent, journal.Refused:
		return // prefill may learn of its end late, and what is refused changes nothing
	}
	rule := "once"
	if ev.Life.Role == string(kvtransfer.RoleRouter) {
		rule = "one terminal"
	}
	p.find(Broken, rule, ev.Sequence, r.Key, "a record %s of a request that was over with sequence %d", r.Kind, end)
}
