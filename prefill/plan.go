package prefill

import "quire/kvtransfer"

// What to compute next and when to ask for more work: decisions alone.

// Bounds of a compute step.
const (
	DefaultChunk  = 256 // tokens
	firstChunk    = 32  // tokens of the first steps, before it is known how long a token takes
	leastChunk    = 8   // tokens, however slow the device is
	stepOfLease   = 3   // a step takes at most this fraction of the lease
	rateDecayPart = 8   // how fast a slow measurement is forgotten
)

// candidate is a hand-off that has rows to compute: [from, to).
type candidate struct {
	from, to int
	alone    bool // a step with it failed: it gets the next one to itself, so that it fails alone
}

// share is what one step computes of one candidate.
type share struct {
	index    int // of the candidate
	from, to int
}

// nextStep fills one step of at most budget tokens from the candidates, in round robin from index start: each gets what is
// left of the budget, so a long prompt takes a whole step in its turn and short ones share one. It returns the candidate with
// which the next step starts. Every share is within its candidate's rows, and a candidate appears once.
func nextStep(cands []candidate, start, budget int) (shares []share, next int) {
	n := len(cands)
	if n == 0 || budget < 1 {
		return nil, 0
	}
	next = start % n
	for k := range n {
		i := (start + k) % n
		c := cands[i]
		take := min(c.to-c.from, budget)
		if take < 1 {
			continue
		}
		if c.alone && len(shares) > 0 {
			break // the next step begins with it
		}
		shares = append(shares, share{index: i, from: c.from, to: c.from + take})
		budget -= take
		next = (i + 1) % n
		if c.alone {
			break
		}
	}
	return shares, next
}

// stepBudget is how many tokens a step may compute so that it ends within a third of the lease. perToken is how long one
// token takes in the worst case seen lately; 0 when nothing was measured yet.
func stepBudget(chunk int, lease, perToken kvtransfer.Tick) int {
	if chunk < 1 {
		chunk = DefaultChunk
	}
	if perToken <= 0 {
		return min(chunk, firstChunk)
	}
	return min(chunk, max(leastChunk, int(min(lease/stepOfLease/perToken, kvtransfer.Tick(chunk)))))
}

// measure takes the duration of a step into account: slower counts at once, faster little by little. A step much smaller than
// its budget says nothing, since the weights are read once however few its tokens are.
func measure(perToken, took kvtransfer.Tick, tokens, budget int) kvtransfer.Tick {
	if tokens < 1 || tokens < min(budget, firstChunk) {
		return perToken
	}
	now := max(1, took/kvtransfer.Tick(tokens))
	if now >= perToken {
		return now
	}
	return perToken - max(1, (perToken-now)/rateDecayPart)
}

// asked says which jobs a worker has asked for and not got: at most one of each kind, since one cannot be taken back.
type asked struct {
	shared bool // that any worker may take
	direct bool // that are addressed to this one
}

func (a asked) n() int {
	n := 0
	if a.shared {
		n++
	}
	if a.direct {
		n++
	}
	return n
}

// pulls is what else to ask for. Hand-offs and open requests together never exceed slots + DirectSlots, so whatever comes has
// its slot; the additional one is for a job addressed to this worker. Nothing is asked for while a job here waits for pages,
// since another would wait behind it.
func pulls(slots, taken int, out asked, waiting, draining bool) (more asked) {
	if waiting || draining {
		return asked{}
	}
	more.direct = !out.direct && taken+out.n() < slots+kvtransfer.DirectSlots
	more.shared = !out.shared && taken < slots
	return more
}
