package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"quire/bus"
	"quire/bus/jet"
	"quire/cluster"
)

// BenchmarkJournal measures what recording costs: two clusters in this process, one whose journal is off, answer the same
// requests in turns, a request at a time.
//
//	go test ./bench -run '^$' -bench Journal -benchtime 300x
func BenchmarkJournal(b *testing.B) {
	for _, c := range []struct{ prompt, output int }{{64, 16}, {600, 64}} {
		b.Run(fmt.Sprintf("prompt=%d/output=%d", c.prompt, c.output), func(b *testing.B) { journalCost(b, c.prompt, c.output) })
	}
}

func journalCost(b *testing.B, prompt, output int) {
	ctx := b.Context()
	var doors [2]string
	var conn *jet.Conn
	for i := range doors {
		c, err := cluster.Up(ctx, cluster.Options{Data: b.TempDir(), Prefill: 1, Decode: 1, Log: slog.New(slog.DiscardHandler),
			Bus:  cluster.BusOptions{Listen: "127.0.0.1:0", Prefix: "quire", JournalOff: i == 0},
			Pool: cluster.PoolOptions{PageSize: 16, Lease: 10 * time.Second}, Door: cluster.DoorOptions{HTTP: "127.0.0.1:0"}})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := c.Stop(ctx); err != nil {
				b.Error(err)
			}
		})
		doors[i] = "http://" + c.Info().HTTP + "/v1/completions"
		if i == 1 {
			if conn, err = jet.Connect(ctx, jet.ConnectOptions{URLs: []string{c.Info().NATS}}); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { conn.Close() })
		}
	}
	ids := strings.TrimSuffix(strings.Repeat("7,", prompt), ",")
	ask := func(door string) (took time.Duration, cpu float64) {
		body := fmt.Sprintf(`{"prompt":[%s],"max_tokens":%d,"ignore_eos":true,"temperature":0}`, ids, output)
		before, began := cpuSeconds(), time.Now()
		res, err := http.Post(door, "application/json", strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		defer res.Body.Close()
		if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != 200 {
			b.Fatalf("%d, %v", res.StatusCode, err)
		}
		return time.Since(began), 1e6 * (cpuSeconds() - before)
	}
	state := func() bus.StreamState {
		st, err := conn.Read(ctx, bus.Names{}.JournalStream(), 1<<40, nil)
		if err != nil {
			b.Fatal(err)
		}
		return st
	}
	for range 5 {
		ask(doors[0])
		ask(doors[1])
	}
	before := state()
	var off, more, cpuOff, cpuMore []float64
	for b.Loop() {
		a, cpuA := ask(doors[0])
		c, cpuC := ask(doors[1])
		off, cpuOff = append(off, float64(a.Microseconds())), append(cpuOff, cpuA)
		more, cpuMore = append(more, float64((c-a).Microseconds())), append(cpuMore, cpuC-cpuA)
	}
	after := state()
	b.ReportMetric(median(off), "off-us/request")
	b.ReportMetric(median(more), "journal-us/request")
	b.ReportMetric(median(cpuOff), "off-CPU-us/request")
	b.ReportMetric(median(cpuMore), "journal-CPU-us/request")
	b.ReportMetric(float64(after.Bytes-before.Bytes)/float64(len(off)), "journal-B/request")
	b.ReportMetric(float64(after.Messages-before.Messages)/float64(len(off)), "messages/request")
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
