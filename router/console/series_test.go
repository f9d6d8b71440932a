package console

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"quire/router"
)

func TestQuantile(t *testing.T) {
	bounds := []float64{1, 2, 4}
	for _, c := range []struct {
		counts  []uint64
		q, want float64
	}{
		{[]uint64{0, 0, 0, 0}, 0.5, 0},
		{[]uint64{2, 0, 0, 0}, 0.5, 0.5},
		{[]uint64{0, 4, 0, 0}, 0.5, 1.5},
		{[]uint64{1, 1, 2, 0}, 0.5, 2},
		{[]uint64{1, 1, 2, 0}, 0.75, 3},
		{[]uint64{0, 0, 0, 5}, 0.5, 4},
		{[]uint64{0, 0, 3, 1}, 1, 4},
	} {
		if got := quantile(router.Buckets{Bounds: bounds, Counts: c.counts}, c.q); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v at %v: %v, want %v", c.counts, c.q, got, c.want)
		}
	}
}

func TestSeries(t *testing.T) {
	s := newSeries()
	at := time.UnixMilli(0)
	read := func(tokens uint64, prompt uint64, ends map[string]uint64, ttft []uint64) {
		at = at.Add(2 * time.Second)
		s.add(reading{at, router.Stats{OutputTokens: tokens, Ends: ends}, router.Measures{PromptTokens: prompt,
			TTFT: router.Buckets{Bounds: []float64{1, 2}, Counts: ttft}, ITL: router.Buckets{Bounds: []float64{1}, Counts: []uint64{0, 0}}}})
	}
	if _, ok := s.newest(); ok {
		t.Error("a point before the first")
	}
	read(10, 100, map[string]uint64{"stop": 1}, []uint64{5, 0, 0})
	if len(s.all()) != 0 {
		t.Error("a point of one reading")
	}
	read(30, 100, map[string]uint64{"stop": 2, "overloaded": 3}, []uint64{5, 2, 0})
	p, ok := s.newest()
	if !ok || p.Tokens != 10 || p.Prompt != 0 || p.Requests != 2 || p.Refused != 1.5 || p.TTFT50 != 1.5 || p.ITL50 != 0 || p.Time != 4000 {
		t.Errorf("%+v", p)
	}
	for range kept + 10 {
		read(30, 100, nil, []uint64{5, 2, 0})
	}
	if all := s.all(); len(all) != kept || all[kept-1].Time != at.UnixMilli() {
		t.Errorf("%d points are kept", len(all))
	}
}

// counting counts how often a journal was begun and read on.
type counting struct {
	memory
	reads *int
}

func (c *counting) Follow(ctx context.Context) error {
	*c.reads++
	return c.memory.Follow(ctx)
}

// long is a journal of which each reading gets one message further and no more in its time.
type long struct {
	memory
	last uint64
}

func (l *long) Follow(context.Context) error { l.last++; return context.DeadlineExceeded }
func (l *long) Range() (first, last uint64)  { return 1, l.last }

// A journal that takes longer to read than one question may is told as far as it was read.
func TestPastOfALongJournal(t *testing.T) {
	c := begin(t, func(c *Config) { c.Past = func() Past { return &long{} } })
	for _, want := range []string{`{"first":1,"last":1}`, `{"first":1,"last":2}`} {
		if got := do(c, "GET", "/console/api/past", nil).Body.String(); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// What was read of the journal is kept while the slider is used, read on when it has grown old, and dropped when nobody asks.
func TestPastIsKeptWhileItIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, reads := 0, 0
		var fail error
		k := pastKeeper{open: func() Past { begun++; return &counting{memory{fail}, &reads} }}
		use := func() error { return k.use(t.Context(), func(Past) error { return nil }) }
		for range 3 {
			if err := use(); err != nil {
				t.Fatal(err)
			}
		}
		if begun != 1 || reads != 1 {
			t.Errorf("at once: begun %d, read %d times", begun, reads)
		}
		time.Sleep(2 * pastFresh)
		if err := use(); err != nil || begun != 1 || reads != 2 {
			t.Errorf("later: begun %d, read %d times, %v", begun, reads, err)
		}
		time.Sleep(pastIdle + time.Second)
		synctest.Wait()
		if held(&k) {
			t.Error("kept though nobody asks")
		}
		fail = errors.New("broken")
		if err := use(); err == nil || held(&k) || begun != 2 {
			t.Errorf("broken: begun %d, %v", begun, err)
		}
	})
}

func held(k *pastKeeper) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.past != nil
}

// Colours are the same again for the same name, and neighbours are far apart.
func TestHues(t *testing.T) {
	var h hues
	first := h.of("acme")
	var given []int
	for i := range 8 {
		given = append(given, h.of(fmt.Sprint(i)))
	}
	for i, a := range given {
		for _, b := range given[:i] {
			if d := (a - b + 360) % 360; min(d, 360-d) < 20 {
				t.Errorf("hues %d and %d of eight", a, b)
			}
		}
	}
	if h.of("acme") != first {
		t.Error("another colour for the same name")
	}
	for i := range 2 * maxHues {
		h.of(fmt.Sprint(i))
	}
	if len(h.given) > maxHues {
		t.Errorf("%d are kept", len(h.given))
	}
}
