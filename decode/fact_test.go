package decode

import (
	"testing"

	"pgregory.net/rapid"

	"quire/kvtransfer"
)

// covered agrees with counting every cell.
func TestCoveredRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const layers, rows = 3, 12
		var cells [layers][rows]bool
		var frames []kvtransfer.ReceivedFrame
		for range rapid.IntRange(0, 10).Draw(t, "frames") {
			a, b := rapid.IntRange(0, layers-1).Draw(t, "layer"), rapid.IntRange(1, layers).Draw(t, "layers")
			c, d := rapid.IntRange(0, rows-1).Draw(t, "row"), rapid.IntRange(1, rows).Draw(t, "rows")
			h := kvtransfer.FrameHeader{LayerFrom: a, LayerTo: min(layers, a+b), RowFrom: c, RowTo: min(rows, c+d)}
			f := kvtransfer.ReceivedFrame{Header: h, Copied: rapid.IntRange(0, 4).Draw(t, "copied") > 0}
			frames = append(frames, f)
			for l := h.LayerFrom; l < h.LayerTo && f.Copied; l++ {
				for r := h.RowFrom; r < h.RowTo; r++ {
					cells[l][r] = true
				}
			}
		}
		got := covered(frames, layers)
		for i, s := range got {
			if s[0] >= s[1] || i > 0 && got[i-1][1] >= s[0] {
				t.Fatalf("spans %v", got)
			}
		}
		for r := range rows {
			in := false
			for _, s := range got {
				in = in || s[0] <= r && r < s[1]
			}
			if want := cells[0][r] && cells[1][r] && cells[2][r]; in != want {
				t.Fatalf("row %d: %t in %v", r, in, got)
			}
		}
	})
}

// A peer that floods gets few records: eight for a hand-off that is known, one a second for all that are not.
func TestRefusalsAreCountedTogether(t *testing.T) {
	w := newWorld(t, nil)
	w.reserve(key(1), prompt(1, 4), 2)
	send := func(k kvtransfer.Key) {
		w.send(FrameCame{Delivery: w.deliver(), Header: kvtransfer.FrameHeader{Key: k}})
	}
	for range 40 {
		send(key(1))
		send(key(9))
	}
	w.send(Tick{Now: 2 * strayEvery})
	var known, stray []Fact
	for _, f := range w.facts {
		switch {
		case f.Kind != FactRefused:
		case f.Key == key(1):
			known = append(known, f)
		default:
			stray = append(stray, f)
		}
	}
	if len(known) != recordedRefusals || len(stray) != 1 || stray[0].Count != 40 || stray[0].What != "frame" {
		t.Errorf("%d of the known hand-off; %+v", len(known), stray)
	}
	if h := w.l.handoffs[key(1)]; h.refused != 40 {
		t.Errorf("%d counted", h.refused)
	}
}
