//go:build unix

package binary

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"quire/kvtransfer"
)

// lab is a cluster of real processes, each behind a proxy of its own: a test does something to one of them at any step of a hand-off.
type lab struct {
	t       *testing.T // who fails now: one case after another
	whole   *testing.T // at whose end the processes end
	dir     string
	env     []string
	nats    string // where the server listens
	http    string // of router r1
	proxies map[string]*proxy
	procs   map[string]*process
	apart   map[string]*netns // processes in a network of their own

	mu     sync.Mutex
	armed  func(m passing, step string, n int) // told of every step
	beats  map[string]kvtransfer.Heartbeat     // the last of each process, by "prefill p1"
	count  map[string]int                      // how many came
	takers []string                            // prefills that took a job, in order
	decode string                              // that the last Reserve went to
}

// small is the frames' size limit of these clusters: the server's max_payload, so that a prompt of some hundred tokens has many frames.
const small = 64 << 10

// newLab starts a bus, router r1 and workers, and waits until all are seen.
func newLab(t *testing.T, workers ...string) *lab { return newLabApart(t, nil, workers...) }

// newLabApart is newLab with some of the processes in networks of their own.
func newLabApart(t *testing.T, apart map[string]*netns, workers ...string) *lab {
	t.Helper()
	env, http, nats := clusterEnv(t)
	l := &lab{t: t, whole: t, dir: t.TempDir(), env: append(env, "QUIRE_LEASE=2s", "QUIRE_KV_PAGES=200"), nats: nats, http: http, proxies: map[string]*proxy{},
		procs: map[string]*process{}, apart: apart, beats: map[string]kvtransfer.Heartbeat{}, count: map[string]int{}}
	if ns := apart["router r1"]; ns != nil {
		l.http = net.JoinHostPort(ns.door, "8080")
		l.env = append(l.env, "QUIRE_HTTP="+l.http)
	}
	if err := os.WriteFile(filepath.Join(l.dir, "nats.conf"), fmt.Appendf(nil, "max_payload: %d\n", small), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range append([]string{"bus", "router r1"}, workers...) {
		l.start(name)
	}
	l.settle()
	return l
}

// close ends all processes at once: none waits in vain for another to drain.
func (l *lab) close() {
	for _, p := range l.procs {
		p.killed(syscall.SIGKILL)
	}
}

// start runs a process, for the first time or once more.
func (l *lab) start(name string) {
	l.t.Helper()
	role, id, _ := strings.Cut(name, " ")
	if role == "bus" {
		l.procs[name] = start(l.whole, l.dir, l.env, quire, role, "--nats", l.nats, "--nats-config", filepath.Join(l.dir, "nats.conf"))
		return
	}
	ns, host, command := l.apart[name], "127.0.0.1", []string{quire, role, "--id", id}
	if ns != nil {
		host, command = ns.near, append([]string{"ip", "netns", "exec", ns.name}, command...)
		command = append(command, "--insecure")
	}
	if l.proxies[name] == nil {
		l.proxies[name] = newProxy(l.whole, host, name, l.nats, l.watch)
	}
	env := append(l.env[:len(l.env):len(l.env)], "QUIRE_NATS_URL=nats://"+l.proxies[name].addr)
	l.procs[name] = start(l.whole, l.dir, env, command[0], command[1:]...)
}

// watch is told of every message before it is handed on.
func (l *lab) watch(m passing) {
	if hb, ok := m.heartbeat(); ok {
		l.mu.Lock()
		name := string(hb.Peer.Role) + " " + hb.Peer.ID
		l.beats[name] = hb
		l.count[name]++
		l.mu.Unlock()
		return
	}
	step, n := m.step()
	if step == "" {
		return
	}
	l.mu.Lock()
	switch step {
	case "job taken":
		l.takers = append(l.takers, m.who)
	case "reserve":
		l.decode = "decode " + strings.Split(m.subject, ".")[2]
	}
	armed := l.armed
	l.mu.Unlock()
	if armed != nil {
		armed(m, step, n)
	}
}

// arm has something done once, when a step comes and before its message goes on.
func (l *lab) arm(step string, n int, do func(m passing)) {
	var once sync.Once
	l.mu.Lock()
	defer l.mu.Unlock()
	l.takers = nil
	l.armed = func(m passing, s string, k int) {
		if s == step && k == n {
			once.Do(func() { do(m) })
		}
	}
}

// prefill is the one that took the last job; p1 where none did.
func (l *lab) prefill() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.takers); n > 0 {
		return l.takers[n-1]
	}
	return "prefill p1"
}

// clean says whether every worker has all its pages and nothing open, by its own last heartbeat.
func (l *lab) clean() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, hb := range l.beats {
		if hb.Pages.Free != hb.Pages.Total || hb.SlotsFree != hb.Slots || hb.Running != 0 {
			return false
		}
	}
	return true
}

// forget drops what was heard, so that clean and heard look at what comes from now on.
func (l *lab) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.beats)
	clear(l.count)
}

// heard says whether every worker of a role that has spoken since forget has done so that often, and how many they are.
func (l *lab) heard(role string, often int) (workers int, all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all = true
	for name, n := range l.count {
		if strings.HasPrefix(name, role+" ") {
			workers++
			all = all && n >= often
		}
	}
	return workers, all
}

// settle waits until the router sees every worker and nothing of any request is left anywhere.
func (l *lab) settle() {
	l.t.Helper()
	want := map[string]int{}
	for name := range l.procs {
		role, _, _ := strings.Cut(name, " ")
		want[role]++
	}
	ready(l.t, l.http)
	l.forget()
	eventually(l.t, "every worker to be there with all its pages", func() bool {
		l.mu.Lock()
		heard := len(l.beats)
		l.mu.Unlock()
		return heard >= want["prefill"]+want["decode"]+want["router"] && l.clean() &&
			metric(l.t, l.http, "quire_prefill_workers", "") == want["prefill"] && metric(l.t, l.http, "quire_decode_workers", "") == want["decode"] &&
			metric(l.t, l.http, "quire_requests_running", "")+metric(l.t, l.http, "quire_requests_prefilling", "")+metric(l.t, l.http, "quire_requests_waiting", "") == 0
	})
}

// tale is a streamed chat whose answer has exactly so many tokens, with their log probabilities and the usage.
func tale(tokens int) map[string]any {
	return map[string]any{"messages": []turn{{"system", strings.Repeat("The wind moved the tall grass near the old bridge. ", 24)}, {"user", "Tell me a story."}},
		"max_tokens": tokens, "ignore_eos": true, "temperature": 0, "logprobs": true, "stream": true, "stream_options": map[string]any{"include_usage": true}}
}

// ask asks for the tale on a goroutine of its own.
func (l *lab) ask(tokens int) <-chan asked {
	done := make(chan asked, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		var a asked
		a.result, a.err = perform(ctx, l.http, "/v1/chat/completions", tale(tokens), nil)
		done <- a
	}()
	return done
}

// asked is what a client got, and the error of its connection.
type asked struct {
	result
	err error
}

// killed sends a signal and, where it ends the process, waits for the end.
func (p *process) killed(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s) // ended already is fine
	if s == syscall.SIGKILL {
		<-p.done
	}
}

// idle closes what this process's clients keep open, so that a connection to a router that was killed is not used again.
func idle() { http.DefaultClient.CloseIdleConnections() }
