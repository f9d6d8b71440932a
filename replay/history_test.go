package replay

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"quire/bus"
	"quire/journal"
	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// shelf is a world's journal as a stream that grows.
type shelf struct {
	w    *world
	upTo int // messages that are there
}

// Read implements bus.Reader.
func (s *shelf) Read(_ context.Context, _ string, from uint64, fn func(bus.Stored) error) (bus.StreamState, error) {
	for _, it := range s.w.items[:s.upTo] {
		if it.Sequence < from {
			continue
		}
		if err := fn(bus.Stored{Msg: bus.Msg{Subject: it.Subject, Data: it.Data}, Sequence: it.Sequence, Time: it.Time}); err != nil {
			return bus.StreamState{}, err
		}
	}
	return bus.StreamState{First: 1, Last: uint64(s.upTo), Messages: uint64(s.upTo)}, nil
}

// busy is a journal with requests of every kind of end, and one that goes on.
func busy(t *testing.T) *world {
	w := newWorld(t)
	w.play(plan{id: "a", tenant: "acme", n: 9, max: 3, ok: true, output: 3})
	w.play(plan{id: "b", tenant: "umbra", n: 5, max: 3, code: "handoff_count"})
	w.play(plan{id: "c", tenant: "acme", n: 4, max: 4, ok: true, output: 2})
	w.play(plan{id: "d", tenant: "umbra", n: 20, max: 8, ok: true, keep: true})
	w.play(plan{id: "e", tenant: "acme", n: 7, max: 1, ok: true, output: 1})
	return w
}

// owners writes a pool as page=owner pairs, in order.
func owners(of map[uint64]string) string {
	var out []string
	for id, who := range of {
		out = append(out, fmt.Sprintf("%03d=%s", id, who))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// After each message of the stream the history names the same owners as the whole past does, whether it was read at once or
// message by message.
func TestHistoryAgreesWithThePast(t *testing.T) {
	w := busy(t)
	past := w.read()
	s := &shelf{w: w}
	h := NewHistory(s, "QUIRE_JOURNAL")
	for s.upTo = 1; s.upTo <= len(w.items); s.upTo++ {
		if err := h.Follow(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if first, last := h.Range(); first != 1 || last != uint64(len(w.items)) || h.Unread() != 0 {
		t.Fatalf("range %v to %v, unread %d", first, last, h.Unread())
	}
	filled := 0
	for seq := uint64(1); seq <= uint64(len(w.items)); seq++ {
		want := map[uint64]string{}
		for _, p := range past.Pools(Moment{Sequence: seq}) {
			for id, i := range p.Owners {
				want[id] = i.Owner.Key.String()
			}
		}
		at, pools, err := h.At(seq)
		if err != nil || !at.Equal(w.items[seq-1].Time) {
			t.Fatalf("at %d: %v, %v", seq, at, err)
		}
		got := map[uint64]string{}
		for _, p := range pools {
			for _, o := range p.Owners {
				for _, r := range o.Runs {
					for id := r.From; id < r.To; id++ {
						if other, twice := got[uint64(id)]; twice {
							t.Errorf("at %d: page %d has %s and %s", seq, id, other, o.Key)
						}
						got[uint64(id)] = o.Key.String()
					}
				}
			}
		}
		if owners(got) != owners(want) {
			t.Errorf("at %d: %s\nwant %s", seq, owners(got), owners(want))
		}
		filled += len(got)
	}
	if filled < 50 {
		t.Errorf("%d pages seen with an owner: nothing was compared", filled)
	}
}

// The states of one attempt's pages, one record after the other.
func TestHistoryStates(t *testing.T) {
	w := newWorld(t)
	from := len(w.items)
	w.play(plan{id: "a", tenant: "acme", n: 9, max: 3, ok: true, output: 3})
	w.play(plan{id: "b", tenant: "umbra", n: 5, max: 3, code: "handoff_count"})
	h := NewHistory(&shelf{w: w, upTo: len(w.items)}, "QUIRE_JOURNAL")
	if err := h.Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for seq := from + 1; seq <= len(w.items); seq++ {
		_, pools, err := h.At(uint64(seq))
		if err != nil || len(pools) != 1 || pools[0].Counts.Total != 16 || pools[0].PageSize != pageSize || pools[0].Worker.ID != "d1" {
			t.Fatalf("at %d: %+v, %v", seq, pools, err)
		}
		if len(pools[0].Owners) == 0 {
			got = append(got, "free")
			continue
		}
		o := pools[0].Owners[0]
		got = append(got, [...]string{"free", "reserved", "filling", "owned", "zeroing", "quarantined"}[o.State])
		if o.State == page.Owned && (o.Tenant != "acme" || o.Prompt != 9 || o.Output != 0) || o.State == page.Zeroing && o.Output != 3 {
			t.Errorf("at %d: %+v", seq, o)
		}
	}
	want := "reserved reserved filling owned owned owned zeroing free free reserved reserved filling filling filling quarantined free free"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
	if _, _, err := h.At(uint64(len(w.items) + 1)); err == nil {
		t.Error("the future is known")
	}
}

// A life ends with its last word or with its successor's first one, and its pool with it.
func TestHistoryFollowsLives(t *testing.T) {
	w := newWorld(t)
	w.play(plan{id: "a", tenant: "acme", n: 9, max: 3, ok: true, keep: true})
	before := uint64(len(w.items))
	younger := d1
	younger.Epoch++
	w.put(younger, journal.Record{Facts: journal.Started{Version: "0.1.0", Pages: 32, PageSize: pageSize}})
	w.put(younger, journal.Record{Facts: journal.Stopped{}})
	h := NewHistory(&shelf{w: w, upTo: len(w.items)}, "QUIRE_JOURNAL")
	if err := h.Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	for seq, want := range map[uint64]string{before: "5: 16 pages, 1 owners", before + 1: "6: 32 pages, 0 owners", before + 2: ""} {
		_, pools, err := h.At(seq)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, p := range pools {
			got += fmt.Sprintf("%d: %d pages, %d owners", p.Worker.Epoch, p.Counts.Total, len(p.Owners))
		}
		if got != want {
			t.Errorf("at %d: %q, want %q", seq, got, want)
		}
	}
}

// A stream that is longer than what is kept is told from its end, and what still holds at the cut is not lost.
func TestHistoryForgets(t *testing.T) {
	w := newWorld(t)
	w.play(plan{id: "long", tenant: "acme", n: 9, max: 3, ok: true, keep: true})
	for i := range 40 {
		w.play(plan{id: fmt.Sprintf("r%02d", i), tenant: "umbra", n: 5, max: 3, ok: true, output: 1})
	}
	h := NewHistory(&shelf{w: w, upTo: len(w.items)}, "QUIRE_JOURNAL")
	h.limit = 64
	if err := h.Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, last := h.Range()
	if n := last - first + 1; last != uint64(len(w.items)) || n > 64 || n < 48 {
		t.Fatalf("range %d to %d", first, last)
	}
	_, pools, err := h.At(last)
	if err != nil || len(pools) != 1 || len(pools[0].Owners) != 1 || pools[0].Owners[0].Tenant != "acme" {
		t.Errorf("%+v, %v", pools, err)
	}
	if c := pools[0].Counts; c.Owned != 3 || c.Free != 13 || c.Total != 16 {
		t.Errorf("%+v", c)
	}
	if _, _, err := h.At(first - 1); err == nil {
		t.Error("what was dropped is still told")
	}
	if n := len(h.spans); n > 20 {
		t.Errorf("%d spans are kept", n)
	}
	if h.spans[(plan{id: "long"}).key()] == nil {
		t.Error("the span that goes on is gone")
	}
}

// What cannot be read is counted and changes nothing.
func TestHistoryTakesAnything(t *testing.T) {
	w := newWorld(t)
	w.items = append(w.items, Item{Sequence: uint64(len(w.items) + 1), Time: w.now, Data: []byte("{}\nnothing")})
	w.put(d1, journal.Record{Facts: journal.Zeroed{Pages: journal.Spans{{-3, 2}, {0, journal.MaxPages + 1}, {4, 6}}}})
	w.put(d1, journal.Record{Key: kvtransfer.Key{Attempt: 9}, Facts: journal.Finished{Finish: "stop"}})
	h := NewHistory(&shelf{w: w, upTo: len(w.items)}, "QUIRE_JOURNAL")
	if err := h.Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, pools, err := h.At(uint64(len(w.items))); err != nil || len(pools) != 1 || len(pools[0].Owners) != 0 || h.Unread() != 2 {
		t.Errorf("%+v, %v, unread %d", pools, err, h.Unread())
	}
	h.reader = &shelf{w: w, upTo: 2}
	if err := h.Follow(t.Context()); err == nil {
		t.Error("another stream under the same name is read on")
	}
}

// BenchmarkHistory reads records, and says how much is kept of each hand-off.
func BenchmarkHistory(b *testing.B) {
	w := newWorld(&testing.T{})
	const plays = 2000
	for i := range plays {
		w.play(plan{id: fmt.Sprintf("%04d", i), tenant: "acme", n: 40, max: 8, ok: true, output: 3})
	}
	s := &shelf{w: w, upTo: len(w.items)}
	kept := make([]*History, 0, b.N)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for b.Loop() {
		h := NewHistory(s, "QUIRE_JOURNAL")
		if err := h.Follow(b.Context()); err != nil {
			b.Fatal(err)
		}
		kept = append(kept, h)
	}
	b.StopTimer()
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(len(w.items)*b.N)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(kept)*plays), "B/hand-off")
	runtime.KeepAlive(kept)
}
