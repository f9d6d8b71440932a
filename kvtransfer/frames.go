package kvtransfer

// How rows x layers are cut into frames. The cut depends on its arguments alone, so sealing a frame again gives the same bytes.

// Sizes of a frame's opened bytes. Only frames after which nothing is left may be smaller than CutMin, and frames for a bus
// that announces a smaller max_payload.
const (
	CutMin    = 256 << 10 // bytes
	CutMax    = 1 << 20   // bytes
	CutTarget = 512 << 10 // bytes: early enough to overlap computing, large enough for the bus

	// CutOverhead is what a stored frame needs besides its opened bytes: length, header, tag and the bus's own headers.
	CutOverhead = 4 << 10 // bytes
	// CutFrames is how many frames one hand-off may have.
	CutFrames = 1 << 20
)

// CutShape is what one row weighs.
type CutShape struct {
	Layers   int
	RowBytes int // of one row of one layer, K and V: 2 * kvHeads * headDim * bytes of the KV type
	Dim      int // length of the hidden vector, in float32s
}

// Cut is the plan of one hand-off's frames: runs of rows in ascending order, each cut into groups of layers in ascending
// order. Frame i is group i % groups of run i / groups. The last frame carries the hidden vector.
//
// Invariant: every (layer, row) of [0, Layers) x [from, to) is in exactly one frame.
type Cut struct {
	from, to int // rows, half open
	run      int // rows of a run; the last one may have fewer
	groups   int // of layers; sizes differ by at most one
	layers   int
	rowBytes int
	dim      int
}

// NewCut plans the frames of rows [from, to). maxBytes bounds a frame's opened bytes (CutBytes of the bus's max_payload). It
// fails where one row of one layer and a hidden vector do not fit one frame, or the frames are too many to count.
func NewCut(from, to int, s CutShape, maxBytes int) (Cut, error) {
	if from < 0 || to <= from {
		return Cut{}, Errorf(HandoffCount, "frames: rows [%d,%d)", from, to)
	}
	if s.Layers < 1 || s.RowBytes < 1 || s.Dim < 0 {
		return Cut{}, Errorf(PrefillFailed, "frames: layers %d, row bytes %d, hidden %d", s.Layers, s.RowBytes, s.Dim)
	}
	budget := min(maxBytes, CutMax) - 4*s.Dim
	if budget < s.RowBytes {
		return Cut{}, Errorf(BusFailed, "frames: a row of a layer takes %d bytes and the hidden vector %d, a frame holds %d",
			s.RowBytes, 4*s.Dim, min(maxBytes, CutMax))
	}
	c := Cut{from: from, to: to, run: 1, groups: 1, layers: s.Layers, rowBytes: s.RowBytes, dim: s.Dim}
	if all := s.Layers * s.RowBytes; all <= budget {
		// Enough rows for the target, and never less than the least size where that fits.
		c.run = max(CutTarget/all, (CutMin+all-1)/all, 1)
		c.run = max(min(c.run, budget/all), 1)
	} else {
		per := budget / s.RowBytes // layers of one row that fit
		c.groups = (s.Layers + per - 1) / per
	}
	if n := c.runs() * c.groups; n > CutFrames {
		return Cut{}, Errorf(HandoffCount, "frames: %d, at most %d", n, CutFrames)
	}
	return c, nil
}

// CutBytes is how many opened bytes a frame may have on a bus with this max_payload, in bytes.
func CutBytes(maxPayload int) int { return min(CutMax, maxPayload-CutOverhead) }

// runs is how many runs of rows there are.
func (c Cut) runs() int { return (c.to - c.from + c.run - 1) / c.run }

// Frames is how many frames the plan has, at least 1.
func (c Cut) Frames() int { return c.runs() * c.groups }

// Rows is how many rows the frames carry in all.
func (c Cut) Rows() int { return c.to - c.from }

// Header says what frame i in [0, Frames) holds. Key and Claim are the caller's to set.
func (c Cut) Header(i int) FrameHeader {
	run, group := i/c.groups, i%c.groups
	h := FrameHeader{
		Index:     uint32(i),
		LayerFrom: group * c.layers / c.groups,
		LayerTo:   (group + 1) * c.layers / c.groups,
		RowFrom:   c.from + run*c.run,
		RowTo:     min(c.from+(run+1)*c.run, c.to),
	}
	if i == c.Frames()-1 {
		h.Hidden = c.dim
	}
	return h
}

// Bytes is the size of frame i once opened, its hidden vector included.
func (c Cut) Bytes(i int) int {
	h := c.Header(i)
	return (h.LayerTo-h.LayerFrom)*(h.RowTo-h.RowFrom)*c.rowBytes + 4*h.Hidden
}

// Ready is how many frames, from the first, hold only rows below rows: they may leave once rows [0, rows) are computed.
func (c Cut) Ready(rows int) int {
	switch {
	case rows >= c.to:
		return c.Frames()
	case rows <= c.from:
		return 0
	}
	return (rows - c.from) / c.run * c.groups
}
