package page

import (
	"reflect"
	"testing"
)

// Holdings lists every page that is not free exactly once, with its owner's state, also while some of them are free again.
func TestHoldings(t *testing.T) {
	l := NewLedger(1, 8, 4)
	if h := l.Holdings(); len(h) != 0 {
		t.Errorf("of an empty pool: %v", h)
	}
	a, b := Owner{Attempt: 1}, Owner{Attempt: 2}
	must(l.Reserve(a, 12))
	must(l.Reserve(b, 5))
	hold(t, l.Fill(b))
	want := []Holding{{a, Reserved, 0, []Run{{0, 3}}}, {b, Filling, 0, []Run{{3, 5}}}}
	if got := l.Holdings(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	hold(t, l.Release(a))
	ids := l.TakeZeroing()
	hold(t, l.Zeroed(ids[1:2]))
	c := Owner{Attempt: 3}
	must(l.Reserve(c, 8)) // the page freed last, and one that was never used
	want = []Holding{{a, Zeroing, 0, []Run{{0, 1}, {2, 3}}}, {c, Reserved, 0, []Run{{1, 2}, {5, 6}}}, {b, Filling, 0, []Run{{3, 5}}}}
	if got := l.Holdings(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	hold(t, l.Zeroed([]ID{ids[0], ids[2]}))
	if got := l.Holdings(); len(got) != 2 {
		t.Errorf("after zeroing: %v", got)
	}
}

func hold(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
