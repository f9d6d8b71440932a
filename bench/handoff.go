package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"
	"time"

	"quire/device"
	"quire/device/cpu"
	"quire/model"
)

// HandoffOptions say which hand-off to take apart.
type HandoffOptions struct {
	Path     string // GGUF file or Hugging Face directory; "" = the embedded model
	Dir      string // an empty directory for JetStream's files and keys
	Device   cpu.Options
	KVType   device.Type
	PageSize int // token slots of a page
	Prompt   int // tokens
	Chunk    int // rows of one prefill step, with and without a hand-off
	Repeat   int // measured rounds, after one that is not
	Progress func(label string) func(done, total int64)
}

// HandoffReport is where the time to the first token goes. Times are milliseconds; spreads are over rounds.
type HandoffReport struct {
	Machine  Machine `json:"machine"`
	Model    string  `json:"model"`
	Prompt   int     `json:"prompt_tokens"`
	Bytes    int     `json:"kv_bytes"`
	PageSize int     `json:"page_size"`
	Chunk    int     `json:"chunk"`
	Rounds   int     `json:"rounds"`
	Parts    []Part  `json:"parts"`  // one after the other: in each round they add up to TTFT
	Beside   []Part  `json:"beside"` // work within or beside the parts
	TTFT     Spread  `json:"ttft_ms"`
	Alone    Spread  `json:"alone_ms"`      // the same prompt in one engine, to the first token, without any service
	Ratio    Spread  `json:"ratio"`         // TTFT over Alone, of each round
	Share    Spread  `json:"handoff_share"` // 1 - Alone / TTFT, of each round
	Witness  Spread  `json:"witness_share"` // of parts (a) and (b) in TTFT, of each round
	Outside  Spread  `json:"outside_share"` // of all parts but prefill's compute in TTFT, of each round
	CPU      Spread  `json:"cpu_ms"`        // of this process, until the last page was zeroed
	CPUAlone Spread  `json:"alone_cpu_ms"`
	CPURatio Spread  `json:"cpu_ratio"` // of each round: other load on the machine counts little here
}

// Part is a stretch of the way to the first token.
type Part struct {
	Name  string `json:"name"`
	MS    Spread `json:"ms"`
	Count int    `json:"count,omitempty"` // how often in one round
}

// parts are the stretches between marks: the name of each is what happens until its mark.
var parts = []struct {
	name string
	to   mark
}{
	{"door, parsing, placing", asked},
	{"admission and reserve", promised},
	{"job through the bus", pulled},
	{"claim, to the first step", computing},
	{"prefill compute", computed},
	{"frames left after compute: read, seal, publish, open, copy", placed},
	{"manifest and gate", recording},
	{"journal's acknowledgement of the verdict", recorded},
	{"admit", witnessing},
	{"witness (a): layer 0 of all rows", witnessed},
	{"to decode's first step", stepping},
	{"witness (b) and first token: the last row, all layers", stepped},
	{"reply to the client", answered},
}

// round is one request's way and its twin's without a hand-off.
type round struct {
	at       [marks]time.Time
	did      [efforts]effort
	alone    time.Duration
	tokenise time.Duration
	cpu      [2]float64 // seconds, with and without a hand-off
}

// RunHandoff starts a cluster of one prefill and one decode worker in this process and measures in turns: a prompt through it,
// and the same prompt in one engine. ctx ends it early, which is then the error.
func RunHandoff(ctx context.Context, o HandoffOptions) (HandoffReport, error) {
	r, err := newHandoffRig(ctx, o)
	if err != nil {
		return HandoffReport{}, err
	}
	defer r.close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	t := &Target{URL: r.http, Client: &http.Client{Transport: transport}}
	if err := t.Discover(ctx); err != nil {
		return HandoffReport{}, err
	}
	if t.Context < o.Prompt+1 {
		return HandoffReport{}, fmt.Errorf("bench: hand-off: a prompt of %d tokens and one more: %s takes %d", o.Prompt, t.Model, t.Context)
	}
	var rounds []round
	for i := range o.Repeat + 1 {
		d, err := r.round(ctx, t, uint32(i), i%2 == 1)
		if err != nil {
			return HandoffReport{}, err
		}
		if i > 0 {
			rounds = append(rounds, d)
		}
	}
	return r.report(rounds), nil
}

// round measures both ways with one prompt, the one without a hand-off first where aloneFirst is set.
func (r *handoffRig) round(ctx context.Context, t *Target, seed uint32, aloneFirst bool) (d round, err error) {
	if aloneFirst {
		if err := r.compute(t, seed, &d); err != nil {
			return d, err
		}
	}
	busy := cpuSeconds()
	r.line.begin()
	s := t.ask(ctx, Arrival{Prompt: r.o.Prompt, Output: 1}, seed, r.line.at[sent])
	if s.Error != "" || s.TTFT == 0 {
		return d, fmt.Errorf("bench: hand-off: the request failed: %q", s.Error)
	}
	if err := r.settle(ctx); err != nil {
		return d, err
	}
	d.cpu[0] = cpuSeconds() - busy
	r.line.mu.Lock()
	d.at, d.did = r.line.at, r.line.did
	r.line.mu.Unlock()
	d.at[answered] = d.at[sent].Add(time.Duration(s.TTFT * float64(time.Second)))
	for i, p := range parts {
		if i > 0 && d.at[p.to].Before(d.at[parts[i-1].to]) {
			return d, fmt.Errorf("bench: hand-off: %q was not seen after %q", p.name, parts[i-1].name)
		}
	}
	if !aloneFirst {
		err = r.compute(t, seed, &d)
	}
	return d, err
}

// compute takes the same prompt to its first token in one engine.
func (r *handoffRig) compute(t *Target, seed uint32, d *round) error {
	prompt := story(r.o.Prompt, t.Vocab, seed)
	text := r.src.Tokenizer.Decode(prompt)
	began := time.Now()
	_ = r.src.Tokenizer.Encode(text, model.EncodeOptions{})
	d.tokenise = time.Since(began)
	busy := cpuSeconds()
	began = time.Now()
	s, err := r.alone.open(r.src.Tokenizer, prompt, len(prompt))
	if err != nil {
		return err
	}
	if err := r.alone.prefill(s, prompt, r.o.Chunk); err != nil {
		return err
	}
	d.alone = time.Since(began)
	err = r.alone.close(s)
	d.cpu[1] = cpuSeconds() - busy
	return err
}

func (r *handoffRig) report(rounds []round) HandoffReport {
	out := HandoffReport{Machine: machine(r.dev), Model: r.src.Name, Prompt: r.o.Prompt, Bytes: r.o.Prompt * r.alone.engine.Info().BytesPerRow,
		PageSize: r.o.PageSize, Chunk: r.o.Chunk, Rounds: len(rounds)}
	over := func(fn func(round) float64) Spread {
		v := make([]float64, len(rounds))
		for i, d := range rounds {
			v[i] = fn(d)
		}
		return SpreadOf(v)
	}
	ms := func(d time.Duration) float64 { return 1e3 * d.Seconds() }
	from := sent
	for _, p := range parts {
		a := from
		out.Parts = append(out.Parts, Part{Name: p.name, MS: over(func(d round) float64 { return ms(d.at[p.to].Sub(d.at[a])) })})
		from = p.to
	}
	for kind, name := range []string{"reading rows for frames", "publish to acknowledgement, frames and manifest (several at once)",
		"writing rows of frames"} {
		out.Beside = append(out.Beside, Part{Name: name, Count: rounds[0].did[kind].count, MS: over(func(d round) float64 { return ms(d.did[kind].time) })})
	}
	out.Beside = append(out.Beside, Part{Name: "tokenising such a prompt (ids are sent here)", MS: over(func(d round) float64 { return ms(d.tokenise) })})
	out.TTFT, out.Alone = over(func(d round) float64 { return ms(d.ttft()) }), over(func(d round) float64 { return ms(d.alone) })
	out.Ratio = over(func(d round) float64 { return d.ttft().Seconds() / d.alone.Seconds() })
	out.Share = over(func(d round) float64 { return 1 - d.alone.Seconds()/d.ttft().Seconds() })
	out.Witness = over(func(d round) float64 {
		return (d.at[witnessed].Sub(d.at[witnessing]) + d.at[stepped].Sub(d.at[stepping])).Seconds() / d.ttft().Seconds()
	})
	out.Outside = over(func(d round) float64 { return 1 - d.at[computed].Sub(d.at[computing]).Seconds()/d.ttft().Seconds() })
	out.CPU, out.CPUAlone = over(func(d round) float64 { return 1e3 * d.cpu[0] }), over(func(d round) float64 { return 1e3 * d.cpu[1] })
	if out.CPUAlone.Min > 0 {
		out.CPURatio = over(func(d round) float64 { return d.cpu[0] / d.cpu[1] })
	}
	return out
}

func (d round) ttft() time.Duration { return d.at[answered].Sub(d.at[sent]) }

// Print writes the report as a table.
func (r HandoffReport) Print(w io.Writer) error {
	m := r.Machine
	fmt.Fprintf(w, "%s, prompt of %d tokens, %.2f MB of keys and values; %s %s, %d threads of %d CPUs; pages of %d, chunks of %d; %d rounds\n\n", r.Model,
		r.Prompt, float64(r.Bytes)/1e6, m.Backend, m.Variant, m.Threads, m.CPUs, r.PageSize, r.Chunk, r.Rounds)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "PART\tMEDIAN MS\tMIN\tMAX\tOF TTFT")
	for _, p := range r.Parts {
		fmt.Fprintf(t, "%s\t%.3f\t%.3f\t%.3f\t%.1f %%\n", p.Name, p.MS.Median, p.MS.Min, p.MS.Max, 100*p.MS.Mean/r.TTFT.Mean)
	}
	fmt.Fprintf(t, "TTFT\t%.3f\t%.3f\t%.3f\t100 %%\n", r.TTFT.Median, r.TTFT.Min, r.TTFT.Max)
	fmt.Fprintf(t, "the same prompt in one engine\t%.3f\t%.3f\t%.3f\t%.1f %%\n", r.Alone.Median, r.Alone.Min, r.Alone.Max, 100*r.Alone.Mean/r.TTFT.Mean)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(t, "\nBESIDE\tMEDIAN MS\tMIN\tMAX\tTIMES")
	for _, p := range r.Beside {
		fmt.Fprintf(t, "%s\t%.3f\t%.3f\t%.3f\t%d\n", p.Name, p.MS.Median, p.MS.Min, p.MS.Max, max(1, p.Count))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nTTFT over one engine: %.3f (%.3f to %.3f); CPU time over one engine: %.3f (%.3f to %.3f)\n"+
		"of TTFT: all but prefill compute %.2f %%, witness (a) and (b) %.2f %%\n", r.Ratio.Median, r.Ratio.Min, r.Ratio.Max,
		r.CPURatio.Median, r.CPURatio.Min, r.CPURatio.Max, 100*r.Outside.Median, 100*r.Witness.Median)
	return err
}
