package router

import (
	"strings"
	"testing"

	"quire/kvtransfer"
)

// Flights name each request's step, oldest first, and change nothing.
func TestFlights(t *testing.T) {
	w := newWorld(t, Policy{})
	if list, all := w.l.Flights(); len(list) != 0 || all != 0 {
		t.Errorf("of nothing: %v", list)
	}
	w.submit("a", 100, 28)
	first := w.place()
	w.do(Replied{Key: first, Number: 0, Body: good()})
	w.do(Replied{Key: first, Number: 1, Body: tokens(5, 6)})
	w.submit("big", 150, 50) // 50 of decode's 64 pages: has to wait
	w.submit("b", 4, 4)
	w.pass(200 * ms)
	before := w.l.Dump()
	list, all := w.l.Flights()
	var got []string
	for _, f := range list {
		got = append(got, f.Tenant+" "+f.Step)
	}
	if all != 3 || strings.Join(got, ", ") != "a running, big queued, b reserving" || w.l.Dump() != before {
		t.Fatalf("%d: %v", all, got)
	}
	if f := list[0]; f.ID != first.ID || f.Attempt != 1 || f.Decode != "d1" || f.Prompt != 100 || f.Output != 2 || f.Max != 28 || f.Age < 200*ms {
		t.Errorf("%+v", f)
	}
	if f := list[1]; f.Attempt != 0 || f.Decode != "" || f.Prefill != "" {
		t.Errorf("%+v", f)
	}
	for range MaxFlights {
		w.submit("many", 150, 50)
	}
	if list, all := w.l.Flights(); len(list) > MaxFlights || all < len(list) || list[0].ID != first.ID {
		t.Errorf("%d listed of %d", len(list), all)
	}
}

// A worker that may alone take the job is named before it has claimed it.
func TestFlightsNameTheTarget(t *testing.T) {
	w := newWorld(t, Policy{})
	w.do(Heard{beatOf(kvtransfer.RolePrefill, "p2", 1, 64, 2)})
	w.submit("a", 4, 4)
	w.do(Replied{Key: w.place(), Number: 0, Body: badBy("p1", kvtransfer.HandoffContent, "digest")})
	if list, _ := w.l.Flights(); len(list) != 1 || list[0].Prefill != "p2" || list[0].Attempt != 2 {
		t.Errorf("%+v", list)
	}
}
