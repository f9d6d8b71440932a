package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"quire/journal"
	"quire/kvtransfer"
)

// Counts is a decode's pool: how many pages are in each state. Invariant: they sum to Total, where the record has its start.
type Counts struct {
	Total       int `json:"total"`
	Free        int `json:"free"`
	Reserved    int `json:"reserved"`
	Filling     int `json:"filling"`
	Owned       int `json:"owned"`
	Zeroing     int `json:"zeroing"`
	Quarantined int `json:"quarantined"`
}

// Standing is another attempt on the same decode.
type Standing struct {
	Handoff string `json:"handoff"`
	Tenant  string `json:"tenant"`
	State   string `json:"state"`
	Pages   int    `json:"pages"`
}

// State is everything that the record says about a decode once a message was stored.
type State struct {
	Line   Line       `json:"line"`  // what the message told of the attempt
	State  string     `json:"state"` // of the attempt
	Pool   Counts     `json:"pool"`
	Others []Standing `json:"others,omitempty"` // that hold pages too, in order of arrival
}

// Step walks an attempt record by record, with the whole state of its decode after each: pages by state, and who else has
// some. Records that came in one message share the state after it.
func (p *Past) Step(a *Attempt) []State {
	var out []State
	if a.Reserved == nil {
		return nil
	}
	lines := p.steps(a).Lines
	slices.SortStableFunc(lines, func(a, b Line) int { return cmp.Compare(a.moment(), b.moment()) })
	for _, l := range lines {
		m := Moment{Sequence: l.moment() / 2}
		s := State{Line: l, State: a.stateAt(m), Pool: p.counts(a.Reserved.Life, m)}
		for _, o := range p.Attempts {
			if o == a || o.Reserved == nil || o.Reserved.Life != a.Reserved.Life {
				continue
			}
			if state := o.stateAt(m); state != "" && state != "free" {
				s.Others = append(s.Others, Standing{o.Key.String(), o.Tenant, state, len(o.Reserved.Facts.(journal.Reserved).Pages)})
			}
		}
		out = append(out, s)
	}
	return out
}

// moment orders lines by what the record knew: twice the sequence, and one less for what the verdict tells of, which came before
// it.
func (l Line) moment() uint64 {
	if l.What == "frames" || l.What == "manifest" {
		return 2*l.Sequence - 1
	}
	return 2 * l.Sequence
}

// stateAt is where an attempt's pages stand at a moment, "" before it had any.
func (a *Attempt) stateAt(m Moment) string {
	is := func(ev *Event) bool { return ev != nil && !m.before(*ev) }
	switch {
	case !is(a.Reserved):
		return ""
	case is(a.Finished):
		if a.freeAt(m) {
			return "free"
		}
		if a.quarantined() {
			return "quarantined"
		}
		return "zeroing"
	case is(a.Verdict) && a.Verdict.Facts.(journal.Verdict).OK:
		return "owned"
	case is(a.Claimed):
		return "filling"
	}
	return "reserved"
}

// freeAt says that every page of an attempt has been cleared.
func (a *Attempt) freeAt(m Moment) bool {
	for _, s := range a.Reserved.Facts.(journal.Reserved).Pages {
		for _, i := range a.Reserved.Life.pages[s[0]] {
			if i.Owner == a && (i.Until == nil || m.before(*i.Until)) {
				return false
			}
		}
	}
	return true
}

// counts is the pool of a decode at a moment.
func (p *Past) counts(l *Life, m Moment) Counts {
	var c Counts
	states := map[kvtransfer.Key]string{}
	for _, id := range l.order {
		i := At(l.pages[id], m)
		if i == nil {
			continue
		}
		state, ok := states[i.Owner.Key]
		if !ok {
			state = i.Owner.stateAt(m)
			states[i.Owner.Key] = state
		}
		switch state {
		case "reserved":
			c.Reserved++
		case "filling":
			c.Filling++
		case "owned":
			c.Owned++
		case "quarantined":
			c.Quarantined++
		default:
			c.Zeroing++
		}
	}
	if l.Started != nil {
		c.Total = l.Started.Pages
	}
	c.Free = max(0, c.Total-c.Reserved-c.Filling-c.Owned-c.Zeroing-c.Quarantined)
	return c
}

// Text prints a state in three lines or so.
func (s State) Text() string {
	var b strings.Builder
	l, c := s.Line, s.Pool
	fmt.Fprintf(&b, "#%d %s %s  %s\n", l.Sequence, l.Service, l.What, l.Text)
	fmt.Fprintf(&b, "    %s; pages total=%d free=%d reserved=%d filling=%d owned=%d zeroing=%d quarantined=%d\n", s.State, c.Total, c.Free, c.Reserved,
		c.Filling, c.Owned, c.Zeroing, c.Quarantined)
	for _, o := range s.Others {
		fmt.Fprintf(&b, "    %s tenant=%s %s pages=%d\n", o.Handoff, o.Tenant, o.State, o.Pages)
	}
	return b.String()
}
