//go:build unix

package procfile

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// lines collects output and lets a test wait for a line instead of sleeping.
type lines struct {
	mu   sync.Mutex
	cond *sync.Cond
	buf  bytes.Buffer
}

func newLines() *lines { l := &lines{}; l.cond = sync.NewCond(&l.mu); return l }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cond.Broadcast()
	return l.buf.Write(p)
}

// wait returns the n-th match of re (from 1) once it is there.
func (l *lines) wait(t *testing.T, re string, n int) []string {
	t.Helper()
	r := regexp.MustCompile(re)
	deadline := time.AfterFunc(30*time.Second, l.cond.Broadcast)
	defer deadline.Stop()
	began := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if m := r.FindAllStringSubmatch(l.buf.String(), n); len(m) == n {
			return m[n-1]
		}
		if time.Since(began) > 29*time.Second {
			t.Fatalf("no match %d of %q in:\n%s", n, re, l.buf.String())
		}
		l.cond.Wait()
	}
}

func (l *lines) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.buf.String() }

// start runs a Procfile; stop ends it and returns what Run returned.
func start(t *testing.T, o Options, procfile string) (out *lines, s *Supervisor, stop func() error) {
	t.Helper()
	entries, err := Parse(strings.NewReader(procfile))
	if err != nil {
		t.Fatal(err)
	}
	out = newLines()
	o.Entries, o.Out = entries, out
	if o.Env == nil {
		o.Env = []string{"PATH=" + os.Getenv("PATH")}
	}
	s = New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })
	return out, s, stop
}

func gone(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(n, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is still there: %v", n, err)
	}
}

func TestPortsPrefixesAndPS(t *testing.T) {
	out, _, stop := start(t, Options{BasePort: 7000, Env: []string{"PATH=" + os.Getenv("PATH"), "PORT=1", "X=y"}},
		"a: echo port=$PORT ps=$PS x=$X; exec tail -f /dev/null\nlonger: echo port=$PORT >&2; exec tail -f /dev/null\n")
	out.wait(t, `(?m)^a      \| port=7000 ps=a.1 x=y$`, 1)
	out.wait(t, `(?m)^longer \| port=7100$`, 1)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func TestColour(t *testing.T) {
	out, _, _ := start(t, Options{Colour: true}, "a: echo hello; exec tail -f /dev/null\n")
	out.wait(t, `\x1b\[36ma     \|\x1b\[0m hello`, 1)
}

func TestStopReachesGrandchildren(t *testing.T) {
	out, _, stop := start(t, Options{}, "a: tail -f /dev/null & echo child=$!; wait\n")
	pid := out.wait(t, `child=(\d+)`, 1)[1]
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	gone(t, pid)
}

func TestStopWaitsForTheDrain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "drained")
	out, _, stop := start(t, Options{Env: []string{"PATH=" + os.Getenv("PATH"), "F=" + file}},
		`a: trap 'echo done > $F; exit 0' TERM; echo up; while :; do tail -f /dev/null & wait $!; done`+"\n")
	out.wait(t, `\| up`, 1)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "done\n" {
		t.Fatalf("the process did not get to its end: %q, %v", b, err)
	}
}

func TestKillAfterGrace(t *testing.T) {
	out, _, stop := start(t, Options{Grace: 50 * time.Millisecond}, "a: trap '' TERM; echo pid=$$; while :; do tail -f /dev/null; done\n")
	pid := out.wait(t, `pid=(\d+)`, 1)[1]
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	gone(t, pid)
}

func TestSecondSignalKills(t *testing.T) {
	out, s, stop := start(t, Options{Grace: time.Hour}, "a: trap '' TERM; echo pid=$$; while :; do tail -f /dev/null; done\n")
	pid := out.wait(t, `pid=(\d+)`, 1)[1]
	time.AfterFunc(20*time.Millisecond, s.Kill)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	s.Kill() // once more does no harm
	gone(t, pid)
}

func TestDeathIsRestarted(t *testing.T) {
	out, _, stop := start(t, Options{BackoffMin: time.Millisecond, BackoffMax: 4 * time.Millisecond}, "a: exit 3\nb: exec tail -f /dev/null\n")
	out.wait(t, `a died \(exit status 3\): starting it again`, 3)
	if n := strings.Count(out.String(), "b started"); n != 1 {
		t.Errorf("b was started %d times", n)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func TestKilledProcessComesBack(t *testing.T) {
	out, _, _ := start(t, Options{BackoffMin: time.Millisecond}, "a: echo pid=$$; exec tail -f /dev/null\n")
	first := out.wait(t, `pid=(\d+)`, 1)[1]
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if second := out.wait(t, `pid=(\d+)`, 2)[1]; second == first {
		t.Fatalf("pid %s twice", first)
	}
}

func TestExitOnDeathStopsAll(t *testing.T) {
	entries, err := Parse(strings.NewReader("a: echo pid=$$; exec tail -f /dev/null\nb: exit 7\n"))
	if err != nil {
		t.Fatal(err)
	}
	out := newLines()
	err = New(Options{Entries: entries, Out: out, ExitOnDeath: true, Env: []string{"PATH=" + os.Getenv("PATH")}}).Run(context.Background())
	var died *Died
	if !errors.As(err, &died) || died.Name != "b" || died.Code != 7 {
		t.Fatalf("want b's death with code 7, got %v", err)
	}
	if m := regexp.MustCompile(`pid=(\d+)`).FindStringSubmatch(out.String()); m != nil {
		gone(t, m[1])
	}
}

func TestLongLinesAreCutNotLost(t *testing.T) {
	out, _, _ := start(t, Options{}, "a: head -c 100000 /dev/zero | tr '\\0' x; echo; echo end; exec tail -f /dev/null\n")
	out.wait(t, `\| end`, 1)
	if n := strings.Count(out.String(), "x"); n != 100000 {
		t.Fatalf("want 100000, got %d", n)
	}
}
