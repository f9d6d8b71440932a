package sim

import (
	"fmt"
	"slices"
	"strings"

	"quire/kvtransfer"
)

// What there is to cover: the whole of each side's states and messages, the gate's checks, the limits of time, the faults
// and the lies. Missing says what a run has not met.

var sideMessages = map[string][]string{
	"decode": {"reserve", "resend", "acknowledged", "claim", "progress", "abort", "cancel", "manifest", "frame", "frame opened",
		"frame does not open", "frame copied", "journaled", "witnessed", "stepped"},
	"prefill": {"job", "claimed", "gone", "cancel", "frame sealed", "frame stored", "frame full", "frame failed", "manifest stored", "manifest full"},
	"router":  {"reserved", "refused", "job stored", "outcome", "tokens", "end", "resent"},
}

// sideStates lists the states of a side, as coverage names them.
func sideStates(side string) []string {
	states := []string{"unknown"}
	switch side {
	case "decode":
		for s := kvtransfer.InReserved; s <= kvtransfer.InQuarantined; s++ {
			states = append(states, s.String())
		}
	case "prefill":
		for s := kvtransfer.OutboundJobbed; s <= kvtransfer.OutboundLost; s++ {
			states = append(states, s.String())
		}
	default:
		states = append(states, "reserving", "storing", "prefill", "running", "closing")
	}
	return states
}

// impossible says why a message cannot meet a state; "" when it can.
func impossible(side, state, message string) string {
	switch side {
	case "decode":
		return impossibleDecode(state, message)
	case "prefill":
		return impossiblePrefill(state, message)
	}
	return impossibleRouter(state, message)
}

func impossibleRouter(state, message string) string {
	message, bad, _ := strings.Cut(message, ":")
	late := state == "storing" || state == "prefill" || state == "running"
	switch message {
	case "reserved", "refused":
		if late {
			return "one Reserve is out at a time, and its answer ends reserving"
		}
		if message == "reserved" && bad == "" && state != "reserving" {
			return "with the attempt its key is forgotten: a reservation that comes then is invalid"
		}
	case "job stored":
		switch state {
		case "reserving":
			return "the job goes out with the reservation"
		case "prefill":
			return "one job is out at a time, and the answer ends storing"
		}
	case "outcome", "tokens", "end":
		if !late {
			return "replies open from the reservation to the attempt's end, in which its key is forgotten"
		}
	case "resent":
		if state == "reserving" {
			return "nothing is asked for before the reservation"
		}
	}
	return ""
}

func impossibleDecode(state, message string) string {
	if state == "admitted" {
		return "the loop leaves it within the event that enters it"
	}
	running := state == "judging" || state == "witnessing" || state == "running"
	open := state == "reserved" || state == "filling" || running
	switch message {
	case "frame opened", "frame does not open", "frame copied":
		if state == "reserved" {
			return "nothing is opened before a claim"
		}
		if message == "frame copied" && (running || state == "ended") {
			return "the gate waits for copies"
		}
	case "journaled":
		if open && state != "judging" || state == "ended" || state == "quarantined" {
			return "the verdict is asked for in judging alone"
		}
	case "witnessed":
		if open && state != "witnessing" || state == "ended" || state == "quarantined" {
			return "it is asked for in witnessing alone"
		}
	case "stepped":
		if open && state != "witnessing" && state != "running" || state == "quarantined" {
			return "no step before the verdict"
		}
	}
	return ""
}

func impossiblePrefill(state, message string) string {
	switch state {
	case "jobbed":
		return "the loop claims within the event that brings the job"
	case "done":
		return "nothing is out then, and the loop forgets it within the event"
	}
	early, over := state == "claiming", state == "gone" || state == "cancelled" || state == "aborted" || state == "lost"
	switch message {
	case "frame sealed", "frame stored", "frame full", "frame failed":
		if early {
			return "no frame leaves before Claimed"
		}
		if state == "manifested" {
			return "the manifest follows the last frame's acknowledgement"
		}
		if state == "unknown" && (message == "frame sealed" || message == "frame failed") {
			return "an attempt stays until its frames are sealed"
		}
	case "manifest stored", "manifest full":
		if early || state == "sending" {
			return "the manifest is not out"
		}
		if over {
			return "nothing else is out, and the loop forgets it within the event"
		}
	}
	return ""
}

var sides = []string{"decode", "prefill", "router"}

// Cannot lists the reasons why pairs cannot be, each with the pairs.
func Cannot() []string {
	var reasons []string
	pairs := map[string][]string{}
	for _, side := range sides {
		for _, m := range sideMessages[side] {
			for _, s := range sideStates(side) {
				if why := impossible(side, s, m); why != "" {
					why = side + ": " + why
					if pairs[why] == nil {
						reasons = append(reasons, why)
					}
					pairs[why] = append(pairs[why], m+" in "+s)
				}
			}
		}
	}
	for i, why := range reasons {
		reasons[i] = fmt.Sprintf("%s: %s", why, strings.Join(pairs[why], ", "))
	}
	return reasons
}

// Wrong lists what was met though it cannot be.
func (c *Coverage) Wrong() []string {
	var out []string
	for p, n := range c.Pairs {
		if why := impossible(p.Side, p.State, p.Message); why != "" {
			out = append(out, fmt.Sprintf("%s: %s in %s: %d times, though %s", p.Side, p.Message, p.State, n, why))
		}
	}
	slices.Sort(out)
	return out
}

// Missing lists what was not met and can be.
func (c *Coverage) Missing() []string {
	var out []string
	for _, side := range sides {
		for _, s := range sideStates(side) {
			for _, m := range sideMessages[side] {
				if c.Pairs[Pair{side, s, m}] == 0 && impossible(side, s, m) == "" {
					out = append(out, fmt.Sprintf("%s: %s in %s", side, m, s))
				}
			}
		}
	}
	for _, m := range wanted() {
		if c.Marks[m] == 0 {
			out = append(out, m)
		}
	}
	return out
}

// behind are the gate's checks that another defence stands before in a whole cluster: each has its test in kvtransfer.
var behind = map[string]string{
	"hand-off":            "manifests are found by their key",
	"attempt":             "manifests are found by their key",
	"claim's reservation": "a claim under another reservation does not bind",
	"tenant":              "",
	"sender":              "a manifest of another worker is not taken",
	"model fingerprint":   "decode reserves for its own alone",
	"layout fingerprint":  "decode reserves for its own alone",
	"compute fingerprint": "decode reserves for its own alone",
	"frame identity":      "a frame of another claim is not opened",
	"frames opened":       "only what opened is kept",
	"frames copied":       "the gate waits for copies",
	"frame bytes":         "a frame of another length is not copied",
	"lease":               "a late message is not taken",
	"epoch":               "another epoch has other subjects",
	"page generations":    "pages under a hold do not change hands",
}

// wanted lists the marks that there are.
func wanted() []string {
	var out []string
	for _, t := range timeouts {
		out = append(out, "time-out: "+t.name)
	}
	for _, t := range []string{"request", "enqueue", "AckWait", "journal", "KV stream out of reach for two leases", "decode: device silent after a life",
		"message age"} {
		out = append(out, "time-out: "+t)
	}
	for _, check := range kvtransfer.Checks() {
		if behind[check.Name] == "" {
			out = append(out, "refusal: gate: "+check.Name)
		}
	}
	for _, lie := range slices.Concat(prefillLies, newerLies, routerLies) {
		out = append(out, "lie: "+lie)
	}
	for _, f := range []string{"message lost", "message repeated", "message delayed", "messages out of order", "link cut", "slow link",
		"byte changed", "middle of a stream lost", "crash of a router", "crash of a prefill", "crash of a decode", "pause of a router",
		"pause of a prefill", "pause of a decode", "successor of a paused router", "successor of a paused prefill",
		"successor of a paused decode", "drain of a router", "drain of a prefill", "drain of a decode", "bus restart",
		"unsynced write lost", "old message replayed", "journal down", "KV stream lost", "message of the hand-off again", "device slow", "device of a prefill hangs", "device of a decode hangs", "device step", "device read", "device write", "device zero", "device witness"} {
		out = append(out, "fault: "+f)
	}
	codes := func(prefix string, list ...kvtransfer.Code) {
		for _, c := range list {
			out = append(out, prefix+string(c))
		}
	}
	codes("refusal: decode refuses Reserve: ", kvtransfer.Draining, kvtransfer.JournalDown, kvtransfer.InvalidRequest, kvtransfer.DeadlineExceeded,
		kvtransfer.Mismatch, kvtransfer.ContextLengthExceeded, kvtransfer.Overloaded, kvtransfer.PoolExhausted, kvtransfer.HandoffIdentity,
		kvtransfer.NotAllowed, kvtransfer.NotFound, kvtransfer.DeviceFailed)
	codes("refusal: decode says Gone: ", kvtransfer.NotFound, kvtransfer.Mismatch, kvtransfer.HandoffIdentity, kvtransfer.LeaseExpired)
	codes("refusal: prefill aborts: ", kvtransfer.Draining, kvtransfer.HandoffCount, kvtransfer.HandoffIdentity, kvtransfer.DeviceFailed,
		kvtransfer.PoolExhausted, kvtransfer.WorkerLost, kvtransfer.BusFailed)
	codes("end: client: ", "stop", "length", kvtransfer.ContextLengthExceeded, kvtransfer.Overloaded, kvtransfer.NoPrefill, kvtransfer.NoDecode,
		kvtransfer.BusDown, kvtransfer.JournalDown, kvtransfer.Draining, kvtransfer.DeadlineExceeded, kvtransfer.Cancelled, kvtransfer.ClientGone,
		kvtransfer.WorkerLost, kvtransfer.LeaseExpired, kvtransfer.HandoffRefused, kvtransfer.DeviceFailed, kvtransfer.InvalidRequest)
	return out
}

// met says whether something of Missing's lines was.
func (c *Coverage) met(item string) bool {
	side, pair, _ := strings.Cut(item, ": ")
	if i := strings.LastIndex(pair, " in "); i >= 0 && slices.Contains(sides, side) {
		return c.Pairs[Pair{side, pair[i+4:], pair[:i]}] > 0
	}
	return c.Marks[item] > 0
}
