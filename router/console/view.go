package console

import (
	"cmp"
	"context"
	"encoding/hex"
	"maps"
	"slices"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/router"
)

// view is what the page shows at one moment.
type view struct {
	Time      int64     `json:"time"` // Unix, milliseconds
	Router    string    `json:"router"`
	Epoch     uint64    `json:"epoch"`
	Version   string    `json:"version"`
	Model     string    `json:"model"`
	Limit     int       `json:"limit"` // tokens of a request
	LimitedBy string    `json:"limited_by"`
	Missing   []string  `json:"missing"` // why a request would be refused now
	Named     bool      `json:"named"`   // tenants by name
	SignedIn  bool      `json:"signed_in"`
	Keyed     bool      `json:"keyed"` // the chat box needs an API key
	Slider    bool      `json:"slider"`
	Counts    counts    `json:"counts"`
	Refusals  []refusal `json:"refusals"`
	Turned    []turned  `json:"turned"`
	Pools     []pool    `json:"pools"`
	Flights   []flight  `json:"flights"`
	InFlight  int       `json:"in_flight"`
	Point     *point    `json:"point"` // the newest of the series
}

type counts struct {
	Waiting    int    `json:"waiting"`
	Prefilling int    `json:"prefilling"`
	Running    int    `json:"running"`
	Prefills   int    `json:"prefills"`
	Decodes    int    `json:"decodes"`
	Requests   uint64 `json:"requests"`
	Good       uint64 `json:"good"` // ended with stop or length
	Attempts   uint64 `json:"attempts"`
	Retries    uint64 `json:"retries"`
	Corrupt    uint64 `json:"corrupt"` // refused by gate or witness
}

// refusal is how often requests ended with one error.
type refusal struct {
	Code  string `json:"code"`
	Class string `json:"class"`
	Count uint64 `json:"count"`
	Help  string `json:"help"`
}

// turned is how many messages a process turned away for one reason.
type turned struct {
	Who    string `json:"who"`
	Reason string `json:"reason"`
	Count  uint64 `json:"count"`
}

// who is a tenant or a hand-off: what to call it, and a colour that is its own.
type who struct {
	Name string `json:"name"`
	Hue  int    `json:"hue"` // degrees
}

type pool struct {
	Role     string  `json:"role"`
	ID       string  `json:"id"`
	Epoch    uint64  `json:"epoch"`
	PageSize int     `json:"page_size"`
	Pages    int     `json:"pages"`
	States   []int   `json:"states"` // free, reserved, filling, owned, zeroing, quarantined
	Owners   []owner `json:"owners"`
	Omitted  int     `json:"omitted"`
}

type owner struct {
	Handoff who         `json:"handoff"`
	Tenant  who         `json:"tenant"`
	State   string      `json:"state"`
	Step    string      `json:"step"`
	Rows    int         `json:"rows"`
	Prompt  int         `json:"prompt"`
	Output  int         `json:"output"`
	Runs    [][2]uint32 `json:"runs"` // pages [from, to)
}

type flight struct {
	Handoff who    `json:"handoff"`
	Tenant  who    `json:"tenant"`
	Step    string `json:"step"`
	Attempt uint32 `json:"attempt"`
	Decode  string `json:"decode"`
	Prefill string `json:"prefill"`
	Rows    int    `json:"rows"` // of the prompt, in decode's pages
	Prompt  int    `json:"prompt"`
	Output  int    `json:"output"`
	Max     int    `json:"max"`
	Age     int64  `json:"age"` // milliseconds
}

// states are the pages' states as the page of the console names them, in the order of page.State.
var states = []string{"free", "reserved", "filling", "owned", "zeroing", "quarantined"}

func (c *Console) view(ctx context.Context) view {
	in := c.cfg.Source.Inside(ctx)
	m, st := c.cfg.Source.Model(), in.Stats
	v := view{
		Time: in.Time.UnixMilli(), Router: in.Router.ID, Epoch: in.Router.Epoch, Version: c.cfg.Version, Model: m.ID, Limit: m.MaxModelLen,
		LimitedBy: m.LimitedBy, Missing: c.cfg.Source.Health().Missing, Named: c.names(), SignedIn: c.cfg.Admin.Set(), Keyed: c.cfg.Keyed,
		Slider: c.cfg.Past != nil, InFlight: in.InFlight, Refusals: refusals(st.Ends), Turned: c.turned(in), Pools: c.pools(in.Pools), Flights: []flight{},
	}
	v.Counts = counts{Waiting: st.Queued, Prefilling: st.Prefilling, Running: st.Running, Prefills: st.Prefills, Decodes: st.Decodes,
		Requests: st.Submitted, Attempts: st.Attempts, Retries: st.Retries, Corrupt: st.Corrupt}
	for reason, n := range st.Ends {
		if good(reason) {
			v.Counts.Good += n
		}
	}
	steps := steps(in.Pools)
	for _, f := range in.Flights {
		v.Flights = append(v.Flights, c.flight(f, steps))
	}
	if p, ok := c.series.newest(); ok {
		v.Point = &p
	}
	return v
}

// refusals lists the errors with which requests ended, most frequent first.
func refusals(ends map[string]uint64) []refusal {
	out := []refusal{}
	for _, code := range slices.Sorted(maps.Keys(ends)) {
		if !good(code) {
			m := kvtransfer.Lookup(kvtransfer.Code(code))
			out = append(out, refusal{code, m.Class.String(), ends[code], m.Help})
		}
	}
	slices.SortStableFunc(out, func(a, b refusal) int { return cmp.Compare(b.Count, a.Count) })
	return out
}

// turned lists the messages that were turned away by this router and by the workers that it hears of, most frequent first.
func (c *Console) turned(in router.Inside) []turned {
	out := []turned{}
	add := func(p kvtransfer.Peer, reason string, n uint64) {
		if n > 0 {
			out = append(out, turned{string(p.Role) + " " + p.ID, reason, n})
		}
	}
	add(in.Router, "unsigned", c.cfg.Source.Measures().Unsigned)
	add(in.Router, "reply", in.Stats.RepliesIgnored)
	for _, hb := range in.Stats.Workers {
		for _, r := range hb.Refused.Reasons() {
			add(hb.Peer, r.Name, r.Count)
		}
	}
	slices.SortStableFunc(out, func(a, b turned) int { return cmp.Compare(b.Count, a.Count) })
	return out
}

func (c *Console) pools(from []kvtransfer.Pages) []pool {
	out := []pool{}
	for _, p := range from {
		n := p.Counts
		one := pool{Role: string(p.Worker.Role), ID: p.Worker.ID, Epoch: p.Worker.Epoch, PageSize: p.PageSize, Pages: n.Total,
			States: []int{n.Free, n.Reserved, n.Filling, n.Owned, n.Zeroing, n.Quarantined}, Owners: []owner{}, Omitted: p.Omitted}
		for _, o := range p.Owners {
			runs := make([][2]uint32, len(o.Runs))
			for i, r := range o.Runs {
				runs[i] = [2]uint32{uint32(r.From), uint32(r.To)}
			}
			one.Owners = append(one.Owners, owner{Handoff: c.handoff(o.Key), Tenant: c.tenant(o.Tenant), State: states[min(int(o.State), len(states)-1)],
				Step: o.Step, Rows: o.Rows, Prompt: o.Prompt, Output: o.Output, Runs: runs})
		}
		out = append(out, one)
	}
	return out
}

// steps gives decode's word on each hand-off that it has.
func steps(pools []kvtransfer.Pages) map[kvtransfer.Key]kvtransfer.PageOwner {
	out := map[kvtransfer.Key]kvtransfer.PageOwner{}
	for _, p := range pools {
		if p.Worker.Role != kvtransfer.RoleDecode {
			continue
		}
		for _, o := range p.Owners {
			if o.Step != "" && o.State != page.Free {
				out[o.Key] = o
			}
		}
	}
	return out
}

func (c *Console) flight(f router.Flight, known map[kvtransfer.Key]kvtransfer.PageOwner) flight {
	out := flight{Handoff: c.handoff(kvtransfer.Key{ID: f.ID, Attempt: f.Attempt}), Tenant: c.tenant(f.Tenant), Step: f.Step, Attempt: f.Attempt,
		Decode: f.Decode, Prefill: f.Prefill, Prompt: f.Prompt, Output: f.Output, Max: f.Max, Age: int64(f.Age / kvtransfer.Millisecond)}
	if o, ok := known[kvtransfer.Key{ID: f.ID, Attempt: f.Attempt}]; ok && f.Step != "queued" {
		out.Step, out.Rows = o.Step, min(o.Rows, f.Prompt)
	}
	return out
}

// tenant is a tenant's name where names may be told, else a keyed digest that says no more than "the same one". A tenant that the
// worker does not know any more is "".
func (c *Console) tenant(name string) who {
	if name == "" {
		return who{}
	}
	w := who{Name: name, Hue: c.tenants.of(name)}
	if !c.names() {
		w.Name = "t-" + hex.EncodeToString(c.mac("tenant", name)[:3])
	}
	return w
}

// handoff is a hand-off's id as the journal has it where names may be told, else its beginning.
func (c *Console) handoff(k kvtransfer.Key) who {
	id := k.ID.String()
	w := who{Name: id, Hue: c.owners.of(id)}
	if !c.names() {
		w.Name = id[:8]
	}
	return w
}
