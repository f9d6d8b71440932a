package kvtransfer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"quire/kvtransfer/page"
)

// rig drives one inbound machine: 6 tokens in 2 layers, pages of 4, two frames (rows [0, 4) and [4, 6)).
type rig struct {
	m    *Inbound
	now  Tick
	j    Judge
	last OpenAnswer
}

var (
	rigKey    = Key{ID: HandoffID{0xab, 0xcd}, Attempt: 1}
	rigClaim  = Claim{Key: rigKey, Claim: ClaimID{0xc1}, ClaimKey: [32]byte{5}, Reservation: [32]byte{0x11}}
	rigWorker = Peer{RolePrefill, "p1", 3}
	rigShape  = CutShape{Layers: 2, RowBytes: 16, Dim: 4}
)

func newRig() *rig {
	r := Reservation{
		Key: rigKey, Decode: Peer{RoleDecode, "d1", 2}, Router: Peer{RoleRouter, "r1", 1}, Tenant: "acme", N: 6, MaxTokens: 3, PageSize: 4,
		Pages: []page.Slot{{Page: 0, Gen: 1}, {Page: 1, Gen: 1}, {Page: 2, Gen: 1}}, Lease: 1000,
	}
	return &rig{
		m: NewInbound(r, [32]byte{0x11}, rigShape, NewLease(0, 1000, 5000)),
		j: Judge{Decode: r.Decode, Engine: r.Fingerprints, Pages: r.Pages},
	}
}

func rigHeader(index int) FrameHeader {
	h := FrameHeader{Key: rigKey, Claim: ClaimID{0xc1}, Index: uint32(index), LayerTo: 2, RowTo: 4}
	if index == 1 {
		h.RowFrom, h.RowTo, h.Hidden = 4, 6, 4
	}
	return h
}

func rigTag(index int) [16]byte { return [16]byte{byte(index + 1)} }

func opening(h FrameHeader) Opening {
	return Opening{OK: true, Bytes: rigShape.FrameBytes(h), Hidden: make([]float32, h.Hidden)}
}

func rigManifest() Manifest {
	return Manifest{
		Key: rigKey, Claim: ClaimID{0xc1}, Reservation: [32]byte{0x11}, Tenant: "acme", N: 6, Sent: 6, Pages: 2, Frames: 2,
		Digest: DigestTags([][16]byte{rigTag(0), rigTag(1)}),
	}
}

// rigMessages is everything that can reach a machine, each as a function that says what was answered.
var rigMessages = []struct {
	name string
	do   func(*rig) string
}{
	{"claim", func(r *rig) string { return r.claim(rigWorker, rigClaim) }},
	{"claim of another", func(r *rig) string {
		c := rigClaim
		c.Claim = ClaimID{0xc2}
		return r.claim(Peer{RolePrefill, "p2", 1}, c)
	}},
	{"same claim of another worker", func(r *rig) string { return r.claim(Peer{RolePrefill, "p2", 1}, rigClaim) }},
	{"claim under another reservation", func(r *rig) string {
		c := rigClaim
		c.Reservation = [32]byte{0x12}
		return r.claim(rigWorker, c)
	}},
	{"progress", func(r *rig) string {
		return fmt.Sprint(r.m.Progress(rigWorker, Progress{Key: rigKey, Claim: ClaimID{0xc1}}, r.now))
	}},
	{"progress of another", func(r *rig) string {
		return fmt.Sprint(r.m.Progress(rigWorker, Progress{Key: rigKey, Claim: ClaimID{0xc2}}, r.now))
	}},
	{"abort", func(r *rig) string {
		return fmt.Sprint(r.m.Abort(rigWorker, Abort{Key: rigKey, Claim: ClaimID{0xc1}, Error: Errorf(PoolExhausted, "no pages")}, r.now))
	}},
	{"abort of another", func(r *rig) string {
		return fmt.Sprint(r.m.Abort(Peer{RolePrefill, "p2", 1}, Abort{Key: rigKey, Claim: ClaimID{0xc1}}, r.now))
	}},
	{"frame 0", func(r *rig) string { return r.frame(rigHeader(0), rigTag(0)) }},
	{"frame 0 with another tag", func(r *rig) string { return r.frame(rigHeader(0), rigTag(8)) }},
	{"frame 1", func(r *rig) string { return r.frame(rigHeader(1), rigTag(1)) }},
	{"frame of another claim", func(r *rig) string {
		h := rigHeader(1)
		h.Claim = ClaimID{0xc2}
		return r.frame(h, rigTag(1))
	}},
	{"opened 0", func(r *rig) string { return r.opened(rigHeader(0), rigTag(0), opening(rigHeader(0))) }},
	{"opened 0 with another tag", func(r *rig) string { return r.opened(rigHeader(0), rigTag(8), opening(rigHeader(0))) }},
	{"opened 1", func(r *rig) string { return r.opened(rigHeader(1), rigTag(1), opening(rigHeader(1))) }},
	{"did not open", func(r *rig) string { return r.opened(rigHeader(0), rigTag(8), Opening{}) }},
	{"opened beyond the prompt", func(r *rig) string {
		h := rigHeader(1)
		h.RowTo = 7
		return r.opened(h, rigTag(1), opening(h))
	}},
	{"opened short", func(r *rig) string {
		o := opening(rigHeader(1))
		o.Bytes--
		return r.opened(rigHeader(1), rigTag(1), o)
	}},
	{"opened 2 with a hidden vector", func(r *rig) string {
		h := rigHeader(1)
		h.Index, h.LayerFrom = 2, 1
		return r.opened(h, rigTag(2), opening(h))
	}},
	{"opened under index 12", func(r *rig) string {
		h := rigHeader(0)
		h.Index = 12
		return r.opened(h, rigTag(1), opening(h))
	}},
	{"manifest", func(r *rig) string { return r.manifest(rigWorker, rigManifest()) }},
	{"manifest of one token", func(r *rig) string {
		m := rigManifest()
		m.N, m.Sent, m.Pages = 1, 1, 1
		return r.manifest(rigWorker, m)
	}},
	{"manifest of another worker", func(r *rig) string { return r.manifest(Peer{RolePrefill, "p2", 1}, rigManifest()) }},
	{"manifest with another digest", func(r *rig) string {
		m := rigManifest()
		m.Digest[0]++
		return r.manifest(rigWorker, m)
	}},
	{"journaled", func(r *rig) string { return fmt.Sprint(r.m.Journaled(Error{})) }},
	{"journal failed", func(r *rig) string { return fmt.Sprint(r.m.Journaled(Errorf(JournalDown, "no journal"))) }},
	{"rows agree", func(r *rig) string { r.m.WitnessedRows(-1); return "" }},
	{"row 2 differs", func(r *rig) string { r.m.WitnessedRows(2); return "" }},
	{"last row agrees", func(r *rig) string { r.m.WitnessedLast(""); return "" }},
	{"last row differs", func(r *rig) string { r.m.WitnessedLast("layer 1 k"); return "" }},
	{"finish", func(r *rig) string { r.m.Finish(); return "" }},
	{"cancel", func(r *rig) string { r.m.End(Errorf(Cancelled, "by its tenant")); return "" }},
	{"lease ends", func(r *rig) string { r.now = r.m.Lease.End; return r.late() }},
	{"deadline passes", func(r *rig) string { r.now = 5000; return r.late() }},
}

func (r *rig) claim(from Peer, c Claim) string {
	a, err := r.m.Claim(from, c, r.now)
	return [...]string{"", "bound", "again", "gone"}[a] + because(err)
}

func because(err Error) string {
	if err.IsZero() {
		return ""
	}
	return ": " + string(err.Code)
}

func (r *rig) frame(h FrameHeader, tag [16]byte) string {
	return [...]string{"", "open", "ignore", "refuse"}[r.m.Frame(h, tag, r.now)]
}

func (r *rig) opened(h FrameHeader, tag [16]byte, o Opening) string {
	a, err := r.m.Opened(h, tag, o, r.now)
	r.last = a
	if a == OpenCopy {
		r.m.Copied(h.Index, Error{}, r.now)
	}
	return [...]string{"", "copy", "ignore", "count", "corrupt"}[a] + because(err) + r.gate()
}

func (r *rig) manifest(from Peer, m Manifest) string {
	a, v := r.m.Manifest(from, m, r.j, r.now)
	s := [...]string{"", "taken", "ignore", "refuse", "corrupt"}[a]
	if v.Check != "" {
		s += " by " + v.Check
	}
	return s + r.gate()
}

func (r *rig) gate() string {
	if !r.m.Ready() {
		return ""
	}
	if v := r.m.Gate(r.j, r.now); !v.OK {
		return ", gate: " + v.Check
	}
	return ", gate: ok"
}

func (r *rig) late() string {
	err := r.m.Late(r.now)
	if !err.IsZero() {
		r.m.End(err)
	}
	return strings.TrimPrefix(because(err), ": ")
}

func (r *rig) do(t *testing.T, names ...string) string {
	out := ""
	for _, n := range names {
		found := false
		for _, m := range rigMessages {
			if m.name == n {
				out, found = m.do(r), true
			}
		}
		switch n {
		case "witness":
			out, found = fmt.Sprint(r.m.Witness()), true
		case "clone":
			r.m, out, found = r.m.Clone(), "", true
		}
		if !found {
			t.Fatalf("no message %q", n)
		}
	}
	return out
}

// rigStates is a way into each state.
var rigStates = []struct {
	state InboundState
	name  string
	way   []string
}{
	{InReserved, "reserved", nil},
	{InFilling, "filling: nothing came", []string{"claim"}},
	{InFilling, "filling: frame 0 came", []string{"claim", "opened 0"}},
	{InFilling, "filling: frame 1 came", []string{"claim", "opened 1"}},
	{InFilling, "filling: manifest waits", []string{"claim", "manifest"}},
	{InJudging, "judging", []string{"claim", "opened 1", "opened 0", "manifest"}},
	{InAdmitted, "admitted", []string{"claim", "opened 1", "opened 0", "manifest", "journaled"}},
	{InWitnessing, "witnessing", []string{"claim", "manifest", "opened 1", "opened 0", "journaled", "witness"}},
	{InWitnessing, "witnessing: rows agree", []string{"claim", "manifest", "opened 1", "opened 0", "journaled", "witness", "rows agree"}},
	{InRunning, "running", []string{"claim", "manifest", "opened 1", "opened 0", "journaled", "witness", "rows agree", "last row agrees"}},
	{InEnded, "ended", []string{"claim", "manifest", "opened 1", "opened 0", "journaled", "witness", "rows agree", "last row agrees", "finish"}},
	{InRefused, "refused", []string{"claim", "cancel"}},
	{InQuarantined, "quarantined", []string{"claim", "manifest of one token"}},
}

// Every state meets every message: the answers and the states that follow are in testdata/inbound/every_state.
func TestInboundEveryStateEveryMessage(t *testing.T) {
	datadriven.RunTest(t, "testdata/inbound/every_state", func(t *testing.T, d *datadriven.TestData) string {
		var b strings.Builder
		for _, s := range rigStates {
			if d.CmdArgs[0].String() != strings.NewReplacer(":", "", " ", "-").Replace(s.name) {
				continue
			}
			for _, m := range rigMessages {
				r := newRig()
				r.do(t, s.way...)
				if r.m.State != s.state {
					t.Fatalf("way into %s ends in %s", s.name, r.m.State)
				}
				before := r.m.Dump()
				answer := r.do(t, "clone", m.name)
				after := r.m.State.String()
				switch {
				case r.m.Dump() == before:
					after = "-"
				case r.m.State.Over() && !s.state.Over():
					after += " " + string(r.m.Err.Code)
				}
				fmt.Fprintf(&b, "%-32s %-34s %s\n", m.name, answer, after)
			}
		}
		if b.Len() == 0 {
			t.Fatalf("no state %s", d.CmdArgs[0].String())
		}
		return b.String()
	})
}

// Scripts print the machine's whole state after each message.
func TestInboundScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/inbound/scripts", func(t *testing.T, path string) {
		r := newRig()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "new" {
				r = newRig()
				return r.m.Dump() + "\n"
			}
			var b strings.Builder
			for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
				var at int64
				if n, _ := fmt.Sscanf(line, "at %d", &at); n == 1 {
					r.now = Tick(at)
					continue
				}
				answer := r.do(t, line)
				fmt.Fprintf(&b, "%s -> %s\n  %s\n", line, answer, r.m.Dump())
			}
			return b.String()
		})
	})
}

// A clone shares nothing with what it was taken from.
func TestInboundClone(t *testing.T) {
	r := newRig()
	r.do(t, "claim", "opened 0")
	before := r.m.Dump()
	c := &rig{m: r.m.Clone(), j: r.j}
	c.do(t, "opened 1", "manifest", "journaled", "witness")
	if got := r.m.Dump(); got != before {
		t.Errorf("was %s\nnow %s", before, got)
	}
}

func TestLease(t *testing.T) {
	l := NewLease(100, 50, 120)
	check := func(now, left Tick, code Code) {
		t.Helper()
		if got := l.Expired(now); l.Left(now) != left || got.Code != code {
			t.Errorf("at %d: left %d, %v; want %d, %s", now, l.Left(now), got, left, code)
		}
	}
	check(149, 1, OK)
	check(150, 0, LeaseExpired)
	l.Restart(150) // too late
	check(151, 0, LeaseExpired)
	l = NewLease(100, 50, 120)
	l.Restart(140)
	check(189, 1, OK)
	l.Restart(189) // the deadline caps it
	check(219, 1, OK)
	check(220, 0, DeadlineExceeded)
	if l.DeadlineLeft(219) != 1 || l.DeadlineLeft(300) != 0 {
		t.Errorf("deadline left %d, %d", l.DeadlineLeft(219), l.DeadlineLeft(300))
	}
}
