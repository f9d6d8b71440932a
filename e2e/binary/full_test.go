//go:build unix

package binary

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"quire/bus/jet"
)

// streamBytes sets a stream's max_bytes on a running server, as `nats stream edit` does, and gives what it was. With 0 it takes nothing more.
func streamBytes(t *testing.T, c *jet.Conn, stream string, bytes int64) (before int64) {
	t.Helper()
	call := func(op string, body any) (config map[string]any) {
		t.Helper()
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		m, err := c.Request(ctx, "$JS.API.STREAM."+op+"."+stream, b)
		if err != nil {
			t.Fatal(err)
		}
		var out struct {
			Config map[string]any
			Error  map[string]any
		}
		if err := json.Unmarshal(m.Data, &out); err != nil || out.Error != nil {
			t.Fatalf("%s of %s: %v, %s", op, stream, err, m.Data)
		}
		return out.Config
	}
	config := call("INFO", struct{}{})
	before = int64(config["max_bytes"].(float64))
	config["max_bytes"] = max(1, bytes)
	call("UPDATE", config)
	return before
}

// A stream that takes no more, because a limit of it or of the disk is reached, is no reason to answer wrongly, nor for ever: the client
// gets one typed error, and an answer as soon as there is room again, without anybody being started anew.
func TestFullStreams(t *testing.T) {
	t.Parallel()
	_, http, nats := up(t, "--lease", "1s", "--prefill", "2")
	c, err := jet.Connect(t.Context(), jet.ConnectOptions{URLs: []string{"nats://" + nats}, Plain: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := func() asked {
		var a asked
		a.result, a.err = perform(t.Context(), http, "/v1/chat/completions", tale(taleTokens), nil)
		return a
	}
	alone := ask()
	if alone.err != nil || !alone.Done || alone.Output != taleTokens {
		t.Fatalf("alone: %+v", alone)
	}
	var names struct{ Streams []string }
	m, err := c.Request(t.Context(), "$JS.API.STREAM.NAMES", []byte("{}"))
	if err == nil {
		err = json.Unmarshal(m.Data, &names)
	}
	if err != nil || len(names.Streams) != 5 {
		t.Fatalf("streams %q, %v", names.Streams, err)
	}
	kv := ""
	for _, n := range names.Streams {
		if strings.HasPrefix(n, "QUIRE_KV_") {
			kv = n
		}
	}
	type full struct {
		stream string
		codes  string // those that may be the client's
	}
	list := []full{{"QUIRE_JOURNAL", "journal_unavailable"}, {"QUIRE_JOBS", "bus_failed"}, {kv, "bus_failed lease_expired"}, {"QUIRE_CTL", "lease_expired"}}
	if !*everyStep {
		list = list[:3]
	}
	for _, full := range list {
		room := streamBytes(t, c, full.stream, 0)
		began := time.Now()
		got := ask()
		t.Logf("%s is full: after %.1f s %d %s", full.stream, time.Since(began).Seconds(), got.Status, got.Error)
		if got.err != nil || got.Status != 503 || got.Error == "" || !slices.Contains(strings.Fields(full.codes), got.Error) || got.Text != "" || got.Done || got.Ends > 0 {
			t.Errorf("%s is full: %+v", full.stream, got)
		}
		streamBytes(t, c, full.stream, room)
		eventually(t, fmt.Sprintf("an answer with room in %s", full.stream), func() bool { return ask() == alone })
	}
}
