package replay

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"quire/journal"
	"quire/kvtransfer"
)

// Victim is an earlier owner of page slots that a response read without their being written for it.
type Victim struct {
	Handoff string        `json:"handoff"` // with its attempt
	Tenant  string        `json:"tenant"`
	Rows    int           `json:"rows"`   // of the reader, that lay where the victim's were
	Pages   int           `json:"pages"`  //
	Spans   journal.Spans `json:"spans"`  // of the reader's rows
	Zeroed  bool          `json:"zeroed"` // the record says that the pages were cleared in between

	key   kvtransfer.Key
	pages map[uint64]bool
}

// Response is one attempt whose kernels read rows that were not written for it, or read at all without a verdict.
type Response struct {
	Handoff   string        `json:"handoff"`
	Request   string        `json:"request"`
	Tenant    string        `json:"tenant"`
	Time      string        `json:"time"`     // of the server, RFC 3339, when the gate's verdict was stored, or the first record after it
	Sequence  uint64        `json:"sequence"` // of the verdict
	Decode    string        `json:"decode"`
	Prefill   string        `json:"prefill,omitempty"`
	Prompt    int           `json:"prompt"`   // rows promised
	Sent      int           `json:"sent"`     // rows that the manifest stated
	Received  int           `json:"received"` // rows that frames filled in every layer
	Output    int           `json:"output"`   // tokens that left decode
	Finish    string        `json:"finish,omitempty"`
	Unwritten journal.Spans `json:"unwritten,omitempty"` // rows that were read and not written for it
	NoVerdict bool          `json:"no_verdict,omitempty"`
	Victims   []Victim      `json:"victims,omitempty"` // most rows first

	key kvtransfer.Key
}

// Foreign says that a victim is of another tenant.
func (r Response) Foreign() bool {
	return slices.ContainsFunc(r.Victims, func(v Victim) bool { return v.Tenant != r.Tenant })
}

// Exposure is the answer to: which responses could have been exposed, and to whose data?
type Exposure struct {
	Since     string     `json:"since,omitempty"`
	Until     string     `json:"until,omitempty"`
	Answers   int        `json:"answers"`        // responses in the window: attempts of which tokens left decode
	Exposed   []Response `json:"exposed"`        // responses that read rows of an earlier owner, or rows without a verdict
	Foreign   int        `json:"foreign"`        // of those, how many touched another tenant's
	Contained []Response `json:"contained"`      // kernels read such rows, and no token left
	Unowned   []Response `json:"unowned"`        // responses that read rows that nobody had written before either
	Notice    string     `json:"notice"`         // counts as a public notice would give them
	Complete  bool       `json:"complete"`       // the record has no gap that could hide one
	Gaps      []Finding  `json:"gaps,omitempty"` // what could
}

// Exposure looks at every attempt whose pages decode read in [since, until); zero times are open ends. tenant "" means all,
// otherwise only its responses and those that were exposed to its data.
func (p *Past) Exposure(since, until time.Time, tenant string) Exposure {
	var e Exposure
	stamp := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339)
	}
	e.Since, e.Until = stamp(since), stamp(until)
	for _, a := range p.Attempts {
		at := a.Verdict
		if at == nil {
			if at = a.Witness; at == nil {
				at = a.Finished
			}
		}
		if at == nil || !since.IsZero() && at.Time.Before(since) || !until.IsZero() && !at.Time.Before(until) {
			continue
		}
		r, read := p.read(a)
		if tenant != "" && r.Tenant != tenant && !slices.ContainsFunc(r.Victims, func(v Victim) bool { return v.Tenant == tenant }) {
			continue
		}
		if r.Output > 0 {
			e.Answers++
		}
		if r.Time == "" {
			r.Time = at.Time.Format("2006-01-02T15:04:05.000Z07:00")
		}
		switch {
		case !read || len(r.Unwritten) == 0 && !r.NoVerdict:
		case r.Output == 0:
			e.Contained = append(e.Contained, r)
		case len(r.Victims) == 0 && !r.NoVerdict:
			e.Unowned = append(e.Unowned, r)
		default:
			e.Exposed = append(e.Exposed, r)
			if r.Foreign() {
				e.Foreign++
			}
		}
	}
	for _, f := range p.Findings {
		if f.Rule == "chain" || f.Rule == "stream" || f.Rule == "complete" && f.Level == Incomplete || f.Rule == "tail" && f.Level == Incomplete {
			e.Gaps = append(e.Gaps, f)
		}
	}
	e.Complete = len(e.Gaps) == 0
	e.Notice = e.notice()
	return e
}

// reading is what the last record about it says that kernels could read of an attempt's pages.
type reading struct {
	rows, own   int // readable; written by decode itself from n on
	written     journal.Spans
	output      int
	finish      string
	unjournaled bool
}

func (a *Attempt) reading() (r reading, read bool) {
	if a.Witness != nil {
		w := a.Witness.Facts.(journal.Witness)
		r = reading{rows: w.Read, written: w.Written, unjournaled: w.Unjournaled}
		if w.FirstToken {
			r.output = 1
		}
	}
	if a.Finished != nil {
		f := a.Finished.Facts.(journal.Finished)
		r.rows, r.written, r.unjournaled = f.Read, f.Written, f.Unjournaled
		r.own, r.output, r.finish = f.Rows, f.Output, f.Finish
	}
	if a.Verdict != nil && a.Verdict.Facts.(journal.Verdict).Path == "local" {
		r.written = journal.Spans{{0, a.Verdict.Facts.(journal.Verdict).N}} // computed here, under a view that grows with the rows
	}
	return r, r.rows > 0
}

// read works out what one attempt read that was not written for it, and who had written it last.
func (p *Past) read(a *Attempt) (Response, bool) {
	out := Response{Handoff: a.Key.String(), Request: hex.EncodeToString(a.Key.ID[:]), Tenant: a.Tenant, key: a.Key}
	how, read := a.reading()
	out.Output, out.Finish = how.output, how.finish
	if a.Reserved == nil {
		return out, false
	}
	res := a.Reserved.Facts.(journal.Reserved)
	out.Prompt, out.Decode = res.N, a.Reserved.Life.Name()
	if a.Claimed != nil {
		out.Prefill = a.Claimed.Facts.(journal.Claimed).Prefill
	}
	first := a.Witness
	if first == nil {
		first = a.Finished
	}
	admitted := false
	if a.Verdict != nil {
		v := a.Verdict.Facts.(journal.Verdict)
		out.Sent, out.Time, out.Sequence = v.Sent, a.Verdict.Time.Format("2006-01-02T15:04:05.000Z07:00"), a.Verdict.Sequence
		admitted = v.OK && first != nil && a.Verdict.Sequence < first.Sequence
	}
	if !read {
		return out, false
	}
	out.NoVerdict = !admitted || how.unjournaled
	out.Received = how.written.Rows()
	out.Unwritten = how.written.Missing(0, min(how.rows, res.N))
	p.victims(&out, a, res)
	return out, true
}

// victims walks back from every row that was not written to whoever wrote that slot of that page last.
func (p *Past) victims(out *Response, a *Attempt, res journal.Reserved) {
	size := res.PageSize
	if size < 1 || size > maxPageSize {
		return
	}
	byOwner := map[kvtransfer.Key]*Victim{}
	for _, span := range out.Unwritten {
		for i := span[0] / size; i < len(res.Pages) && i*size < span[1]; i++ {
			rows := journal.Spans{}.Add(max(span[0], i*size), min(span[1], (i+1)*size))
			a.Reserved.Life.lastWriters(res.Pages[i], rows, i*size, func(owner *Attempt, zeroed bool, of journal.Spans) {
				v := byOwner[owner.Key]
				if v == nil {
					v = &Victim{Handoff: owner.Key.String(), Tenant: owner.Tenant, key: owner.Key, Zeroed: true, pages: map[uint64]bool{}}
					byOwner[owner.Key] = v
				}
				for _, o := range of {
					v.Spans = v.Spans.Add(o[0], o[1])
				}
				v.Zeroed = v.Zeroed && zeroed
				v.pages[res.Pages[i][0]] = true
			})
		}
	}
	for _, v := range byOwner {
		v.Pages, v.Rows = len(v.pages), v.Spans.Rows()
		out.Victims = append(out.Victims, *v)
	}
	slices.SortFunc(out.Victims, func(a, b Victim) int { return cmp.Or(b.Rows-a.Rows, cmp.Compare(a.Handoff, b.Handoff)) })
}

// maxPageSize bounds what a record may claim a page to be: slots.
const maxPageSize = 1 << 16

// lastWriters gives, for rows of a page, the owners before a that wrote their slots last, each with the rows. base is the row in
// the page's first slot. zeroed says that the record has the page cleared since.
func (l *Life) lastWriters(s journal.Slot, rows journal.Spans, base int, found func(owner *Attempt, zeroed bool, rows journal.Spans)) {
	zeroed := false
	for _, i := range slices.Backward(l.pages[s[0]]) {
		if len(rows) == 0 {
			return
		}
		if i.Gen >= s[1] {
			continue
		}
		zeroed = zeroed || i.Until != nil
		of, rest := i.Owner.wrote(i.Position, rows, base)
		if len(of) > 0 {
			found(i.Owner, zeroed, of)
		}
		rows = rest
	}
}

// wrote splits rows of a later owner of a page, whose first slot has row base, by whether this one wrote their slots: by a
// frame, or by a step of decode's own.
func (a *Attempt) wrote(position int, rows journal.Spans, base int) (did, not journal.Spans) {
	res := a.Reserved.Facts.(journal.Reserved)
	how, _ := a.reading()
	written := how.written
	if a.Witness == nil && a.Finished == nil && a.Verdict != nil {
		written = a.Verdict.Facts.(journal.Verdict).Written
	}
	if how.own > res.N {
		written = written.Add(res.N, how.own)
	}
	if res.PageSize < 1 || res.PageSize > maxPageSize {
		return nil, rows
	}
	shift := position*res.PageSize - base
	for _, o := range rows {
		at := o[0]
		for _, m := range written.Missing(o[0]+shift, o[1]+shift) {
			not = not.Add(m[0]-shift, m[1]-shift)
			did = did.Add(at, m[0]-shift)
			at = m[1] - shift
		}
		did = did.Add(at, o[1])
	}
	return did, not
}

func (e Exposure) notice() string {
	window := "in the record"
	if e.Since != "" || e.Until != "" {
		window = fmt.Sprintf("between %s and %s", cmp.Or(e.Since, "the beginning"), cmp.Or(e.Until, "the end"))
	}
	if len(e.Exposed) == 0 {
		return fmt.Sprintf("None of %d responses %s read rows of an earlier owner.", e.Answers, window)
	}
	least, most, received := e.Exposed[0].Prompt, e.Exposed[0].Prompt, 0
	for _, r := range e.Exposed {
		least, most, received = min(least, r.Prompt), max(most, r.Prompt), max(received, r.Received)
	}
	prompts := fmt.Sprintf("prompts of %d to %d tokens", least, most)
	if least == most {
		prompts = fmt.Sprintf("prompts of %d tokens", least)
	}
	return fmt.Sprintf("%d of %d responses %s could contain data of earlier requests, %d of them data of another tenant; all had %s, of which decode had received at most %d.",
		len(e.Exposed), e.Answers, window, e.Foreign, prompts, received)
}
