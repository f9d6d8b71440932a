package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fake makes this test's own binary act as all the others: it prints what they print, for whatever flags tell them apart.
const fake = "QUIRE_PEERS_FAKE"

func TestMain(m *testing.M) {
	if os.Getenv(fake) == "" {
		os.Exit(m.Run())
	}
	args := strings.Join(os.Args[1:], " ")
	switch {
	case strings.HasPrefix(args, "bench model") && strings.Contains(args, "-p 0"):
		fmt.Println(`{"tests":[{"name":"decode","tokens_per_second":{"median":900}}]}`)
	case strings.HasPrefix(args, "bench model"):
		fmt.Println(`{"tests":[{"name":"prefill","tokens_per_second":{"median":2000}},{"name":"decode","tokens_per_second":{"median":300}}]}`)
	case strings.HasPrefix(args, "up "):
		serveFake(flagOf("--http"), "/ready", 4)
	case strings.Contains(args, "--host"):
		serveFake(flagOf("--host")+":"+flagOf("--port"), "/health", 2)
	case strings.Contains(args, "-npl"):
		fmt.Println("main: n_kv_max = 3072\n{\"pp\": 128, \"tg\": 64, \"pl\": 16, \"speed_pp\": 800.0, \"speed_tg\": 300.0, \"speed\": 500.0}")
	case strings.Contains(args, "-lm none"):
		fmt.Println(`[{"n_prompt":512,"n_gen":0,"avg_ts":900.0},{"n_prompt":0,"n_gen":64,"avg_ts":100.0}]`)
	default:
		fmt.Println(`[{"n_prompt":512,"n_gen":0,"avg_ts":800.0},{"n_prompt":0,"n_gen":64,"avg_ts":150.0}]`)
	}
}

// flagOf is the value after a flag.
func flagOf(name string) string { return os.Args[slices.Index(os.Args, name)+1] }

// serveFake answers every completion with so many tokens, until it is killed.
func serveFake(addr, ready string, tokens int) {
	answer := func(w http.ResponseWriter, text string) { _, _ = io.WriteString(w, text) }
	http.HandleFunc(ready, func(w http.ResponseWriter, _ *http.Request) { answer(w, "ok") })
	http.HandleFunc("/v1/models", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, `{"data":[{"id":"m","max_model_len":1024,"vocab_size":50}]}`)
	})
	http.HandleFunc("/v1/completions", func(w http.ResponseWriter, _ *http.Request) {
		for range tokens {
			answer(w, `data: {"choices":[{"text":"a"}]}`+"\n\n")
		}
		answer(w, fmt.Sprintf(`data: {"choices":[],"usage":{"prompt_tokens":180,"completion_tokens":%d}}`+"\n\ndata: [DONE]\n\n", tokens))
	})
	fmt.Fprintln(os.Stderr, http.ListenAndServe(addr, nil))
	os.Exit(1)
}

func TestPeers(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(fake, "1")
	o := options{quire: self, bench: self, batched: self, server: self, model: "m.gguf", threads: 2, rounds: 2, prompt: 512, output: 64, batch: 16,
		served: 3, noMap: "-lm none", json: filepath.Join(t.TempDir(), "out.json")}
	if err := run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	var r report
	b, err := os.ReadFile(o.json)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	want := map[string]struct {
		peer  string
		ratio float64
	}{
		"prompt of 512, tokens/s": {"llama.cpp, huge pages", 2000.0 / 900},
		"one sequence, tokens/s":  {"llama.cpp", 2},
		"16 sequences, tokens/s":  {"llama.cpp", 3},
	}
	served := 0
	for _, x := range r.Rows {
		if strings.HasPrefix(x.Name, "served") {
			served++
			if x.Ours.N != 2 || x.Ours.Min <= 0 || x.Peers.Min <= 0 {
				t.Errorf("row %+v", x)
			}
			continue
		}
		if w := want[x.Name]; x.Peer != w.peer || x.Ratio.Median != w.ratio || x.Ratio.N != 2 {
			t.Errorf("row %+v, want %+v", x, w)
		}
	}
	if len(r.Rows) != 6 || served != 3 {
		t.Errorf("%d rows, %d of them served, want 6 and 3", len(r.Rows), served)
	}
}

// TestCompare: each round begins with another side, the first round does not count, and a row where less is better takes the peer
// that is lower.
func TestCompare(t *testing.T) {
	var order []string
	calls := map[string]int{}
	mk := func(name string, ours bool, ms float64) side {
		return side{name: name, ours: ours, measure: func(context.Context) (figures, error) {
			order = append(order, name)
			calls[name]++
			if calls[name] == 1 {
				return figures{"a ms": 1e6}, nil
			}
			return figures{"a ms": ms}, nil
		}}
	}
	r, err := compare(context.Background(), []side{mk("q", true, 10), mk("x", false, 40), mk("y", false, 20)}, 2, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, ""); got != "qxyxyqyqx" {
		t.Errorf("order %s", got)
	}
	if len(r.Rows) != 1 || r.Rows[0].Peer != "y" || r.Rows[0].Ratio.Median != 0.5 {
		t.Errorf("rows %+v", r.Rows)
	}
	var b strings.Builder
	if err := r.print(&b); err != nil || !strings.Contains(b.String(), "0.50") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestPeersRefuses(t *testing.T) {
	if err := run(context.Background(), options{model: "m", rounds: 1}); err == nil {
		t.Error("ran without a peer")
	}
	t.Setenv(fake, "1")
	if err := run(context.Background(), options{model: "m", rounds: 1, bench: "/no/such/binary", quire: "/no/such/binary"}); err == nil {
		t.Error("ran without binaries")
	}
}
