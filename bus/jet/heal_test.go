package jet

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"quire/bus"
)

func TestBroken(t *testing.T) {
	for line, want := range map[string]bool{
		"Filestore [QUIRE_JOURNAL] Critical write error: write /x/1.blk: no space left on device": true,
		"JetStream out of resources, will be DISABLED":                                            true,
		"write: disk quota exceeded":                                                              true,
		"JetStream failed to store a msg on stream":                                               false,
		"Slow consumer detected":                                                                  false,
	} {
		if broken(line) != want {
			t.Errorf("%q: %t", line, !want)
		}
	}
}

func TestTakes(t *testing.T) {
	dir := t.TempDir()
	if !takes(dir, 1000) || takes(filepath.Join(dir, "none"), 1000) {
		t.Error("a directory takes nothing, or one that is not there does")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A server whose store broke is started anew: its clients find it again, and what is on disk is there.
func TestHeal(t *testing.T) {
	t.Parallel()
	s, err := Serve(ServerOptions{Addr: "127.0.0.1:0", Data: t.TempDir()})
	must(t, err)
	defer s.Stop()
	c := connect(t, ConnectOptions{URLs: []string{s.URL()}})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	must(t, c.Streams().EnsureShared(ctx))
	var n bus.Names
	first, err := c.Enqueue(ctx, bus.Enqueue{Subject: n.Journal("verdict", "d1"), Data: []byte("fact"), ID: "one"})
	must(t, err)
	states := make(chan bus.State, 8)
	defer c.Watch(func(st bus.State, _ error) { states <- st })()
	serverLog{s.log, nil, s.sick}.Errorf("Filestore [QUIRE_JOURNAL] Critical write error: %v", "no space left on device")
	for _, want := range []bus.State{bus.Up, bus.Down, bus.Up} {
		if st := <-states; st != want {
			t.Fatalf("state %v, want %v", st, want)
		}
	}
	if second := persist(t, ctx, c, bus.Enqueue{Subject: n.Journal("verdict", "d1"), Data: []byte("later"), ID: "two"}); second != first+1 {
		t.Errorf("sequence %d after %d", second, first)
	}
}
