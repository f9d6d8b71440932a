//go:build unix

package binary

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"quire/kvtransfer"
)

var everyStep = flag.Bool("steps", false, "kill and stop every role at every step of a hand-off, not some at some")

// moment is a step of a hand-off: what is under way when something happens. Its message has been sent, and nobody has received it.
type moment struct {
	name string
	step string // as of passing.step
	n    int
}

const taleTokens = 40

// moments are in the order in which a hand-off has them.
var moments = []moment{
	{"before the reserve", "reserve", 0},
	{"reserved", "reserved", 0},
	{"job stored", "job", 0},
	{"job taken", "job taken", 0},
	{"claim", "claim", 0},
	{"claimed", "claimed", 0},
	{"first frame", "frame", 0},
	{"mid-frames", "frame", 3},
	{"manifest sent", "manifest", 0},
	{"verdict", "verdict", 0},
	{"before the first token", "reply", 0},
	{"first token", "reply", 1},
	{"mid-stream", "reply", taleTokens / 2},
	{"last token", "reply", taleTokens},
	{"after the last token", "reply", taleTokens + 1},
	{"end acknowledged", "ack", 0},
}

// blow is what happens to one role at one moment.
type blow struct {
	moment
	role   string
	signal syscall.Signal
}

func (b blow) String() string {
	did := "killed"
	if b.signal == syscall.SIGSTOP {
		did = "stopped"
	}
	return fmt.Sprintf("%s %s at %s", b.role, did, b.name)
}

// usual is what go test plays without -steps: the blows that docs/failures.md names.
var usual = []string{
	"prefill killed at job taken", "prefill stopped at mid-frames", "prefill killed at mid-frames", "prefill killed at verdict",
	"decode killed at mid-stream", "decode stopped at mid-stream", "router killed at mid-stream", "router stopped at reserved",
	"bus killed at first frame", "bus stopped at mid-stream",
}

// blows are all of them, or the usual ones.
func blows() (list []blow) {
	for _, role := range []string{"prefill", "decode", "router", "bus"} {
		for _, m := range moments {
			for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
				if b := (blow{m, role, s}); *everyStep || slices.Contains(usual, b.String()) {
					list = append(list, b)
				}
			}
		}
	}
	return list
}

// TestEveryStep kills, or stops for a while, one role exactly at one step of a hand-off. Two prefills and two decodes are there, so
// the client gets the very answer that it gets undisturbed, log probabilities and usage included, with one role chunk and one end,
// except where its own router was killed (no end at all), or the bus (the answer, or one typed error). Then whoever was killed is
// started again, whoever was stopped goes on: every page is free, nothing is open, and the same question has the same answer.
func TestEveryStep(t *testing.T) {
	list, lanes := blows(), 2
	if *everyStep {
		lanes = 4
	}
	for lane := range lanes {
		t.Run(fmt.Sprint("lane ", lane), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, "prefill p1", "prefill p2", "decode d1", "decode d2")
			defer l.close()
			alone := <-l.ask(taleTokens)
			if alone.err != nil || alone.Status != 200 || !alone.Done || alone.Roles != 1 || alone.Ends != 1 || alone.Output != taleTokens {
				t.Fatalf("undisturbed: %+v", alone)
			}
			l.settle()
			for i := lane; i < len(list) && !t.Failed(); i += lanes {
				t.Run(list[i].String(), func(t *testing.T) {
					l.t = t
					l.play(list[i], alone.result)
				})
			}
			l.t = t
		})
	}
}

// play strikes one blow and says what the client must get.
func (l *lab) play(b blow, alone result) {
	t := l.t
	struck := make(chan string, 1)
	l.arm(b.step, b.n, func(m passing) {
		name := l.victim(b.role, m)
		l.procs[name].killed(b.signal)
		struck <- name
	})
	began := time.Now()
	client := l.ask(taleTokens)
	var got asked
	var name string
	select {
	case name = <-struck:
	case got = <-client:
		select {
		case name = <-struck: // the last steps come after the client's end
		case <-time.After(patience):
			t.Fatalf("the step never came; the client got %+v", got)
		}
		client = resent(got)
	case <-time.After(patience):
		t.Fatal("the step never came")
	}
	got = l.aftermath(b, name, client)
	t.Logf("%s: the client's end came after %.1f s, error %q %v", name, time.Since(began).Seconds(), got.Error, got.err)
	l.judge(b, got, alone)
	idle()
	l.settle()
	if again := <-l.ask(taleTokens); again.err != nil || again.result != alone {
		t.Errorf("afterwards: %+v\nwant %+v", again, alone)
	}
	l.settle()
}

// resent gives what has come once more.
func resent(a asked) <-chan asked {
	c := make(chan asked, 1)
	c <- a
	return c
}

// victim names the process of a role that has to do with the hand-off.
func (l *lab) victim(role string, m passing) string {
	switch role {
	case "bus":
		return "bus"
	case "router":
		return "router r1"
	case "prefill":
		if strings.HasPrefix(m.who, "prefill") {
			return m.who
		}
		return l.prefill()
	}
	if strings.HasPrefix(m.who, "decode") {
		return m.who
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.decode
}

// aftermath does what there is to do after a blow, and gives what the client got. The dead are started again once the client has its
// end, except the bus, without which nobody can have one. The stopped go on once the others have noticed and done without them.
func (l *lab) aftermath(b blow, name string, client <-chan asked) asked {
	t := l.t
	goOn := func() { l.procs[name].signal(syscall.SIGCONT) }
	switch {
	case b.signal == syscall.SIGKILL && b.role == "bus":
		l.start(name)
		return <-client
	case b.signal == syscall.SIGKILL:
		got := <-client
		l.start(name)
		return got
	case b.role == "bus":
		eventually(t, "the router to notice", func() bool {
			status, err := get("http://" + l.http + "/ready")
			return err == nil && status != 200
		})
		goOn()
		return <-client
	case b.role == "router":
		// A decode's ten heartbeats take longer than a lease: it has given the router up, with what the router had there.
		l.forget()
		eventually(t, "decode to give up a router that is silent", func() bool {
			n, often := l.heard("decode", 10)
			return n == 2 && often && l.clean()
		})
		goOn()
		return <-client
	}
	got := <-client
	goOn()
	return got
}

// judge says whether the client got what it must.
func (l *lab) judge(b blow, got asked, alone result) {
	l.t.Helper()
	whole := got.err == nil && got.result == alone
	switch {
	case whole:
	case b.role == "router" && b.signal == syscall.SIGKILL:
		if got.Done || got.Ends > 0 || got.Error != "" || got.Output > 0 || !strings.HasPrefix(alone.Text, got.Text) || !strings.HasPrefix(alone.Picks, got.Picks) {
			l.t.Errorf("the router is dead, and the client got %+v", got)
		}
	case b.role == "bus" && got.err == nil && got.Error != "":
		class := kvtransfer.Lookup(kvtransfer.Code(got.Error)).Class
		if got.Done || got.Ends > 0 || got.Roles > 1 || !strings.HasPrefix(alone.Text, got.Text) || got.Status == 200 && got.Text == "" ||
			class != kvtransfer.ClassRefused && class != kvtransfer.ClassLost && class != kvtransfer.ClassFailed {
			l.t.Errorf("after the bus was gone: %+v", got)
		}
	default:
		l.t.Errorf("got %+v\nwant %+v", got, alone)
	}
}

// A process that was stopped, and replaced by another of its name, ends when it goes on: it never fights its successor, and the one
// answer of the client is whole.
func TestStoppedAndReplaced(t *testing.T) {
	t.Parallel()
	l := newLab(t, "prefill p1", "decode d1")
	defer l.close()
	alone := <-l.ask(taleTokens)
	if alone.err != nil || !alone.Done {
		t.Fatalf("undisturbed: %+v", alone)
	}
	for _, c := range []struct {
		name, step string
		n          int
	}{{"prefill p1", "frame", 1}, {"decode d1", "reply", taleTokens / 2}} {
		stopped := make(chan struct{})
		l.arm(c.step, c.n, func(passing) {
			l.procs[c.name].signal(syscall.SIGSTOP)
			close(stopped)
		})
		client := l.ask(taleTokens)
		<-stopped
		old := l.procs[c.name]
		l.start(c.name)
		if got := <-client; got.err != nil || got.result != alone.result {
			t.Errorf("%s: %+v\nwant %+v", c.name, got, alone)
		}
		old.signal(syscall.SIGCONT)
		if code := old.exit(patience); code != 1 {
			t.Errorf("%s: exit code %d of the one that was replaced, want 1", c.name, code)
		}
		l.settle()
		if again := <-l.ask(taleTokens); again != alone {
			t.Errorf("%s: afterwards %+v", c.name, again)
		}
	}
}
