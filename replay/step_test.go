package replay

import (
	"strings"
	"testing"
)

// Each step shows the state that the ledger had, and every page is somewhere.
func TestStep(t *testing.T) {
	p := incident(t).read()
	walk := func(id string) (states []string, last State) {
		for _, s := range p.Step(p.attempts[(plan{id: id}).key()]) {
			c := s.Pool
			if c.Free+c.Reserved+c.Filling+c.Owned+c.Zeroing+c.Quarantined != c.Total || c.Total != 16 {
				t.Errorf("%s: %+v", id, c)
			}
			if n := len(states); n == 0 || states[n-1] != s.State {
				states = append(states, s.State)
			}
			last = s
		}
		return states, last
	}
	for id, want := range map[string]string{
		"acme": "reserved filling owned zeroing free", "refused": "reserved filling quarantined free", "stopped": "reserved filling owned quarantined free",
		"long": "reserved filling owned",
	} {
		if got, _ := walk(id); strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", id, got, want)
		}
	}
	_, last := walk("fresh")
	if len(last.Others) != 1 || last.Others[0].State != "owned" || last.Others[0].Tenant != "acme" || last.Pool.Owned != 6 {
		t.Errorf("%+v", last)
	}
	if text := last.Text(); !strings.Contains(text, "owned=6") || !strings.Contains(text, "tenant=acme owned pages=6") {
		t.Error(text)
	}
}
