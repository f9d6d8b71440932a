package clients

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Built once: quire, from the repository around this module, and the nats CLI, from this module's dependencies.
var quire, nats string

// One cluster for all tests.
var cluster struct {
	http, nats, data string
	banner           string
}

// A question that the built-in model can answer from its context, and the answer. The banner asks the same.
const (
	system   = "Tom hid the red key under the bridge."
	question = "Where is the red key?"
	answer   = "The red key is under the bridge."
)

// Keys of the cluster, and a model's name.
const (
	key      = "key-of-default"
	otherKey = "key-of-acme"
	model    = "quire-tiny"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "quire-clients-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	quire, nats = filepath.Join(dir, "quire"), filepath.Join(dir, "nats")
	for _, b := range []struct{ in, out, pkg string }{{"../..", quire, "./cmd/quire"}, {".", nats, "github.com/nats-io/natscli/nats"}} {
		cmd := exec.Command("go", "build", "-o", b.out, b.pkg)
		cmd.Dir = b.in
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", b.pkg, err, out)
			return 1
		}
	}
	stop, err := up(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// output keeps what a process prints and tells who waits.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
	new chan struct{}
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.new <- struct{}{}:
	default:
	}
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// up starts `quire up` on free ports and waits for its banner.
func up(dir string) (stop func() error, err error) {
	cmd := exec.Command(quire, "up", "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--data", filepath.Join(dir, "data"),
		"--api-key", key+"=default", "--api-key", otherKey+"=acme", "--tape", "acme")
	cmd.Dir, cmd.Env = dir, clean(dir)
	out := &output{new: make(chan struct{}, 1)}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	late := time.After(time.Minute)
	for !regexp.MustCompile(`(?m)^ +nats .*req quire.*\n`).MatchString(out.String()) {
		select {
		case <-out.new:
		case err := <-ended:
			return nil, fmt.Errorf("quire up ended: %v\n%s", err, out)
		case <-late:
			_ = cmd.Process.Kill()
			return nil, fmt.Errorf("quire up: no banner after a minute:\n%s", out)
		}
	}
	cluster.banner, cluster.data = out.String(), filepath.Join(dir, "data")
	cluster.http = regexp.MustCompile(`door +(http://127\.0\.0\.1:\d+) `).FindStringSubmatch(cluster.banner)[1]
	cluster.nats = regexp.MustCompile(`bus +(nats://127\.0\.0\.1:\d+) `).FindStringSubmatch(cluster.banner)[1]
	return func() error {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		select {
		case err := <-ended:
			if err != nil {
				return fmt.Errorf("quire up ended with %w\n%s", err, out)
			}
			return nil
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			return fmt.Errorf("quire up did not end after SIGTERM:\n%s", out)
		}
	}, nil
}

// clean is an environment in which nothing changes what quire and nats do, with both of them in the path.
func clean(dir string) []string {
	return []string{"PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir}
}

// shell runs a line as a user pastes it and gives what it printed.
func shell(t *testing.T, line string, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Env = append(clean(filepath.Dir(nats)), env...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}
