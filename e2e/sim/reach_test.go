package sim

import (
	"testing"

	"quire/kvtransfer"
)

// TestReach shows for what random runs seldom meet that it can be: a plan made for it meets it within some seeds, and the checkers
// stay content.
func TestReach(t *testing.T) {
	if testing.Short() {
		t.Skip("a few hundred seeds")
	}
	const most = 600 // they are met within a tenth of it
	slowFrames := func(p *Plan) {
		p.Straggle, p.PromptMax, p.Asks = 0.12, 5, 24
	}
	changed := func(p *Plan) {
		slowFrames(p)
		p.Rogue, p.Lie = 1, "frame: a changed copy beside it"
	}
	late := func(p *Plan) {
		p.Echo, p.Straggle, p.Cancel, p.Spike, p.SpikeMax, p.Asks = 0.6, 0.15, 0.3, 0.1, 400*ms, 30
	}
	for _, c := range []struct {
		meets []string
		plan  func(*Plan)
	}{
		{[]string{"decode: frame does not open in judging", "decode: frame does not open in witnessing", "decode: frame does not open in running",
			"decode: frame does not open in ended"}, changed},
		{[]string{"decode: frame does not open in unknown", "decode: frame does not open in refused"}, func(p *Plan) {
			changed(p)
			p.Cancel, p.DeviceFail, p.Crash = 0.5, 0.05, 0.5
		}},
		{[]string{"decode: frame opened in witnessing", "decode: frame opened in running", "decode: frame opened in ended"}, func(p *Plan) {
			slowFrames(p)
			p.Dup = 0.3
		}},
		{[]string{"decode: progress in ended", "prefill: job in gone", "prefill: job in cancelled",
			"prefill: claimed in cancelled", "prefill: frame failed in gone"}, func(p *Plan) {
			late(p)
			p.DeviceFail, p.Cut, p.Hang = 0.05, 1, 1
		}},
		{[]string{"prefill: job in lost", "prefill: frame failed in cancelled", "prefill: frame failed in lost"}, func(p *Plan) {
			late(p)
			p.Straggle, p.DeviceFail, p.Hang, p.Window, p.PromptMax, p.Asks = 0.4, 0.3, 3, 2, 20, 40
			p.prefill.MaxPayload, p.prefill.InFlight = kvtransfer.CutOverhead+40, 8
		}},
		{[]string{"time-out: prefill: device silent", "time-out: decode: device silent", "refusal: decode refuses Reserve: device_failed"}, func(p *Plan) {
			p.Hang, p.Safety = 3, 8*sec
		}},
		{[]string{"time-out: decode: device silent after a life"}, func(p *Plan) { p.Hang, p.Cut, p.BusRestart, p.Safety = 4, 2, 1, 8*sec }},
		{[]string{"time-out: router: job not stored"}, func(p *Plan) { p.BusRestart, p.Routers, p.Asks = 5, 2, 60 }},
		{[]string{"refusal: gate: one manifest"}, func(p *Plan) { p.Rogue, p.Lie, p.Straggle = 1, "manifest: another one after it", 0.2 }},
		{[]string{"refusal: gate: claim"}, func(p *Plan) { p.Rogue, p.Lie = 1, "manifest: claim" }},
		{[]string{"time-out: message age"}, func(p *Plan) { p.Crash, p.MaxAge = 1, 4*sec }},
	} {
		t.Run(c.meets[0], func(t *testing.T) {
			t.Parallel()
			missing := map[string]bool{}
			for _, m := range c.meets {
				missing[m] = true
			}
			for seed := uint64(1); seed <= most && len(missing) > 0; seed++ {
				r := Run(seed, Options{change: func(p *Plan) { calm(p); c.plan(p) }})
				if r.Failure != nil {
					t.Fatal(r.Failure)
				}
				for m := range missing {
					if r.Coverage.met(m) {
						t.Logf("%s: seed %d", m, seed)
						delete(missing, m)
					}
				}
			}
			for m := range missing {
				t.Errorf("%s: not within %d seeds", m, most)
			}
		})
	}
}
