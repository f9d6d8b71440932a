package decode

import (
	"cmp"
	"slices"

	"quire/kvtransfer"
)

// room is what admission looks at: what this worker takes at all, and what is free.
type room struct {
	Draining    bool
	JournalFull bool
	Fingerprint kvtransfer.Fingerprints
	Vocab       int
	MaxRows     int // prompt and output tokens that one request may take here
	PagesFree   int
	PageSize    int
	Open        int // attempts that hold pages or may get them
	MaxOpen     int
	Known       int // attempts in the table, ended ones whose replies are kept included
	MaxKnown    int
}

// admit says why a request cannot be taken whatever is free, with the numbers; the zero Error means that it can.
func admit(r kvtransfer.Reserve, o room) kvtransfer.Error {
	switch {
	case o.Draining:
		return kvtransfer.Errorf(kvtransfer.Draining, "decode: reserve: draining")
	case o.JournalFull:
		return kvtransfer.Errorf(kvtransfer.JournalDown, "decode: reserve: the journal's buffer is full")
	}
	if err := admitShape(r, o.Vocab); !err.IsZero() {
		return err
	}
	n := len(r.Tokens)
	switch {
	case r.Fingerprints != o.Fingerprint:
		return kvtransfer.Errorf(kvtransfer.Mismatch, "decode: reserve: model, layout or compute fingerprint differs from this worker's")
	case r.MaxTokens > o.MaxRows || n+r.MaxTokens > o.MaxRows:
		return kvtransfer.Errorf(kvtransfer.ContextLengthExceeded, "decode: reserve: prompt %d and max_tokens %d, limit %d", n, r.MaxTokens, o.MaxRows)
	}
	return kvtransfer.Error{}
}

// fits says why a request that could be taken cannot be taken now.
func fits(r kvtransfer.Reserve, o room) kvtransfer.Error {
	switch {
	case o.Open >= o.MaxOpen:
		return kvtransfer.Errorf(kvtransfer.Overloaded, "decode: reserve: %d requests of %d", o.Open, o.MaxOpen)
	case o.Known >= o.MaxKnown:
		return kvtransfer.Errorf(kvtransfer.Overloaded, "decode: reserve: %d attempts remembered of %d", o.Known, o.MaxKnown)
	}
	if need := kvtransfer.PagesFor(len(r.Tokens)+r.MaxTokens, o.PageSize); need > o.PagesFree {
		return kvtransfer.Errorf(kvtransfer.PoolExhausted, "decode: reserve: %d pages needed, %d free", need, o.PagesFree)
	}
	return kvtransfer.Error{}
}

// admitShape refuses a request that contradicts itself.
func admitShape(r kvtransfer.Reserve, vocab int) kvtransfer.Error {
	n := len(r.Tokens)
	switch {
	case r.Key.ID == kvtransfer.HandoffID{} || r.Key.Attempt == 0:
		return kvtransfer.Errorf(kvtransfer.InvalidRequest, "decode: reserve: hand-off id or attempt is zero")
	case r.Prompt < 1 || r.Prompt > n:
		return kvtransfer.Errorf(kvtransfer.InvalidRequest, "decode: reserve: prompt %d of %d tokens", r.Prompt, n)
	case r.MaxTokens < 1:
		return kvtransfer.Errorf(kvtransfer.InvalidRequest, "decode: reserve: max_tokens %d", r.MaxTokens)
	case r.DeadlineLeft <= 0:
		return kvtransfer.Errorf(kvtransfer.DeadlineExceeded, "decode: reserve: deadline passed %d us ago", -r.DeadlineLeft)
	case r.Tenant == "":
		return kvtransfer.Errorf(kvtransfer.InvalidRequest, "decode: reserve: no tenant")
	}
	if i := slices.IndexFunc(r.Tokens, func(t int32) bool { return t < 0 || int(t) >= vocab }); i >= 0 {
		return kvtransfer.Errorf(kvtransfer.InvalidRequest, "decode: reserve: the token at %d is outside of the vocabulary of %d", i, vocab)
	}
	return kvtransfer.Error{}
}

// candidate is a sequence that could step now.
type candidate struct {
	Key      kvtransfer.Key
	Failures int    // steps that failed with it, since the last that did not
	Stepped  uint64 // number of its last step; 0 = none
}

// planStep says which sequences step now, at most max of them: those that have waited longest, in the order given where they
// have waited equally. After a failed step its sequences go one by one, so that only the one at fault fails again.
func planStep(cs []candidate, max int) []kvtransfer.Key {
	if i := slices.IndexFunc(cs, func(c candidate) bool { return c.Failures > 0 }); i >= 0 {
		return []kvtransfer.Key{cs[i].Key}
	}
	waiting := slices.Clone(cs)
	slices.SortStableFunc(waiting, func(a, b candidate) int { return cmp.Compare(a.Stepped, b.Stepped) })
	keys := make([]kvtransfer.Key, 0, min(max, len(waiting)))
	for _, c := range waiting[:min(max, len(waiting))] {
		keys = append(keys, c.Key)
	}
	return keys
}
