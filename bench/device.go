package bench

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"quire/device"
	"quire/device/open"
)

// DeviceOptions say which device to measure, and the shapes of its work: those of one layer of a model.
type DeviceOptions struct {
	Device   open.Options
	Dim      int // of a hidden vector; heads are of 128 where it divides, else of 32
	Group    int // query heads to a key head
	Context  int // rows that a sequence holds
	Batch    int // sequences that are decoded at once
	Rows     int // of a prefill step
	PageSize int
	Repeat   int // measured rounds, after one that is not
}

// DeviceReport is what came of it. Share and FlopShare are parts of the device's own ceilings: the copy and the F32 product.
type DeviceReport struct {
	Machine Machine      `json:"machine"`
	Tests   []DeviceTest `json:"tests"`
	// TagCost is how much longer attention takes with the comparison of owner tags than without, decode and prefill; null where the
	// device keeps no tags.
	TagCost []float64 `json:"tag_cost,omitempty"`
}

// DeviceTest is one kind of work. Bytes and Flops are what it cannot do without; rates are those of the median round.
type DeviceTest struct {
	Name      string  `json:"name"`
	Bytes     float64 `json:"bytes"`
	Flops     float64 `json:"flops"`
	Seconds   Spread  `json:"seconds"`
	GBs       float64 `json:"gb_per_second"`
	GFlops    float64 `json:"gflop_per_second"`
	Share     float64 `json:"share_of_copy"`
	FlopShare float64 `json:"share_of_product"`
}

// tagged is a pool whose device compares owner tags, which can be left out to measure their cost.
type tagged interface{ CheckTags(on bool) error }

// RunDevice measures a device's ops.
func RunDevice(ctx context.Context, o DeviceOptions) (report DeviceReport, err error) {
	dev, _, err := open.Device(o.Device)
	if err != nil {
		return report, err
	}
	defer dev.Close()
	report.Machine = machine(dev)
	r := &deviceRun{o: o, dev: dev}
	works, err := r.works()
	if err != nil {
		return report, err
	}
	for i := range works {
		t, err := r.measure(ctx, &works[i])
		if err != nil {
			return report, err
		}
		report.Tests = append(report.Tests, t)
	}
	report.shares()
	if p, ok := r.pool.(tagged); ok {
		report.TagCost, err = r.tagCost(ctx, p, works)
	}
	return report, err
}

// shares fills in the parts of the ceilings.
func (r *DeviceReport) shares() {
	var bytes, flops float64
	for _, t := range r.Tests {
		switch t.Name {
		case copyName:
			bytes = t.GBs
		case productName:
			flops = t.GFlops
		}
	}
	for i := range r.Tests {
		t := &r.Tests[i]
		t.Share, t.FlopShare = t.GBs/bytes, t.GFlops/flops
	}
}

// measure times a work: a step with it n times less one with it once, so that what a step costs by itself falls out.
func (r *deviceRun) measure(ctx context.Context, w *deviceWork) (t DeviceTest, err error) {
	var took []float64
	for i := range r.o.Repeat + 1 {
		if ctx.Err() != nil {
			return t, ctx.Err()
		}
		s, err := w.once()
		if err != nil {
			return t, fmt.Errorf("bench: device: %s: %w", w.name, err)
		}
		if i > 0 {
			took = append(took, s)
		}
	}
	t = DeviceTest{Name: w.name, Bytes: w.bytes, Flops: w.flops, Seconds: SpreadOf(took)}
	t.GBs, t.GFlops = w.bytes/t.Seconds.Median/1e9, w.flops/t.Seconds.Median/1e9
	return t, nil
}

// tagCost measures attention with and without the comparison of tags, in turns.
func (r *deviceRun) tagCost(ctx context.Context, p tagged, works []deviceWork) (cost []float64, err error) {
	for _, name := range []string{decodeName, prefillName} {
		for i := range works {
			if works[i].name != name {
				continue
			}
			var with, without float64
			for range 2 {
				for _, on := range []bool{true, false} {
					if err := p.CheckTags(on); err != nil {
						return nil, err
					}
					t, err := r.measure(ctx, &works[i])
					if err != nil {
						return nil, err
					}
					if on {
						with += t.Seconds.Median
					} else {
						without += t.Seconds.Median
					}
				}
			}
			cost = append(cost, with/without-1)
		}
	}
	return cost, p.CheckTags(true)
}

// Print writes a table.
func (r DeviceReport) Print(w io.Writer) error {
	fmt.Fprintf(w, "%s, %s\n", r.Machine.Backend, r.Machine.Variant)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "work\tus\tGB/s\tof copy\tGFLOP/s\tof product\t")
	for _, t := range r.Tests {
		fmt.Fprintf(tw, "%s\t%.1f\t%.2f\t%.0f %%\t", t.Name, t.Seconds.Median*1e6, t.GBs, t.Share*100)
		if t.Flops == 0 {
			fmt.Fprintln(tw, "\t\t")
			continue
		}
		fmt.Fprintf(tw, "%.1f\t%.0f %%\t\n", t.GFlops, t.FlopShare*100)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if len(r.TagCost) == 2 {
		_, err := fmt.Fprintf(w, "owner tags: %+.2f %% of decode attention, %+.2f %% of prefill attention\n", r.TagCost[0]*100, r.TagCost[1]*100)
		return err
	}
	return nil
}

// deviceWork is something to measure.
type deviceWork struct {
	name         string
	bytes, flops float64
	run          func(n int) error // n times
	n            int
}

// once gives the seconds of one of it.
func (w *deviceWork) once() (float64, error) {
	if w.n == 0 {
		w.n = 5
	}
	start := time.Now()
	if err := w.run(1); err != nil {
		return 0, err
	}
	one := time.Since(start)
	start = time.Now()
	err := w.run(w.n + 1)
	return max((time.Since(start)-one).Seconds()/float64(w.n), 1e-9), err
}

// repeat gives a work that is ops of a step over a batch.
func (r *deviceRun) repeat(b *device.Batch, ops ...device.Op) func(n int) error {
	return func(n int) error {
		var all []device.Op
		for range n {
			all = append(all, ops...)
		}
		return r.dev.Run(&device.Step{Batch: b, Ops: all})
	}
}
