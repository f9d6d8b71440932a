package kvtransfer

import (
	"cmp"
	"slices"
)

// The gate's checks of count: tokens, pages, frames and rows add up, to the token. Nothing truncates, pads or aligns.

func checkTokens(e Evidence) Error {
	if e.Reservation.N != e.Manifest.N {
		return Errorf(HandoffCount, "token count: reserved %d, manifest %d", e.Reservation.N, e.Manifest.N)
	}
	if e.Tokens != e.Reservation.N {
		return Errorf(HandoffCount, "token count: prompt %d, reserved %d", e.Tokens, e.Reservation.N)
	}
	return Error{}
}

func checkCached(e Evidence) Error {
	r, m := e.Reservation.C, e.Manifest.C
	if r != m {
		return Errorf(HandoffCount, "cached count: reserved %d, manifest %d", r, m)
	}
	if r < 0 || r >= e.Reservation.N {
		return Errorf(HandoffCount, "cached count: %d of %d tokens", r, e.Reservation.N)
	}
	return Error{}
}

func checkSent(e Evidence) Error {
	m := e.Manifest
	if m.Sent != m.N-m.C {
		return Errorf(HandoffCount, "sent count: expected %d (%d - %d), manifest %d", m.N-m.C, m.N, m.C, m.Sent)
	}
	return Error{}
}

func checkPages(e Evidence) Error {
	r := e.Reservation
	if r.PageSize <= 0 {
		return Errorf(HandoffCount, "page count: page size %d", r.PageSize)
	}
	if want := PagesFor(r.N, r.PageSize); e.Manifest.Pages != want {
		return Errorf(HandoffCount, "page count: %d tokens take %d, manifest %d", r.N, want, e.Manifest.Pages)
	}
	if want := PagesFor(r.N+r.MaxTokens, r.PageSize); len(r.Pages) != want {
		return Errorf(HandoffCount, "page count: %d tokens take %d, reserved %d", r.N+r.MaxTokens, want, len(r.Pages))
	}
	return Error{}
}

// checkFrameBound refuses a manifest whose frames could never come: a frame holds at least one row of one layer.
func checkFrameBound(e Evidence) Error {
	most := e.Shape.Layers * (e.Reservation.N - e.Reservation.C)
	if e.Manifest.Frames < 1 || e.Manifest.Frames > most {
		return Errorf(HandoffCount, "frame bound: at most %d, manifest %d", most, e.Manifest.Frames)
	}
	return Error{}
}

func checkFrames(e Evidence) Error {
	if len(e.Frames) != e.Manifest.Frames {
		return Errorf(HandoffCount, "frame count: manifest %d, received %d", e.Manifest.Frames, len(e.Frames))
	}
	for i, f := range e.Frames {
		if f.Header.Index != uint32(i) {
			return Errorf(HandoffCount, "frame count: frame %d is missing", i)
		}
	}
	return Error{}
}

// checkRows: each (layer, row) of [C, N) comes exactly once.
func checkRows(e Evidence) Error {
	type run struct{ from, to int }
	r := e.Reservation
	layers := make([][]run, e.Shape.Layers)
	for _, f := range e.Frames {
		h := f.Header
		if err := checkHeaderRange(h, r, e.Shape); !err.IsZero() {
			return err
		}
		for l := h.LayerFrom; l < h.LayerTo; l++ {
			layers[l] = append(layers[l], run{h.RowFrom, h.RowTo})
		}
	}
	for l, runs := range layers {
		slices.SortFunc(runs, func(a, b run) int { return cmp.Compare(a.from, b.from) })
		next := r.C
		for _, u := range runs {
			if u.from < next {
				return Errorf(HandoffCount, "rows: layer %d row %d came twice", l, u.from)
			}
			if u.from > next {
				break
			}
			next = u.to
		}
		if next != r.N {
			return Errorf(HandoffCount, "rows: layer %d row %d of %d never came", l, next, r.N)
		}
	}
	return Error{}
}

// checkHeaderRange: a frame lies within the layers of the model and the rows [C, N).
func checkHeaderRange(h FrameHeader, r Reservation, s CutShape) Error {
	if h.LayerFrom < 0 || h.LayerFrom >= h.LayerTo || h.LayerTo > s.Layers {
		return Errorf(HandoffCount, "rows: frame %d has layers [%d, %d) of %d", h.Index, h.LayerFrom, h.LayerTo, s.Layers)
	}
	if h.RowFrom < r.C || h.RowFrom >= h.RowTo || h.RowTo > r.N {
		return Errorf(HandoffCount, "rows: frame %d has rows [%d, %d) of [%d, %d)", h.Index, h.RowFrom, h.RowTo, r.C, r.N)
	}
	return Error{}
}

// checkHidden: the last layer's output came once, whole, with the frame that ends the last layer's rows.
func checkHidden(e Evidence) Error {
	came := 0
	for _, f := range e.Frames {
		h := f.Header
		if h.Hidden == 0 {
			continue
		}
		came++
		if h.Hidden != e.Shape.Dim || h.LayerTo != e.Shape.Layers || h.RowTo != e.Reservation.N {
			return Errorf(HandoffCount, "hidden vector: %d of %d with layer %d row %d", h.Hidden, e.Shape.Dim, h.LayerTo, h.RowTo)
		}
	}
	if came != 1 || e.Hidden != e.Shape.Dim {
		return Errorf(HandoffCount, "hidden vector: came %d times, length %d of %d", came, e.Hidden, e.Shape.Dim)
	}
	return Error{}
}
