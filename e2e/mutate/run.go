package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// perRun is how long the tests of one package may take with one check missing. A check whose absence makes them hang is caught.
const perRun = "20s"

// try builds the tests with all twins and runs them with one check missing after the other. It gives those that no test caught.
func try(ctx context.Context, root string, all, chosen []twin, seeds int) ([]twin, error) {
	dir, err := os.MkdirTemp("", "quire-mutate-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ov, err := overlay(root, dir, all)
	if err != nil {
		return nil, err
	}
	r := runner{root: root, bins: map[string]binary{}, simulate: seeds > 0}
	needed := map[string]bool{simulator: seeds > 0}
	for _, t := range chosen {
		needed[filepath.Dir(t.file)] = true
	}
	for _, p := range packages {
		if !needed[p.dir] {
			continue
		}
		if err := r.build(ctx, ov, dir, p.dir, p.slow, seeds); err != nil {
			return nil, err
		}
	}
	for _, p := range packages {
		if !needed[p.dir] {
			continue
		}
		began := time.Now()
		if failed, out, err := r.test(ctx, p.dir, 0, everything(p.dir)); err != nil || failed != "" {
			return nil, fmt.Errorf("%s: %s fails with no check missing: %w\n%s", p.dir, failed, err, out)
		}
		fmt.Printf("%s: tests pass with all checks in place, %d ms\n", p.dir, time.Since(began).Milliseconds())
	}
	if err := r.catchAll(ctx, chosen); err != nil {
		return nil, err
	}
	var survivors []twin
	for _, t := range chosen {
		if t.caught == "" {
			survivors = append(survivors, t)
		}
	}
	return survivors, nil
}

// everything is what to run of a package with no check missing.
func everything(pkg string) string {
	if pkg == simulator {
		return ""
	}
	return "."
}

// catchAll tries the twins, as many at a time as there are processors.
func (r *runner) catchAll(ctx context.Context, chosen []twin) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	next := make(chan *twin)
	for range runtime.NumCPU() {
		wg.Go(func() {
			for t := range next {
				err := r.catch(ctx, t)
				if err == nil && r.simulate {
					err = r.simulated(ctx, t)
				}
				if err != nil {
					stop(err) // the first one counts
					continue
				}
				if t.caught == "" {
					fmt.Printf("%-19s NOT CAUGHT  %s %s\n", t.area, t.file, t.name)
				} else {
					fmt.Printf("%-19s %s  <-  %s %s\n", t.area, t.name, t.caught, t.seed)
				}
			}
		})
	}
	for i := range chosen {
		next <- &chosen[i]
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

type binary struct {
	path string
	args []string
	slow string // tests that run last
}

type runner struct {
	root     string
	bins     map[string]binary
	simulate bool
}

// simulator is the package whose seeds are run too, where that is asked for.
const simulator = "e2e/sim"

func (r *runner) build(ctx context.Context, ov, dir, pkg, slow string, seeds int) error {
	b := binary{path: filepath.Join(dir, strings.ReplaceAll(pkg, "/", "_")+".test"), slow: slow}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", ov, "-o", b.path, "./"+pkg)
	cmd.Dir = r.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	b.args = []string{"-test.short", "-test.failfast", "-test.timeout", perRun}
	if pkg == simulator {
		b.args = append(b.args, "-test.run", "^TestSim$", "-from", "1", "-seeds", strconv.Itoa(seeds))
	}
	help, _ := exec.CommandContext(ctx, b.path, "-help").CombinedOutput()
	if bytes.Contains(help, []byte("-rapid.nofailfile")) {
		b.args = append(b.args, "-rapid.nofailfile", "-rapid.seed", "1", "-rapid.shrinktime", "1ms")
	}
	r.bins[pkg] = b
	return nil
}

// simulated runs the simulator's seeds with the check missing, and notes what it says. It need not find anything: what one
// defence lets through another may stop.
func (r *runner) simulated(ctx context.Context, t *twin) error {
	failed, out, err := r.test(ctx, simulator, t.number, "")
	switch m := seedLine.FindSubmatch(out); {
	case ctx.Err() != nil:
		return ctx.Err()
	case m != nil:
		t.seed = "seed " + string(m[1])
	case err != nil || failed != "":
		t.seed = "it stops"
	}
	return nil
}

var seedLine = regexp.MustCompile(`-seed (\d+)`)

// tries is how often a test that failed once and then not is forgiven: on a busy machine one may fail for want of time.
const tries = 3

// catch finds a test of the check's own package that fails without it, twice: no other defence may hide it there.
func (r *runner) catch(ctx context.Context, t *twin) error {
	pkg := filepath.Dir(t.file)
	for n := 0; n < tries && t.caught == ""; n++ {
		for _, only := range []string{"", r.bins[pkg].slow} {
			found, err := r.catchOnce(ctx, pkg, t.number, only)
			if err != nil {
				return err
			}
			if t.caught = found; found != "" || r.bins[pkg].slow == "" {
				break
			}
		}
	}
	return nil
}

// catchOnce names the test that failed, and failed again by itself; "" when there is none.
func (r *runner) catchOnce(ctx context.Context, pkg string, number int, only string) (string, error) {
	failed, _, err := r.test(ctx, pkg, number, only)
	if err != nil || failed == "" {
		return "", err
	}
	if hung := strings.TrimPrefix(failed, hangs); hung != failed { // once is enough
		return filepath.Base(pkg) + "." + hung + " (hangs)", nil
	}
	top, _, _ := strings.Cut(failed, "/")
	again, _, err := r.test(ctx, pkg, number, "^"+regexp.QuoteMeta(top)+"$")
	if err != nil || again == "" {
		return "", err
	}
	return filepath.Base(pkg) + "." + failed, nil
}

var failLine = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
var beganLine = regexp.MustCompile(`(?m)^=== RUN\s+(\S+)`)
var running = regexp.MustCompile(`running tests:\n\s*(\S+)`)

// hangs begins the name of a test that did not come to its end.
const hangs = "hangs: "

// test runs one package's tests with a check missing, 0 for none, and names the test that failed, the innermost one. Without
// only, the slow ones are left out.
func (r *runner) test(ctx context.Context, pkg string, number int, only string) (failed string, out []byte, err error) {
	b := r.bins[pkg]
	args := b.args
	switch {
	case only != "":
		args = append(args[:len(args):len(args)], "-test.run", only)
	case b.slow != "":
		args = append(args[:len(args):len(args)], "-test.skip", b.slow)
	}
	cmd := exec.CommandContext(ctx, b.path, args...)
	cmd.Dir = filepath.Join(r.root, pkg)
	cmd.Env = append(os.Environ(), "QUIRE_GONE="+strconv.Itoa(number))
	out, err = cmd.CombinedOutput()
	var exit *exec.ExitError
	if err == nil || !errors.As(err, &exit) || ctx.Err() != nil {
		return "", out, errors.Join(err, ctx.Err())
	}
	if m := running.FindSubmatch(out); m != nil {
		return hangs + string(m[1]), out, nil
	}
	names := failLine.FindAllSubmatch(out, -1)
	if len(names) == 0 && !slices.Contains(args, "-test.v") { // a goroutine of the code's own panicked: who was running?
		cmd = exec.CommandContext(ctx, b.path, append(args[:len(args):len(args)], "-test.v")...)
		cmd.Dir, cmd.Env = filepath.Join(r.root, pkg), append(os.Environ(), "QUIRE_GONE="+strconv.Itoa(number))
		out, _ = cmd.CombinedOutput() // fails as it did before, or names nobody
		if began := beganLine.FindAllSubmatch(out, -1); len(began) > 0 {
			return string(began[len(began)-1][1]), out, nil
		}
	}
	if len(names) == 0 {
		return "", out, fmt.Errorf("%s: check %d missing: no failed test is named:\n%s", pkg, number, out)
	}
	for _, n := range names {
		if len(n[1]) > len(failed) && strings.HasPrefix(string(n[1]), failed) {
			failed = string(n[1])
		}
	}
	return failed, out, nil
}
