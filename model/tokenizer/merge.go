package tokenizer

// symbol is a run of the word that is one token so far; symbols form a list in order of position.
type symbol struct {
	from, to   int   // bytes [from, to) of the word
	id         int32 // -1 where the run has no token
	prev, next int   // -1 at the ends
}

// candidate is a pair of neighbours that could become one token.
type candidate struct {
	rank        int32 // lower goes first
	left, right int
	to          int // the right one's end when found: a changed pair is recognised by its extent
	from, mid   int
	id          int32
}

// before is the order of merging.
func (a candidate) before(b candidate) bool {
	if a.rank != b.rank {
		return a.rank < b.rank
	}
	return a.left < b.left
}

// candidates is a binary heap.
type candidates []candidate

func (c *candidates) push(x candidate) {
	h := append(*c, x)
	i := len(h) - 1
	for i > 0 && h[i].before(h[(i-1)/2]) {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
		i = (i - 1) / 2
	}
	*c = h
}

func (c *candidates) pop() candidate {
	h := *c
	top, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(h[i]) {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
	*c = h
	return top
}

// pairing says whether two neighbours make a token, which one, and how early it is merged.
type pairing func(a, b symbol) (rank, id int32, ok bool)

// shortWord is up to how many symbols a plain search is faster than a heap.
const shortWord = 24

// merge joins neighbours, lowest rank first and the leftmost of equals, until no pair makes a token. It takes n log n time.
func merge(s []symbol, pair pairing) []symbol {
	if len(s) <= shortWord {
		return mergeShort(s, pair)
	}
	var c candidates
	propose := func(left int) {
		if left < 0 || s[left].next < 0 {
			return
		}
		a, b := s[left], s[s[left].next]
		if rank, id, ok := pair(a, b); ok {
			c.push(candidate{rank: rank, left: left, right: a.next, from: a.from, mid: b.from, to: b.to, id: id})
		}
	}
	for i := range s {
		s[i].prev, s[i].next = i-1, i+1
	}
	s[len(s)-1].next = -1
	for i := range s {
		propose(i)
	}
	for len(c) > 0 {
		m := c.pop()
		a, b := &s[m.left], &s[m.right]
		if a.from != m.from || a.to != m.mid || b.from != m.mid || b.to != m.to {
			continue // one of the two has been merged meanwhile
		}
		a.to, a.id, a.next = b.to, m.id, b.next
		b.from = b.to // gone
		if a.next >= 0 {
			s[a.next].prev = m.left
		}
		propose(a.prev)
		propose(m.left)
	}
	out := s[:0]
	for i := 0; i >= 0; {
		next := s[i].next
		out = append(out, s[i])
		i = next
	}
	return out
}

func mergeShort(s []symbol, pair pairing) []symbol {
	for {
		best, at, id := int32(0), -1, int32(0)
		for i := 0; i+1 < len(s); i++ {
			if r, d, ok := pair(s[i], s[i+1]); ok && (at < 0 || r < best) {
				best, at, id = r, i, d
			}
		}
		if at < 0 {
			return s
		}
		s[at].to, s[at].id = s[at+1].to, id
		s = append(s[:at+1], s[at+2:]...)
	}
}
