package replay

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"quire/journal"
)

func brokenRules(v Verification) (out []string) {
	for _, f := range v.Findings {
		if f.Level == Broken && !slices.Contains(out, f.Rule) {
			out = append(out, f.Rule)
		}
	}
	slices.Sort(out)
	return out
}

func TestVerifyFindsNothingInAGoodRecord(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"one", "two", "three"} {
		w.play(plan{id: id, tenant: "acme", n: 11, max: 4, ok: true, output: 3})
	}
	w.play(plan{id: "bad", tenant: "acme", n: 11, max: 4, sent: 1, written: journal.Spans{{0, 1}}, code: "handoff_count"})
	w.play(plan{id: "after", tenant: "acme", n: 11, max: 4, ok: true, output: 3})
	w.stop()
	v := w.read().Verify()
	if len(v.Findings) != 0 || v.Attempts != 5 || v.Requests != 5 || v.Lives != 3 || v.Open != 0 {
		t.Errorf("%+v", v)
	}
	for _, r := range v.Rules {
		if r.Looked == 0 {
			t.Errorf("rule %s looked at nothing", r.Name)
		}
	}
}

func TestVerifyFindsWhatTheGateLetPass(t *testing.T) {
	v := incident(t).read().Verify()
	if got := brokenRules(v); !slices.Equal(got, []string{"gate", "rows"}) {
		t.Errorf("%v: %v", got, v.Findings)
	}
}

// Every way to spoil a record or a rule is found by the rule that says so.
func TestVerifyFindsEachFault(t *testing.T) {
	honest := plan{id: "one", tenant: "acme", n: 8, max: 4, ok: true, output: 3}
	for rule, spoil := range map[string]func(w *world){
		"verdict": func(w *world) { p := honest; p.unrecorded = true; w.play(p) },
		"one owner": func(w *world) {
			p := honest
			p.keep = true
			taken := w.play(p)
			w.free = append(w.free, taken[0][0])
			p.id = "two"
			w.play(p)
		},
		"generation": func(w *world) {
			w.play(honest)
			w.gen[0] = 0
			w.gen[1] = 0
			w.gen[2] = 0
			p := honest
			p.id = "two"
			w.play(p)
		},
		"quarantine": func(w *world) {
			p := honest
			p.ok, p.code = false, "handoff_count"
			w.play(p)
			for i := range w.gen {
				w.gen[i]--
			}
			p.id = "two"
			w.play(p)
		},
		"stream": func(w *world) {
			w.play(honest)
			w.items = append(w.items[:6:6], w.items[7:]...) // with its chain
		},
		"chain": func(w *world) {
			w.play(honest)
			w.items[5].Data = bytes.Replace(w.items[5].Data, []byte(`"acme"`), []byte(`"evil"`), 1)
		},
		"once": func(w *world) {
			w.play(honest)
			w.put(d1, journal.Record{Key: honest.key(), Tenant: "acme", Facts: journal.Finished{Finish: "stop"}})
		},
		"one terminal": func(w *world) {
			w.play(honest)
			w.put(r1, journal.Record{Key: honest.key(), Tenant: "acme", Facts: journal.Finished{Finish: "length"}})
		},
		"tenant": func(w *world) {
			w.play(honest)
			w.put(r1, journal.Record{Key: honest.key(), Tenant: "evil", Facts: journal.Job{}})
		},
		"two legs": func(w *world) {
			w.play(honest)
			w.put(p1, journal.Record{Key: honest.key(), Tenant: "acme", Facts: journal.Sent{State: "done", Claim: journal.ID{1}, N: 8, Rows: 8, Frames: 3}})
		},
		"released": func(w *world) {
			p := honest
			p.keep = true
			pages := w.play(p)
			w.put(d1, journal.Record{Facts: journal.Zeroed{Pages: journal.Spans{{int(pages[0][0]), int(pages[0][0]) + 1}}}})
		},
		"witness": func(w *world) { p := honest; p.witness = "refused"; w.play(p) },
		"end": func(w *world) {
			p := honest
			p.code = "stop_and_error"
			w.play(p)
			w.put(d1, journal.Record{Key: plan{id: "x"}.key(), Tenant: "a", Facts: journal.Reserved{N: 1, PageSize: 4}})
			w.put(d1, journal.Record{Key: plan{id: "x"}.key(), Tenant: "a", Facts: journal.Finished{}})
		},
	} {
		w := newWorld(t)
		spoil(w)
		v := w.read().Verify()
		if !slices.Contains(brokenRules(v), rule) {
			t.Errorf("%s: %v", rule, v.Findings)
		}
	}
}

// A tail that was cut off, a life that broke off and a record that could not be written are told apart from a whole record.
func TestVerifySaysWhatIsMissing(t *testing.T) {
	missing := func(w *world) string {
		var out []string
		for _, f := range w.read().Verify().Findings {
			if f.Level != Broken {
				out = append(out, string(f.Level)+" "+f.Rule)
			}
		}
		return strings.Join(out, ", ")
	}
	one := plan{id: "one", tenant: "acme", n: 8, max: 4, ok: true, output: 3}
	w := newWorld(t)
	w.play(one)
	w.now = w.now.Add(journal.SilentAfter + time.Second)
	w.put(r1, journal.Record{Facts: journal.Checkpoint{}})
	w.put(p1, journal.Record{Facts: journal.Checkpoint{}})
	if got := missing(w); got != "note signed, incomplete tail" {
		t.Errorf("decode's tail is cut: %s", got)
	}
	w = newWorld(t)
	w.put(d1, journal.Record{Facts: journal.Checkpoint{Lost: 3}})
	w.stop()
	if got := missing(w); got != "" {
		t.Errorf("an end that lost nothing: %s", got)
	}
	w = newWorld(t)
	w.put(d1, journal.Record{Facts: journal.Stopped{Lost: 3}})
	if got := missing(w); !strings.Contains(got, "incomplete complete") {
		t.Errorf("records were turned away: %s", got)
	}
	w = newWorld(t)
	w.items = w.items[2:]
	if got := missing(w); !strings.Contains(got, "note complete") {
		t.Errorf("the beginning is gone: %s", got)
	}
}
