package sim

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestPairs visits every order in which messages arrive and operations end between one prefill loop and one decode loop, with
// two requests that take turns on the same pages, for the kinds of fault that take seconds; the command takes them all.
func TestPairs(t *testing.T) {
	var wg sync.WaitGroup
	var states atomic.Int64
	for _, fault := range []string{"none", "a message lost", "journal fails"} {
		wg.Go(func() {
			r := SearchPair(fault)
			if r.Err != nil {
				t.Error(r.Err)
			}
			states.Add(int64(r.States))
			t.Logf("%-26s %7d states, %7d moves, %5d ends, %5d with both served", fault+":", r.States, r.Moves, r.Ends, r.Served)
		})
	}
	wg.Wait()
	t.Logf("%d states", states.Load())
}
