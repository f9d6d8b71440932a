package replay

import (
	"strings"
	"testing"

	"quire/journal"
	"quire/kvtransfer/script"
	"quire/model"
)

// Every attempt of the record gives a script that plays, in which this build's machine judges: what a build without a gate let
// through is refused.
func TestScripts(t *testing.T) {
	p := incident(t).read()
	for id, want := range map[string]string{
		"acme":    "manifest -> taken, gate: ok\n",
		"umbra":   "manifest -> corrupt by sent count: ",
		"refused": "manifest -> corrupt by sent count: ",
	} {
		a := p.attempts[(plan{id: id}).key()]
		if a == nil {
			t.Fatalf("no attempt %s", id)
		}
		text, err := p.Script(a, nil)
		if err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		_, rest, _ := strings.Cut(text, "\nplay\n")
		body, answers, ok := strings.Cut(rest, "\n----\n")
		if again, err := script.Play(body); !ok || err != nil || again != answers {
			t.Errorf("%s: played again: %v\n%s\n%s", id, err, answers, again)
		}
		if strings.Contains(text, a.Tenant+" ") || !strings.Contains(answers, "tenant=t ") {
			t.Errorf("%s: the tenant is named:\n%s", id, text)
		}
		if !strings.Contains(answers, want) {
			t.Errorf("%s: no %q in\n%s", id, want, text)
		}
	}
}

// With what the tape has, the frames are those that came.
func TestScriptOfFrames(t *testing.T) {
	m := machine(t)
	s := handoff(t, m, m.Source.Tokenizer.Encode("The little bird sat on the wall and sang a song.", model.EncodeOptions{}), nil, nil)
	in, err := inbound(s.a)
	if err != nil {
		t.Fatal(err)
	}
	r := in.Reservation
	life := &Life{Service: "decode-d1", Role: "decode", ID: "d1", Epoch: 2}
	a := &Attempt{Key: s.a.Key, Tenant: "acme", Events: []Event{{Sequence: 3}, {Sequence: 9}}}
	a.Reserved = &Event{Life: life, Facts: journal.Reserved{Reservation: in.Hash, N: r.N, MaxTokens: r.MaxTokens, PageSize: r.PageSize, Pages: journal.Slots(r.Pages), LeaseMicros: int64(r.Lease)}}
	a.Claimed = &Event{Life: life, Facts: journal.Claimed{Claim: journal.ID(in.Claimed.Claim), Prefill: in.Prefill.String()}}
	a.Verdict = &Event{Life: life, Facts: journal.Verdict{OK: true, Pages: journal.Slots(r.Pages)}}
	text, err := (&Past{}).Script(a, &s.a)
	if err != nil || !strings.Contains(text, "manifest -> taken, gate: ok\n") || strings.Count(text, "\nframe index=") != len(s.a.Parts)-1 || strings.Contains(text, "acme") {
		t.Errorf("%v\n%s", err, text)
	}
}

// Frames that are made fill exactly what was filled.
func TestCover(t *testing.T) {
	for _, c := range []struct {
		spans          journal.Spans
		frames, layers int
		ok             bool
	}{
		{journal.Spans{{0, 10}}, 1, 3, true}, {journal.Spans{{0, 10}}, 7, 3, true}, {journal.Spans{{0, 10}}, 30, 3, true}, {journal.Spans{{0, 10}}, 31, 3, false},
		{journal.Spans{{0, 1}, {5, 9}}, 4, 2, true}, {journal.Spans{{0, 1}, {5, 9}}, 1, 2, false}, {nil, 0, 2, true}, {nil, 2, 2, false},
	} {
		hs, err := cover(c.spans, c.frames, c.layers)
		if (err == nil) != c.ok || c.ok && len(hs) != c.frames {
			t.Errorf("%v in %d frames: %d, %v", c.spans, c.frames, len(hs), err)
			continue
		}
		got := map[[2]int]int{}
		for _, h := range hs {
			for r := h.RowFrom; r < h.RowTo; r++ {
				for l := h.LayerFrom; l < h.LayerTo; l++ {
					got[[2]int{r, l}]++
				}
			}
		}
		if c.ok && len(got) != c.spans.Rows()*c.layers {
			t.Errorf("%v in %d frames: %d cells", c.spans, c.frames, len(got))
		}
		for k, n := range got {
			if n != 1 {
				t.Errorf("%v in %d frames: %v comes %d times", c.spans, c.frames, k, n)
			}
		}
	}
}
