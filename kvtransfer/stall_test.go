package kvtransfer

import "testing"

func TestStall(t *testing.T) {
	var s Stall
	look := func(what string, want Tick) {
		t.Helper()
		if s.Quiet() != want {
			t.Errorf("%s: quiet for %d us, want %d", what, s.Quiet(), want)
		}
	}
	s.Pass(50 * Millisecond)
	look("nothing is out", 0)
	s.Began()
	s.Pass(50 * Millisecond)
	s.Pass(-Second)
	look("one is out", 50*Millisecond)
	s.Began()
	s.Pass(60 * Millisecond)
	look("a second one began", 110*Millisecond)
	s.Pass(Second * 60)
	look("the owner was stopped for a minute", 210*Millisecond)
	s.Ended()
	look("one came back", 0)
	s.Pass(30 * Millisecond)
	look("the other is still out", 30*Millisecond)
	s.Ended()
	s.Ended()
	s.Pass(30 * Millisecond)
	look("all are back, and one that nobody sent", 0)
	s.Began()
	s.Pass(40 * Millisecond)
	look("the next", 40*Millisecond)
}
