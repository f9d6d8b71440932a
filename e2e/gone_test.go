package e2e

import (
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"quire/bus"
	"quire/bus/jet"
	"quire/e2e/rig"
)

// TestClientGoneOverNATS: clients that leave in the middle of streamed answers have their requests cancelled long before the
// answers' ends, and every page is freed.
func TestClientGoneOverNATS(t *testing.T) {
	const clients, most = 8, 1900
	r := newRig(t, rig.Options{MaxOpen: clients})
	ctx := t.Context()
	if err := errors.Join(r.AddDecode(ctx, 1024), r.AddPrefill(ctx, 128, nil), r.Ready(ctx)); err != nil {
		t.Fatal(err)
	}
	p, err := r.Padded("My name is Ada.", "What is my name?", 64)
	if err != nil {
		t.Fatal(err)
	}
	body := p.Completion(most, true)
	body["ignore_eos"] = true
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	client, err := jet.Connect(ctx, jet.ConnectOptions{URLs: []string{r.NATS}, Plain: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	leave := errors.New("leave")
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			frames := 0
			err := client.Stream(ctx, bus.Ask{Subject: bus.Names{}.API("default", "completions"), Data: b}, func(bus.Msg) error {
				if frames++; frames == 5 {
					return leave
				}
				return nil
			})
			if !errors.Is(err, leave) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := r.Quiet(ctx, clients); err != nil {
		t.Fatal(err)
	}
	if c := r.Decode.Stats().Counters; c.Cancelled == 0 || c.Cancelled+c.Finished != clients || c.Tokens >= clients*most {
		t.Errorf("cancelled %d, finished %d, %d tokens of %d", c.Cancelled, c.Finished, c.Tokens, clients*most)
	}
}
