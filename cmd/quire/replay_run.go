package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"quire/bus"
	"quire/device/cpu"
	"quire/device/open"
	"quire/model"
	"quire/replay"
	"quire/tape"
)

type replayRunCmd struct {
	pastFlags
	modelFlags
	tapeSource
	Frames  bool   `name:"frames" help:"Run decode alone, from the frames that came, through the gate and the witness; prefill and decode otherwise."`
	KVType  string `name:"kv-type" enum:"f16,f32,q8_0" default:"f16" help:"f16, f32 or q8_0: how the cluster keeps keys and values."`
	Threads int    `name:"threads" placeholder:"N" help:"Threads that compute; one for each CPU otherwise."`
	Device  string `name:"device" default:"auto" placeholder:"D" help:"What computes, as the cluster has it: auto, cpu, cuda or cuda:N."`
	Variant string `name:"cpu-variant" placeholder:"V" help:"Kernels to compute with, where those that answered are not the fastest here."`
	Acts    string `name:"cpu-activations" placeholder:"A" help:"int8 or f32, as the cluster has it."`
	Request string `arg:"" help:"A request of a taped tenant, as replay show takes it; -N after it picks an attempt, the last one otherwise."`
}

// rerun is what replay run prints as JSON.
type rerun struct {
	replay.Rerun
	TookMicros int64  `json:"took_us"`     // computing, without reading model and tape
	Original   int64  `json:"original_us"` // the router's request, queueing included, or the attempt's decode; 0 = not known
	Request    string `json:"request"`
}

// Run computes a request again from the tape. The exit code is 1 when another token comes, 4 when it cannot be computed here.
func (c *replayRunCmd) Run(s streams) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	p, err := c.past(ctx, s)
	if err != nil {
		return err
	}
	q, attempt, err := p.Find(c.Request)
	if err != nil {
		return err
	}
	r, err := c.rerun(ctx, q, q.Attempt(attempt))
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(s.out, r)
	} else {
		printRerun(s.out, r)
	}
	switch {
	case err != nil:
		return err
	case r.Verdict == replay.Diverges:
		return &coded{exitFailed, errors.New("replay: another answer")}
	case r.Verdict == replay.NotReproducible:
		return &coded{exitIncomplete, errors.New("replay: not computed")}
	}
	return nil
}

// rerun reads the tape and computes.
func (c *replayRunCmd) rerun(ctx context.Context, q *replay.Request, a *replay.Attempt) (rerun, error) {
	out := rerun{Request: q.ID.String()}
	from, k, done, err := c.tapeSource.open(ctx, c.pastFlags, q.Tenant)
	if err != nil {
		return out, err
	}
	defer done()
	names := bus.Names{Prefix: c.Prefix}
	var take tape.Take
	var had tape.Attempt
	why := fmt.Errorf("replay: request %s: no decode reserved pages for it", q.ID)
	if a != nil {
		had, why = tape.AttemptOf(ctx, from, names, k, q.Tenant, a.Key)
	}
	if c.Frames && why != nil {
		return out, why
	}
	if !c.Frames {
		if take, err = tape.Of(ctx, from, names, k, q.Tenant, q.ID); err != nil {
			return out, err
		}
	}
	m, closeMachine, err := c.machine()
	if err != nil {
		return out, err
	}
	defer closeMachine()
	began := time.Now()
	switch {
	case c.Frames:
		out.Rerun, err = m.RunFrames(had)
		out.Original = a.DecodeMicros()
	case why == nil:
		out.Rerun, err = m.Run(take, q.Computed(), &had)
		out.Original = q.TookMicros()
	default:
		out.Rerun, err = m.Run(take, q.Computed(), nil)
		out.Original = q.TookMicros()
	}
	out.TookMicros = time.Since(began).Microseconds()
	return out, err
}

// machine loads the model; the caller closes it.
func (c *replayRunCmd) machine() (m replay.Machine, closeAll func(), err error) {
	closeAll = func() {
		if m.Device != nil {
			_ = m.Device.Close()
		}
		if m.Source != nil {
			_ = m.Source.Close()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	o, err := c.modelFlags.options(c.KVType)
	if err != nil {
		return m, nil, err
	}
	if m.Source, err = model.Open(o.Path, model.OpenOptions{Name: o.Name}); err != nil {
		return m, nil, err
	}
	chosen := open.Options{Device: c.Device, CPU: cpu.Options{Threads: c.Threads, Variant: c.Variant, Activations: c.Acts}}
	if m.Device, _, err = open.Device(chosen); err != nil {
		return m, nil, err
	}
	if m.Weights, err = model.LoadWeights(m.Device, m.Source, nil); err != nil {
		return m, nil, err
	}
	m.KVType = kvType(c.KVType)
	return m, closeAll, nil
}

func printRerun(w io.Writer, r rerun) {
	if r.From == replay.FromFrames {
		fmt.Fprintf(w, "decode alone, from %d frames; gate: %s", r.Frames, cmp.Or(r.Gate, "not asked"))
		if r.Witness != "" {
			fmt.Fprintf(w, "; witness: %s", r.Witness)
		}
		fmt.Fprintln(w)
		if r.Gate != r.GateRecorded && r.Verdict != replay.NotReproducible {
			fmt.Fprintf(w, "  the gate then: %s\n", cmp.Or(r.GateRecorded, "not asked"))
		}
	}
	switch r.Verdict {
	case replay.Identical:
		fmt.Fprintf(w, "identical: %d tokens after a prompt of %d%s\n", r.Output, r.Prompt, logits(r))
	case replay.Diverges:
		printDivergence(w, r)
	default:
		fmt.Fprintln(w, "not reproducible")
	}
	if r.Why != "" {
		fmt.Fprintf(w, "  %s\n", r.Why)
	}
	if r.Verdict != replay.NotReproducible {
		fmt.Fprintf(w, "  computed in %s", millis(r.TookMicros))
		if r.Original > 0 {
			fmt.Fprintf(w, "; the original took %s", millis(r.Original))
		}
		fmt.Fprintln(w)
	}
}

// logits says what is known of the logits behind equal tokens.
func logits(r rerun) string {
	switch {
	case r.LogitsKnown == 0:
		return ""
	case r.LogitsAt >= 0:
		return fmt.Sprintf("; the logits of token %d are other ones, in some bit", r.LogitsAt)
	}
	return fmt.Sprintf("; the logits of %d of them, bit for bit", r.LogitsKnown)
}

func printDivergence(w io.Writer, r rerun) {
	if r.At < 0 {
		fmt.Fprintln(w, "diverges")
		return
	}
	fmt.Fprintf(w, "diverges at token %d of %d: recorded %d, computed %d\n", r.At, r.Output, r.Recorded, r.Got)
	for i, what := range []string{"recorded", "computed"} {
		if r.Logits[i] == nil {
			continue
		}
		fmt.Fprintf(w, "  the token %s, as computed now: logit %v", what, *r.Logits[i])
		if r.Logprobs[i] != nil {
			fmt.Fprintf(w, ", log-probability %.6f", *r.Logprobs[i])
		}
		fmt.Fprintln(w)
	}
	if r.RecordedLogit != nil {
		fmt.Fprintf(w, "  the token recorded, as it was: logit %v\n", *r.RecordedLogit)
	}
	if r.LogitsAt >= 0 {
		fmt.Fprintf(w, "  the logits differ from token %d on\n", r.LogitsAt)
	}
}

func millis(us int64) string { return fmt.Sprintf("%.1f ms", float64(us)/1000) }
