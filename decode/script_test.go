package decode

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"quire/kvtransfer"
	"quire/model/modeltest"
)

// describe is an effect as one line of a script.
func (w *world) describe(e Effect) string {
	switch e := e.(type) {
	case Reserved:
		return fmt.Sprintf("reserved %s pages=%v", short(e.M.Key), e.M.Pages)
	case Refused:
		return fmt.Sprintf("refused %s %s (%s)", short(e.M.Key), e.M.Error.Code, e.M.Error.Detail)
	case Resent:
		return fmt.Sprintf("resent %s known=%t next=%d replies=%d", short(e.Key), e.Known, e.Next, len(e.Replies))
	case Control:
		return fmt.Sprintf("control to %s: %s", e.To, describeControl(e.M))
	case OpenFrame:
		return fmt.Sprintf("open %s frame %d", short(e.Header.Key), e.Header.Index)
	case CopyFrame:
		return fmt.Sprintf("copy %s frame %d rows [%d, %d)", short(e.Header.Key), e.Header.Index, e.Grant.From(), e.Grant.To())
	case Journal:
		f := e.Fact
		s := fmt.Sprintf("journal %s %s", f.Kind, short(f.Key))
		switch f.Kind {
		case FactVerdict:
			s += fmt.Sprintf(" ok=%t written=%v", f.OK, f.Written)
			if f.Check != "" {
				s += fmt.Sprintf(" check=%q", f.Check)
			}
		case FactWitness:
			s += fmt.Sprintf(" %s read=%d written=%v", f.Witness, f.Read, f.Written)
		case FactRefused:
			s += fmt.Sprintf(" %s %d count=%d", f.What, f.Index, f.Count)
		case FactZeroed:
			s = fmt.Sprintf("journal zeroed %v released=%d", f.Zeroed, f.ReleasedAt)
		}
		if !f.Error.IsZero() {
			s += " error=" + string(f.Error.Code)
		}
		if f.Kind == FactFinished {
			s += fmt.Sprintf(" witness=%q finish=%q output=%d read=%d", f.Witness, f.Finish, f.Output, f.Read)
		}
		if e.Must {
			s += " must"
		}
		return s
	case Witness:
		return fmt.Sprintf("witness %s rows [%d, %d)", short(e.Key), e.From, e.From+len(e.Tokens))
	case Step:
		s := "step"
		for _, x := range e.Work {
			s += fmt.Sprintf(" %s row %d", short(x.Key), x.From)
			if x.Witness {
				s += " (witness)"
			}
		}
		return s
	case SendReply:
		return fmt.Sprintf("reply %s %d: %s", short(e.Header.Key), e.Header.Number, describeReply(e.Body))
	case Zero:
		return fmt.Sprintf("zero %v", e.Pages)
	case Beat:
		return fmt.Sprintf("beat free=%d slots=%d/%d running=%d draining=%t", e.M.Pages.Free, e.M.SlotsFree, e.M.Slots, e.M.Running, e.M.Draining)
	case Stop:
		return fmt.Sprintf("stop: %v", e.Err)
	case PurgeKV:
		return "purge " + short(e.Key)
	case Forget:
		return "forget " + short(e.Key)
	}
	return kindOf(e)
}

func describeControl(m any) string {
	switch m := m.(type) {
	case kvtransfer.Claimed:
		return fmt.Sprintf("claimed %x lease %d deadline %d", m.Claim[:2], m.LeaseLeft, m.DeadlineLeft)
	case kvtransfer.Gone:
		return fmt.Sprintf("gone %x %s (%s)", m.Claim[:2], m.Error.Code, m.Error.Detail)
	case kvtransfer.Cancel:
		return fmt.Sprintf("cancel %s (%s)", m.Error.Code, m.Error.Detail)
	}
	return fmt.Sprintf("%T", m)
}

func describeReply(b kvtransfer.ReplyBody) string {
	switch {
	case b.Outcome != nil && b.Outcome.OK:
		return "outcome ok by " + b.Outcome.Prefill.String()
	case b.Outcome != nil:
		return fmt.Sprintf("outcome %s (%s) by %s", b.Outcome.Error.Code, b.Outcome.Error.Detail, b.Outcome.Prefill)
	case b.End != nil && b.End.Error.IsZero():
		return fmt.Sprintf("end %s prompt=%d output=%d replies=%d", b.End.Finish, b.End.Prompt, b.End.Output, b.End.Replies)
	case b.End != nil:
		return fmt.Sprintf("end %s (%s) replies=%d", b.End.Error.Code, b.End.Error.Detail, b.End.Replies)
	}
	return fmt.Sprintf("%d token", len(b.Tokens))
}

// args are a script line's k=v pairs.
type args map[string]int

func parse(line string) (cmd string, a args, words []string) {
	a = args{}
	f := strings.Fields(line)
	for _, x := range f[1:] {
		k, v, found := strings.Cut(x, "=")
		if !found {
			words = append(words, x)
			continue
		}
		var n int
		if _, err := fmt.Sscan(v, &n); err != nil {
			words = append(words, x)
			continue
		}
		a[k] = n
	}
	return f[0], a, words
}

func (a args) or(k string, d int) int {
	if v, ok := a[k]; ok {
		return v
	}
	return d
}

// one runs one line of a script.
func (w *world) one(line string) {
	cmd, a, words := parse(line)
	k := key(a.or("k", 1))
	k.Attempt = uint32(a.or("attempt", 1))
	switch cmd {
	case "reserve", "handoff":
		w.reserve(k, prompt(a.or("n", 6), a.or("k", 1)), a.or("max", 2))
		if cmd == "handoff" {
			w.claim(k)
			w.frames(k)
			w.manifest(k)
		}
	case "claim":
		w.claim(k)
	case "claim-again":
		w.send(ClaimCame{Delivery: w.deliver(), From: worker, M: w.jobs[k].claim})
	case "claim-other":
		c := kvtransfer.Claim{Key: k, Claim: kvtransfer.ClaimID{0xee}, ClaimKey: [32]byte{9}}
		if j := w.jobs[k]; j != nil {
			c.Reservation = j.hash
		}
		w.send(ClaimCame{Delivery: w.deliver(), From: kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: "p2", Epoch: 1}, M: c})
	case "frames":
		w.frames(k)
	case "frame":
		f := w.jobs[k].frames[a.or("i", 0)]
		if len(words) > 0 && words[0] == "tampered" {
			f.Sealed = append([]byte(nil), f.Sealed...)
			f.Sealed[0] ^= 1
			f.Sealed[len(f.Sealed)-1] ^= 1 // another tag, too
		}
		w.frame(f)
	case "manifest":
		m := w.statement(k)
		if n, ok := a["n"]; ok {
			m.N, m.Sent, m.Pages = n, n, kvtransfer.PagesFor(n, 4)
		}
		w.send(ManifestCame{Delivery: w.deliver(), From: worker, M: m})
	default:
		w.oneMore(cmd, k, a, words)
	}
}

// oneMore runs one line about control messages, the router, time or the weather.
func (w *world) oneMore(cmd string, k kvtransfer.Key, a args, words []string) {
	switch cmd {
	case "progress":
		w.send(ProgressCame{Delivery: w.deliver(), From: worker, M: kvtransfer.Progress{Key: k, Claim: w.jobs[k].claim.Claim}})
	case "abort":
		w.send(AbortCame{Delivery: w.deliver(), From: worker, M: kvtransfer.Abort{
			Key: k, Claim: w.jobs[k].claim.Claim, Error: kvtransfer.Errorf(kvtransfer.PoolExhausted, "prefill: pool: 9 of 8 pages"),
		}})
	case "cancel":
		w.send(CancelCame{Delivery: w.deliver(), From: router, M: kvtransfer.Cancel{Key: k, Error: kvtransfer.Errorf(kvtransfer.ClientGone, "closed")}})
	case "resend":
		w.asked++
		w.send(ResendAsked{ID: w.asked, From: router, M: kvtransfer.Resend{Key: k, From: uint32(a.or("from", 0))}})
	case "ack":
		w.ack(k)
	case "router":
		w.send(RouterAlive{Peer: kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: "r1", Epoch: uint64(a.or("epoch", 3))}})
	case "tick":
		w.tick(kvtransfer.Tick(a.or("ms", 0)) * kvtransfer.Millisecond)
	case "hold":
		w.hold[words[0]] = true
	case "release":
		w.release(words[0])
	case "drain":
		w.send(Drain{})
	case "stream-lost":
		w.send(StreamLost{})
	case "journal":
		w.journal = kvtransfer.Error{}
		if words[0] == "down" {
			w.journal = kvtransfer.Errorf(kvtransfer.JournalDown, "journal: no answer")
		}
		w.send(JournalState{Full: words[0] == "full"})
	case "engine":
		w.stepErr = kvtransfer.Error{}
		if words[0] == "down" {
			w.stepErr = kvtransfer.Errorf(kvtransfer.DeviceFailed, "engine: out of order")
		}
	default:
		w.t.Fatalf("no command %q", cmd)
	}
}

// Scripts print every effect and then the loop's whole state.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		w := newWorld(t, nil)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "new":
				w = newWorld(t, func(_ *LoopConfig, o *modeltest.Options) {
					for _, a := range d.CmdArgs {
						if a.Key == "pages" {
							a.Scan(t, 0, &o.Pages)
						}
					}
				})
				return ""
			case "clean":
				w.clean()
				return ""
			}
			w.log = nil
			for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
				w.one(line)
			}
			var b strings.Builder
			for _, s := range w.log {
				if s != "ack" {
					b.WriteString(s + "\n")
				}
			}
			b.WriteString("--\n" + w.l.Dump())
			return b.String()
		})
	})
}
