package bench

import (
	"context"
	"strings"
	"testing"
)

// TestScale runs every cell small: the loops verify themselves at the end of each.
func TestScale(t *testing.T) {
	o := ScaleOptions{Requests: []int{1, 40}, Pages: 1000, Pools: []int{600, 5000}, Waiting: 3, Samples: 5}
	r, err := RunScale(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Decode) != 4 || len(r.Router) != 2 {
		t.Fatalf("%d cells of decode, %d of the router", len(r.Decode), len(r.Router))
	}
	for _, c := range r.Decode {
		for name, s := range map[string]Spread{"admission": c.Admit, "gate": c.Gate, "step": c.Step, "tick": c.Tick} {
			if s.N != o.Samples || s.Min <= 0 {
				t.Errorf("%d requests, %d pages: %s: %+v", c.Requests, c.Pages, name, s)
			}
		}
	}
	var out strings.Builder
	if err := r.Print(&out); err != nil || strings.Count(out.String(), "\n") != 11 {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestScaleRefuses(t *testing.T) {
	for want, o := range map[string]ScaleOptions{
		"0 requests take 259 pages": {Requests: []int{40}, Pages: 100, Samples: 1},
		"a pool of 10 pages":        {Pools: []int{10}, Waiting: 1, Samples: 1},
		"0 samples":                 {},
		"requests, at most":         {Requests: []int{1 << 21}, Pages: 1 << 25, Samples: 1},
		"-1 requests, at most ":     {Requests: []int{-1}, Pages: 1000, Samples: 1},
	} {
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}
