//go:build unix

package binary

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// netns is a network of a process's own, with one wire to the NATS server's side and one to clients.
type netns struct {
	t    *testing.T
	name string
	near string // address of this side of the wire to NATS
	door string // address inside, on the wire to clients
	wire string // this side's end of the wire to NATS
}

// newNetns makes one, or skips the test where that is not allowed. n tells those of one test apart.
func newNetns(t *testing.T, n int) *netns {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("no network namespaces: ip (iproute2) is not installed")
	}
	id, net := fmt.Sprintf("%d-%d", os.Getpid()%100000, n), fmt.Sprintf("198.18.%d", (os.Getpid()*4+n)%256)
	ns := &netns{t: t, name: "quire-" + id, near: net + ".1", door: net + ".130", wire: "qn" + id}
	doors := "qd" + id
	for i, args := range []string{
		"netns add " + ns.name,
		"link add " + ns.wire + " type veth peer name nats netns " + ns.name,
		"link add " + doors + " type veth peer name door netns " + ns.name,
		"addr add " + ns.near + "/25 dev " + ns.wire,
		"addr add " + net + ".129/25 dev " + doors,
		"-n " + ns.name + " addr add " + net + ".2/25 dev nats",
		"-n " + ns.name + " addr add " + ns.door + "/25 dev door",
		"link set " + ns.wire + " up", "link set " + doors + " up",
		"-n " + ns.name + " link set nats up", "-n " + ns.name + " link set door up", "-n " + ns.name + " link set lo up",
	} {
		if out, err := ip(args); err != nil {
			t.Skipf("no network namespaces: ip %s: %v, %s", args, err, out)
		}
		if i == 0 {
			t.Cleanup(func() { _, _ = ip("netns del " + ns.name) }) // its wires go with it
		}
	}
	return ns
}

func ip(args string) (string, error) {
	out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
	return string(out), err
}

// set cuts the wire to NATS or joins it again: what is sent meanwhile is lost, and no connection ends.
func (ns *netns) set(state string) {
	if out, err := ip("link set " + ns.wire + " " + state); err != nil {
		ns.t.Errorf("link %s: %v, %s", state, err, out)
	}
}

// TestCutOff cuts one service off from the network in the middle of a hand-off, and lets it back when the others have gone on without it.
// The client has the answer of an undisturbed run, and nothing is left over.
func TestCutOff(t *testing.T) {
	t.Parallel()
	apart := map[string]*netns{}
	for i, name := range []string{"router r1", "prefill p1", "decode d1"} {
		apart[name] = newNetns(t, i)
	}
	l := newLabApart(t, apart, "prefill p1", "prefill p2", "decode d1", "decode d2")
	defer l.close()
	alone := <-l.ask(taleTokens)
	if alone.err != nil || !alone.Done || alone.Output != taleTokens {
		t.Fatalf("undisturbed: %+v", alone)
	}
	l.settle()
	type cut struct {
		step moment
		role string
	}
	cuts := []cut{{moment{"mid-frames", "frame", 3}, "prefill"}, {moment{"mid-stream", "reply", taleTokens / 2}, "decode"}, {moment{"reserved", "reserved", 0}, "router"}}
	if *everyStep {
		cuts = nil
		for _, m := range moments {
			for _, role := range []string{"prefill", "decode", "router"} {
				cuts = append(cuts, cut{m, role})
			}
		}
	}
	for _, c := range cuts {
		t.Run(c.role+" at "+c.step.name, func(t *testing.T) {
			l.t = t
			for cut := false; !cut; { // until the one that can be cut off has the request
				cut = l.cutOff(c.step, c.role, alone.result)
			}
		})
		if l.t = t; t.Failed() {
			return
		}
	}
}

// cutOff plays one request and says whether somebody was cut off in it.
func (l *lab) cutOff(at moment, role string, alone result) bool {
	t := l.t
	struck := make(chan *netns, 1)
	l.arm(at.step, at.n, func(m passing) {
		if ns := l.apart[l.victim(role, m)]; ns != nil {
			ns.set("down")
			struck <- ns
		}
	})
	began, got := time.Now(), asked{}
	client := l.ask(taleTokens)
	select {
	case got = <-client:
		select {
		case ns := <-struck:
			ns.set("up")
		default:
			if got.err != nil || got.result != alone {
				t.Errorf("got %+v\nwant %+v", got, alone)
			}
			return false
		}
	case ns := <-struck:
		if role == "router" { // nobody answers before it is back
			l.forget()
			eventually(t, "decode to give up a router that is silent", func() bool {
				n, often := l.heard("decode", 10)
				return n == 2 && often && l.clean()
			})
			ns.set("up")
			got = <-client
		} else {
			got = <-client
			ns.set("up")
		}
	}
	t.Logf("the client's end came after %.1f s", time.Since(began).Seconds())
	if got.err != nil || got.result != alone {
		t.Errorf("got %+v\nwant %+v", got, alone)
	}
	l.settle()
	if again := <-l.ask(taleTokens); again.err != nil || again.result != alone {
		t.Errorf("afterwards: %+v\nwant %+v", again, alone)
	}
	return true
}
