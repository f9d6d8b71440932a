package sim

import (
	"slices"
	"strings"
	"testing"
)

// calm gives a plan without faults.
func calm(p *Plan) {
	engine, decode, prefill := p.engine, p.decode, p.prefill
	router := p.router
	*p = Plan{Routers: 1, Prefills: 2, Decodes: 2, engine: engine, prefillPages: 12, prefillSize: 3, decodePages: 14, decodeSize: 3,
		decode: decode, prefill: prefill, router: router, Window: 16, JournalBuffer: 1024, DeviceMax: 5 * ms, PromptMax: 12, OutputMax: 5,
		Asks: 12, LateAsks: 3, Safety: 3 * sec}
	p.decode.JournalOptional = false
}

// TestPlanted plants a bug for each checker, outside of what is tested: the checker finds it within a few seeds.
func TestPlanted(t *testing.T) {
	for _, c := range []struct {
		plant string
		by    []string // any of these checkers
		plan  func(*Plan)
		says  string
	}{
		{plantSkipZero, []string{"pages"}, nil, "holds bytes of another"},
		{plantTwoOwners, []string{"pages"}, nil, "is promised to"},
		{plantLateWrite, []string{"writes"}, nil, "writes row"},
		{plantNoJournal, []string{"reads"}, nil, "the journal has no verdict"},
		{plantBlindWitness, []string{"content"}, func(p *Plan) { p.Rogue = 1 }, "the client got tokens"},
		{plantTwoEnds, []string{"ends"}, nil, "end 2"},
		{plantNoEnd, []string{"liveness"}, nil, "are open"},
		{plantMute, []string{"liveness", "ends"}, nil, ""},
		{plantLosePages, []string{"pages", "left", "liveness", "ends"}, // pages: decode takes its device for hung, and stops
			func(p *Plan) { p.Asks, p.LateAsks = 1, 1 }, ""},
	} {
		t.Run(c.plant, func(t *testing.T) {
			var last *Failure
			for seed := uint64(1); seed <= 40; seed++ {
				r := Run(seed, Options{plant: c.plant, change: func(p *Plan) {
					calm(p)
					if c.plan != nil {
						c.plan(p)
					}
				}})
				if last = r.Failure; last == nil {
					continue
				}
				if !slices.Contains(c.by, last.Check) || !strings.Contains(last.Detail, c.says) {
					t.Fatalf("found by another checker: %s: %s", last.Check, last.Detail)
				}
				if line := last.Error(); strings.Contains(line, "\n") || !strings.HasPrefix(line, "go test ./e2e/sim -run TestSim -seed ") {
					t.Errorf("a failure is one line to run: %q", line)
				}
				return
			}
			t.Error("not found within 40 seeds")
		})
	}
}

// TestCalm runs seeds without faults or plants: every request is served, or refused for its size.
func TestCalm(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		if r := Run(seed, Options{change: calm}); r.Failure != nil {
			t.Error(r.Failure)
		}
	}
}
