package browser

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// shots, when set, is a folder into which TestScreenshots puts pictures.
var shots = flag.String("shots", "", "folder for screenshots")

const adminKey = "an-admin-key-of-this-test"

var (
	quire    string          // the binary, built once
	chromium string          // path
	browser  context.Context // one process for all tests, a tab for each
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			chromium = path
			break
		}
	}
	if chromium == "" {
		fmt.Fprintln(os.Stderr, "no Chromium is installed: the console is not looked at")
		if os.Getenv("QUIRE_TEST_CHROMIUM") == "required" {
			return 1
		}
		return 0
	}
	dir, err := os.MkdirTemp("", "quire-browser-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	quire = filepath.Join(dir, "quire")
	build := exec.Command("go", "build", "-o", quire, "./cmd/quire")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build quire: %v\n%s", err, out)
		return 1
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.DisableGPU, chromedp.WindowSize(1440, 1000),
		chromedp.NoSandbox, // as root there is none; only our own page is loaded
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(time.Minute))
	all, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	var end context.CancelFunc
	browser, end = chromedp.NewContext(all)
	defer end()
	if err := chromedp.Run(browser); err != nil {
		fmt.Fprintln(os.Stderr, "start "+chromium+":", err)
		return 1
	}
	return m.Run()
}

// cluster starts `quire up` on free ports and gives the URL of its HTTP door.
func cluster(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	out := &output{new: make(chan struct{}, 1)}
	cmd := exec.Command(quire, append([]string{"up", "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--data", filepath.Join(dir, "data")}, args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "QUIRE_") && !strings.HasPrefix(kv, "PORT=") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("quire up ended: %v\n%s", err, out)
			}
		case <-time.After(30 * time.Second):
			_ = cmd.Process.Kill()
			t.Errorf("quire up did not end\n%s", out)
		}
	})
	late := time.After(time.Minute)
	for {
		if m := regexp.MustCompile(`console +(http://127\.0\.0\.1:\d+)/console `).FindStringSubmatch(out.String()); m != nil && strings.Contains(out.String(), "ready in") {
			return m[1]
		}
		select {
		case <-out.new:
		case err := <-ended:
			ended <- err
			t.Fatalf("quire up ended: %v\n%s", err, out)
		case <-late:
			t.Fatalf("no banner after a minute:\n%s", out)
		}
	}
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

// tab is a page in the browser, and what went wrong or left the machine while it was open.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string

	mu       sync.Mutex
	troubles []string
	asked    int
}

// open makes a tab; nothing may go wrong in it that the test has not forgiven.
func open(t *testing.T, url string, forgiven ...string) *tab {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(browser)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	p := &tab{t: t, ctx: ctx, url: url}
	chromedp.ListenTarget(ctx, p.hear)
	p.run(network.Enable(), log.Enable(), runtime.Enable())
	t.Cleanup(func() {
		cancel()
		closeTab()
		p.mu.Lock()
		defer p.mu.Unlock()
	next:
		for _, what := range p.troubles {
			for _, f := range forgiven {
				if strings.Contains(what, f) {
					continue next
				}
			}
			t.Errorf("in the browser: %s", what)
		}
		if p.asked == 0 {
			t.Error("the page asked for nothing: nothing was watched")
		}
	})
	return p
}

func (p *tab) hear(ev any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	trouble := func(format string, args ...any) { p.troubles = append(p.troubles, fmt.Sprintf(format, args...)) }
	switch e := ev.(type) {
	case *runtime.EventExceptionThrown:
		trouble("exception: %s", e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			var parts []string
			for _, a := range e.Args {
				parts = append(parts, string(a.Value)+a.Description)
			}
			trouble("console: %s", strings.Join(parts, " "))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError || e.Entry.Level == log.LevelWarning {
			trouble("log: %s %s", e.Entry.Text, e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		p.asked++
		if !strings.HasPrefix(e.Request.URL, p.url+"/") {
			trouble("a request to %s", e.Request.URL)
		}
	}
}

func (p *tab) run(actions ...chromedp.Action) {
	p.t.Helper()
	if err := chromedp.Run(p.ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// js gives an expression's value as text.
func (p *tab) js(expression string) string {
	p.t.Helper()
	var out string
	p.run(chromedp.Evaluate("String("+expression+")", &out))
	return out
}

// until waits for an expression to be true, over navigations too.
func (p *tab) until(what, expression string) {
	p.t.Helper()
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	late := time.After(40 * time.Second)
	for {
		var yes bool
		err := chromedp.Run(p.ctx, chromedp.Evaluate("Boolean("+expression+")", &yes))
		if err == nil && yes {
			return
		}
		select {
		case <-every.C:
		case <-late:
			p.t.Fatalf("%s: not within 40 s (%v)\n%s", what, err, p.js("document.body.innerText.slice(0, 3000)"))
		}
	}
}

// visit opens the console and waits until its pools are drawn.
func (p *tab) visit() {
	p.t.Helper()
	p.run(chromedp.Navigate(p.url + "/console"))
	p.until("the pools are there", `document.querySelectorAll("#grids canvas").length >= 2 && document.querySelector("#status").dataset.state === "live"`)
}
