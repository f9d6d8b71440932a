package replay

import (
	"slices"

	"quire/journal"
	"quire/kvtransfer"
)

// Report of Verify: what was looked at, and what is not as it should be.
type Verification struct {
	Extent    Extent               `json:"extent"`
	Records   int                  `json:"records"`
	Lives     int                  `json:"lives"`
	Requests  int                  `json:"requests"`
	Attempts  int                  `json:"attempts"`
	Open      int                  `json:"open"` // attempts that had not ended when the record ends
	Kinds     map[journal.Kind]int `json:"kinds"`
	Rules     []Rule               `json:"rules"`
	Findings  []Finding            `json:"findings"`
	Broken    int                  `json:"broken"`
	Missing   int                  `json:"incomplete"`
	Truncated bool                 `json:"truncated,omitempty"` // more findings than are listed
}

// Rule is one rule that was checked, and how often.
type Rule struct {
	Name   string `json:"name"`
	Says   string `json:"says"`
	Looked int    `json:"looked"` // at so many cases
	Broken int    `json:"broken"`
}

// rules are checked over every attempt or request. Those of chain and pages are checked while reading.
var rules = []struct {
	name, says string
	attempt    func(*checker, *Attempt)
	request    func(*checker, *Request)
}{
	{"chain", "every record is there, in order, as it was written, and signed where it must be", nil, nil},
	{"stream", "the stream has every sequence", nil, nil},
	{"tail", "every life shows its end, or is alive", nil, nil},
	{"one owner", "a page has one owner at a time", nil, nil},
	{"generation", "a page's generation grows with each owner", nil, nil},
	{"quarantine", "a page that leaves quarantine skips a generation", nil, nil},
	{"released", "a page is cleared after its owner has ended and before the next one", nil, nil},
	{"tenant", "every record of a request names the same tenant", nil, nil},
	{"once", "an attempt is promised, claimed, judged and ended once", nil, nil},
	{"gate", "a verdict of yes adds up: cached + sent = rows, and pages, claim and reservation are those promised", (*checker).gate, nil},
	{"rows", "kernels read no row that no frame of this attempt had filled in every layer", (*checker).rows, nil},
	{"verdict", "the journal had a verdict of yes before kernels read", (*checker).verdict, nil},
	{"witness", "no token leaves before the witness has agreed", (*checker).witness, nil},
	{"end", "an attempt that was promised ends, well or with one error, never with both", (*checker).end, nil},
	{"one terminal", "a request ends once: its last attempt and the router tell the same", nil, (*checker).terminal},
	{"two legs", "prefill's account of what it sent is decode's of what came", (*checker).legs, nil},
}

type checker struct {
	p    *Past
	name string
	seen int
}

func (c *checker) broken(ev *Event, k kvtransfer.Key, format string, args ...any) {
	seq := uint64(0)
	if ev != nil {
		seq = ev.Sequence
	}
	c.p.find(Broken, c.name, seq, k, format, args...)
}

// Verify checks every rule that the facts can show. Which of DESIGN's invariants they cannot show, docs/replay.md says.
func (p *Past) Verify() Verification {
	kept := len(p.Findings)
	p.compact()
	defer func() { p.Findings = p.Findings[:kept] }()
	v := Verification{Extent: p.Extent, Records: p.Records, Lives: len(p.Lives), Requests: len(p.Requests), Attempts: len(p.Attempts), Kinds: p.Kinds}
	for _, r := range rules {
		c := &checker{p: p, name: r.name}
		switch {
		case r.attempt != nil:
			for _, a := range p.Attempts {
				r.attempt(c, a)
			}
		case r.request != nil:
			for _, q := range p.Requests {
				r.request(c, q)
			}
		default:
			c.seen = p.cases(r.name)
		}
		if p.thin != nil {
			c.seen += p.thin.seen[r.name]
		}
		v.Rules = append(v.Rules, Rule{Name: r.name, Says: r.says, Looked: c.seen})
	}
	for _, a := range p.Attempts {
		if a.Reserved != nil && a.Finished == nil {
			v.Open++
		}
	}
	if p.thin != nil {
		v.Requests += p.thin.requests
		v.Attempts += p.thin.attempts
	}
	v.Findings = append([]Finding{}, p.Findings...)
	v.Truncated = len(v.Findings) >= maxFindings
	for _, f := range v.Findings {
		switch f.Level {
		case Broken:
			v.Broken++
		case Incomplete:
			v.Missing++
		}
		for i := range v.Rules {
			if v.Rules[i].Name == f.Rule && f.Level == Broken {
				v.Rules[i].Broken++
			}
		}
	}
	return v
}

// cases is how much a rule that was checked while reading had to look at.
func (p *Past) cases(rule string) int {
	n := 0
	switch rule {
	case "chain":
		n = p.Records
	case "stream":
		n = int(p.Extent.Messages)
	case "tail":
		n = len(p.Lives)
	case "tenant", "once":
		n = len(p.Attempts)
		if p.thin != nil {
			n += p.thin.attempts
		}
	default:
		if p.thin != nil {
			n += p.thin.pages
		}
		for _, l := range p.Lives {
			for _, is := range l.pages {
				n += len(is)
			}
		}
	}
	return n
}

func (c *checker) gate(a *Attempt) {
	if a.Verdict == nil {
		return
	}
	c.seen++
	v := a.Verdict.Facts.(journal.Verdict)
	if v.OK == (v.Code != "") {
		c.broken(a.Verdict, a.Key, "verdict %t with code %q", v.OK, v.Code)
	}
	if !v.OK || v.Path != "received" {
		return
	}
	if v.C+v.Sent != v.N {
		c.broken(a.Verdict, a.Key, "admitted %d rows, manifest says %d and cached %d", v.N, v.Sent, v.C)
	}
	if a.Reserved == nil {
		if !c.p.Partial {
			c.broken(a.Verdict, a.Key, "a verdict without a promise")
		}
		return
	}
	r := a.Reserved.Facts.(journal.Reserved)
	if v.N != r.N || v.C != r.C || v.Reservation != r.Reservation {
		c.broken(a.Verdict, a.Key, "promised %d rows and %d cached, judged %d and %d; same reservation %t", r.N, r.C, v.N, v.C, v.Reservation == r.Reservation)
	}
	if !slices.Equal(v.Pages, r.Pages) {
		c.broken(a.Verdict, a.Key, "promised %d pages, owns %d, or of other generations", len(r.Pages), len(v.Pages))
	}
	if want := kvtransfer.PagesFor(r.N+r.MaxTokens, max(1, r.PageSize)); len(r.Pages) != want {
		c.broken(a.Reserved, a.Key, "%d + %d rows take %d pages, promised %d", r.N, r.MaxTokens, want, len(r.Pages))
	}
	if a.Claimed == nil || a.Claimed.Sequence > a.Verdict.Sequence || a.Claimed.Facts.(journal.Claimed).Claim != v.Claim {
		c.broken(a.Verdict, a.Key, "the verdict's claim is not the one that bound the attempt")
	}
}

func (c *checker) rows(a *Attempt) {
	if a.Reserved == nil {
		return
	}
	how, read := a.reading()
	if !read {
		return
	}
	c.seen++
	r := a.Reserved.Facts.(journal.Reserved)
	if missing := how.written.Missing(r.C, min(how.rows, r.N)); len(missing) > 0 {
		at := a.Finished
		if at == nil {
			at = a.Witness
		}
		c.broken(at, a.Key, "kernels could read %d rows, %d of them never written for this attempt: %v", how.rows, missing.Rows(), missing)
	}
}

func (c *checker) verdict(a *Attempt) {
	how, read := a.reading()
	if !read {
		return
	}
	c.seen++
	first := a.Witness
	if first == nil {
		first = a.Finished
	}
	switch {
	case how.unjournaled:
		c.broken(first, a.Key, "kernels read without an acknowledged verdict: decode was told to work on without a journal")
	case a.Verdict == nil && c.p.Partial:
	case a.Verdict == nil || a.Verdict.Sequence > first.Sequence || !a.Verdict.Facts.(journal.Verdict).OK:
		c.broken(first, a.Key, "kernels read and there is no verdict of yes before")
	}
}

func (c *checker) witness(a *Attempt) {
	if a.Finished == nil {
		return
	}
	f := a.Finished.Facts.(journal.Finished)
	if f.Output == 0 {
		return
	}
	c.seen++
	switch {
	case a.Verdict != nil && a.Verdict.Facts.(journal.Verdict).Path == "local":
	case a.Witness == nil && !c.p.Partial, a.Witness != nil && a.Witness.Facts.(journal.Witness).Result != "agreed":
		c.broken(a.Finished, a.Key, "%d tokens left and the witness had not agreed", f.Output)
	}
}

func (c *checker) end(a *Attempt) {
	if a.Reserved == nil {
		return
	}
	c.seen++
	if a.Finished != nil {
		f := a.Finished.Facts.(journal.Finished)
		if (f.Finish == "") == (f.Code == "") {
			c.broken(a.Finished, a.Key, "ends with finish %q and code %q", f.Finish, f.Code)
		}
		return
	}
	l := a.Reserved.Life
	if l.Chain.Stopped || l.Lost > 0 || c.p.last.Sequence == l.Last.Sequence {
		return
	}
	if req := c.p.requests[a.Key.ID]; req.Finished != nil && c.p.last.Time.Sub(req.Finished.Time) > journal.SilentAfter {
		c.p.find(Incomplete, "end", a.Reserved.Sequence, a.Key, "the request is over and decode's record of this attempt has no end")
	}
}

func (c *checker) terminal(q *Request) {
	if q.Finished == nil {
		return
	}
	c.seen++
	f := q.Finished.Facts.(journal.Finished)
	k := kvtransfer.Key{ID: q.ID}
	if (f.Finish == "") == (f.Code == "") {
		c.broken(q.Finished, k, "ends with finish %q and code %q", f.Finish, f.Code)
	}
	if f.Finish == "" || len(q.Attempts) == 0 {
		return
	}
	last := q.Attempts[len(q.Attempts)-1]
	if last.Finished == nil {
		if last.Reserved != nil && last.Reserved.Life.Lost == 0 && c.p.last.Time.Sub(q.Finished.Time) > journal.SilentAfter {
			c.p.find(Incomplete, c.name, q.Finished.Sequence, last.Key, "the client got a whole answer and decode's record of it has no end")
		}
		return
	}
	d := last.Finished.Facts.(journal.Finished)
	res := last.resumed()
	if d.Finish != f.Finish || d.Output+res != f.Output {
		c.broken(q.Finished, last.Key, "the router told %q after %d tokens, decode %q after %d and %d earlier ones", f.Finish, f.Output, d.Finish, d.Output, res)
	}
}

// resumed is how many output tokens an earlier attempt had made.
func (a *Attempt) resumed() int {
	if a.Reserved == nil {
		return 0
	}
	if r := a.Reserved.Facts.(journal.Reserved); r.Prompt > 0 {
		return r.N - r.Prompt
	}
	return 0
}

func (c *checker) legs(a *Attempt) {
	if a.Sent == nil || a.Verdict == nil || !a.Verdict.Facts.(journal.Verdict).OK {
		return
	}
	s, v := a.Sent.Facts.(journal.Sent), a.Verdict.Facts.(journal.Verdict)
	if s.Claim != v.Claim {
		return
	}
	c.seen++
	if s.N != v.N || s.Frames != v.Frames || s.State == "done" && s.Rows != v.Sent+v.C {
		c.broken(a.Sent, a.Key, "prefill computed %d of %d rows and sent %d frames, decode judged %d rows, %d sent, in %d frames", s.Rows, s.N, s.Frames, v.N, v.Sent, v.Frames)
	}
}
