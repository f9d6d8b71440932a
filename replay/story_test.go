package replay

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestStory(t *testing.T) {
	p := incident(t).read()
	q, _, err := p.Find("r1-2-" + p.Tell(p.Requests[1], 0).Request)
	if err != nil || q != p.Requests[1] {
		t.Fatalf("%v, %v", q, err)
	}
	text := p.Tell(q, 0).Text()
	for _, want := range []string{"tenant umbra  attempt 1 of 1  prompt 10  max 4", "decode d1", "reserved  4 pages of 4, 10 + 4 tokens", "claimed   by prefill/p1@3",
		"admitted 10 rows on 4 pages", "the first token leaves", "finished  stop, 3 tokens", "4 cleared and free", "answered  stop, 3 tokens"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	text = p.Tell(p.Requests[3], 0).Text()
	for _, want := range []string{"gate      REFUSED", "ended     handoff_count", "3 quarantined"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, bad := range []string{"", "ffff", "r1-2-"} {
		if _, _, err := p.Find(bad); err == nil {
			t.Errorf("%q finds something", bad)
		}
	}
	if q, attempt, err := p.Find(p.Attempts[0].Key.String()); err != nil || attempt != 1 || q != p.Requests[0] {
		t.Errorf("%v %d %v", q, attempt, err)
	}
}

func TestDiff(t *testing.T) {
	p := incident(t).read()
	diff, same := p.Diff(p.Requests[0], p.Requests[1])
	text := ""
	for _, d := range diff {
		text += d.What + ": " + d.A + " | " + d.B + "\n"
	}
	if !strings.Contains(text, "tenant: acme | umbra") || !strings.Contains(text, "rows sent: 12 | 1") || !strings.Contains(strings.Join(same, " "), "prefill") {
		t.Errorf("%s\n%v", text, same)
	}
}

func TestPagesAtAMoment(t *testing.T) {
	p := incident(t).read()
	is := p.Pages("d1", 0)
	if len(is) < 4 || is[0].Owner.Tenant != "acme" || is[1].Owner.Tenant != "umbra" {
		t.Fatalf("%d intervals", len(is))
	}
	for _, c := range []struct {
		seq  uint64
		want string
	}{{is[0].From.Sequence, "acme"}, {is[0].Until.Sequence - 1, "acme"}, {is[0].Until.Sequence, ""}, {is[1].From.Sequence, "umbra"}} {
		got := ""
		if i := At(is, Moment{Sequence: c.seq}); i != nil {
			got = i.Owner.Tenant
		}
		if got != c.want {
			t.Errorf("at #%d: %q, want %q", c.seq, got, c.want)
		}
	}
	if i := At(is, Moment{Time: is[1].From.Time}); i != is[1] {
		t.Errorf("by time: %+v", i)
	}
	if pools := p.Pools(Moment{Sequence: is[0].From.Sequence}); len(pools) != 1 || len(pools[0].Owners) != 4 {
		t.Errorf("%+v", pools)
	}
	for text, ok := range map[string]bool{"#17": true, "2026-09-01T12:00:00Z": true, "2026-09-01 12:00": true, "yesterday": false, "": false} {
		if _, err := ParseMoment(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestReport(t *testing.T) {
	p := incident(t).read()
	now := time.Date(2026, 9, 2, 0, 0, 0, 0, time.UTC)
	r := p.MakeReport(time.Time{}, time.Time{}, "acme", "0.1.0", now)
	s, err := r.Sign("bus", signer{"bus"})
	if err != nil {
		t.Fatal(err)
	}
	page, err := s.HTML()
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"umbra", "zeta"} {
		if strings.Contains(string(s.Report), other) || strings.Contains(string(page), other) {
			t.Errorf("acme's report names %s", other)
		}
	}
	if !strings.Contains(string(page), "1 of 1 responses") && !strings.Contains(string(page), "could contain data of earlier requests") {
		t.Errorf("%s", page)
	}
	if err := s.Check(ring{}); err != nil {
		t.Error(err)
	}
	forged := s
	forged.Report = []byte(strings.Replace(string(s.Report), `"answers":`, `"answers":1`, 1))
	if err := forged.Check(ring{}); err == nil {
		t.Error("a changed report checks")
	}
	forged = s
	forged.Signature = ""
	if err := forged.Check(ring{}); err == nil {
		t.Error("a report without a signature checks")
	}
}

// Records that came in one message tell the same as those that came one by one.
func TestMessagesOfSeveralRecords(t *testing.T) {
	w := incident(t)
	want := w.read().Exposure(time.Time{}, time.Time{}, "")
	var packed []Item
	for _, it := range w.items {
		service := it.Subject[strings.LastIndexByte(it.Subject, '.'):]
		if n := len(packed) - 1; n >= 0 && packed[n].Signature == nil && strings.HasSuffix(packed[n].Subject, service) {
			packed[n].Data = append(append(packed[n].Data[:len(packed[n].Data):len(packed[n].Data)], '\n'), it.Data...)
			packed[n].Signature, packed[n].Subject = it.Signature, "quire.journal.facts"+service
			continue
		}
		it.Sequence = uint64(len(packed) + 1)
		packed = append(packed, it)
	}
	n := len(w.items)
	w.items = packed
	p := w.read()
	got := p.Exposure(time.Time{}, time.Time{}, "")
	if len(packed) >= n || p.Records != n || got.Notice != want.Notice || len(got.Exposed) != len(want.Exposed) || !got.Complete {
		t.Errorf("%d messages of %d records: %s %v", len(packed), p.Records, got.Notice, got.Gaps)
	}
	path := filepath.Join(t.TempDir(), "b")
	if _, err := Export(t.Context(), w, nil, path); err != nil {
		t.Fatal(err)
	}
	if p, err := Read(t.Context(), Bundle{path}, ring{}); err != nil || p.Records != n {
		t.Error(err)
	}
}
