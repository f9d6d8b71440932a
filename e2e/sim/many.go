package sim

import (
	"sync"
	"sync/atomic"
)

// Many runs seeds from first on, on several goroutines (each run has one), until more says no. It returns how many ran, what they
// covered, and the failures. found hears of each failure and says whether to go on; nil ends it at the first, of which there may be
// one for each goroutine.
func Many(first uint64, workers int, found func(*Failure) (goOn bool), more func(done uint64) bool) (done uint64, c *Coverage, failures []*Failure) {
	var next, ran atomic.Uint64
	next.Store(first - 1)
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed atomic.Bool
	c = NewCoverage()
	for range workers {
		wg.Go(func() {
			for !failed.Load() && more(ran.Add(1)-1) {
				r := Run(next.Add(1), Options{})
				mu.Lock()
				done++
				c.Add(r.Coverage)
				if r.Failure != nil {
					failures = append(failures, r.Failure)
					if found == nil || !found(r.Failure) {
						failed.Store(true)
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return done, c, failures
}
