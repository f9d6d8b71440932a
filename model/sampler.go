package model

import (
	"math"

	"quire/kvtransfer"
)

// entry is a token that may be chosen.
type entry struct {
	id    int32
	logit float32
}

// before orders by falling logit, then by id: the same on every machine.
func (a entry) before(b entry) bool { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id) }

// best is the token with the largest logit, the lowest id among equals. NaN counts as the smallest.
func best(logits []float32) int32 {
	at, top := 0, float32(math.Inf(-1))
	for i, v := range logits {
		if v > top {
			at, top = i, v
		}
	}
	return int32(at)
}

// choose samples from adjusted logits: temperature, then top_k, top_p and min_p, all of which keep a beginning of the tokens
// ordered by falling logit.
func (p *Picker) choose(logits []float32) int32 {
	top := best(logits)
	if p.s.Temperature <= 0 || len(logits) == 0 {
		return top
	}
	invT, most := 1/float64(p.s.Temperature), float64(logits[top])
	if math.IsNaN(most) || math.IsInf(most, 0) {
		return top
	}
	p.weights = p.weights[:0]
	for _, v := range logits {
		p.weights = append(p.weights, exp(float64((float64(v)-most)*invT)))
	}
	u := uniform(p.s.Seed, uint64(p.index))
	floor := float64(p.s.MinP) // weights are relative to the largest, which weighs 1
	if p.s.TopK <= 0 && (p.s.TopP <= 0 || p.s.TopP >= 1) {
		return draw(p.weights, top, floor, u)
	}
	return p.drawTop(logits, p.weights, floor, u)
}

// draw takes every token into account whose weight is at least floor, in order of ids.
func draw(weights []float64, top int32, floor, u float64) int32 {
	total := 0.0
	for _, w := range weights {
		if w >= floor {
			total += w
		}
	}
	target, sum, last := float64(u*total), 0.0, top
	for i, w := range weights {
		if w < floor || w == 0 {
			continue
		}
		sum += w
		last = int32(i)
		if target < sum {
			break
		}
	}
	return last
}

// drawTop takes tokens by falling logit off a heap, as many as top_k, top_p and min_p let in.
func (p *Picker) drawTop(logits []float32, weights []float64, floor, u float64) int32 {
	h := p.order[:0]
	all := 0.0 // weight of what top_p takes its share of
	for i, w := range weights {
		if w > 0 {
			h = append(h, entry{int32(i), logits[i]})
			all += w
		}
	}
	p.order = h
	heapify(h)
	// The best come off the heap one by one and lie behind it, the first at the end.
	n := len(h)
	nth := func(i int) entry {
		for len(h)-n <= i {
			n = pop(h, n)
		}
		return h[len(h)-1-i]
	}
	limit := len(h)
	if p.s.TopK > 0 {
		limit = min(limit, p.s.TopK)
	}
	enough := math.Inf(1)
	if share := float64(p.s.TopP); share > 0 && share < 1 {
		if limit < len(h) { // a share of what top_k left
			all = 0
			for i := range limit {
				all += weights[nth(i).id]
			}
		}
		enough = share * all
	}
	sum, taken := 0.0, 0
	for taken < limit && sum < enough {
		w := weights[nth(taken).id]
		if w < floor && taken > 0 {
			break
		}
		sum += w
		taken++
	}
	target, acc := float64(u*sum), 0.0
	for i := range taken {
		acc += weights[nth(i).id]
		if target < acc {
			return nth(i).id
		}
	}
	return nth(taken - 1).id
}

// heapify makes h a heap with the first of its order on top.
func heapify(h []entry) {
	for i := len(h)/2 - 1; i >= 0; i-- {
		sink(h, i)
	}
}

// pop moves the top of the heap h[:n] to h[n-1] and gives n-1.
func pop(h []entry, n int) int {
	n--
	h[0], h[n] = h[n], h[0]
	sink(h[:n], 0)
	return n
}

func sink(h []entry, i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// uniform is a number in [0, 1) that depends on seed and index alone (splitmix64, twice).
func uniform(seed, index uint64) float64 {
	h := mix(mix(seed+0x9e3779b97f4a7c15) + 0x9e3779b97f4a7c15*(index+1))
	return float64(h>>11) / (1 << 53)
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// maxTop is how many alternatives a token may carry.
const maxTop = 20

// logprobs gives the log probability of a token under the model's own distribution, before penalties and temperature, and the
// n most probable tokens.
func logprobs(logits []float32, id int32, n int) (float32, []kvtransfer.TopLogprob) {
	if len(logits) == 0 || id < 0 || int(id) >= len(logits) {
		return 0, nil
	}
	max := float64(logits[best(logits)])
	sum := 0.0
	for _, v := range logits {
		if v == v {
			sum += exp(float64(v) - max)
		}
	}
	norm := max + logOf(sum)
	n = min(n, maxTop, len(logits))
	top := make([]entry, 0, n+1)
	for i, v := range logits {
		e := entry{int32(i), v}
		if n == 0 || v != v || (len(top) == n && !e.before(top[n-1])) {
			continue
		}
		at := len(top)
		for at > 0 && e.before(top[at-1]) {
			at--
		}
		top = append(top, entry{})
		copy(top[at+1:], top[at:])
		top[at] = e
		top = top[:min(n, len(top))]
	}
	var out []kvtransfer.TopLogprob
	for _, e := range top {
		out = append(out, kvtransfer.TopLogprob{ID: e.id, Logprob: float32(float64(e.logit) - norm)})
	}
	return float32(float64(logits[id]) - norm), out
}
