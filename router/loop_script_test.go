package router

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"quire/kvtransfer"
)

// TestLoopScripts plays what testdata/loop says and prints what the loop does and, with dump, its whole state.
func TestLoopScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/loop", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.run(t, d)
		})
	})
}

// script remembers what was sent, by attempt number of the newest request.
type script struct {
	w        *world
	reserves []SendReserve // in order
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	if d.Cmd == "world" {
		p := Policy{MaxQueue: num(d, "queue"), MaxQueueTenant: num(d, "tenant-queue"), MaxRunningTenant: num(d, "tenant-running"), Context: num(d, "context")}
		s.w = newWorld(t, p)
		s.reserves = nil
		return s.w.l.Dump()
	}
	s.w.t = t
	if d.Cmd == "dump" {
		return s.w.l.Dump()
	}
	effects := s.play(t, d)
	for _, fx := range effects {
		if e, ok := fx.(SendReserve); ok {
			s.reserves = append(s.reserves, e)
		}
	}
	if out := describe(effects); out != "" {
		return out
	}
	return "nothing\n"
}

// reserve is the one that arg "of" names (from 1), or the last.
func (s *script) reserve(d *datadriven.TestData) SendReserve {
	n := num(d, "of")
	if n == 0 {
		n = len(s.reserves)
	}
	return s.reserves[n-1]
}

func (s *script) play(t *testing.T, d *datadriven.TestData) []Effect {
	switch d.Cmd {
	case "worker":
		hb := beatOf(kvtransfer.Role(text(d, "role")), text(d, "id"), uint64(max(1, num(d, "epoch"))), num(d, "pages"), num(d, "slots"))
		hb.Draining = d.HasArg("draining")
		if d.HasArg("compute") {
			hb.Fingerprints.Compute[0] = byte(num(d, "compute"))
			hb.Pool = hb.Fingerprints.Pool()
		}
		if d.HasArg("running") {
			hb.Running = num(d, "running")
			hb.SlotsFree = max(0, hb.Slots-hb.Running)
		}
		if d.HasArg("free") {
			hb.Pages.Free, hb.Pages.Owned = num(d, "free"), hb.Pages.Total-num(d, "free")
		}
		return s.w.do(Heard{hb})
	case "submit":
		s.w.submit(text(d, "tenant"), num(d, "prompt"), num(d, "max"))
		return s.w.effects
	case "promise":
		ev := promise(s.reserve(d))
		if d.HasArg("n") {
			ev.Reservation.N = num(d, "n")
		}
		return s.w.do(ev)
	case "refuse":
		return s.w.do(Reserved{Key: s.reserve(d).Key, Refused: kvtransfer.Error{Code: kvtransfer.Code(text(d, "code"))}})
	case "reserve-fault":
		return s.w.do(Reserved{Key: s.reserve(d).Key, Err: BusFault(text(d, "fault"))})
	case "stored":
		return s.w.do(JobStored{Key: s.reserve(d).Key, Sequence: uint64(num(d, "sequence")), Err: BusFault(text(d, "fault"))})
	case "reply":
		return s.w.do(Replied{Key: s.reserve(d).Key, Number: uint32(num(d, "number")), Body: body(d)})
	case "resent":
		ev := Resent{Key: s.reserve(d).Key, Known: !d.HasArg("unknown"), Next: uint32(num(d, "next")), Err: BusFault(text(d, "fault"))}
		if d.HasArg("number") {
			ev.Replies = []Replied{{Key: ev.Key, Number: uint32(num(d, "number")), Body: body(d)}}
		}
		return s.w.do(ev)
	}
	return s.playTime(t, d)
}

func (s *script) playTime(t *testing.T, d *datadriven.TestData) []Effect {
	switch d.Cmd {
	case "pass":
		return s.w.pass(kvtransfer.Tick(num(d, "ms")) * ms)
	case "silent":
		return s.w.silent(kvtransfer.Tick(num(d, "ms")) * ms)
	case "gone":
		return s.w.do(ClientGone{Ref: uint64(num(d, "ref"))})
	case "cancel":
		return s.w.do(CancelAsked{Ask: 1, Tenant: text(d, "tenant"), ID: s.reserve(d).Key.ID})
	case "status":
		return s.w.do(StatusAsked{Ask: 1, Tenant: text(d, "tenant"), ID: s.reserve(d).Key.ID})
	case "drain":
		return s.w.do(Drain{Left: kvtransfer.Tick(num(d, "ms")) * ms})
	case "bus":
		return s.w.do(BusChanged{Up: d.HasArg("up"), MaxPayload: 8 << 20})
	}
	t.Fatalf("unknown command %s", d.Cmd)
	return nil
}

// body makes a reply of ok, fail=<code>, tokens=(1,2) and end=<output> replies=<n>.
func body(d *datadriven.TestData) kvtransfer.ReplyBody {
	switch {
	case d.HasArg("ok"):
		return good()
	case d.HasArg("fail"):
		by := "p1"
		if d.HasArg("by") {
			by = text(d, "by")
		}
		return badBy(by, kvtransfer.Code(text(d, "fail")), text(d, "detail"))
	case d.HasArg("end"):
		return ending(num(d, "end"), uint32(num(d, "replies")))
	}
	var list []int32
	for _, arg := range d.CmdArgs {
		if arg.Key == "tokens" {
			for _, v := range arg.Vals {
				n, _ := strconv.Atoi(v)
				list = append(list, int32(n))
			}
		}
	}
	return tokens(list...)
}

func text(d *datadriven.TestData, name string) string {
	for _, arg := range d.CmdArgs {
		if arg.Key == name {
			return strings.ReplaceAll(strings.Join(arg.Vals, ","), "_listens", " listens")
		}
	}
	return ""
}

func num(d *datadriven.TestData, name string) int {
	s := text(d, name)
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(fmt.Sprintf("%s: %s=%s is no number", d.Pos, name, s))
	}
	return n
}
