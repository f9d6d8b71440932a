package sim

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	oneSeed = flag.Uint64("seed", 0, "run this seed alone and print what happens")
	from    = flag.Uint64("from", 0, "the first of the fresh seeds; 0 = other ones each time")
	count   = flag.Int("seeds", 0, "how many fresh seeds to run; 0 = a default run")
)

// A default run takes a budget of time and at least as many seeds, but no longer than the limit: a machine that does other work, or
// the race detector, gets fewer.
const (
	budget     = 15 * time.Second
	limit      = 40 * time.Second
	leastSeeds = 2000
)

// enough says whether a default run of the fresh seeds is over.
func enough(done uint64, took time.Duration) bool {
	if testing.Short() {
		return done >= leastSeeds/10 || took >= budget/5
	}
	return done >= leastSeeds && took >= budget || took >= limit
}

// TestSim runs seeds until one fails; the failure is one line that reproduces it.
func TestSim(t *testing.T) {
	if *oneSeed != 0 {
		r := Run(*oneSeed, Options{Trace: os.Stderr})
		if r.Failure != nil {
			t.Fatal(r.Failure)
		}
		return
	}
	first := *from
	if first == 0 {
		first = uint64(time.Now().UnixMilli())%1e9*1e4 + 1
	}
	start := time.Now()
	done, c, failures := Many(first, runtime.GOMAXPROCS(0), nil, func(done uint64) bool {
		if *count > 0 {
			return done < uint64(*count)
		}
		return !enough(done, time.Since(start))
	})
	for _, f := range failures {
		t.Error(f)
	}
	for _, w := range c.Wrong() {
		t.Error(w)
	}
	t.Logf("%d seeds from %d, %.0f a second; %d pairs and %d marks met; not met: %s", done, first, float64(done)/time.Since(start).Seconds(),
		len(c.Pairs), len(c.Marks), strings.Join(c.Missing(), "; "))
}

// TestKeptSeeds runs the seeds that found something once.
func TestKeptSeeds(t *testing.T) {
	f, err := os.Open("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		number, early := strings.CutSuffix(text, " early")
		seed, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(text, func(t *testing.T) {
			if r := Run(seed, Options{early: early}); r.Failure != nil {
				t.Errorf("%v (without the newer faults: %t)", r.Failure, early)
			}
		})
	}
}

// TestSameSeed runs some seeds twice: all that happens is the same.
func TestSameSeed(t *testing.T) {
	for seed := range uint64(20) {
		a, b := Run(seed+1, Options{}), Run(seed+1, Options{})
		if fmt.Sprint(a.History, a.Events, a.Time, a.Failure) != fmt.Sprint(b.History, b.Events, b.Time, b.Failure) {
			t.Errorf("seed %d: %d events, history %x, %v; again %d, %x, %v", seed+1, a.Events, a.History, a.Failure, b.Events, b.History, b.Failure)
		}
	}
}

func TestMain(m *testing.M) {
	debug.SetGCPercent(800) // runs are short and leave much garbage
	flag.Parse()
	if *oneSeed != 0 {
		if err := flag.Set("test.run", "^TestSim$"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
