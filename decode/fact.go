package decode

import (
	"cmp"
	"slices"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// Fact is what the journal records: numbers, names and hashes, never content. Which fields a kind has, its comment says.
type Fact struct {
	Kind    FactKind
	Key     kvtransfer.Key // zero in facts of no hand-off
	Tenant  string
	Router  kvtransfer.Peer
	Prefill kvtransfer.Peer // zero before a claim
	Claim   kvtransfer.ClaimID

	N, C, MaxTokens, Prompt int
	Digest                  [32]byte // keyed digest of the token ids
	Reservation             [32]byte // hash
	PageSize                int
	Pages                   []page.Slot // not written by anybody
	Lease                   kvtransfer.Tick
	Fingerprints            kvtransfer.Fingerprints

	Sent, Frames      int      // rows, as the manifest states them; frames received
	FramesDigest      [32]byte // as the manifest states it
	Repeated, Refused uint64   // frames that came once more; that were turned away
	FirstAt, StatedAt kvtransfer.Tick
	OK                bool   // verdict
	Check             string // the gate's check that failed
	Error             kvtransfer.Error

	Read        int      // rows [0, Read) kernels may have read; 0 when the pages were never owned
	Written     [][2]int // rows of [C, N) that frames filled in every layer: half-open, ascending
	Rows        int      // rows [N, Rows) this process wrote itself
	OwnedAt     kvtransfer.Tick
	Unjournaled bool // kernels ran without an acknowledged verdict

	Witness string // "agreed", "refused", or "" when none was run
	Finish  kvtransfer.Finish
	Output  int // tokens made
	Replies int

	What       string // refused: frame, unopened, claim, manifest
	Index      uint32 // refused: of the frame
	Count      uint64 // refused: how many this record stands for
	Zeroed     [][2]int
	ReleasedAt kvtransfer.Tick // zeroed: when nothing held the pages any more
}

// FactKind names a kind of fact.
type FactKind string

// Kinds of fact, in the order in which a good hand-off has them.
const (
	FactReserved FactKind = "reserved" // pages promised
	FactClaimed  FactKind = "claimed"  // bound to a worker
	FactRefused  FactKind = "refused"  // a frame, claim or manifest turned away: What, Count, Index, Error
	FactVerdict  FactKind = "verdict"  // the gate's
	FactWitness  FactKind = "witness"  // agreed: the first token leaves with it; or refused
	FactFinished FactKind = "finished" // over, well or not
	FactZeroed   FactKind = "zeroed"   // pages are free: Zeroed, ReleasedAt
)

// Refusals of one hand-off that get a record each; later ones are counted in its end. Those of hand-offs that are not known
// are counted and recorded together, at most so often.
const (
	recordedRefusals = 8
	strayEvery       = kvtransfer.Second
)

// strays are refusals that belong to no hand-off, not recorded yet.
type strays struct {
	frames, unopened, claims, manifests uint64
	since                               kvtransfer.Tick // of the last record
}

// fact is what the journal records of an attempt now.
func (l *Loop) fact(h *handoff, kind FactKind) Fact {
	in, r := h.in, h.in.Reservation
	f := Fact{
		Kind: kind, Key: r.Key, Tenant: r.Tenant, Router: r.Router, Prefill: in.Prefill, Claim: in.Claimed.Claim,
		N: r.N, C: r.C, MaxTokens: r.MaxTokens, Prompt: h.prompt, Digest: r.Digest, Reservation: in.Hash,
		PageSize: r.PageSize, Pages: r.Pages, Lease: r.Lease, Fingerprints: r.Fingerprints, Frames: len(in.Frames()),
		Repeated: h.repeated, Refused: h.refused, FirstAt: h.firstAt, StatedAt: h.statedAt,
		OwnedAt: h.ownedAt, Unjournaled: h.unjournaled,
		Error: in.Err, Finish: h.finish, Output: h.output, Replies: len(h.replies),
	}
	if in.Stated != nil {
		f.Sent, f.FramesDigest = in.Stated.Sent, in.Stated.Digest
	}
	if kind == FactVerdict || kind == FactWitness || kind == FactFinished {
		f.Written = covered(in.Frames(), in.Shape.Layers)
	}
	if h.owned {
		f.Read, f.Rows = h.rows, h.rows
	}
	switch {
	case in.Agreed():
		f.Witness = "agreed"
	case in.Err.Code == kvtransfer.HandoffWitness:
		f.Witness = "refused"
	}
	return f
}

// covered gives the rows that copied frames filled in every layer, half-open and ascending. It looks at the frames alone, not
// at what the gate said of them.
func covered(frames []kvtransfer.ReceivedFrame, layers int) [][2]int {
	type edge struct{ row, from, to, by int }
	var edges []edge
	for _, f := range frames {
		if h := f.Header; f.Copied {
			edges = append(edges, edge{h.RowFrom, h.LayerFrom, h.LayerTo, 1}, edge{h.RowTo, h.LayerFrom, h.LayerTo, -1})
		}
	}
	slices.SortStableFunc(edges, func(a, b edge) int { return cmp.Compare(a.row, b.row) })
	depth, full := make([]int, layers), 0 // frames over each layer at this row; layers with any
	var out [][2]int
	for i, e := range edges {
		for n := e.from; n < e.to; n++ {
			before := depth[n] > 0
			depth[n] += e.by
			switch after := depth[n] > 0; {
			case after && !before:
				full++
			case before && !after:
				full--
			}
		}
		if full < layers || i+1 == len(edges) || edges[i+1].row == e.row {
			continue
		}
		if k := len(out) - 1; k >= 0 && out[k][1] == e.row {
			out[k][1] = edges[i+1].row
		} else {
			out = append(out, [2]int{e.row, edges[i+1].row})
		}
	}
	return out
}

// turnedAway records what an attempt refused; h is nil for one that is not known.
func (l *Loop) turnedAway(h *handoff, what string, index uint32, err kvtransfer.Error) {
	if h == nil {
		switch what {
		case "frame":
			l.strays.frames++
		case "unopened":
			l.strays.unopened++
		case "claim":
			l.strays.claims++
		default:
			l.strays.manifests++
		}
		return
	}
	if h.refused++; h.refused > recordedRefusals {
		return
	}
	l.do(Journal{Fact: Fact{Kind: FactRefused, Key: h.key(), Tenant: h.in.Reservation.Tenant, What: what, Index: index, Count: 1, Error: err}})
}

// recordStrays records refusals that belong to no hand-off, if it is time.
func (l *Loop) recordStrays() {
	s := l.strays
	if s.frames+s.unopened+s.claims+s.manifests == 0 || l.now-s.since < strayEvery {
		return
	}
	l.strays = strays{since: l.now}
	for _, r := range []struct {
		what  string
		count uint64
	}{{"frame", s.frames}, {"unopened", s.unopened}, {"claim", s.claims}, {"manifest", s.manifests}} {
		if r.count > 0 {
			l.do(Journal{Fact: Fact{Kind: FactRefused, What: r.what, Count: r.count}})
		}
	}
}

// release is pages on their way to be zeroed.
type release struct {
	first page.ID
	at    kvtransfer.Tick
}

// freed records that pages hold zeros and are free.
func (l *Loop) freed(ids []page.ID) {
	f := Fact{Kind: FactZeroed, ReleasedAt: l.now}
	for i, r := range l.releases {
		if r.first == ids[0] {
			f.ReleasedAt = r.at
			l.releases = slices.Delete(slices.Clone(l.releases), i, i+1)
			break
		}
	}
	for _, id := range slices.Sorted(slices.Values(ids)) {
		if k := len(f.Zeroed) - 1; k >= 0 && f.Zeroed[k][1] == int(id) {
			f.Zeroed[k][1]++
		} else {
			f.Zeroed = append(f.Zeroed, [2]int{int(id), int(id) + 1})
		}
	}
	l.do(Journal{Fact: f})
}
