package replay

import (
	"fmt"
	"time"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// PastPool is one decode's pool as it was. Pages that no owner has were free.
type PastPool struct {
	Decode   string // id
	Epoch    uint64
	Pages    int // of the pool; what is known of it when its beginning is not in the record
	PageSize int
	Owners   []PastOwner // in order of reservation
}

// PastOwner is one attempt with the pages that it had.
type PastOwner struct {
	Key    kvtransfer.Key
	Tenant string
	State  page.State
	Prompt int
	Output int // tokens made in all, once it had ended
	Runs   []page.Run
	Since  time.Time // when the state was recorded
}

// At tells every decode's pool after a message of the stream.
func (h *History) At(seq uint64) (time.Time, []PastPool, error) {
	if h.first == 0 || seq < h.first || seq > h.last {
		return time.Time{}, nil, fmt.Errorf("replay: history: sequence %d, known are %d to %d", seq, h.first, h.last)
	}
	var pools []PastPool
	for _, l := range h.lives {
		if l.from <= seq && (l.until == 0 || l.until > seq) {
			pools = append(pools, h.pool(l, seq))
		}
	}
	return h.times[seq-h.first], pools, nil
}

func (h *History) pool(l *poolLife, seq uint64) PastPool {
	p := PastPool{Decode: l.id, Epoch: l.epoch, Pages: l.pages, PageSize: l.pageSize}
	for _, s := range l.spans {
		if s.reserved > seq {
			break
		}
		if end := s.over(); end > 0 && end <= seq {
			continue
		}
		state, since := s.at(seq)
		o := PastOwner{Key: s.key, Tenant: s.tenant, State: state, Prompt: s.prompt, Runs: s.had(seq), Since: h.when(since)}
		if s.ended > 0 && s.ended <= seq {
			o.Output = s.output
		}
		for _, r := range o.Runs {
			p.Pages = max(p.Pages, int(r.To))
		}
		p.Owners = append(p.Owners, o)
	}
	return p
}

// when is the time of a sequence; of one before the first that is kept, the first's.
func (h *History) when(seq uint64) time.Time { return h.times[max(seq, h.first)-h.first] }

// at is the state of the pages after a message, and since which one. The journal tells of the gate's yes and of the pages'
// ownership with one record.
func (s *span) at(seq uint64) (page.State, uint64) {
	done := func(n uint64) bool { return n > 0 && n <= seq }
	switch {
	case done(s.ended) && s.quarantined:
		return page.Quarantined, s.ended
	case done(s.ended):
		return page.Zeroing, s.ended
	case done(s.owned):
		return page.Owned, s.owned
	case done(s.claimed):
		return page.Filling, s.claimed
	}
	return page.Reserved, s.reserved
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
