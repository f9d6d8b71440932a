package sim

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestSmallWorlds visits every state of the hand-off's core with two requests of two pages and one fault of each kind, in a
// pool in which the second request takes pages that the first one had. The command searches the pool in which both run at a time.
func TestSmallWorlds(t *testing.T) {
	var wg sync.WaitGroup
	var states atomic.Int64
	for _, fault := range SmallFaults {
		wg.Go(func() {
			r := Search(fault, 3)
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
