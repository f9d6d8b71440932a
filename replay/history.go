package replay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"quire/bus"
	"quire/journal"
	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// StreamReader is what a History needs of a bus; see bus.Reader.
type StreamReader interface {
	Read(ctx context.Context, stream string, from uint64, fn func(bus.Stored) error) (bus.StreamState, error)
}

// History keeps of a journal what it takes to tell every decode's pool at any message of the stream: some hundred bytes a
// hand-off, not the records. It can be read on as the stream grows. It looks at no signature and no chain; Read does.
// It is not safe for use from several goroutines.
type History struct {
	reader StreamReader
	stream string
	limit  int // messages that are kept

	first, last uint64      // sequences read; 0 = none
	times       []time.Time // of the messages first..last
	lives       []*poolLife // in order of their first record
	byLife      map[lifeKey]*poolLife
	spans       map[kvtransfer.Key]*span // by the last reservation of the key
	unread      int                      // records that could not be read
}

// poolLife is one epoch of one decode.
type poolLife struct {
	id       string
	epoch    uint64
	from     uint64 // sequence of its first record
	until    uint64 // of its last word, or of its successor's first; 0 = it lives
	pages    int    // of the pool; 0 = not known
	pageSize int
	spans    []*span          // in order of reservation
	owner    map[uint64]*span // who has a page now
}

// span is one attempt's time with its pages. Sequences are 0 while the thing has not happened.
type span struct {
	key                             kvtransfer.Key
	tenant                          string
	prompt, output                  int
	runs                            []page.Run
	reserved, claimed, owned, ended uint64
	quarantined                     bool
	zeroed                          []cleared
	left                            int // pages not zeroed yet
}

// cleared are pages that were zeroed by one record.
type cleared struct {
	at   uint64
	runs []page.Run
}

// HistoryLimit is how many messages a History keeps at most; of a longer stream it tells the last ones.
const HistoryLimit = 1 << 20

// NewHistory makes the history of a stream, not read yet.
func NewHistory(r StreamReader, stream string) *History {
	return &History{reader: r, stream: stream, limit: HistoryLimit, byLife: map[lifeKey]*poolLife{}, spans: map[kvtransfer.Key]*span{}}
}

// Follow reads what was stored since the last time.
func (h *History) Follow(ctx context.Context) error {
	from := h.last + 1
	st, err := h.reader.Read(ctx, h.stream, from, func(m bus.Stored) error {
		h.take(m)
		return nil
	})
	if err != nil {
		return err
	}
	if st.Last < h.last {
		return fmt.Errorf("replay: history: %s ends with sequence %d, after %d was read: it is another stream", h.stream, st.Last, h.last)
	}
	return nil
}

// Range is the first and the last sequence that the history can tell of; zeros when there is none.
func (h *History) Range() (first, last uint64) { return h.first, h.last }

// Unread is how many records could not be read.
func (h *History) Unread() int { return h.unread }

func (h *History) take(m bus.Stored) {
	if h.first == 0 {
		h.first, h.last = m.Sequence, m.Sequence-1
	}
	for h.last < m.Sequence { // a message that was taken out has the time of the next one
		h.last++
		h.times = append(h.times, m.Time.UTC())
	}
	for _, b := range journal.Split(m.Data) {
		r, err := journal.Decode(b)
		if err != nil {
			h.unread++
			continue
		}
		h.record(m.Sequence, r)
	}
	if len(h.times) > h.limit {
		h.forget()
	}
}

// forget drops the oldest quarter of the messages, and the spans that ended in it.
func (h *History) forget() {
	n := h.limit/4 + len(h.times) - h.limit
	h.first += uint64(n)
	h.times = slices.Clone(h.times[n:])
	for _, l := range h.lives {
		l.spans = slices.DeleteFunc(l.spans, func(s *span) bool {
			gone := s.over() > 0 && s.over() < h.first
			if gone && h.spans[s.key] == s {
				delete(h.spans, s.key)
			}
			return gone
		})
	}
	h.lives = slices.DeleteFunc(h.lives, func(l *poolLife) bool { return l.until > 0 && l.until < h.first })
}

// over is the sequence from which the span has no page; 0 = it has some.
func (s *span) over() uint64 {
	if s.left > 0 || len(s.zeroed) == 0 {
		return 0
	}
	return s.zeroed[len(s.zeroed)-1].at
}

// life finds a decode's life; nil for other roles. A younger epoch ends the older ones of its id.
func (h *History) life(seq uint64, r journal.Record) *poolLife {
	id, ok := cutRole(r.Service, kvtransfer.RoleDecode)
	if !ok {
		return nil
	}
	k := lifeKey{r.Service, r.Epoch}
	if l := h.byLife[k]; l != nil {
		return l
	}
	l := &poolLife{id: id, epoch: r.Epoch, from: seq, owner: map[uint64]*span{}}
	for _, other := range h.lives {
		if other.id == id && other.until == 0 && other.epoch < r.Epoch {
			other.until = seq
		}
	}
	h.byLife[k] = l
	h.lives = append(h.lives, l)
	return l
}

func cutRole(service string, role kvtransfer.Role) (id string, ok bool) {
	prefix := string(role) + "-"
	if len(service) <= len(prefix) || service[:len(prefix)] != prefix {
		return "", false
	}
	return service[len(prefix):], true
}

func (h *History) record(seq uint64, r journal.Record) {
	l := h.life(seq, r)
	if l == nil {
		return
	}
	s := h.spans[r.Key]
	switch f := r.Facts.(type) {
	case journal.Started:
		l.pages, l.pageSize = f.Pages, f.PageSize
	case journal.Stopped:
		l.until = seq
	case journal.Reserved:
		h.reserved(seq, l, r, f)
	case journal.Zeroed:
		l.zeroed(seq, f)
	case journal.Claimed:
		if s != nil && s.claimed == 0 {
			s.claimed = seq
		}
	case journal.Verdict:
		if s != nil && s.owned == 0 && f.OK {
			s.owned = seq
		}
	case journal.Finished:
		if s != nil && s.ended == 0 {
			s.ended, s.quarantined, s.output = seq, f.Quarantined, f.Output
		}
	}
}

func (h *History) reserved(seq uint64, l *poolLife, r journal.Record, f journal.Reserved) {
	s := &span{key: r.Key, tenant: r.Tenant, prompt: f.N, reserved: seq, left: len(f.Pages)}
	for _, p := range f.Pages {
		s.runs = extend(s.runs, page.ID(p[0]))
		l.owner[p[0]] = s
	}
	l.spans = append(l.spans, s)
	h.spans[r.Key] = s
}

// extend adds one page behind the others.
func extend(runs []page.Run, id page.ID) []page.Run {
	if n := len(runs); n > 0 && runs[n-1].To == id {
		runs[n-1].To++
		return runs
	}
	return append(runs, page.Run{From: id, To: id + 1})
}

// zeroed gives pages back; one that nobody is known to have changes nothing.
func (l *poolLife) zeroed(seq uint64, f journal.Zeroed) {
	for _, run := range f.Pages {
		if run[0] < 0 || run[1] > journal.MaxPages {
			continue
		}
		for id := run[0]; id < run[1]; id++ {
			s := l.owner[uint64(id)]
			if s == nil {
				continue
			}
			delete(l.owner, uint64(id))
			if n := len(s.zeroed); n == 0 || s.zeroed[n-1].at != seq {
				s.zeroed = append(s.zeroed, cleared{at: seq})
			}
			last := &s.zeroed[len(s.zeroed)-1]
			last.runs = extend(last.runs, page.ID(id))
			s.left--
		}
	}
}
