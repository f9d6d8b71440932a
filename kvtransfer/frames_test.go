package kvtransfer_test

import (
	"testing"

	"pgregory.net/rapid"

	"quire/kvtransfer"
)

// TestCutCoversEachRowOnce draws shapes and buses: every (layer, row) is in exactly one frame, indices are the frames' own, no
// frame is too large, none is needlessly small, and the hidden vector is at the end of the last frame alone.
func TestCutCoversEachRowOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.IntRange(0, 50).Draw(t, "from")
		to := from + rapid.IntRange(1, 700).Draw(t, "rows")
		s := kvtransfer.CutShape{
			Layers:   rapid.IntRange(1, 40).Draw(t, "layers"),
			RowBytes: 4 * rapid.IntRange(1, 16<<10).Draw(t, "row bytes/4"),
			Dim:      rapid.IntRange(0, 8192).Draw(t, "dim"),
		}
		limit := kvtransfer.CutBytes(rapid.SampledFrom([]int{64 << 10, 100 << 10, 256 << 10, 1 << 20, 8 << 20}).Draw(t, "max_payload"))
		c, err := kvtransfer.NewCut(from, to, s, limit)
		if err != nil {
			if limit-4*s.Dim >= s.RowBytes {
				t.Fatalf("a row of %d bytes and %d floats fit %d bytes, yet: %v", s.RowBytes, s.Dim, limit, err)
			}
			return
		}
		seen := make([]int, s.Layers*(to-from))
		for i := range c.Frames() {
			h := c.Header(i)
			if int(h.Index) != i || h.LayerFrom >= h.LayerTo || h.RowFrom >= h.RowTo || h.RowFrom < from || h.RowTo > to || h.LayerTo > s.Layers {
				t.Fatalf("frame %d: %+v", i, h)
			}
			if last := i == c.Frames()-1; (h.Hidden != 0) != (last && s.Dim > 0) {
				t.Fatalf("frame %d of %d: hidden %d", i, c.Frames(), h.Hidden)
			}
			body := (h.LayerTo - h.LayerFrom) * (h.RowTo - h.RowFrom) * s.RowBytes
			if c.Bytes(i) != body+4*h.Hidden || c.Bytes(i) > limit || c.Bytes(i) > kvtransfer.CutMax {
				t.Fatalf("frame %d: %d bytes, limit %d", i, c.Bytes(i), limit)
			}
			if limit == kvtransfer.CutMax && 4*s.Dim < kvtransfer.CutMin && body < kvtransfer.CutMin && h.RowTo < to {
				t.Fatalf("frame %d of %d: %d bytes, though rows follow", i, c.Frames(), body)
			}
			for row := h.RowFrom; row < h.RowTo; row++ {
				for layer := h.LayerFrom; layer < h.LayerTo; layer++ {
					seen[(row-from)*s.Layers+layer]++
				}
			}
		}
		for i, n := range seen {
			if n != 1 {
				t.Fatalf("row %d, layer %d: in %d frames", from+i/s.Layers, i%s.Layers, n)
			}
		}
		checkReady(t, c, from, to)
	})
}

// checkReady compares Ready with its meaning at every row.
func checkReady(t *rapid.T, c kvtransfer.Cut, from, to int) {
	rows := rapid.IntRange(from, to).Draw(t, "computed")
	ready := c.Ready(rows)
	for i := range c.Frames() {
		if fits := c.Header(i).RowTo <= rows; fits != (i < ready) {
			t.Fatalf("rows %d: %d frames ready, frame %d ends at row %d", rows, ready, i, c.Header(i).RowTo)
		}
	}
}

// TestCutKnownShapes pins the plans of shapes that matter: a change of these numbers changes what travels.
func TestCutKnownShapes(t *testing.T) {
	for _, c := range []struct {
		name              string
		rows, layers      int
		rowBytes, dim     int
		payload           int
		frames, firstSize int
	}{
		{"one token", 1, 8, 256, 128, 8 << 20, 1, 8*256 + 512},
		{"small model", 600, 8, 512, 256, 8 << 20, 5, 128 * 8 * 512},
		{"SmolLM2-135M", 1000, 30, 768, 576, 8 << 20, 46, 22 * 30 * 768},
		{"Llama-3-8B", 512, 32, 4096, 4096, 8 << 20, 128, 4 * 32 * 4096},
		{"70B without GQA, F32", 2, 80, 65536, 8192, 8 << 20, 12, 13 * 65536},
		{"small payload", 100, 8, 512, 256, 64 << 10, 8, 14 * 8 * 512},
	} {
		cut, err := kvtransfer.NewCut(0, c.rows, kvtransfer.CutShape{Layers: c.layers, RowBytes: c.rowBytes, Dim: c.dim}, kvtransfer.CutBytes(c.payload))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if cut.Frames() != c.frames || cut.Bytes(0) != c.firstSize {
			t.Errorf("%s: %d frames, the first of %d bytes; want %d of %d", c.name, cut.Frames(), cut.Bytes(0), c.frames, c.firstSize)
		}
	}
}

func TestCutRefuses(t *testing.T) {
	shape := kvtransfer.CutShape{Layers: 2, RowBytes: 1000, Dim: 4}
	for _, c := range []struct {
		name     string
		from, to int
		shape    kvtransfer.CutShape
		max      int
		code     kvtransfer.Code
	}{
		{"no rows", 3, 3, shape, 1 << 20, kvtransfer.HandoffCount},
		{"negative", -1, 3, shape, 1 << 20, kvtransfer.HandoffCount},
		{"no layers", 0, 3, kvtransfer.CutShape{RowBytes: 1}, 1 << 20, kvtransfer.PrefillFailed},
		{"row larger than a frame", 0, 3, shape, 1015, kvtransfer.BusFailed},
		{"no payload", 0, 3, shape, -4096, kvtransfer.BusFailed},
		{"too many frames", 0, 1 << 21, kvtransfer.CutShape{Layers: 1, RowBytes: 1 << 20}, 1 << 20, kvtransfer.HandoffCount},
	} {
		_, err := kvtransfer.NewCut(c.from, c.to, c.shape, c.max)
		if e, ok := err.(kvtransfer.Error); !ok || e.Code != c.code {
			t.Errorf("%s: %v, want code %s", c.name, err, c.code)
		}
	}
}

func TestPoolNamesLayoutAndCompute(t *testing.T) {
	f := kvtransfer.Fingerprints{Model: [32]byte{1}, Layout: [32]byte{2}, Compute: [32]byte{3}}
	pool := f.Pool()
	if len(pool) != 16 {
		t.Fatalf("pool %q: %d characters, want 16", pool, len(pool))
	}
	other := f
	other.Model = [32]byte{9}
	if other.Pool() != pool {
		t.Error("the pool depends on the model, which has its own place in the subject")
	}
	other = f
	other.Layout, other.Compute = f.Compute, f.Layout
	if other.Pool() == pool {
		t.Error("layout and compute swapped give the same pool")
	}
}
