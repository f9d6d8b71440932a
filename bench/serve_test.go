package bench_test

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"quire/bench"
)

func TestReadTrace(t *testing.T) {
	azure := "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.4799600,0,8\n"
	mooncake := `{"timestamp": 100, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}` + "\n" +
		`{"timestamp": 90, "input_length": 3, "output_length": 4, "hash_ids": []}` + "\n"
	for _, c := range []struct {
		text string
		n    int
		want []bench.Arrival
	}{
		{azure, 0, []bench.Arrival{{0, 4808, 10}, {500 * time.Millisecond, 1, 8}}},
		{azure, 1, []bench.Arrival{{0, 4808, 10}}},
		{mooncake, 0, []bench.Arrival{{0, 3, 4}, {10 * time.Millisecond, 6758, 500}}},
	} {
		got, err := bench.ReadTrace(strings.NewReader(c.text), c.n)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("got %v, %v, want %v", got, err, c.want)
		}
	}
	for _, bad := range []string{"", "a,b\n", "2023-11-16 18:17:03,x,1", "2023-11-16 18:17:03,1,-1", `{"timestamp": "x"}`} {
		if got, err := bench.ReadTrace(strings.NewReader(bad), 0); err == nil {
			t.Errorf("%q gave %v", bad, got)
		}
	}
}

func TestFit(t *testing.T) {
	load := []bench.Arrival{{0, 900, 100}, {10 * time.Second, 2, 1}}
	if f := bench.Fit(load, 500, 2); f != 0.5 {
		t.Errorf("factor %g", f)
	}
	if want := []bench.Arrival{{0, 450, 50}, {5 * time.Second, 1, 1}}; fmt.Sprint(load) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", load, want)
	}
	if f := bench.Fit(load, 5000, 1); f != 1 || load[0].Prompt != 450 {
		t.Errorf("what fits was scaled by %g: %v", f, load)
	}
}

func TestPoisson(t *testing.T) {
	size := bench.Arrival{Prompt: 5, Output: 6}
	a, b := bench.Poisson(2000, 10, 1, size), bench.Poisson(2000, 10, 1, size)
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Error("equal seeds gave different times")
	}
	if last := a[1999].At.Seconds(); last < 180 || last > 220 || a[0].At != 0 || a[7].Prompt != 5 {
		t.Errorf("2000 arrivals at 10/s took %g s, first %+v", last, a[0])
	}
}

// server answers completions with as many events as tokens are wanted; prompts of 13 tokens are refused, of 14 cut, of 15 end in
// an error event.
func server(t *testing.T, running, most *atomic.Int64) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			_, _ = io.WriteString(w, `{"data":[{"id":"m","max_model_len":64,"vocab_size":50}]}`)
			return
		}
		var q struct {
			Prompt []int `json:"prompt"`
			Max    int   `json:"max_tokens"`
			EOS    bool  `json:"ignore_eos"`
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || !q.EOS {
			t.Errorf("body: %+v, %v", q, err)
		}
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer running.Add(-1)
		if len(q.Prompt) == 13 {
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"error":{"code":"rate_limit_exceeded"}}`)
			return
		}
		for i := range q.Max {
			fmt.Fprintf(w, "data: {\"choices\":[{\"text\":\"t%d\",\"finish_reason\":null}]}\n\n", i)
			w.(http.Flusher).Flush()
		}
		switch len(q.Prompt) {
		case 14:
		case 15:
			_, _ = io.WriteString(w, "data: {\"error\":{\"code\":\"worker_lost\"}}\n\n")
		default:
			fmt.Fprintf(w, ": ping\n\ndata: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n"+
				"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", len(q.Prompt), q.Max)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestServe(t *testing.T) {
	var running, most atomic.Int64
	s := server(t, &running, &most)
	o := bench.ServeOptions{Target: bench.Target{URL: s.URL, Client: s.Client()}, Concurrency: 3, Warm: 1, TTFT: time.Hour, ITL: time.Hour,
		Load: append(bench.Steady(9, 5, 4), bench.Arrival{Prompt: 13, Output: 1}, bench.Arrival{Prompt: 14, Output: 2}, bench.Arrival{Prompt: 15, Output: 2})}
	r, err := bench.RunServe(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests != 12 || r.Completed != 9 || r.Good != 9 || r.Prompt != 45 || r.Output != 36 || r.Model != "m" || most.Load() > 3 {
		t.Errorf("%+v, at most %d at once", r, most.Load())
	}
	if want := map[string]int{"rate_limit_exceeded": 1, "cut": 1, "worker_lost": 1}; fmt.Sprint(r.Errors) != fmt.Sprint(want) {
		t.Errorf("errors %v, want %v", r.Errors, want)
	}
	if r.TTFT.N != 9 || r.ITL.N != 27 || r.TPOT.N != 9 || r.TTFT.Max > r.E2E.Max {
		t.Errorf("spreads: %+v %+v %+v %+v", r.TTFT, r.ITL, r.TPOT, r.E2E)
	}
	var table strings.Builder
	if err := r.Print(&table); err != nil || !strings.Contains(table.String(), "error cut: 1") {
		t.Errorf("table: %v\n%s", err, table.String())
	}
	d := xml.NewDecoder(strings.NewReader(string(r.SVG())))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the plot is no XML: %v", err)
		}
	}
}

func TestServeOpenLoop(t *testing.T) {
	var running, most atomic.Int64
	s := server(t, &running, &most)
	o := bench.ServeOptions{Target: bench.Target{URL: s.URL, Client: s.Client()}, TTFT: 1,
		Load: bench.Poisson(8, 1e4, 1, bench.Arrival{Prompt: 5, Output: 2})}
	r, err := bench.RunServe(context.Background(), o)
	if err != nil || r.Completed != 8 || r.Good != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	for i, x := range r.Samples {
		if x.At != o.Load[i].At.Seconds() {
			t.Errorf("request %d was due at %g, not %s", i, x.At, o.Load[i].At)
		}
	}
	s.Close()
	if _, err := bench.RunServe(context.Background(), o); err == nil {
		t.Error("a report without a server")
	}
}
