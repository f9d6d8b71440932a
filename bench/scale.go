package bench

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
)

// ScaleOptions say how large the systems are that are measured.
type ScaleOptions struct {
	Requests []int // requests in the system, each a cell with pools of Pages
	Pages    int   // of the pool while requests grow
	Pools    []int // pages of a pool, each a cell with Waiting requests
	Waiting  int   // requests in the system while pools grow
	Samples  int   // of each figure
}

// DefaultScale is what `quire bench scale` measures without flags.
func DefaultScale() ScaleOptions {
	return ScaleOptions{
		Requests: []int{10, 100, 1_000, 10_000}, Pages: 100_000,
		Pools: []int{1_000, 10_000, 100_000, 1_000_000, 10_000_000}, Waiting: 100, Samples: 200,
	}
}

// Check says what of the options cannot be.
func (o ScaleOptions) Check() error {
	const most = 1 << 20 // slots of a heartbeat
	for _, n := range append([]int{o.Waiting}, o.Requests...) {
		if n < 0 || n > most-scaleBatch-1 {
			return fmt.Errorf("bench: scale: %d requests, at most %d", n, most-scaleBatch-1)
		}
		if need := o.need(n); len(o.Requests) > 0 && need > o.Pages {
			return fmt.Errorf("bench: scale: %d requests take %d pages, the pool has %d", n, need, o.Pages)
		}
	}
	for _, p := range o.Pools {
		if need := o.need(o.Waiting); p < need || p > 1<<27 {
			return fmt.Errorf("bench: scale: a pool of %d pages: %d to %d are possible with %d requests", p, need, 1<<27, o.Waiting)
		}
	}
	if o.Samples < 1 {
		return fmt.Errorf("bench: scale: %d samples, at least 1", o.Samples)
	}
	return nil
}

// need is how many pages n waiting requests, the batch and the one that is measured take.
func (o ScaleOptions) need(n int) int {
	pages := func(rows int) int { return (rows + scalePage - 1) / scalePage }
	return (n+1)*pages(scalePrompt+scaleOutput) + scaleBatch*pages(scalePrompt+scaleSteps+scaleOutput)
}

// ScaleReport is what decisions cost, and how that grows. Nothing is computed: the device, the bus and the other services are
// simulated, so that the loops' own time is all there is.
type ScaleReport struct {
	Machine Machine       `json:"machine"`
	Batch   int           `json:"batch"`  // sequences of a step
	Prompt  int           `json:"prompt"` // tokens of a request
	Decode  []ScaleDecode `json:"decode"`
	Router  []ScaleRouter `json:"router"`
}

// RunScale measures decode's loop over requests and over pools, and a router's over requests.
func RunScale(ctx context.Context, o ScaleOptions) (ScaleReport, error) {
	r := ScaleReport{Machine: machine(nil), Batch: scaleBatch, Prompt: scalePrompt}
	if err := o.Check(); err != nil {
		return r, err
	}
	decode := func(requests, pages int) error {
		c, err := scaleDecodeCell(requests, pages, o.Samples)
		if err != nil {
			return fmt.Errorf("bench: scale: decode: %w", err)
		}
		r.Decode = append(r.Decode, c)
		return ctx.Err()
	}
	for _, n := range o.Requests {
		if err := decode(n, o.Pages); err != nil {
			return r, err
		}
	}
	for _, p := range o.Pools {
		if err := decode(o.Waiting, p); err != nil {
			return r, err
		}
	}
	for _, n := range o.Requests {
		c, err := scaleRouterCell(n, o.Samples)
		if err != nil {
			return r, fmt.Errorf("bench: scale: %w", err)
		}
		if r.Router = append(r.Router, c); ctx.Err() != nil {
			return r, ctx.Err()
		}
	}
	return r, nil
}

// Print writes the report as two tables; times are medians in microseconds.
func (r ScaleReport) Print(w io.Writer) error {
	fmt.Fprintf(w, "the loops alone, nothing computed; %s/%s, %d CPUs; microseconds, medians\n\n", r.Machine.OS, r.Machine.Arch, r.Machine.CPUs)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "DECODE: REQUESTS\tPAGES\tADMISSION\tGATE\tSTEP OF %d\tTICK\t\n", r.Batch)
	us := func(s Spread) float64 { return s.Median * 1e6 }
	for _, c := range r.Decode {
		fmt.Fprintf(t, "%d\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t\n", c.Requests, c.Pages, us(c.Admit), us(c.Gate), us(c.Step), us(c.Tick))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	fmt.Fprintf(t, "ROUTER: REQUESTS\tONE REQUEST\tREQUESTS/S\tTICK\t\n")
	for _, c := range r.Router {
		fmt.Fprintf(t, "%d\t%.1f\t%.0f\t%.1f\t\n", c.Requests, us(c.Request), c.Rate, us(c.Tick))
	}
	return t.Flush()
}
