package journal

import (
	"encoding/json"
	"fmt"
	"slices"

	"quire/kvtransfer/page"
)

// Slot is a page and its generation.
type Slot [2]uint64

// MaxPages is the most pages that one fact may name.
const MaxPages = 1 << 20

// Pages are slots in order of position. In JSON they are runs: [page, generation], or [page, generation, count] for that many
// pages from this one on that follow each other and have the same generation.
type Pages []Slot

// Slots gives the pages of a reservation in order of position.
func Slots(s []page.Slot) Pages {
	out := make(Pages, len(s))
	for i, p := range s {
		out[i] = Slot{uint64(p.Page), uint64(p.Gen)}
	}
	return out
}

// MarshalJSON writes runs.
func (p Pages) MarshalJSON() ([]byte, error) {
	runs := [][]uint64{}
	for i := 0; i < len(p); {
		n := 1
		for i+n < len(p) && p[i+n] == (Slot{p[i][0] + uint64(n), p[i][1]}) {
			n++
		}
		run := []uint64{p[i][0], p[i][1], uint64(n)}
		if n == 1 {
			run = run[:2]
		}
		runs = append(runs, run)
		i += n
	}
	return json.Marshal(runs)
}

// UnmarshalJSON reads runs.
func (p *Pages) UnmarshalJSON(b []byte) error {
	var runs [][]uint64
	if err := json.Unmarshal(b, &runs); err != nil {
		return err
	}
	out := Pages{}
	for _, r := range runs {
		var err error
		if out, err = out.add(r); err != nil {
			return err
		}
	}
	*p = out
	return nil
}

// add puts the pages of one run behind those that are there.
func (p Pages) add(run []uint64) (Pages, error) {
	n := uint64(1)
	if len(run) == 3 {
		n = run[2]
	}
	if len(run) < 2 || len(run) > 3 || n < 1 || n > MaxPages-uint64(len(p)) || run[0] > MaxPages {
		return nil, fmt.Errorf("pages: run %v after %d pages, limit %d", run, len(p), MaxPages)
	}
	p = slices.Grow(p, int(n))
	for i := range n {
		p = append(p, Slot{run[0] + i, run[1]})
	}
	return p, nil
}

// Span is a half-open range [from, to) of rows or of page numbers; [from, to] in JSON.
type Span [2]int

// Spans are spans in ascending order that do not touch each other.
type Spans []Span

// Add puts one more span in, joining what touches. Empty spans change nothing.
func (s Spans) Add(from, to int) Spans {
	if from >= to {
		return s
	}
	out := make(Spans, 0, len(s)+1)
	for _, o := range s {
		switch {
		case o[1] < from || o[0] > to:
			out = append(out, o)
		default:
			from, to = min(from, o[0]), max(to, o[1])
		}
	}
	for i, o := range out {
		if o[0] > from {
			return append(out[:i:i], append(Spans{{from, to}}, out[i:]...)...)
		}
	}
	return append(out, Span{from, to})
}

// Rows is how many rows or pages the spans have in all.
func (s Spans) Rows() int {
	n := 0
	for _, o := range s {
		n += o[1] - o[0]
	}
	return n
}

// Missing gives what of [from, to) the spans leave out.
func (s Spans) Missing(from, to int) Spans {
	var out Spans
	for _, o := range s {
		if o[1] <= from || o[0] >= to {
			continue
		}
		if o[0] > from {
			out = append(out, Span{from, o[0]})
		}
		from = max(from, o[1])
	}
	if from < to {
		out = append(out, Span{from, to})
	}
	return out
}
