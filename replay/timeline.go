package replay

import (
	"fmt"
	"slices"
	"strings"

	"quire/journal"
	"quire/kvtransfer"
)

// Line is one step of a request's way.
type Line struct {
	Sequence uint64 `json:"sequence"` // of the record that tells it
	Micros   int64  `json:"us"`       // on the service's own clock, since its first record of this attempt
	Service  string `json:"service"`  // router r1
	What     string `json:"what"`
	Text     string `json:"text"`
	Bad      bool   `json:"bad,omitempty"` // it went wrong here
}

// Steps is one attempt, told.
type Steps struct {
	Attempt uint32 `json:"attempt"`
	Began   string `json:"began"` // time of the server, RFC 3339
	Lines   []Line `json:"lines"`
}

// Story is one request, told.
type Story struct {
	Request   string  `json:"request"`
	Tenant    string  `json:"tenant"`
	Prompt    int     `json:"prompt"`
	MaxTokens int     `json:"max_tokens"`
	End       string  `json:"end"` // finish or error code; "" when the record has none
	Output    int     `json:"output"`
	Seed      uint64  `json:"seed,omitempty"`
	Attempts  []Steps `json:"attempts"`
	Last      *Line   `json:"last,omitempty"` // the router's word on it
}

// Tell tells a request, or one attempt of it when attempt is not 0.
func (p *Past) Tell(q *Request, attempt uint32) Story {
	s := Story{Request: fmt.Sprintf("%x", q.ID[:]), Tenant: q.Tenant}
	for _, a := range q.Attempts {
		if a.Reserved != nil {
			r := a.Reserved.Facts.(journal.Reserved)
			if s.Prompt = r.N; r.Prompt > 0 {
				s.Prompt = r.Prompt
			}
			s.MaxTokens = max(s.MaxTokens, r.MaxTokens)
		}
		if attempt == 0 || a.Key.Attempt == attempt {
			s.Attempts = append(s.Attempts, p.steps(a))
		}
	}
	if q.Finished != nil {
		f := q.Finished.Facts.(journal.Finished)
		s.End, s.Output, s.Seed, s.Prompt = f.Finish+f.Code, f.Output, f.Seed, f.Prompt
		text := fmt.Sprintf("%s, %d tokens, %d attempts, %s in all", f.Finish, f.Output, f.Attempts, millis(f.TookMicros))
		if f.Code != "" {
			text = fmt.Sprintf("%s: %s", f.Code, f.Detail)
		}
		s.Last = &Line{Sequence: q.Finished.Sequence, Micros: f.TookMicros, Service: service(q.Finished.Life), What: "answered", Text: text, Bad: f.Code != ""}
	}
	return s
}

func service(l *Life) string { return l.Role + " " + l.ID }

// phases is the order in which a hand-off has its steps. Services write their records one by one, so that the stream may have
// one service's later step before another's earlier one; within a service the order is the chain's.
var phases = map[string]int{
	"reserved": 1, "job": 2, "claimed": 3, "refused": 4, "frames": 4, "sent": 5, "manifest": 6, "gate": 7, "owned": 8, "witness": 9,
	"finished": 10, "ended": 10, "pages": 11,
}

// teller turns events into lines; first is each life's clock at its first record of the attempt.
type teller struct {
	first map[*Life]kvtransfer.Tick
	lines []Line
}

func (t *teller) add(ev Event, at kvtransfer.Tick, what, format string, args ...any) *Line {
	t.lines = append(t.lines, Line{Sequence: ev.Sequence, Micros: int64(at - t.first[ev.Life]), Service: service(ev.Life), What: what, Text: fmt.Sprintf(format, args...)})
	return &t.lines[len(t.lines)-1]
}

func (p *Past) steps(a *Attempt) Steps {
	t := &teller{first: map[*Life]kvtransfer.Tick{}}
	for _, ev := range a.Events {
		if _, ok := t.first[ev.Life]; !ok {
			t.first[ev.Life] = ev.At
		}
		t.tell(ev)
	}
	if a.Reserved != nil {
		t.free(a)
	}
	slices.SortStableFunc(t.lines, func(a, b Line) int { return phases[a.What] - phases[b.What] })
	s := Steps{Attempt: a.Key.Attempt, Lines: t.lines}
	if len(a.Events) > 0 {
		s.Began = a.Events[0].Time.Format("2006-01-02T15:04:05.000Z07:00")
	}
	return s
}

func (t *teller) tell(ev Event) {
	switch f := ev.Facts.(type) {
	case journal.Job:
		t.add(ev, ev.At, "job", "to %s, limit %d (%s), queued %s", f.Decode, f.Limit, f.LimitBy, millis(f.QueuedMicros))
	case journal.Reserved:
		t.add(ev, ev.At, "reserved", "%d pages of %d, %d + %d tokens, lease %s", len(f.Pages), f.PageSize, f.N, f.MaxTokens, millis(f.LeaseMicros))
	case journal.Claimed:
		t.add(ev, ev.At, "claimed", "by %s", f.Prefill)
	case journal.Refused:
		t.add(ev, ev.At, "refused", "%s %d %s %s", f.What, f.Index, f.Code, f.Detail).Bad = true
	case journal.Sent:
		l := t.add(ev, ev.At, "sent", "%s: %d of %d rows computed in %s, %d frames, %s in all", f.State, f.Rows, f.N, millis(f.ComputeMicros), f.Frames, millis(f.TookMicros))
		if f.Code != "" {
			l.Bad, l.Text = true, fmt.Sprintf("%s: %s: %s; %d of %d rows computed", f.State, f.Code, f.Detail, f.Rows, f.N)
		}
	case journal.Verdict:
		t.verdict(ev, f)
	case journal.Witness:
		how := "the journal has the verdict; kernels may read"
		if f.Unjournaled {
			how = "the journal has no verdict; kernels read all the same"
		}
		t.add(ev, kvtransfer.Tick(f.OwnedMicros), "owned", "%s", how).Bad = f.Unjournaled
		text := fmt.Sprintf("layer 0 of %d rows and all layers of the last one agree; the first token leaves", f.Read)
		if f.Result != "agreed" {
			text = "REFUSED      " + f.Detail
		}
		t.add(ev, ev.At, "witness", "%s", text).Bad = f.Result != "agreed"
	case journal.Finished:
		t.finished(ev, f)
	}
}

func (t *teller) verdict(ev Event, f journal.Verdict) {
	if f.FirstMicros > 0 {
		t.add(ev, kvtransfer.Tick(f.FirstMicros), "frames", "the first of %d in the pages; %d repeated, %d refused", f.Frames, f.Repeated, f.Refused)
	}
	if f.ManifestMicros > 0 {
		t.add(ev, kvtransfer.Tick(f.ManifestMicros), "manifest", "rows sent %d", f.Sent)
	}
	if f.OK {
		t.add(ev, ev.At, "gate", "admitted %d rows on %d pages", f.N, len(f.Pages))
		return
	}
	t.add(ev, ev.At, "gate", "REFUSED      %s", f.Detail).Bad = true
}

func (t *teller) finished(ev Event, f journal.Finished) {
	if f.Code == "" {
		t.add(ev, ev.At, "finished", "%s, %d tokens in %d replies", f.Finish, f.Output, f.Replies)
		return
	}
	t.add(ev, ev.At, "ended", "%s: %s; %d tokens had left", f.Code, f.Detail, f.Output).Bad = true
	if f.Quarantined {
		t.add(ev, ev.At, "pages", "%d quarantined", f.Pages)
	}
}

// free tells when the pages were cleared.
func (t *teller) free(a *Attempt) {
	pages := a.Reserved.Facts.(journal.Reserved).Pages
	var last *Event
	n := 0
	for _, s := range pages {
		for _, i := range a.Reserved.Life.pages[s[0]] {
			if i.Owner == a && i.Until != nil {
				n++
				if last == nil || i.Until.Sequence > last.Sequence {
					last = i.Until
				}
			}
		}
	}
	if last != nil {
		t.add(*last, last.At, "pages", "%d cleared and free", n)
	}
}

// Text prints a story.
func (s Story) Text() string {
	var b strings.Builder
	line := func(l Line) {
		fmt.Fprintf(&b, "  %+9.1f ms  %-12s %-9s %s  #%d\n", float64(l.Micros)/1000, l.Service, l.What, l.Text, l.Sequence)
	}
	for i, a := range s.Attempts {
		fmt.Fprintf(&b, "request %s…%s  tenant %s  attempt %d of %d  prompt %d  max %d  began %s\n", s.Request[:4], s.Request[28:], s.Tenant, a.Attempt, max(len(s.Attempts), int(a.Attempt)), s.Prompt, s.MaxTokens, a.Began)
		for _, l := range a.Lines {
			line(l)
		}
		if i < len(s.Attempts)-1 {
			b.WriteString("\n")
		}
	}
	if s.Last != nil {
		line(*s.Last)
	}
	return b.String()
}

func millis(us int64) string {
	switch {
	case us >= 1_000_000:
		return fmt.Sprintf("%.1f s", float64(us)/1e6)
	case us == 0:
		return "0 ms"
	}
	return fmt.Sprintf("%.1f ms", float64(us)/1e3)
}
