package replay

import (
	"fmt"
	"slices"
	"time"

	"quire/journal"
	"quire/kvtransfer"
)

// Interval is the time during which a page of a decode's pool had one owner.
type Interval struct {
	Page     uint64
	Gen      uint64
	Owner    *Attempt
	Position int    // which of the owner's pages it is
	From     *Event // reserved
	Until    *Event // zeroed and free; nil while it is not
}

// maxIntervals bounds what a record can make of this process's memory: 1.6 GB.
const maxIntervals = 1 << 25

// reserved opens the intervals of an attempt's pages.
func (p *Past) reserved(l *Life, a *Attempt, f journal.Reserved, ev Event) {
	if p.intervals += len(f.Pages); p.intervals > maxIntervals {
		p.find(Incomplete, "complete", ev.Sequence, a.Key, "owners of more than %d pages: pages from here on are not followed", maxIntervals)
		return
	}
	for i, s := range f.Pages {
		was := l.pages[s[0]]
		if len(was) > 0 {
			last := was[len(was)-1]
			switch {
			case last.Until == nil:
				p.find(Broken, "one owner", ev.Sequence, a.Key, "page %d of %s is promised while %s has it, generation %d", s[0], l.Name(), last.Owner.Key, last.Gen)
			case s[1] <= last.Gen:
				p.find(Broken, "generation", ev.Sequence, a.Key, "page %d of %s: generation %d after %d", s[0], l.Name(), s[1], last.Gen)
			case last.Owner.quarantined() && s[1] < last.Gen+2:
				p.find(Broken, "quarantine", ev.Sequence, a.Key, "page %d of %s left quarantine with generation %d after %d", s[0], l.Name(), s[1], last.Gen)
			}
		} else {
			l.order = append(l.order, s[0])
		}
		if l.Started != nil && s[0] >= uint64(l.Started.Pages) {
			p.find(Broken, "one owner", ev.Sequence, a.Key, "page %d of a pool of %d", s[0], l.Started.Pages)
		}
		in := &Interval{Page: s[0], Gen: s[1], Owner: a, Position: i, From: &ev}
		l.pages[s[0]], a.intervals = append(was, in), append(a.intervals, in)
	}
}

// quarantined says that the pages of an attempt left by way of quarantine.
func (a *Attempt) quarantined() bool {
	if a.Finished == nil {
		return false
	}
	return a.Finished.Facts.(journal.Finished).Quarantined
}

// zeroed closes intervals. Prefill's pages have none: its facts come at the end of its leg.
func (p *Past) zeroed(l *Life, f journal.Zeroed, ev Event) {
	if l.Role != string(kvtransfer.RoleDecode) {
		return
	}
	total := 0
	for _, s := range f.Pages {
		if s[0] < 0 || s[1] > journal.MaxPages || s[1]-s[0] > journal.MaxPages-total {
			p.find(Broken, "one owner", ev.Sequence, kvtransfer.Key{}, "zeroed pages [%d, %d)", s[0], s[1])
			continue
		}
		total += max(0, s[1]-s[0])
		for id := s[0]; id < s[1]; id++ {
			was := l.pages[uint64(id)]
			if len(was) == 0 || was[len(was)-1].Until != nil {
				if !p.Partial {
					p.find(Broken, "one owner", ev.Sequence, kvtransfer.Key{}, "page %d of %s is zeroed and nobody has it", id, l.Name())
				}
				continue
			}
			last := was[len(was)-1]
			last.Until = &ev
			if a := last.Owner; a.Finished == nil || a.Finished.Sequence > ev.Sequence {
				p.find(Broken, "released", ev.Sequence, a.Key, "page %d of %s is zeroed before the attempt has ended", id, l.Name())
			}
		}
	}
}

// Pages lists the intervals of one page of one decode, oldest first. decode is an id, or id@epoch.
func (p *Past) Pages(decode string, page uint64) []*Interval {
	var out []*Interval
	for _, l := range p.Lives {
		if l.Role == string(kvtransfer.RoleDecode) && (decode == "" || l.ID == decode || l.Name() == decode) {
			out = append(out, l.pages[page]...)
		}
	}
	return out
}

// Moment is a point of the record: a sequence of the stream, or a time of the server.
type Moment struct {
	Sequence uint64
	Time     time.Time
}

// ParseMoment reads a sequence ("#1234"), or a time in RFC 3339 or like 2026-09-01 12:30:00 (UTC).
func ParseMoment(s string) (Moment, error) {
	var m Moment
	if n, err := fmt.Sscanf(s, "#%d", &m.Sequence); n == 1 && err == nil {
		return m, nil
	}
	for _, form := range []string{time.RFC3339Nano, "2006-01-02 15:04:05", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(form, s); err == nil {
			m.Time = t.UTC()
			return m, nil
		}
	}
	return m, fmt.Errorf("replay: moment %q: a sequence like #1234 or a time like 2026-09-01T12:30:00Z is wanted", s)
}

// before says whether a record had been stored at a moment.
func (m Moment) before(ev Event) bool {
	if m.Sequence > 0 {
		return ev.Sequence > m.Sequence
	}
	return ev.Time.After(m.Time)
}

// At gives the interval that holds at a moment, or nil: the page was free.
func At(in []*Interval, m Moment) *Interval {
	for _, i := range slices.Backward(in) {
		if !m.before(*i.From) && (i.Until == nil || m.before(*i.Until)) {
			return i
		}
	}
	return nil
}

// Pool is the pages of one decode life at a moment: who has each.
type Pool struct {
	Life   *Life
	Owners map[uint64]*Interval // pages that somebody has
}

// Pools gives every decode's pool as it was at a moment.
func (p *Past) Pools(m Moment) []Pool {
	var out []Pool
	for _, l := range p.Lives {
		if l.Role != string(kvtransfer.RoleDecode) || m.before(l.First) {
			continue
		}
		pool := Pool{Life: l, Owners: map[uint64]*Interval{}}
		for _, id := range l.order {
			if i := At(l.pages[id], m); i != nil {
				pool.Owners[id] = i
			}
		}
		out = append(out, pool)
	}
	return out
}
