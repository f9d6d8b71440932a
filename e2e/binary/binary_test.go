//go:build unix

// Package binary tests the built binary as its users meet it: real processes, signals, ports and terminals' lines.
package binary

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// quire is the binary under test, built once.
var quire string

// buildTags is what the binary is built with besides.
var buildTags = "-tags="

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "quire-binary-")
	if err == nil {
		quire = filepath.Join(dir, "quire")
		var out []byte
		if out, err = exec.Command("go", "build", buildTags, "-o", quire, "quire/cmd/quire").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// TestSource looks at every file that the binary is built from: go test caches a result until a file changes that the tests
// looked at, and it does not see what a build inside them reads.
func TestSource(t *testing.T) {
	seen := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "../.." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "e2e") {
			return fs.SkipDir
		}
		switch filepath.Ext(path) {
		case ".go", ".s", ".h", ".mod", ".gguf":
			seen++
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil || seen < 100 {
		t.Fatalf("%d files, %v", seen, err)
	}
}

// patience is how long a test waits for what must happen; nothing takes as long unless it is broken.
const patience = time.Minute

// process is a running command, all of whose output is kept.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed once it is dead and its output was read

	mu   sync.Mutex
	cond *sync.Cond
	buf  bytes.Buffer
}

// environ is this process's environment without what would change quire's flags, and more.
func environ(more ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "QUIRE_") && !strings.HasPrefix(kv, "PORT=") && !strings.HasPrefix(kv, "NATS_") && !strings.HasPrefix(kv, "PS=") {
			env = append(env, kv)
		}
	}
	return append(env, more...)
}

// start runs a command in a process group of its own; it is ended when the test ends.
func start(t *testing.T, dir string, env []string, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: exec.Command(name, args...), done: make(chan struct{})}
	p.cond = sync.NewCond(&p.mu)
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = dir, env, p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // the state says how it ended
		close(p.done)
		p.cond.Broadcast()
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM) // a supervisor takes its own with it; gone already is fine
		select {
		case <-p.done:
		case <-time.After(8 * time.Second):
		}
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
		if t.Failed() {
			t.Logf("output of %s %s:\n%s", filepath.Base(name), strings.Join(args, " "), p.output())
		}
	})
	return p
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cond.Broadcast()
	return p.buf.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.buf.String()
}

// wait returns the n-th match of re (from 1) in the output, once it is there.
func (p *process) wait(re string, n int) []string {
	p.t.Helper()
	r := regexp.MustCompile(re)
	timer := time.AfterFunc(patience, p.cond.Broadcast)
	defer timer.Stop()
	until := time.Now().Add(patience)
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if m := r.FindAllStringSubmatch(p.buf.String(), n); len(m) == n {
			return m[n-1]
		}
		select {
		case <-p.done:
			p.t.Fatalf("%s ended without match %d of %q:\n%s", p.name, n, re, p.buf.String())
		default:
		}
		if !time.Now().Before(until) {
			p.t.Fatalf("no match %d of %q after %s in:\n%s", n, re, patience, p.buf.String())
		}
		p.cond.Wait()
	}
}

// signal sends one signal to the process alone.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// exit waits for the end, at most so long, and gives the exit code.
func (p *process) exit(within time.Duration) int {
	p.t.Helper()
	began := time.Now()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%s did not end", p.name)
	}
	if took := time.Since(began); took > within {
		p.t.Errorf("%s took %s to end, want at most %s", p.name, took, within)
	}
	return p.cmd.ProcessState.ExitCode()
}

// noOrphan fails when anything of the process's group lives.
func (p *process) noOrphan() {
	p.t.Helper()
	if err := syscall.Kill(-p.cmd.Process.Pid, 0); err == nil {
		p.t.Errorf("%s left processes behind", p.name)
	}
}

// run runs quire to its end.
func run(t *testing.T, env []string, in string, args ...string) (out string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, quire, args...)
	cmd.Dir, cmd.Env, cmd.Stdin = t.TempDir(), env, strings.NewReader(in)
	b, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// freePort gives an address that was free a moment ago, below the ports that systems give to connections: none takes it in between, and no client
// that looks for a server which is away can meet itself there.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 15000+rand.IntN(17000))); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

// A question that the built-in model can answer from its context, and the answer.
const (
	system   = "Tom hid the red key under the bridge."
	question = "Where is the red key?"
	answer   = "The red key is under the bridge."
)

// post sends JSON and gives status and body.
func post(t *testing.T, url string, body any) (int, string) {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

type turn struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type chatRequest struct {
	Messages    []turn  `json:"messages"`
	Temperature float64 `json:"temperature"`
	MaxTokens   int     `json:"max_tokens,omitempty"`
}

// ask asks the question of an HTTP door and checks the answer.
func ask(t *testing.T, http string) {
	t.Helper()
	status, body := post(t, "http://"+http+"/v1/chat/completions", chatRequest{Messages: []turn{{"system", system}, {"user", question}}})
	if status != 200 || !strings.Contains(body, answer) {
		t.Fatalf("want 200 and %q, got %d and %s", answer, status, body)
	}
}

// ready waits until a door says that it is.
func ready(t *testing.T, http string) {
	t.Helper()
	eventually(t, "http://"+http+"/ready to say 200", func() bool {
		status, err := get("http://" + http + "/ready")
		return err == nil && status == 200
	})
}

func get(url string) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("waited %s for %s", patience, what)
		}
	}
}
