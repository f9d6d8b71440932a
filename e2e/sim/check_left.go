package sim

import (
	"fmt"
	"strings"
)

// rest: in the end nothing is left: no page, no lease, no attempt in any process, and no message in a stream that somebody
// reads. It waits as long as the longest deadline and lease allow.
func (w *World) rest() {
	left := ""
	ok := w.until(60*sec, func() bool {
		left = w.left()
		return left == ""
	})
	if !ok {
		w.fail("left", "%s", left)
	}
}

func (w *World) left() string {
	for _, p := range w.procs {
		if p.dead || p.idle == nil {
			continue
		}
		if why := p.idle(); why != "" {
			return why
		}
	}
	for _, name := range w.bus.streamNames("") {
		s := w.bus.streams.get(name)
		if name == w.names.JournalStream() {
			continue
		}
		for _, m := range s.msgs {
			if !w.lastsAnyway(m) {
				return fmt.Sprintf("%s holds %d messages, one of %s", name, len(s.msgs), m.msg.Subject)
			}
		}
	}
	return ""
}

// lastsAnyway says that a message is for a life that is over, or a job that a fault left: it leaves by age.
func (w *World) lastsAnyway(m stored) bool {
	for _, n := range w.nodes {
		for _, kind := range []string{"ctl." + string(n.role), "kv"} {
			if strings.HasPrefix(m.msg.Subject, fmt.Sprintf("quire.%s.%s.%d.", kind, n.id, n.cur.peer.Epoch)) {
				return false
			}
		}
	}
	if !strings.HasPrefix(m.msg.Subject, "quire.job.") {
		return true
	}
	for _, a := range w.clients.asks {
		if a.late && strings.Contains(m.msg.Subject, a.id.String()) {
			return false // with no fault since, its router has dropped its job
		}
	}
	return true
}

// dump prints all loops.
func (w *World) dump() string {
	var b strings.Builder
	for _, s := range w.routers {
		if !s.ended {
			fmt.Fprintf(&b, "%s\n%s\n", s.peer, s.loop.Dump())
		}
	}
	for _, s := range w.prefills {
		if !s.ended && !s.p.dead {
			fmt.Fprintf(&b, "%s\n%s\n", s.peer, s.loop.Dump())
		}
	}
	for _, s := range w.decodes {
		if !s.ended && !s.p.dead {
			fmt.Fprintf(&b, "%s\n%s\n", s.peer, s.loop.Dump())
		}
	}
	for _, name := range w.bus.streamNames("") {
		s := w.bus.streams.get(name)
		fmt.Fprintf(&b, "%s: %d messages", name, len(s.msgs))
		for _, c := range s.consumers.values {
			fmt.Fprintf(&b, ", %s: %d members", c.cfg.Name, len(c.members))
		}
		b.WriteString("\n")
	}
	return b.String()
}
