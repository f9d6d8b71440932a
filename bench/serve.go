package bench

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

// ServeOptions say what load to put on a server.
type ServeOptions struct {
	Target      Target
	Load        []Arrival
	Concurrency int           // closed loop: so many requests at once, Load's times unused; 0 = open loop, each at its time
	Warm        int           // requests before, one by one, that are not counted
	Timeout     time.Duration // of one request; 0 = none
	TTFT, ITL   time.Duration // target of goodput: first token, and mean time of a later one; 0 = no such target
	Seed        uint32        // of the prompts
	Note        string        // how the load was made, for the report
}

// ServeReport is a load and how the server bore it. Spreads are in milliseconds.
type ServeReport struct {
	Client    Machine        `json:"client"`
	URL       string         `json:"url"`
	Model     string         `json:"model"`
	Load      string         `json:"load"`
	Seconds   float64        `json:"seconds"` // from the first due request to the last end
	CPU       float64        `json:"client_cpu_seconds"`
	Requests  int            `json:"requests"`
	Completed int            `json:"completed"`
	Errors    map[string]int `json:"errors"`
	Prompt    int            `json:"prompt_tokens"`
	Output    int            `json:"output_tokens"`
	OutputPS  float64        `json:"output_tokens_per_second"`
	TotalPS   float64        `json:"total_tokens_per_second"`
	RequestPS float64        `json:"requests_per_second"`
	TTFT      Spread         `json:"ttft_ms"`
	ITL       Spread         `json:"itl_ms"`  // between events that carry tokens
	TPOT      Spread         `json:"tpot_ms"` // mean of each request
	E2E       Spread         `json:"e2e_ms"`
	Target    [2]float64     `json:"target_ms"` // TTFT, ITL; 0 = none
	Good      int            `json:"good"`      // requests that met the target
	GoodPS    float64        `json:"goodput_requests_per_second"`
	Samples   []Sample       `json:"samples"`
}

// RunServe puts the load on the server and waits for every answer. ctx ends it early, with what was answered counted.
func RunServe(ctx context.Context, o ServeOptions) (ServeReport, error) {
	if err := o.Target.Discover(ctx); err != nil {
		return ServeReport{}, err
	}
	for i := range o.Warm {
		if s := o.ask(ctx, o.Load[i%len(o.Load)], ^uint32(i), time.Now()); s.Error != "" {
			return ServeReport{}, fmt.Errorf("bench: serve: the first request failed: %s", s.Error)
		}
	}
	busy, began := cpuSeconds(), time.Now()
	var samples []Sample
	if o.Concurrency > 0 {
		samples = o.closed(ctx, began)
	} else {
		samples = o.open(ctx, began)
	}
	if len(samples) == 0 {
		return ServeReport{}, fmt.Errorf("bench: serve: nothing was asked: %w", context.Cause(ctx))
	}
	r := o.report(samples)
	r.CPU = cpuSeconds() - busy
	return r, nil
}

func (o *ServeOptions) ask(ctx context.Context, a Arrival, seed uint32, due time.Time) Sample {
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, due.Add(o.Timeout))
		defer cancel()
	}
	return o.Target.ask(ctx, a, seed, due)
}

// closed keeps Concurrency requests under way: each client sends the next when its last one has ended.
func (o *ServeOptions) closed(ctx context.Context, began time.Time) []Sample {
	samples := make([]Sample, len(o.Load))
	var next, asked atomic.Int64
	var wg sync.WaitGroup
	for range min(o.Concurrency, len(o.Load)) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1) - 1)
				if i >= len(o.Load) {
					return
				}
				due := time.Now()
				samples[i] = o.ask(ctx, o.Load[i], o.Seed+uint32(i), due)
				samples[i].At = due.Sub(began).Seconds()
				asked.Add(1)
			}
		})
	}
	wg.Wait()
	return samples[:asked.Load()]
}

// open sends each request at its time, however many are still unanswered.
func (o *ServeOptions) open(ctx context.Context, began time.Time) []Sample {
	samples := make([]Sample, len(o.Load))
	var wg sync.WaitGroup
	for i, a := range o.Load {
		due := began.Add(a.At)
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			wg.Wait()
			return samples[:i]
		}
		wg.Go(func() {
			samples[i] = o.ask(ctx, a, o.Seed+uint32(i), due)
			samples[i].At = a.At.Seconds()
		})
	}
	wg.Wait()
	return samples
}

func (o *ServeOptions) report(samples []Sample) ServeReport {
	r := ServeReport{Client: machine(nil), URL: o.Target.URL, Model: o.Target.Model, Load: o.Note, Requests: len(samples), Errors: map[string]int{},
		Samples: samples, Target: [2]float64{1e3 * o.TTFT.Seconds(), 1e3 * o.ITL.Seconds()}}
	var ttft, itl, tpot, e2e []float64
	for _, s := range samples {
		r.Seconds = max(r.Seconds, s.At+s.E2E)
		if s.Error != "" {
			r.Errors[s.Error]++
			continue
		}
		r.Completed++
		r.Prompt, r.Output = r.Prompt+s.Prompt, r.Output+s.Output
		ttft, e2e = append(ttft, 1e3*s.TTFT), append(e2e, 1e3*s.E2E)
		for _, g := range s.Gaps {
			itl = append(itl, 1e3*g)
		}
		if s.Output > 1 {
			tpot = append(tpot, 1e3*s.TPOT())
		}
		if o.good(s) {
			r.Good++
		}
	}
	r.TTFT, r.ITL, r.TPOT, r.E2E = SpreadOf(ttft), SpreadOf(itl), SpreadOf(tpot), SpreadOf(e2e)
	if r.Seconds > 0 {
		r.OutputPS, r.TotalPS = float64(r.Output)/r.Seconds, float64(r.Prompt+r.Output)/r.Seconds
		r.RequestPS, r.GoodPS = float64(r.Completed)/r.Seconds, float64(r.Good)/r.Seconds
	}
	return r
}

// good says whether an answered request met the target.
func (o *ServeOptions) good(s Sample) bool {
	return (o.TTFT == 0 || s.TTFT <= o.TTFT.Seconds()) && (o.ITL == 0 || s.TPOT() <= o.ITL.Seconds())
}

// Print writes the report as a table.
func (r ServeReport) Print(w io.Writer) error {
	fmt.Fprintf(w, "%s at %s; %s\n", r.Model, r.URL, r.Load)
	fmt.Fprintf(w, "%d of %d requests answered in %.2f s: %.2f requests/s, %d tokens in, %d out, %.1f tokens/s out, %.1f in all\n", r.Completed, r.Requests,
		r.Seconds, r.RequestPS, r.Prompt, r.Output, r.OutputPS, r.TotalPS)
	if r.Target != [2]float64{} {
		fmt.Fprintf(w, "goodput: %d met TTFT <= %g ms and ITL <= %g ms (0: any), %.2f requests/s\n", r.Good, r.Target[0], r.Target[1], r.GoodPS)
	}
	for _, code := range slices.Sorted(maps.Keys(r.Errors)) {
		fmt.Fprintf(w, "error %s: %d\n", code, r.Errors[code])
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "MS\tMEDIAN\tMEAN\tP90\tP99\tMIN\tMAX\tSAMPLES\t")
	for _, x := range []struct {
		name string
		s    Spread
	}{{"TTFT", r.TTFT}, {"ITL", r.ITL}, {"TPOT", r.TPOT}, {"E2E", r.E2E}} {
		s := x.s
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%d\t\n", x.name, s.Median, s.Mean, s.P90, s.P99, s.Min, s.Max, s.N)
	}
	return t.Flush()
}
