package decode

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"quire/kvtransfer"
)

// Dump gives the whole state as text, the same for equal states: for scripts, exhaustive search and replays. It holds no
// prompt, token or key.
func (l *Loop) Dump() string {
	var b strings.Builder
	fmt.Fprintf(&b, "decode %s now=%d", l.cfg.Self, l.now)
	for _, f := range []struct {
		on   bool
		name string
	}{{l.draining, "draining"}, {l.journalFull, "journal-full"}, {l.Stalled(), "stalled"}, {l.stopped, "stopped"}} {
		if f.on {
			fmt.Fprintf(&b, " %s", f.name)
		}
	}
	c := l.ledger.Counts()
	fmt.Fprintf(&b, "\npages total=%d free=%d reserved=%d filling=%d owned=%d zeroing=%d quarantined=%d\n",
		c.Total, c.Free, c.Reserved, c.Filling, c.Owned, c.Zeroing, c.Quarantined)
	for _, h := range l.oldestFirst() {
		h.dump(&b)
	}
	if len(l.step) > 0 {
		fmt.Fprintf(&b, "step %d:", l.steps)
		for _, s := range l.step {
			fmt.Fprintf(&b, " %s", short(s.key))
			if s.witness {
				b.WriteString("(witness)")
			}
		}
		b.WriteString("\n")
	}
	peers := slices.SortedFunc(maps.Keys(l.routers), func(a, b kvtransfer.Peer) int { return strings.Compare(a.String(), b.String()) })
	for _, p := range peers {
		fmt.Fprintf(&b, "%s last=%d\n", p, l.routers[p])
	}
	return b.String()
}

func (h *handoff) dump(b *strings.Builder) {
	b.WriteString(h.in.Dump())
	if h.in.State.Over() {
		fmt.Fprintf(b, " keep=%d", h.keepUntil)
	}
	fmt.Fprintf(b, " rows=%d output=%d replies=%d", h.rows, h.output, len(h.replies))
	if h.failures > 0 {
		fmt.Fprintf(b, " failures=%d", h.failures)
	}
	if h.finish != "" {
		fmt.Fprintf(b, " finish=%s", h.finish)
	}
	b.WriteString("\n")
}

// short is the beginning of a hand-off's id and the attempt.
func short(k kvtransfer.Key) string { return fmt.Sprintf("%x-%d", k.ID[:2], k.Attempt) }
