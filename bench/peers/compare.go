package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"quire/bench"
)

// side is one way of doing the work.
type side struct {
	name string
	ours bool
	// measure runs the work once and gives its figures by row.
	measure func(ctx context.Context) (figures, error)
}

// figures are what one run of one side gave: tokens per second by row, or milliseconds in rows that say so.
type figures map[string]float64

// report is all figures, and each row's ratio.
type report struct {
	Model   string               `json:"model"`
	Threads int                  `json:"threads"`
	Sides   []string             `json:"sides"`
	Runs    map[string][]figures `json:"runs"` // by side, a round each
	Rows    []row                `json:"rows"`
}

// row compares one kind of work with the better of the peer's sides.
type row struct {
	Name  string       `json:"name"`
	Ours  bench.Spread `json:"ours"`
	Peer  string       `json:"peer"`
	Peers bench.Spread `json:"theirs"`
	Ratio bench.Spread `json:"ratio"` // ours to theirs, within each round
}

// compare runs all sides in each round, each round beginning with another one; the first round is not counted.
func compare(ctx context.Context, sides []side, rounds int, progress io.Writer) (report, error) {
	r := report{Runs: map[string][]figures{}}
	for _, s := range sides {
		r.Sides = append(r.Sides, s.name)
	}
	for round := range rounds + 1 {
		for i := range sides {
			s := sides[(i+round)%len(sides)]
			f, err := s.measure(ctx)
			if err != nil {
				return r, fmt.Errorf("peers: %s: %w", s.name, err)
			}
			fmt.Fprintf(progress, "round %d of %d: %s %v\n", round, rounds, s.name, f)
			if round > 0 {
				r.Runs[s.name] = append(r.Runs[s.name], f)
			}
		}
	}
	r.Rows = rows(sides, r.Runs)
	return r, nil
}

// lower says whether less is better in a row.
func lower(name string) bool { return len(name) > 3 && name[len(name)-3:] == " ms" }

// rows compares every row that both sides have.
func rows(sides []side, runs map[string][]figures) []row {
	names := map[string]bool{}
	for _, s := range sides {
		for name := range runs[s.name][0] {
			names[name] = true
		}
	}
	var out []row
	for name := range names {
		if best, ok := rowOf(sides, runs, name); ok {
			out = append(out, best)
		}
	}
	slices.SortFunc(out, func(a, b row) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out
}

// rowOf is one row against the side of the peer that does best in it.
func rowOf(sides []side, runs map[string][]figures, name string) (best row, ok bool) {
	for _, peer := range sides {
		if _, has := runs[peer.name][0][name]; peer.ours || !has {
			continue
		}
		r := row{Name: name, Peer: peer.name}
		var ours, theirs, ratio []float64
		for _, s := range sides {
			if _, has := runs[s.name][0][name]; !s.ours || !has {
				continue
			}
			for i, f := range runs[s.name] {
				a, b := f[name], runs[peer.name][i][name]
				ours, theirs, ratio = append(ours, a), append(theirs, b), append(ratio, a/b)
			}
		}
		r.Ours, r.Peers, r.Ratio = bench.SpreadOf(ours), bench.SpreadOf(theirs), bench.SpreadOf(ratio)
		better := r.Peers.Median > best.Peers.Median
		if lower(name) {
			better = r.Peers.Median < best.Peers.Median
		}
		if len(ours) > 0 && (!ok || better) {
			best, ok = r, true
		}
	}
	return best, ok
}

// print writes the rows as a table.
func (r report) print(w io.Writer) error {
	fmt.Fprintf(w, "%s, %d threads; medians of rounds in turns, ratios within each round\n\n", r.Model, r.Threads)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "ROW\tQUIRE\tPEER\tRATIO\tMIN\tMAX\tROUNDS\tWHICH PEER\t")
	for _, x := range r.Rows {
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.2f\t%.2f\t%.2f\t%d\t%s\t\n", x.Name, x.Ours.Median, x.Peers.Median, x.Ratio.Median, x.Ratio.Min, x.Ratio.Max,
			x.Ratio.N, x.Peer)
	}
	return t.Flush()
}
