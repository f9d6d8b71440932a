package replay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"quire/journal"
)

// incident plays five requests: acme's, which is honest; umbra's, of which prefill sent one row and decode read all; one on
// pages that nobody had before; one that the witness stopped; one that the gate stopped.
func incident(t *testing.T) *world {
	w := newWorld(t)
	w.play(plan{id: "acme", tenant: "acme", n: 12, max: 4, ok: true, output: 4})
	w.play(plan{id: "umbra", tenant: "umbra", n: 10, max: 4, sent: 1, written: journal.Spans{{0, 1}}, ok: true, output: 3})
	w.play(plan{id: "stopped", tenant: "umbra", n: 8, max: 4, sent: 1, written: journal.Spans{{0, 1}}, ok: true, witness: "refused", code: "handoff_witness"})
	w.play(plan{id: "refused", tenant: "umbra", n: 8, max: 4, sent: 1, written: journal.Spans{{0, 1}}, code: "handoff_count"})
	w.play(plan{id: "honest", tenant: "umbra", n: 8, max: 4, ok: true, output: 4})
	// Two at once: the second one gets pages that nobody has had.
	w.play(plan{id: "long", tenant: "acme", n: 20, max: 4, ok: true, keep: true})
	w.play(plan{id: "fresh", tenant: "zeta", n: 12, max: 4, sent: 2, written: journal.Spans{{0, 2}}, ok: true, output: 2})
	return w
}

func TestExposureIsExact(t *testing.T) {
	p := incident(t).read()
	e := p.Exposure(time.Time{}, time.Time{}, "")
	if len(e.Exposed) != 1 || e.Exposed[0].key != (plan{id: "umbra"}).key() || e.Foreign != 1 {
		t.Fatalf("exposed %+v", e.Exposed)
	}
	u := e.Exposed[0]
	if fmt.Sprint(u.Unwritten) != "[[1 10]]" || u.Output != 3 || u.Prompt != 10 || u.Sent != 1 || u.NoVerdict {
		t.Errorf("%+v", u)
	}
	// Rows 1 to 9 lay where acme's rows 1 to 9 had been.
	if len(u.Victims) != 1 || u.Victims[0].key != (plan{id: "acme"}).key() || u.Victims[0].Rows != 9 || u.Victims[0].Pages != 3 || !u.Victims[0].Zeroed {
		t.Errorf("victims %+v", u.Victims)
	}
	if len(e.Contained) != 1 || e.Contained[0].key != (plan{id: "stopped"}).key() {
		t.Errorf("contained %+v", e.Contained)
	}
	if len(e.Unowned) != 1 || e.Unowned[0].key != (plan{id: "fresh"}).key() {
		t.Errorf("unowned %+v", e.Unowned)
	}
	if e.Answers != 5 || !e.Complete {
		t.Errorf("%d answers, complete %t: %v", e.Answers, e.Complete, e.Gaps)
	}
	if want := "1 of 5 responses in the record could contain data of earlier requests, 1 of them data of another tenant; all had prompts of 10 tokens, of which decode had received at most 1."; e.Notice != want {
		t.Errorf("notice %q", e.Notice)
	}
}

func TestExposureWindowAndTenant(t *testing.T) {
	p := incident(t).read()
	at := p.attempts[(plan{id: "umbra"}).key()].Verdict.Time
	for _, c := range []struct {
		since, until time.Time
		tenant       string
		exposed      int
	}{
		{at, time.Time{}, "", 1}, {at.Add(time.Microsecond), time.Time{}, "", 0}, {time.Time{}, at, "", 0}, {time.Time{}, at.Add(1), "", 1},
		{time.Time{}, time.Time{}, "acme", 1}, {time.Time{}, time.Time{}, "umbra", 1}, {time.Time{}, time.Time{}, "zeta", 0},
	} {
		if e := p.Exposure(c.since, c.until, c.tenant); len(e.Exposed) != c.exposed {
			t.Errorf("%+v: %d exposed", c, len(e.Exposed))
		}
	}
	if e := p.Exposure(at.Add(time.Hour), time.Time{}, ""); !strings.HasPrefix(e.Notice, "None of 0 responses between 2026-09-01T13:00") {
		t.Error(e.Notice)
	}
}

// Rows that only an owner before the last one had written are its data: clearing may have failed twice.
func TestExposureGoesBackToTheLastWriter(t *testing.T) {
	w := newWorld(t)
	w.play(plan{id: "first", tenant: "a", n: 12, max: 4, ok: true, output: 4})
	w.play(plan{id: "second", tenant: "b", n: 4, max: 12, ok: true, output: 1})
	w.play(plan{id: "third", tenant: "c", n: 16, max: 0, sent: 2, written: journal.Spans{{0, 2}}, ok: true, output: 1})
	e := w.read().Exposure(time.Time{}, time.Time{}, "")
	if len(e.Exposed) != 1 {
		t.Fatalf("%+v", e.Exposed)
	}
	got := map[string]string{}
	for _, v := range e.Exposed[0].Victims {
		got[v.Tenant] = fmt.Sprint(v.Spans)
	}
	// first wrote 12 rows and 3 of its own; second 4 rows.
	if got["a"] != "[[4 15]]" || got["b"] != "[[2 4]]" || len(got) != 2 {
		t.Errorf("victims %v", got)
	}
}

// A response without a verdict in the record counts, whoever was there before.
func TestExposureWithoutVerdict(t *testing.T) {
	w := newWorld(t)
	w.play(plan{id: "open", tenant: "a", n: 8, max: 4, ok: true, output: 4, unrecorded: true})
	e := w.read().Exposure(time.Time{}, time.Time{}, "")
	if len(e.Exposed) != 1 || !e.Exposed[0].NoVerdict || len(e.Exposed[0].Victims) != 0 {
		t.Errorf("%+v", e.Exposed)
	}
}

// Against a dumb model: memory as an array of who wrote each slot last.
func TestExposureAgainstMemory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		type slot struct{ page, offset uint64 }
		memory := map[slot]string{}
		want := map[string]string{}
		for i := range rapid.IntRange(1, 8).Draw(rt, "requests") {
			n := rapid.IntRange(1, 20).Draw(rt, "n")
			sent := rapid.IntRange(1, n).Draw(rt, "sent")
			p := plan{id: fmt.Sprintf("q%d", i), tenant: fmt.Sprintf("t%d", i%3), n: n, max: 6, sent: sent, written: journal.Spans{{0, sent}}, ok: true,
				output: rapid.IntRange(1, 6).Draw(rt, "output")}
			pages := w.play(p)
			victims := map[string]bool{}
			at := func(row int) slot { return slot{pages[row/pageSize][0], uint64(row % pageSize)} }
			for row := sent; row < n; row++ {
				if who := memory[at(row)]; who != "" {
					victims[who] = true
				}
			}
			for row := range n + p.output - 1 {
				if row < sent || row >= n {
					memory[at(row)] = p.id
				}
			}
			if len(victims) > 0 {
				want[p.id] = fmt.Sprint(victims)
			}
		}
		got := map[string]string{}
		for _, r := range w.read().Exposure(time.Time{}, time.Time{}, "").Exposed {
			victims := map[string]bool{}
			for _, v := range r.Victims {
				victims[strings.TrimRight(string(v.key.ID[:]), "\x00")] = true
			}
			got[strings.TrimRight(string(r.key.ID[:]), "\x00")] = fmt.Sprint(victims)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			rt.Fatalf("exposed %v, want %v", got, want)
		}
	})
}
