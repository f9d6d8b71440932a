// Sim runs simulated clusters for a time or a count of seeds and tells what was covered.
//
//	go run ./e2e/sim/cmd -for 10m
//	go run ./e2e/sim/cmd -count 1000000
//	go run ./e2e/sim/cmd -seed 48213 -trace
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"quire/e2e/sim"
)

func main() {
	seed := flag.Uint64("seed", 0, "run this seed alone")
	trace := flag.Bool("trace", false, "with -seed: print what happens")
	first := flag.Uint64("from", 0, "first seed; 0 = other ones each time")
	count := flag.Uint64("count", 0, "seeds to run; 0 = until the time is over")
	length := flag.Duration("for", time.Minute, "how long to run; ignored with -count")
	workers := flag.Int("workers", runtime.GOMAXPROCS(0), "runs at a time")
	small := flag.Int("small", 0, "search the small worlds of so many pages (3 or 4) instead: every order of things, one fault of each kind")
	pairs := flag.Bool("pairs", false, "search the small worlds of the loops instead")
	fault := flag.String("fault", "", "with -small or -pairs: this kind alone")
	quiet := flag.Bool("quiet", false, "no table")
	goOn := flag.Bool("go-on", false, "do not end at the first failure")
	flag.Parse()
	debug.SetGCPercent(800) // runs are short and leave much garbage
	if *small != 0 {
		os.Exit(search(chosen(sim.SmallFaults, *fault), func(fault string) sim.SmallResult { return sim.Search(fault, *small) }))
	}
	if *pairs {
		os.Exit(search(chosen(sim.PairFaults, *fault), sim.SearchPair))
	}
	if *seed != 0 {
		os.Exit(one(*seed, *trace))
	}
	if *first == 0 {
		*first = uint64(time.Now().UnixMilli())%1e9*1e4 + 1
	}
	var stop atomic.Bool
	interrupt := make(chan os.Signal, 1)
	signal.Notify(interrupt, os.Interrupt)
	go func() { <-interrupt; stop.Store(true) }()
	start := time.Now()
	done, c, failures := sim.Many(*first, *workers, func(f *sim.Failure) bool {
		fmt.Println(f)
		return *goOn
	}, func(done uint64) bool {
		if stop.Load() {
			return false
		}
		if *count > 0 {
			return done < *count
		}
		return time.Since(start) < *length
	})
	if !*quiet {
		c.Print(os.Stdout)
	}
	took := time.Since(start)
	fmt.Printf("\n%d seeds from %d in %s: %.1f a second\n", done, *first, took.Round(time.Second), float64(done)/took.Seconds())
	if len(failures) > 0 {
		fmt.Printf("%d failed, the first: %v\n", len(failures), failures[0])
		os.Exit(1)
	}
}

func one(seed uint64, trace bool) int {
	var o sim.Options
	if trace {
		o.Trace = os.Stdout
	}
	r := sim.Run(seed, o)
	if r.Failure != nil {
		fmt.Println(r.Failure)
		return 1
	}
	fmt.Printf("seed %d: %d requests, %d events, %.1f s simulated, nothing found\n", seed, r.Asks, r.Events, float64(r.Time)/1e6)
	return 0
}

func chosen(all []string, one string) []string {
	if one == "" {
		return all
	}
	return []string{one}
}

// search visits every state of the small worlds.
func search(faults []string, visit func(fault string) sim.SmallResult) int {
	total := 0
	for _, fault := range faults {
		start := time.Now()
		r := visit(fault)
		if r.Err != nil {
			fmt.Println(r.Err)
			return 1
		}
		total += r.States
		fmt.Printf("%-26s %9d states, %9d moves, %6d ends, %6d with both served, %s\n", fault, r.States, r.Moves, r.Ends, r.Served,
			time.Since(start).Round(time.Millisecond))
	}
	fmt.Printf("%d states in all\n", total)
	return 0
}
