package replay

import (
	"fmt"
	"time"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// At tells when a message of the stream was stored, and every decode's pool after it. A pool whose beginning is not in the record
// has as many pages as were ever named.
func (h *History) At(seq uint64) (time.Time, []kvtransfer.Pages, error) {
	if h.first == 0 || seq < h.first || seq > h.last {
		return time.Time{}, nil, fmt.Errorf("replay: history: sequence %d, known are %d to %d", seq, h.first, h.last)
	}
	var pools []kvtransfer.Pages
	for _, l := range h.lives {
		if l.from <= seq && (l.until == 0 || l.until > seq) {
			pools = append(pools, h.pool(l, seq))
		}
	}
	return h.times[seq-h.first], pools, nil
}

func (h *History) pool(l *poolLife, seq uint64) kvtransfer.Pages {
	p := kvtransfer.Pages{Worker: kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: l.id, Epoch: l.epoch}, PageSize: l.pageSize}
	p.Counts.Total = l.pages
	for _, s := range l.spans {
		if s.reserved > seq {
			break
		}
		if end := s.over(); end > 0 && end <= seq {
			continue
		}
		o := kvtransfer.PageOwner{Key: s.key, Tenant: s.tenant, State: s.at(seq), Prompt: s.prompt, Runs: s.had(seq)}
		if s.ended > 0 && s.ended <= seq {
			o.Output = s.output
		}
		for _, r := range o.Runs {
			p.Counts.Total = max(p.Counts.Total, int(r.To))
			count(&p.Counts, o.State, int(r.To-r.From))
		}
		p.Add(o)
	}
	c := p.Counts
	p.Counts.Free = c.Total - c.Reserved - c.Filling - c.Owned - c.Zeroing - c.Quarantined
	return p
}

func count(c *page.Counts, state page.State, n int) {
	switch state {
	case page.Reserved:
		c.Reserved += n
	case page.Filling:
		c.Filling += n
	case page.Owned:
		c.Owned += n
	case page.Zeroing:
		c.Zeroing += n
	case page.Quarantined:
		c.Quarantined += n
	}
}

// at is the state of the pages after a message. The journal tells of the gate's yes and of the pages' ownership with one record.
func (s *span) at(seq uint64) page.State {
	done := func(n uint64) bool { return n > 0 && n <= seq }
	switch {
	case done(s.ended) && s.quarantined:
		return page.Quarantined
	case done(s.ended):
		return page.Zeroing
	case done(s.owned):
		return page.Owned
	case done(s.claimed):
		return page.Filling
	}
	return page.Reserved
}

// had are the pages that were not zeroed yet.
func (s *span) had(seq uint64) []page.Run {
	if len(s.zeroed) == 0 || s.zeroed[0].at > seq {
		return s.runs
	}
	gone := map[page.ID]bool{}
	for _, c := range s.zeroed {
		if c.at > seq {
			break
		}
		for _, r := range c.runs {
			for id := r.From; id < r.To; id++ {
				gone[id] = true
			}
		}
	}
	var out []page.Run
	for _, r := range s.runs {
		for id := r.From; id < r.To; id++ {
			if !gone[id] {
				out = extend(out, id)
			}
		}
	}
	return out
}
