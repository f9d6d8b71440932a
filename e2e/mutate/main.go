// Command mutate shows that every check is needed. It takes the checks of the gate, the ledger, the admission and the status path
// out, one at a time, and runs the tests: each time one must fail.
//
// One build holds all twins: each check is wrapped, by go test's -overlay, in a switch that an environment variable turns, so a
// twin costs one run of a test binary. table.go lists the functions whose checks are taken out; every condition in them is one
// check, and so is every operand of its && and ||.
//
//	go run ./e2e/mutate            # print the table, exit 1 if a check is not caught
//	go run ./e2e/mutate -update    # and write it to docs/testing.md
//	go run ./e2e/mutate -run gate  # only the checks whose name matches
//	go run ./e2e/mutate -sim 60    # and see what the simulator finds without each
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"
)

func main() {
	var (
		update = flag.Bool("update", false, "write the table to docs/testing.md")
		list   = flag.Bool("list", false, "print the checks and run nothing")
		match  = flag.String("run", "", "only checks whose area, file and name match this regular expression")
		seeds  = flag.Int("sim", 0, "run so many of the simulator's seeds with each check missing, too")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *match, *seeds, *list, *update); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, match string, seeds int, list, update bool) error {
	want, err := regexp.Compile(match)
	if err != nil {
		return err
	}
	root, err := findRoot()
	if err != nil {
		return err
	}
	all, err := collect(root)
	if err != nil {
		return err
	}
	var chosen []twin
	for _, t := range all {
		if want.MatchString(t.area+" "+t.file+" "+t.name) && t.spared == "" {
			chosen = append(chosen, t)
		}
	}
	if list {
		for _, t := range chosen {
			fmt.Printf("%s\t%s\t%s\n", t.area, t.file, t.name)
		}
		return nil
	}
	began := time.Now()
	survivors, err := try(ctx, root, all, chosen, seeds)
	if err != nil {
		return err
	}
	if seeds > 0 {
		seen := 0
		for _, t := range chosen {
			seen += min(1, len(t.seed))
		}
		fmt.Printf("\nthe simulator's first %d seeds see %d of %d\n", seeds, seen, len(chosen))
	}
	fmt.Printf("\n%d checks taken out, %d caught, in %d s\n", len(chosen), len(chosen)-len(survivors), int(time.Since(began).Seconds()))
	for _, t := range survivors {
		fmt.Printf("NOT CAUGHT: %s %s\n", t.file, t.name)
	}
	if len(survivors) > 0 {
		return fmt.Errorf("%d of %d checks can be taken out and no test fails", len(survivors), len(chosen))
	}
	if update && match == "" {
		return writeTable(root, chosen, all)
	}
	return nil
}
