package bench

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"quire/device"
	"quire/device/open"
	"quire/model"
)

// ModelOptions say what to measure of a model.
type ModelOptions struct {
	Path     string // GGUF file or Hugging Face directory; "" = the embedded model
	Device   open.Options
	KVType   device.Type
	PageSize int // token slots of a page
	Prompt   int // tokens of a prompt; 0 leaves prefill out
	Generate int // tokens that are decoded; 0 leaves decode out
	Batch    int // sequences that are decoded at once, at least 1
	Depth    int // rows that a sequence holds before decode is measured
	Chunk    int // rows of one prefill step
	Repeat   int // measured rounds, after one that is not
	Progress func(label string) func(done, total int64)
}

// ModelReport is what came of it. A test's figures are of its rounds.
type ModelReport struct {
	Machine  Machine     `json:"machine"`
	Model    string      `json:"model"`
	Bytes    int64       `json:"model_bytes"`
	PageSize int         `json:"page_size"`
	Chunk    int         `json:"chunk"`
	Tests    []ModelTest `json:"tests"`
}

// ModelTest is one kind of work: "prefill" of Tokens rows of one sequence, or "decode" of Tokens steps of Batch sequences.
type ModelTest struct {
	Name   string    `json:"name"`
	Tokens int       `json:"tokens"`
	Batch  int       `json:"batch"`
	Depth  int       `json:"depth"`
	Wall   []float64 `json:"wall_seconds"` // of each round
	CPU    []float64 `json:"cpu_seconds"`  // of this process, all threads
	Rate   Spread    `json:"tokens_per_second"`
	PerCPU Spread    `json:"tokens_per_cpu_second"`
}

// RunModel loads a model and measures it, prefill and decode in turns. Rounds end early with ctx, which is then the error.
func RunModel(ctx context.Context, o ModelOptions) (report ModelReport, err error) {
	src, err := model.Open(o.Path, model.OpenOptions{Progress: label(o.Progress, "read model")})
	if err != nil {
		return report, err
	}
	defer src.Close()
	if need := max(o.Prompt, o.Depth+o.Generate); need > src.Config.Context {
		return report, fmt.Errorf("bench: model: %d tokens: %s takes %d", need, src.Name, src.Config.Context)
	}
	dev, _, err := open.Device(o.Device)
	if err != nil {
		return report, err
	}
	defer dev.Close()
	w, err := model.LoadWeights(dev, src, label(o.Progress, "load weights"))
	if err != nil {
		return report, err
	}
	pages := func(rows int) int { return (rows + o.PageSize - 1) / o.PageSize }
	e, err := model.NewEngine(dev, w, model.EngineOptions{Pages: max(pages(o.Prompt), o.Batch*pages(o.Depth+o.Generate)), PageSize: o.PageSize,
		KVType: o.KVType, Pool: 1})
	if err != nil {
		return report, err
	}
	r := &modelRun{o: o, src: src, pool: newPool(e, 1)}
	report = ModelReport{Machine: machine(dev), Model: src.Name, Bytes: src.Bytes, PageSize: o.PageSize, Chunk: o.Chunk}
	report.Tests, err = r.rounds(ctx)
	return report, err
}

func label(p func(string) func(done, total int64), text string) func(done, total int64) {
	if p == nil {
		return nil
	}
	return p(text)
}

type modelRun struct {
	o    ModelOptions
	src  *model.Source
	pool *pool
}

// rounds runs one round unmeasured and the others in turns, so that what else the machine does meets all tests alike.
func (r *modelRun) rounds(ctx context.Context) ([]ModelTest, error) {
	tests := []ModelTest{}
	var runs []func(*ModelTest) error
	if r.o.Prompt > 0 {
		tests, runs = append(tests, ModelTest{Name: "prefill", Tokens: r.o.Prompt, Batch: 1}), append(runs, r.prefill)
	}
	if r.o.Generate > 0 {
		tests, runs = append(tests, ModelTest{Name: "decode", Tokens: r.o.Generate, Batch: r.o.Batch, Depth: r.o.Depth}), append(runs, r.decode)
	}
	for round := range r.o.Repeat + 1 {
		for i, run := range runs {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := run(&tests[i]); err != nil {
				return nil, err
			}
			if round == 0 {
				tests[i].Wall, tests[i].CPU = nil, nil
			}
		}
	}
	for i := range tests {
		tests[i].sum()
	}
	return tests, nil
}

func (t *ModelTest) sum() {
	per := func(seconds []float64) Spread {
		var v []float64
		for _, s := range seconds {
			if s > 0 {
				v = append(v, float64(t.Tokens*t.Batch)/s)
			}
		}
		return SpreadOf(v)
	}
	t.Rate, t.PerCPU = per(t.Wall), per(t.CPU)
}

// measure adds a round of fn to a test.
func (t *ModelTest) measure(fn func() error) error {
	busy, began := cpuSeconds(), time.Now()
	err := fn()
	t.Wall, t.CPU = append(t.Wall, time.Since(began).Seconds()), append(t.CPU, cpuSeconds()-busy)
	return err
}

func (r *modelRun) prefill(t *ModelTest) error {
	prompt := story(r.o.Prompt, r.src.Config.Vocab, 3)
	s, err := r.pool.open(r.src.Tokenizer, prompt, len(prompt))
	if err != nil {
		return err
	}
	if err := t.measure(func() error { return r.pool.prefill(s, prompt, r.o.Chunk) }); err != nil {
		return err
	}
	return r.pool.close(s)
}

func (r *modelRun) decode(t *ModelTest) error {
	seqs, next := make([]*sequence, r.o.Batch), make([][]int32, r.o.Batch)
	for i := range seqs {
		prompt := story(r.o.Depth, r.src.Config.Vocab, uint32(i))
		var err error
		if seqs[i], err = r.pool.open(r.src.Tokenizer, prompt, r.o.Depth+r.o.Generate); err != nil {
			return err
		}
		if err := r.pool.prefill(seqs[i], prompt, r.o.Chunk); err != nil {
			return err
		}
		next[i] = story(1, r.src.Config.Vocab, uint32(i)+7)
	}
	err := t.measure(func() error {
		for range r.o.Generate {
			if err := r.pool.step(seqs, next, true); err != nil {
				return err
			}
			for i, s := range seqs {
				next[i][0] = s.last
			}
		}
		return nil
	})
	for _, s := range seqs {
		if err == nil {
			err = r.pool.close(s)
		}
	}
	return err
}

// Print writes the report as a table.
func (r ModelReport) Print(w io.Writer) error {
	m := r.Machine
	fmt.Fprintf(w, "%s, %.1f MB; %s %s, %d threads of %d CPUs; pages of %d, chunks of %d\n\n", r.Model, float64(r.Bytes)/1e6, m.Backend, m.Variant,
		m.Threads, m.CPUs, r.PageSize, r.Chunk)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "TEST\tTOKENS/S\tMIN\tMAX\tPER CPU SECOND\tWALL MS\tCPU MS\tROUNDS\t")
	for _, x := range r.Tests {
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%d\t\n", x.title(), x.Rate.Median, x.Rate.Min, x.Rate.Max, x.PerCPU.Median,
			1e3*SpreadOf(x.Wall).Median, 1e3*SpreadOf(x.CPU).Median, x.Rate.N)
	}
	return t.Flush()
}

// title is like p512, n128 or n128x16@1500.
func (t ModelTest) title() string {
	if t.Name == "prefill" {
		return fmt.Sprintf("prefill p%d", t.Tokens)
	}
	s := fmt.Sprintf("decode n%d", t.Tokens)
	if t.Batch > 1 {
		s += fmt.Sprintf("x%d", t.Batch)
	}
	if t.Depth > 0 {
		s += fmt.Sprintf("@%d", t.Depth)
	}
	return s
}

// PrintBench writes every round as a line of Go's benchmark format, for benchstat.
func (r ModelReport) PrintBench(w io.Writer) error {
	fmt.Fprintf(w, "goos: %s\ngoarch: %s\nmodel: %s\nvariant: %s\nthreads: %d\n", r.Machine.OS, r.Machine.Arch, r.Model, r.Machine.Variant, r.Machine.Threads)
	for _, t := range r.Tests {
		name := map[string]string{"prefill": "Prefill", "decode": "Decode"}[t.Name]
		name += strings.NewReplacer("prefill ", "/", "decode ", "/").Replace(t.title())
		for i, wall := range t.Wall {
			tokens := float64(t.Tokens * t.Batch)
			fmt.Fprintf(w, "Benchmark%s-%d 1 %.0f ns/op %.2f tok/s", name, r.Machine.Threads, wall*1e9, tokens/wall)
			if c := t.CPU[i]; c > 0 {
				fmt.Fprintf(w, " %.2f tok/cpu-s", tokens/c)
			}
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
	}
	return nil
}
