package replay

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"quire/journal"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
)

// Event is one record in its place.
type Event struct {
	Sequence uint64
	Time     time.Time       // of the server, when it was stored
	At       kvtransfer.Tick // of the writer's own clock
	Life     *Life
	Facts    journal.Facts
}

// Life is one epoch of one process, and its chain of records.
type Life struct {
	Service  string // <role>-<id>
	Role, ID string
	Epoch    uint64
	Started  *journal.Started // nil when its beginning is not in the record
	First    Event
	Last     Event
	Chain    journal.Chain
	Lost     uint64 // records that it had to turn away, as it says itself
	pages    map[uint64][]*Interval
	order    []uint64 // pages, in order of first use
}

// Name is id, or id@epoch where that tells more.
func (l *Life) Name() string { return fmt.Sprintf("%s@%d", l.ID, l.Epoch) }

// Attempt is one attempt of a hand-off as decode, prefill and router tell it.
type Attempt struct {
	Key    kvtransfer.Key
	Tenant string
	Events []Event

	Job      *Event // of the router; each is nil when there is no such record
	Reserved *Event
	Claimed  *Event
	Sent     *Event // of prefill; the last one
	Verdict  *Event
	Witness  *Event
	Finished *Event // of decode

	intervals []*Interval // of its pages
	gone      bool        // forgotten
}

// Request is all attempts of one request.
type Request struct {
	ID       kvtransfer.HandoffID
	Tenant   string
	Attempts []*Attempt // by number
	Finished *Event     // of the router

	gone bool // forgotten
}

// Past is everything that the record says.
type Past struct {
	Extent   Extent
	Lives    []*Life    // in order of their first record
	Requests []*Request // in order of their first record
	Attempts []*Attempt // in order of their first record
	Findings []Finding  // what is wrong with the record itself
	Records  int        // that were read
	Partial  bool       // the stream's first records are gone
	Kinds    map[journal.Kind]int

	requests map[kvtransfer.HandoffID]*Request
	attempts map[kvtransfer.Key]*Attempt
	lives    map[lifeKey]*Life
	keys     seal.Verifier
	check    *journal.Checker
	last     Event

	intervals int   // of all pages
	thin      *thin // set where what is over is forgotten
}

type lifeKey struct {
	service string
	epoch   uint64
}

// Read builds the past from a source. Without keys no signature is checked, and the past says so.
func Read(ctx context.Context, src Source, keys seal.Verifier) (*Past, error) {
	p := newPast(keys)
	if err := p.readAll(ctx, src); err != nil {
		return nil, err
	}
	return p, nil
}

func newPast(keys seal.Verifier) *Past {
	return &Past{
		Kinds: map[journal.Kind]int{}, requests: map[kvtransfer.HandoffID]*Request{}, attempts: map[kvtransfer.Key]*Attempt{},
		lives: map[lifeKey]*Life{}, keys: keys,
	}
}

func (p *Past) readAll(ctx context.Context, src Source) error {
	ext, err := feed(ctx, src, p.keys, p.take)
	if err != nil {
		return err
	}
	ext.PublicKeys = p.keys != nil
	if len(p.Lives) > 0 {
		ext.FirstStored, ext.LastStored = p.Lives[0].First.Time.Format(time.RFC3339Nano), p.last.Time.Format(time.RFC3339Nano)
	}
	p.Extent = ext
	p.complete()
	return nil
}

// take takes one message: one record, or several, of which the last may be signed.
func (p *Past) take(it Item, records []journal.Parsed) {
	if p.check == nil {
		p.Partial = it.Sequence > 1
		p.check = &journal.Checker{Keys: p.keys, Partial: p.Partial}
	} else if it.Sequence != p.last.Sequence+1 {
		p.find(Broken, "stream", it.Sequence, kvtransfer.Key{}, "%d messages are missing before sequence %d", it.Sequence-p.last.Sequence-1, it.Sequence)
	}
	p.last = Event{Sequence: it.Sequence, Time: it.Time}
	for _, r := range records {
		p.record(it, r, len(records) == 1)
	}
	if p.thin != nil {
		p.forget()
	}
}

func (p *Past) record(it Item, parsed journal.Parsed, alone bool) {
	p.Records++
	r, err := p.check.Next(parsed)
	if err != nil {
		p.find(Broken, "chain", it.Sequence, r.Key, "%s", strings.TrimPrefix(err.Error(), "journal: "))
	}
	if r.Facts == nil || journal.Spurious(err) {
		return
	}
	if !onSubject(it.Subject, r, alone) {
		p.find(Broken, "chain", it.Sequence, r.Key, "%s record %d of %s is on subject %.80q", r.Kind, r.Counter, r.Service, it.Subject)
	}
	p.Kinds[r.Kind]++
	l := p.life(r, it)
	ev := Event{Sequence: it.Sequence, Time: it.Time, At: r.At, Life: l, Facts: r.Facts}
	l.Last = ev
	p.sort(l, r, ev)
}

// onSubject says whether a record is where records of its service, and alone of its kind too, belong.
func onSubject(subject string, r journal.Record, alone bool) bool {
	rest, ok := strings.CutSuffix(subject, r.Service)
	if ok && alone {
		rest, ok = strings.CutSuffix(rest, "."+string(r.Kind)+".")
		return ok && strings.HasSuffix(rest, ".journal")
	}
	return ok && strings.HasSuffix(rest, ".")
}

func (p *Past) life(r journal.Record, it Item) *Life {
	k := lifeKey{r.Service, r.Epoch}
	if l, ok := p.lives[k]; ok {
		return l
	}
	role, id, _ := strings.Cut(r.Service, "-")
	l := &Life{Service: r.Service, Role: role, ID: id, Epoch: r.Epoch, pages: map[uint64][]*Interval{}}
	l.First = Event{Sequence: it.Sequence, Time: it.Time, At: r.At, Life: l, Facts: r.Facts}
	p.lives[k] = l
	p.Lives = append(p.Lives, l)
	return l
}

// sort puts a fact where it belongs.
func (p *Past) sort(l *Life, r journal.Record, ev Event) {
	switch f := r.Facts.(type) {
	case journal.Started:
		if l.Started != nil {
			p.find(Broken, "chain", ev.Sequence, r.Key, "%s epoch %d starts twice", l.Service, l.Epoch)
		}
		l.Started = &f
		return
	case journal.Checkpoint:
		l.Lost = f.Lost
		return
	case journal.Stopped:
		l.Lost = f.Lost
		return
	case journal.Zeroed:
		p.zeroed(l, f, ev)
		return
	}
	if r.Key == (kvtransfer.Key{}) {
		return // refusals of hand-offs that nobody knows
	}
	if p.thin != nil {
		if end, over := p.thin.retired[r.Key.ID]; over {
			p.late(r, ev, end)
			return
		}
	}
	if l.Role == string(kvtransfer.RoleRouter) {
		p.ofRouter(r, ev)
		return
	}
	a := p.attempt(r)
	a.Events = append(a.Events, ev)
	switch f := r.Facts.(type) {
	case journal.Reserved:
		p.once(&a.Reserved, ev, r)
		p.reserved(l, a, f, ev)
	case journal.Claimed:
		p.once(&a.Claimed, ev, r)
	case journal.Sent:
		a.Sent = &ev
	case journal.Verdict:
		p.once(&a.Verdict, ev, r)
	case journal.Witness:
		p.once(&a.Witness, ev, r)
	case journal.Finished:
		p.once(&a.Finished, ev, r)
	}
}

// once sets what an attempt has one of.
func (p *Past) once(at **Event, ev Event, r journal.Record) {
	if *at != nil {
		p.find(Broken, "once", ev.Sequence, r.Key, "a second record %s, the first has sequence %d", r.Kind, (*at).Sequence)
		return
	}
	*at = &ev
}

func (p *Past) ofRouter(r journal.Record, ev Event) {
	req := p.request(r)
	switch r.Facts.(type) {
	case journal.Job:
		a := p.attempt(r)
		a.Events = append(a.Events, ev)
		p.once(&a.Job, ev, r)
	case journal.Finished:
		if req.Finished != nil {
			p.find(Broken, "one terminal", ev.Sequence, r.Key, "the request ends a second time; it ended with sequence %d", req.Finished.Sequence)
			return
		}
		req.Finished = &ev
		if p.thin != nil {
			p.thin.over(req, p.Records)
		}
	}
}

func (p *Past) request(r journal.Record) *Request {
	req, ok := p.requests[r.Key.ID]
	if !ok {
		req = &Request{ID: r.Key.ID, Tenant: r.Tenant}
		p.requests[r.Key.ID] = req
		p.Requests = append(p.Requests, req)
	}
	if r.Tenant != req.Tenant {
		p.find(Broken, "tenant", p.last.Sequence, r.Key, "%s says tenant %.40q, an earlier record %.40q", r.Service, r.Tenant, req.Tenant)
	}
	return req
}

func (p *Past) attempt(r journal.Record) *Attempt {
	req := p.request(r)
	a, ok := p.attempts[r.Key]
	if !ok {
		a = &Attempt{Key: r.Key, Tenant: r.Tenant}
		p.attempts[r.Key] = a
		p.Attempts = append(p.Attempts, a)
		req.Attempts = append(req.Attempts, a)
		slices.SortFunc(req.Attempts, func(a, b *Attempt) int { return int(a.Key.Attempt) - int(b.Key.Attempt) })
	}
	return a
}

// Find gives the request that a text names: the id that clients saw (r1-4-<32 digits>), the 32 digits, a beginning of them
// that fits one request alone, each with -<attempt> after it or without.
func (p *Past) Find(text string) (*Request, uint32, error) {
	id, attempt := text, uint32(0)
	if i := strings.LastIndexByte(id, '-'); i >= 0 && len(id)-i <= 5 {
		if n, err := fmt.Sscanf(id[i+1:], "%d", &attempt); n == 1 && err == nil {
			id = id[:i]
		}
	}
	id = strings.ToLower(id[strings.LastIndexByte(id, '-')+1:])
	var found []*Request
	for _, r := range p.Requests {
		if strings.HasPrefix(hex.EncodeToString(r.ID[:]), id) {
			found = append(found, r)
		}
	}
	switch {
	case id == "" || len(found) == 0:
		return nil, 0, fmt.Errorf("replay: request %s: not in the record of %d requests", text, len(p.Requests))
	case len(found) > 1:
		return nil, 0, fmt.Errorf("replay: request %s: fits %d requests", text, len(found))
	}
	return found[0], attempt, nil
}
