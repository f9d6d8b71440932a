package tokenizer

// symbol is a run of the word that is one token so far; symbols form a list in order of position.
type symbol struct {
	from, to   int32 // bytes [from, to) of the word; from = to once it has been merged into the one before
	id         int32 // -1 where the run has no token
	prev, next int32 // -1 at the ends
}

// candidate is a pair of neighbours that could become one token.
type candidate struct {
	key   uint64 // rank in the upper half, then the left one's place: the order of merging
	right int32  // place of the right one
	to    int32  // where the right one ended when it was found: later it may have grown, or be gone
	id    int32
}

// candidates is a binary heap.
type candidates []candidate

func (c *candidates) push(x candidate) {
	h := append(*c, x)
	i := len(h) - 1
	for i > 0 && h[i].key < h[(i-1)/2].key {
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
		if child+1 < last && h[child+1].key < h[child].key {
			child++
		}
		if h[child].key >= h[i].key {
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

// maxWord is how many bytes a word may have for its places to fit; longer texts are cut there.
const maxWord = 1 << 30

// merge joins neighbours, lowest rank first and the leftmost of equals, until no pair makes a token. It takes n log n time.
func merge(s []symbol, pair pairing) []symbol {
	if len(s) <= shortWord {
		return mergeShort(s, pair)
	}
	c := make(candidates, 0, len(s))
	propose := func(left int32) {
		if left < 0 || s[left].next < 0 {
			return
		}
		a, b := s[left], s[s[left].next]
		if rank, id, ok := pair(a, b); ok {
			c.push(candidate{key: uint64(uint32(rank))<<32 | uint64(uint32(left)), right: a.next, to: b.to, id: id})
		}
	}
	for i := range s {
		s[i].prev, s[i].next = int32(i)-1, int32(i)+1
	}
	s[len(s)-1].next = -1
	for i := range s {
		propose(int32(i))
	}
	for len(c) > 0 {
		m := c.pop()
		left := int32(uint32(m.key))
		a, b := &s[left], &s[m.right]
		if a.from == a.to || a.next != m.right || b.to != m.to {
			continue // one of the two has been merged meanwhile
		}
		a.to, a.id, a.next = b.to, m.id, b.next
		b.from = b.to
		if a.next >= 0 {
			s[a.next].prev = left
		}
		propose(a.prev)
		propose(left)
	}
	out := s[:0]
	for i := int32(0); i >= 0; {
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
