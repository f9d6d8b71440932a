package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"quire/cluster"
	"quire/e2e/rig"
	_ "quire/embedded" // the model that is served
)

// shape is a way to lay a cluster out that must not change any answer.
type shape struct {
	name              string
	prefill, decode   int
	pageSize, threads int
	chunk             int
	kv                string // type of keys and values; "" = f16
}

// TestMetamorphicAnswers asks the same random requests of clusters that differ in workers, page size, chunk size and threads, one
// after another and all at once: every token and every bit of every log probability must be the same.
func TestMetamorphicAnswers(t *testing.T) {
	bodies := randomBodies(14)
	sameAnswers(t, bodies, shape{"1P1D, one at a time", 1, 1, 16, 2, 256, ""}, []shape{
		{"1P1D, all at once", 1, 1, 16, 2, 256, ""},
		{"2P3D, pages of 5, chunks of 9", 2, 3, 5, 1, 9, ""},
		{"3P1D, pages of 128, chunks of 40", 3, 1, 128, 2, 40, ""},
	})
}

// TestMetamorphicAnswersQ8 is the same with keys and values in Q8_0, in pages and frames.
func TestMetamorphicAnswersQ8(t *testing.T) {
	sameAnswers(t, randomBodies(6), shape{"1P1D, one at a time", 1, 1, 16, 2, 256, "q8_0"}, []shape{
		{"2P2D, pages of 5, chunks of 9", 2, 2, 5, 1, 9, "q8_0"},
	})
}

func sameAnswers(t *testing.T, bodies []map[string]any, first shape, others []shape) {
	t.Helper()
	alone := askAll(t, first, bodies, 1)
	for _, s := range others {
		for i, got := range askAll(t, s, bodies, len(bodies)) {
			if got != alone[i] {
				t.Errorf("%s: request %d:\n got %s\nwant %s", s.name, i, got, alone[i])
			}
		}
	}
}

// randomBodies makes completions of random token ids with random parameters, all from one seed.
func randomBodies(n int) []map[string]any {
	r := rand.New(rand.NewPCG(7, 11))
	out := make([]map[string]any, n)
	for i := range out {
		prompt := make([]int32, 1+r.IntN(300))
		for j := range prompt {
			prompt[j] = int32(5 + r.IntN(2000))
		}
		b := map[string]any{"prompt": prompt, "max_tokens": 4 + r.IntN(28), "logprobs": 3, "ignore_eos": r.IntN(2) == 0, "seed": r.Uint32()}
		if r.IntN(4) > 0 {
			b["temperature"], b["top_p"], b["top_k"] = 0.2+1.3*r.Float64(), 0.5+r.Float64()/2, r.IntN(50)
			b["frequency_penalty"], b["repetition_penalty"] = r.Float64(), 1+r.Float64()/2
		} else {
			b["temperature"] = 0
		}
		out[i] = b
	}
	return out
}

// askAll starts a cluster of that shape, sends the bodies, at most so many at a time, and gives what must not differ of each
// answer: the choices and the usage.
func askAll(t *testing.T, s shape, bodies []map[string]any, atOnce int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := cluster.Up(ctx, cluster.Options{Data: t.TempDir(), Prefill: s.prefill, Decode: s.decode, Log: slog.New(slog.DiscardHandler),
		Bus:   cluster.BusOptions{Listen: "127.0.0.1:0"},
		Model: cluster.ModelOptions{KVType: s.kv},
		Pool:  cluster.PoolOptions{PageSize: s.pageSize, Threads: s.threads, Chunk: s.chunk},
		Door:  cluster.DoorOptions{HTTP: "127.0.0.1:0"}})
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	defer func() {
		stop, done := context.WithTimeout(context.Background(), 10*time.Second)
		defer done()
		if err := c.Stop(stop); err != nil {
			t.Errorf("%s: stop: %v", s.name, err)
		}
	}()
	out := make([]string, len(bodies))
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, b := range bodies {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			out[i] = invariantPart(rig.Ask(ctx, "http://"+c.Info().HTTP, "/v1/completions", "", b))
		})
	}
	wg.Wait()
	return out
}

func invariantPart(a rig.Answer, err error) string {
	var v struct {
		Choices, Usage json.RawMessage
	}
	if err == nil {
		err = json.Unmarshal([]byte(a.Body), &v)
	}
	if err != nil || a.Status != 200 || len(v.Choices) == 0 {
		return fmt.Sprintf("status %d, error %v, body %s", a.Status, err, a.Body)
	}
	return string(v.Choices) + string(v.Usage)
}
