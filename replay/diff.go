package replay

import (
	"fmt"
	"slices"

	"quire/journal"
)

// Difference is one thing in which two requests differ.
type Difference struct {
	What string `json:"what"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// Diff compares the last attempts of two requests: what they were, where they ran, how they ended, how long each step took.
// Same says of a few things that they are the same.
func (p *Past) Diff(x, y *Request) (out []Difference, same []string) {
	a, b := summary(x), summary(y)
	for _, k := range a.order {
		switch va, vb := a.values[k], b.values[k]; {
		case va != vb:
			out = append(out, Difference{k, va, vb})
		case va != "":
			same = append(same, k)
		}
	}
	for _, k := range b.order {
		if !slices.Contains(a.order, k) {
			out = append(out, Difference{k, "", b.values[k]})
		}
	}
	return out, same
}

// facets are named values in order.
type facets struct {
	order  []string
	values map[string]string
}

func (f *facets) set(name, format string, args ...any) {
	if _, ok := f.values[name]; !ok {
		f.order = append(f.order, name)
	}
	f.values[name] = fmt.Sprintf(format, args...)
}

func summary(q *Request) facets {
	f := facets{values: map[string]string{}}
	f.set("tenant", "%s", q.Tenant)
	f.set("attempts", "%d", len(q.Attempts))
	if q.Finished != nil {
		e := q.Finished.Facts.(journal.Finished)
		f.set("answered", "%s%s", e.Finish, e.Code)
		f.set("tokens out", "%d", e.Output)
		f.set("seed", "%d", e.Seed)
		f.set("took", "%s", millis(e.TookMicros))
		f.set("queued", "%s", millis(e.QueuedMicros))
	}
	if len(q.Attempts) == 0 {
		return f
	}
	a := q.Attempts[len(q.Attempts)-1]
	if a.Reserved != nil {
		r := a.Reserved.Facts.(journal.Reserved)
		f.set("prompt digest", "%s", r.Digest)
		f.set("rows", "%d", r.N)
		f.set("max tokens", "%d", r.MaxTokens)
		f.set("decode", "%s", a.Reserved.Life.Name())
		f.set("pages", "%v", []journal.Slot(r.Pages))
		if s := a.Reserved.Life.Started; s != nil {
			f.set("model", "%s %s", s.Model, s.Weights)
			f.set("compute", "%s", s.Compute)
			f.set("version", "%s", s.Version)
		}
	}
	if a.Claimed != nil {
		f.set("prefill", "%s", a.Claimed.Facts.(journal.Claimed).Prefill)
	}
	if a.Sent != nil {
		s := a.Sent.Facts.(journal.Sent)
		f.set("prefill computed", "%s", millis(s.ComputeMicros))
		f.set("prefill took", "%s", millis(s.TookMicros))
	}
	if a.Verdict != nil {
		v := a.Verdict.Facts.(journal.Verdict)
		f.set("gate", "ok %t %s", v.OK, v.Check)
		f.set("rows sent", "%d", v.Sent)
		f.set("frames", "%d, repeated %d, refused %d", v.Frames, v.Repeated, v.Refused)
		if a.Reserved != nil {
			f.set("until the verdict", "%s", millis(int64(a.Verdict.At-a.Reserved.At)))
		}
	}
	if a.Witness != nil {
		w := a.Witness.Facts.(journal.Witness)
		f.set("witness", "%s %s", w.Result, w.Detail)
		if a.Reserved != nil {
			f.set("until the first token", "%s", millis(int64(a.Witness.At-a.Reserved.At)))
		}
	}
	if a.Finished != nil {
		e := a.Finished.Facts.(journal.Finished)
		f.set("ended", "%s%s %s", e.Finish, e.Code, e.Detail)
		f.set("rows read", "%d", e.Read)
	}
	return f
}
