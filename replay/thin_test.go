package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"quire/journal"
	"quire/kvtransfer"
)

// many is a record of n requests, of which some go wrong.
func many(t *testing.T, n int) *world {
	w := newWorld(t)
	for i := range n {
		p := plan{id: fmt.Sprintf("request %06d", i), tenant: fmt.Sprintf("t%d", i%3), n: 3 + i%9, max: 4, ok: true, output: 3}
		switch i % 17 {
		case 3:
			p.ok, p.code, p.output, p.sent, p.written = false, "handoff_count", 0, 1, journal.Spans{{0, 1}}
		case 5:
			p.sent, p.written = 1, journal.Spans{{0, 1}} // a gate that let it in
		case 7:
			p.unrecorded = true
		case 11:
			p.witness, p.code, p.output = "refused", "handoff_witness", 0
		}
		w.play(p)
	}
	w.stop()
	return w
}

// compare holds the reader that forgets to the one that does not.
func compare(t *testing.T, name string, w *world, slack int) {
	t.Helper()
	want := w.read().Verify()
	got, err := audit(t.Context(), w, ring{}, slack)
	if err != nil {
		t.Fatal(err)
	}
	order := func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Handoff, b.Handoff), cmp.Compare(a.Text, b.Text))
	}
	slices.SortFunc(want.Findings, order)
	slices.SortFunc(got.Findings, order)
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("%s, slack %d: %s", name, slack, d)
	}
}

// A reader that forgets what is over finds what one finds that keeps everything.
func TestAuditIsVerify(t *testing.T) {
	for _, slack := range []int{0, 1, 7, 40, 1000} {
		compare(t, "incident", incident(t), slack)
		compare(t, "many", many(t, 100), slack)
	}
	for i := 20; i < 60; i += 7 {
		gap := many(t, 30)
		gap.items = slices.Delete(gap.items, i, i+1)
		compare(t, fmt.Sprintf("without record %d", i), gap, 200)
		edit := many(t, 30)
		edit.items[i].Data = slices.Clone(edit.items[i].Data)
		edit.items[i].Data = []byte(strings.Replace(string(edit.items[i].Data), `"at_us":`, `"at_us":1`, 1))
		compare(t, fmt.Sprintf("record %d changed", i), edit, 200)
	}
	cut := many(t, 30)
	cut.items = cut.items[70:] // by retention
	compare(t, "partial", cut, 50)
}

// It does forget: what it keeps does not grow with the record.
func TestAuditForgets(t *testing.T) {
	w := many(t, 600)
	p := newPast(ring{})
	p.thin = &thin{slack: 50, retired: map[kvtransfer.HandoffID]uint64{}, seen: map[string]int{}}
	most := 0
	for _, it := range w.items {
		p.take(it, []journal.Parsed{journal.Parse(it.Data, it.Signature, ring{})})
		most = max(most, len(p.requests), len(p.attempts))
	}
	if most > 30 || p.thin.requests < 500 || p.intervals > 16*8 {
		t.Errorf("%d requests at a time, %d forgotten, %d intervals", most, p.thin.requests, p.intervals)
	}
}

// A record of a request that is over is no straggler, unless prefill tells of its end.
func TestAuditFindsLateRecords(t *testing.T) {
	w := many(t, 60)
	w.items = w.items[:len(w.items)-3] // nobody has stopped
	for p, c := range w.chains {
		c.Counter--
		for _, it := range w.items {
			if r, _ := journal.Decode(it.Data); r.Service == c.Service {
				c.Last = journal.HashOf(it.Data)
			}
		}
		w.chains[p] = c
	}
	k := (plan{id: "request 000000"}).key()
	w.put(p1, journal.Record{Key: k, Tenant: "t0", Facts: journal.Sent{State: "gone", N: 3}})
	w.put(d1, journal.Record{Key: k, Tenant: "t0", Facts: journal.Verdict{Path: "received", OK: true, N: 3, Sent: 3}})
	w.put(r1, journal.Record{Key: k, Tenant: "t0", Facts: journal.Finished{Finish: "stop", Prompt: 3}})
	v, err := audit(t.Context(), w, ring{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	var late []string
	for _, f := range v.Findings {
		if strings.Contains(f.Text, "that was over") {
			late = append(late, f.Rule)
		}
	}
	if strings.Join(late, " ") != "once one terminal" {
		t.Errorf("%v in %v", late, v.Findings)
	}
}
