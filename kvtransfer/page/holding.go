package page

import "slices"

// Run is pages [From, To) that follow each other by number.
type Run struct{ From, To ID }

// Holding is what one owner has at this moment.
type Holding struct {
	Owner Owner
	State State // of all its pages
	Rows  int   // readable: [0, Rows)
	Runs  []Run // its pages, those already Free again left out, in order of position
}

// Holdings lists what every owner has, in order of the owner's first page.
func (l *Ledger) Holdings() []Holding {
	out := make([]Holding, 0, len(l.owners))
	for o, a := range l.owners {
		h := Holding{Owner: o, State: a.state, Rows: a.rows}
		for _, s := range a.slots {
			if l.pages[s.Page].owner != o {
				continue // zeroed, and free or somebody else's by now
			}
			if n := len(h.Runs); n > 0 && h.Runs[n-1].To == s.Page {
				h.Runs[n-1].To++
			} else {
				h.Runs = append(h.Runs, Run{s.Page, s.Page + 1})
			}
		}
		if len(h.Runs) > 0 {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b Holding) int { return int(a.Runs[0].From) - int(b.Runs[0].From) })
	return out
}
