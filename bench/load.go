package bench

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Arrival is one request of a load: when it comes, from the load's begin, and how many tokens it brings and wants.
type Arrival struct {
	At     time.Duration
	Prompt int
	Output int
}

// Steady is n requests of one size without times: for a closed loop.
func Steady(n, prompt, output int) []Arrival {
	return slices.Repeat([]Arrival{{Prompt: prompt, Output: output}}, n)
}

// Poisson is n requests of one size whose gaps are exponential with a mean of 1/rate seconds; equal seeds give equal times.
func Poisson(n int, rate float64, seed uint64, size Arrival) []Arrival {
	r := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	out := make([]Arrival, n)
	at := 0.0
	for i := range out {
		out[i] = Arrival{At: time.Duration(at * float64(time.Second)), Prompt: size.Prompt, Output: size.Output}
		at += r.ExpFloat64() / rate
	}
	return out
}

// maxTraceLine bounds a line of a trace: Mooncake's carry hundreds of hashes.
const maxTraceLine = 1 << 20

// ReadTrace reads at most n arrivals (0: all) of a trace: Azure's CSV (TIMESTAMP,ContextTokens,GeneratedTokens) or Mooncake's
// JSONL (timestamp in ms, input_length, output_length). The first one arrives at 0, and they come in order of time.
func ReadTrace(r io.Reader, n int) ([]Arrival, error) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 64<<10), maxTraceLine)
	var out []Arrival
	var first time.Time
	for line := 1; s.Scan() && (n == 0 || len(out) < n); line++ {
		text := strings.TrimSpace(s.Text())
		if text == "" || line == 1 && strings.HasPrefix(text, "TIMESTAMP") {
			continue
		}
		var a Arrival
		var err error
		if strings.HasPrefix(text, "{") {
			a, err = mooncake(text)
		} else {
			a, err = azure(text, &first)
		}
		if err != nil {
			return nil, fmt.Errorf("bench: trace: line %d: %w", line, err)
		}
		out = append(out, a)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("bench: trace: %w", err)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("bench: trace: no requests")
	}
	slices.SortStableFunc(out, func(a, b Arrival) int { return cmp.Compare(a.At, b.At) })
	for i := len(out) - 1; i >= 0; i-- {
		out[i].At -= out[0].At
	}
	return out, nil
}

func mooncake(text string) (Arrival, error) {
	var l struct {
		Timestamp float64 `json:"timestamp"`
		Input     int     `json:"input_length"`
		Output    int     `json:"output_length"`
	}
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return Arrival{}, err
	}
	return sized(time.Duration(l.Timestamp*float64(time.Millisecond)), l.Input, l.Output)
}

func azure(text string, first *time.Time) (Arrival, error) {
	f := strings.Split(text, ",")
	if len(f) != 3 {
		return Arrival{}, fmt.Errorf("%d fields, 3 are wanted", len(f))
	}
	at, err := time.Parse("2006-01-02 15:04:05", f[0])
	if err != nil {
		return Arrival{}, err
	}
	if first.IsZero() {
		*first = at
	}
	in, err := strconv.Atoi(f[1])
	if err != nil {
		return Arrival{}, err
	}
	out, err := strconv.Atoi(f[2])
	if err != nil {
		return Arrival{}, err
	}
	return sized(at.Sub(*first), in, out)
}

func sized(at time.Duration, in, out int) (Arrival, error) {
	if in < 0 || out < 0 {
		return Arrival{}, fmt.Errorf("%d tokens in, %d out", in, out)
	}
	return Arrival{At: at, Prompt: max(1, in), Output: max(1, out)}, nil
}

// Fit scales lengths by one factor so that the longest request takes at most context tokens, and times by 1/speed. It returns
// the factor, 1 where everything fits already. No length falls below 1.
func Fit(load []Arrival, context int, speed float64) float64 {
	longest := 0
	for _, a := range load {
		longest = max(longest, a.Prompt+a.Output)
	}
	factor := 1.0
	if context > 0 && longest > context {
		factor = float64(context) / float64(longest)
	}
	for i, a := range load {
		a.At = time.Duration(float64(a.At) / speed)
		a.Prompt = max(1, int(float64(a.Prompt)*factor))
		a.Output = max(1, int(float64(a.Output)*factor))
		load[i] = a
	}
	return factor
}
