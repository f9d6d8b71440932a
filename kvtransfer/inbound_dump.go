package kvtransfer

import (
	"fmt"
	"strings"
)

// Dump gives the machine's state as one line, the same for equal states. It holds no prompt, token or key.
func (m *Inbound) Dump() string {
	var b strings.Builder
	r := m.Reservation
	fmt.Fprintf(&b, "%x-%d %s tenant=%s N=%d C=%d max=%d", r.Key.ID[:2], r.Key.Attempt, m.State, r.Tenant, r.N, r.C, r.MaxTokens)
	if m.State < InJudging {
		fmt.Fprintf(&b, " lease=%d", m.Lease.End)
	}
	if !m.State.Over() {
		fmt.Fprintf(&b, " deadline=%d", m.Lease.Deadline)
	}
	if m.Prefill != (Peer{}) {
		fmt.Fprintf(&b, " claim=%x by %s", m.Claimed.Claim[:2], m.Prefill)
		b.WriteString(" frames=")
		for _, f := range m.Frames() {
			fmt.Fprintf(&b, "%d", f.Header.Index)
			if !f.Copied {
				b.WriteString("?")
			}
			b.WriteString(",")
		}
	}
	if m.copying > 0 {
		fmt.Fprintf(&b, " copying=%d", m.copying)
	}
	if len(m.hidden) > 0 {
		fmt.Fprintf(&b, " hidden=%d", len(m.hidden))
	}
	if m.Stated != nil {
		fmt.Fprintf(&b, " manifest=%d/%d", m.Stated.Sent, m.Stated.Frames)
	}
	if m.State == InWitnessing {
		fmt.Fprintf(&b, " agreed=%t/%t", m.rowsAgree, m.lastAgree)
	}
	if m.Ignored > 0 {
		fmt.Fprintf(&b, " ignored=%d", m.Ignored)
	}
	if !m.Err.IsZero() {
		fmt.Fprintf(&b, " error=%s (%s)", m.Err.Code, m.Err.Detail)
	}
	return b.String()
}
