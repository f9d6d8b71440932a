package sim

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"quire/decode"
	"quire/kvtransfer"
	"quire/prefill"
	"quire/router"
)

// Coverage counts what happened in one run or in many: state x message pairs of each side, refusals by reason, time-outs,
// faults, lies.
type Coverage struct {
	Pairs map[Pair]uint64
	Marks map[string]uint64
	log   func(string) // of faults; nil = none
}

// Pair is a message that met a state.
type Pair struct{ Side, State, Message string }

// NewCoverage counts nothing yet.
func NewCoverage() *Coverage { return &Coverage{Pairs: map[Pair]uint64{}, Marks: map[string]uint64{}} }

// Add takes another's counts.
func (c *Coverage) Add(o *Coverage) {
	for k, n := range o.Pairs {
		c.Pairs[k] += n
	}
	for k, n := range o.Marks {
		c.Marks[k] += n
	}
}

func (c *Coverage) mark(what string) {
	c.Marks[what]++
	if c.log != nil && strings.HasPrefix(what, "fault: ") && !strings.HasPrefix(what, "fault: message") {
		c.log(what)
	}
}

func (c *Coverage) pair(side, state, message string) string {
	c.Pairs[Pair{side, state, message}]++
	return message
}

// decode counts an event of a decode, and names it. What answers for a reservation is that one's.
func (c *Coverage) decode(l *decode.Loop, ev decode.Event) string {
	named := func(s kvtransfer.InboundState, ok bool, message string) string {
		state := "unknown"
		if ok {
			state = s.String()
		}
		return c.pair("decode", state, message)
	}
	at := func(k kvtransfer.Key, message string) string {
		s, ok := l.State(k)
		return named(s, ok, message)
	}
	of := func(k kvtransfer.Key, reservation [32]byte, message string) string {
		s, ok := l.ReservationState(k, reservation)
		return named(s, ok, message)
	}
	switch e := ev.(type) {
	case decode.Tick:
		return "tick"
	case decode.ReserveAsked:
		return at(e.M.Key, "reserve")
	case decode.ResendAsked:
		if e.M.Ack {
			return at(e.M.Key, "acknowledged")
		}
		return at(e.M.Key, "resend")
	case decode.ClaimCame:
		return at(e.M.Key, "claim")
	case decode.ProgressCame:
		return at(e.M.Key, "progress")
	case decode.AbortCame:
		return at(e.M.Key, "abort")
	case decode.CancelCame:
		return at(e.M.Key, "cancel")
	case decode.ManifestCame:
		return at(e.M.Key, "manifest")
	case decode.FrameCame:
		return at(e.Header.Key, "frame")
	case decode.FrameOpened:
		if !e.Opening.OK {
			return of(e.Header.Key, e.Hash, "frame does not open")
		}
		return of(e.Header.Key, e.Hash, "frame opened")
	case decode.FrameCopied:
		return at(e.Header.Key, "frame copied")
	case decode.Journaled:
		return of(e.Key, e.Reservation, "journaled")
	case decode.WitnessDone:
		return at(e.Key, "witnessed")
	case decode.StepDone:
		for _, r := range e.Results {
			at(r.Key, "stepped")
		}
		return "stepped"
	case decode.RouterAlive:
		return "router alive"
	case decode.StreamLost:
		c.mark("fault: KV stream lost")
		return "stream lost"
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", ev), "decode.")
}

// prefill counts an event of a prefill, and names it. What comes of frames and manifests is their claim's: the same attempt may
// have been claimed here before.
func (c *Coverage) prefill(l *prefill.Loop, ev prefill.Event) string {
	named := func(s kvtransfer.OutboundState, ok bool, message string) string {
		state := "unknown"
		if ok {
			state = s.String()
		}
		return c.pair("prefill", state, message)
	}
	at := func(k kvtransfer.Key, message string) string {
		s, ok := l.State(k)
		return named(s, ok, message)
	}
	of := func(k kvtransfer.Key, claim kvtransfer.ClaimID, message string) string {
		s, ok := l.ClaimState(k, claim)
		return named(s, ok, message)
	}
	switch e := ev.(type) {
	case prefill.Tick:
		return "tick"
	case prefill.Job:
		return at(e.Reservation.Key, "job")
	case prefill.Claimed:
		return at(e.Msg.Key, "claimed")
	case prefill.Gone:
		return at(e.Msg.Key, "gone")
	case prefill.Cancel:
		return at(e.Msg.Key, "cancel")
	case prefill.FrameSealed:
		return of(e.Frame.Key, e.Frame.Claim, "frame sealed")
	case prefill.FrameStored:
		return of(e.Frame.Key, e.Frame.Claim, "frame stored")
	case prefill.FrameFull:
		return of(e.Frame.Key, e.Frame.Claim, "frame full")
	case prefill.FrameFailed:
		return of(e.Frame.Key, e.Frame.Claim, "frame failed")
	case prefill.ManifestStored:
		return of(e.Key, e.Claim, "manifest stored")
	case prefill.ManifestFull:
		return of(e.Key, e.Claim, "manifest full")
	case prefill.DecodeHeartbeat:
		return "heartbeat"
	case prefill.ChunkDone:
		return "chunk done"
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", ev), "prefill.")
}

// router counts an event of a router, and names it.
func (c *Coverage) router(l *router.Loop, ev router.Event) string {
	at := func(k kvtransfer.Key, message string) string { return c.pair("router", l.Phase(k), message) }
	bad := func(message string, f router.BusFault) string {
		if f != router.FaultNone {
			return message + ": " + string(f)
		}
		return message
	}
	switch e := ev.(type) {
	case router.Tick:
		return "tick"
	case router.Heard:
		return "heard"
	case router.Reserved:
		if !e.Refused.IsZero() {
			return at(e.Key, "refused")
		}
		return at(e.Key, bad("reserved", e.Err))
	case router.JobStored:
		return at(e.Key, bad("job stored", e.Err))
	case router.Replied:
		switch {
		case e.Body.End != nil:
			return at(e.Key, "end")
		case e.Body.Outcome != nil:
			return at(e.Key, "outcome")
		}
		return at(e.Key, "tokens")
	case router.Resent:
		if e.Err == router.FaultNone && !e.Known {
			return at(e.Key, "resent: not known")
		}
		return at(e.Key, bad("resent", e.Err))
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", ev), "router.")
}

func (c *Coverage) decodeEffect(fx decode.Effect) {
	switch e := fx.(type) {
	case decode.Refused:
		c.mark("refusal: decode refuses Reserve: " + string(e.M.Error.Code))
	case decode.Control:
		if g, ok := e.M.(kvtransfer.Gone); ok {
			c.mark("refusal: decode says Gone: " + string(g.Error.Code))
		}
	case decode.Stop:
		c.timeout(e.Err.Detail)
	case decode.Term:
		c.mark("refusal: decode terminates a delivery")
	}
}

// fact counts verdicts and ends.
func (c *Coverage) fact(f decode.Fact) {
	switch {
	case f.Kind == decode.FactVerdict && !f.OK:
		c.mark("refusal: gate: " + f.Check)
	case f.Kind == decode.FactFinished && !f.Error.IsZero():
		c.mark("end: decode: " + string(f.Error.Code))
		c.timeout(f.Error.Detail)
	}
}

func (c *Coverage) prefillEffect(fx prefill.Effect) {
	switch e := fx.(type) {
	case prefill.SendAbort:
		c.mark("refusal: prefill aborts: " + string(e.Msg.Error.Code))
		c.timeout(e.Msg.Error.Detail)
	case prefill.Halt:
		c.timeout(e.Error.Detail)
	case prefill.Ended:
		c.mark("end: prefill: " + e.State.String())
		c.timeout(e.Error.Detail)
	}
}

func (c *Coverage) routerEffect(fx router.Effect) {
	switch e := fx.(type) {
	case router.SendCancel:
		c.timeout(e.Error.Detail)
	case router.DropJob:
		c.mark("router: drops a job")
	}
}

func (c *Coverage) finished(f router.Finished) {
	c.timeout(f.Error.Detail)
	if f.Attempts > 1 && f.Error.IsZero() {
		c.mark("router: a good end after a new attempt")
	}
}

func (c *Coverage) end(e kvtransfer.End) {
	if e.Error.IsZero() {
		c.mark("end: client: " + string(e.Finish))
		return
	}
	c.mark("end: client: " + string(e.Error.Code))
}

// timeouts are the limits of time in the loops, by what their errors say: both parts where there are two.
var timeouts = []struct{ name, text string }{
	{"decode: lease", "lease: ended"},
	{"decode: deadline", "deadline: passed"},
	{"decode: router silent", "decode: router router/"},
	{"prefill: deadline", "outbound: deadline passed"},
	{"prefill: decode silent", "outbound: decode/"},
	{"prefill: claim unanswered", "outbound: claim unanswered"},
	{"prefill: stream full", "outbound: stream full"},
	{"prefill: no pages", "prefill: rows | pages, free "},
	{"prefill: device silent", "prefill: the device has not answered"},
	{"decode: device silent", "decode: the device has not answered"},
	{"router: no heartbeat", "router: no heartbeat of"},
	{"router: Reserve unanswered", "did not answer Reserve"},
	{"router: resends unanswered", "resends: "},
	{"router: job not stored", "router: job not stored"},
	{"router: deadline", "ms have passed"},
	{"router: a role is missing", "worker can be used"},
}

func (c *Coverage) timeout(detail string) {
	for _, t := range timeouts {
		first, second, _ := strings.Cut(t.text, "|")
		if strings.Contains(detail, first) && strings.Contains(detail, second) {
			c.mark("time-out: " + t.name)
		}
	}
}

// Print writes the table: pairs of each side with their counts, then marks.
func (c *Coverage) Print(w io.Writer) {
	for _, side := range sides {
		c.printPairs(w, side)
	}
	group := ""
	for _, m := range slices.Sorted(maps.Keys(c.Marks)) {
		if g := strings.SplitN(m, ":", 2)[0]; g != group {
			group = g
			fmt.Fprintf(w, "\n%s\n", g)
		}
		fmt.Fprintf(w, "  %-72s %d\n", strings.TrimSpace(strings.TrimPrefix(m, group+":")), c.Marks[m])
	}
	list := func(title string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(w, "\n%s\n  %s\n", title, strings.Join(lines, "\n  "))
		}
	}
	list("cannot be (\".\" above)", Cannot())
	list("met though it cannot be", c.Wrong())
	list("not covered", c.Missing())
}

func (c *Coverage) printPairs(w io.Writer, side string) {
	states, messages := sideStates(side), c.messages(side)
	fmt.Fprintf(w, "\n%s: state x message\n%-28s", side, "")
	for _, s := range states {
		fmt.Fprintf(w, "%12s", s)
	}
	fmt.Fprintln(w)
	for _, m := range messages {
		fmt.Fprintf(w, "%-28s", m)
		for _, s := range states {
			text := fmt.Sprint(c.Pairs[Pair{side, s, m}])
			if text == "0" {
				text = "-"
				if impossible(side, s, m) != "" {
					text = "."
				}
			}
			fmt.Fprintf(w, "%12s", text)
		}
		fmt.Fprintln(w)
	}
}

func (c *Coverage) messages(side string) []string {
	set := map[string]bool{}
	for _, m := range sideMessages[side] {
		set[m] = true
	}
	for p := range c.Pairs {
		if p.Side == side {
			set[p.Message] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}
