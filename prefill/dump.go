package prefill

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Clone copies the loop, so that a search can go on from one state in two ways. Tokens, hidden vectors and the entropy source
// are shared: nobody writes the former, and the caller of a search supplies an entropy source that a copy may share.
func (l *Loop) Clone() *Loop {
	c := *l
	c.ledger = l.ledger.Clone()
	c.attempts = make([]*attempt, len(l.attempts))
	for i, a := range l.attempts {
		b := *a
		b.out = a.out.Clone()
		c.attempts[i] = &b
	}
	c.decodes = slices.Clone(l.decodes)
	c.flight = slices.Clone(l.flight)
	c.releases = slices.Clone(l.releases)
	if l.step != nil {
		s := *l.step
		s.parts = slices.Clone(l.step.parts)
		c.step = &s
	}
	c.fx = nil
	return &c
}

// Dump prints the whole state, without keys, tokens or bytes.
func (l *Loop) Dump() string {
	var b strings.Builder
	fmt.Fprintf(&b, "now=%dms slots=%d/%d asked=%t direct=%t turn=%d draining=%t drained=%t halted=%t\n",
		l.now/1000, len(l.attempts), l.cfg.Slots, l.asked.shared, l.asked.direct, l.turn, l.draining, l.drained, l.halted)
	for _, a := range l.attempts {
		fmt.Fprintf(&b, "%s %s", shortKey(a), a.out.Dump())
		for _, f := range []struct {
			name string
			on   bool
		}{{"acked", a.acked}, {"paged", a.paged}, {"released", a.released}, {"step", a.inStep}, {"hidden", a.hidden != nil}, {"told", a.told}} {
			if f.on {
				b.WriteString(" " + f.name)
			}
		}
		if a.seals > 0 || a.failures > 0 {
			fmt.Fprintf(&b, " seals=%d failures=%d", a.seals, a.failures)
		}
		b.WriteByte('\n')
	}
	for _, d := range l.decodes {
		fmt.Fprintf(&b, "decode %s@%d heard=%dms\n", d.id, d.epoch, d.heard/1000)
	}
	if l.step != nil {
		fmt.Fprintf(&b, "step %d tokens=%d started=%dms", l.steps, l.step.tokens, l.step.started/1000)
		for _, p := range l.step.parts {
			fmt.Fprintf(&b, " %x-%d[%d,%d)", p.frame.Key.ID[:2], p.frame.Key.Attempt, p.grant.From(), p.grant.To())
		}
		b.WriteByte('\n')
	}
	if l.Stalled() {
		b.WriteString("stalled\n")
	}
	for _, f := range l.flight {
		fmt.Fprintf(&b, "flight %x-%d/%x/%d\n", f.Key.ID[:2], f.Key.Attempt, f.Claim[:2], f.Index)
	}
	c := l.ledger.Counts()
	fmt.Fprintf(&b, "pages total=%d free=%d reserved=%d owned=%d zeroing=%d\n", c.Total, c.Free, c.Reserved, c.Owned, c.Zeroing)
	fmt.Fprintf(&b, "stats %+v\n", l.stats)
	return b.String()
}

func shortKey(a *attempt) string {
	k := a.out.Key()
	return fmt.Sprintf("%x-%d", k.ID[:2], k.Attempt)
}

// appendHidden adds a hidden vector to a frame's bytes: [dim] f32, little endian.
func appendHidden(dst []byte, hidden []float32) []byte {
	dst = slices.Grow(dst, 4*len(hidden))
	for _, f := range hidden {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(f))
	}
	return dst
}
