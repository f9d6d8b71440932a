package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"quire/cluster"
	"quire/e2e/rig"
	"quire/kvtransfer"
)

// asked is one way of asking the same thing.
type asked struct {
	name string
	ask  func(ctx context.Context, r *rig.Rig, p rig.Prompt, maxTokens int) (rig.Answer, error)
}

// everyWay is both operations at both doors, whole and streaming, as tenant default.
func everyWay() []asked {
	var ways []asked
	for _, stream := range []bool{false, true} {
		for _, chat := range []bool{true, false} {
			body := func(p rig.Prompt, n int) map[string]any {
				if chat {
					return p.Chat(n, stream)
				}
				return p.Completion(n, stream)
			}
			path, op := "/v1/completions", "completions"
			if chat {
				path, op = "/v1/chat/completions", "chat"
			}
			ways = append(ways,
				asked{fmt.Sprintf("http %s, stream %t", op, stream), func(ctx context.Context, r *rig.Rig, p rig.Prompt, n int) (rig.Answer, error) {
					return r.Ask(ctx, path, "", body(p, n))
				}},
				asked{fmt.Sprintf("nats %s, stream %t", op, stream), func(ctx context.Context, r *rig.Rig, p rig.Prompt, n int) (rig.Answer, error) {
					return r.AskNATS(ctx, op, body(p, n))
				}})
		}
	}
	return ways
}

func newRig(t *testing.T, o rig.Options) *rig.Rig {
	t.Helper()
	o.Dir = t.TempDir()
	r, err := rig.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// onlyAnError fails unless a client got an error and nothing else.
func onlyAnError(t *testing.T, name string, a rig.Answer) {
	t.Helper()
	if a.Status < 400 || a.Error == "" || a.Text != "" || a.Finish != "" || strings.Contains(a.Body, "choices") || strings.Contains(a.Body, "[DONE]") {
		t.Errorf("%s: want an error and nothing else, got %d %s", name, a.Status, a.Body)
	}
}

// TestIncidentAdvertised: a context larger than a pool refuses to start, whoever is started, and the error has both numbers.
func TestIncidentAdvertised(t *testing.T) {
	o := cluster.Options{ID: "x1", Data: t.TempDir(), Prefill: 1, Decode: 1, Log: slog.New(slog.DiscardHandler),
		Bus:  cluster.BusOptions{Listen: "127.0.0.1:0"},
		Door: cluster.DoorOptions{HTTP: "127.0.0.1:0"}, Model: cluster.ModelOptions{MaxLen: 641}, Pool: cluster.PoolOptions{PageSize: 16, Pages: 40}}
	for name, start := range map[string]func(context.Context, cluster.Options) (*cluster.Cluster, error){
		"up": cluster.Up, "prefill": cluster.Prefill, "decode": cluster.Decode} {
		c, err := start(t.Context(), o)
		if err == nil {
			_ = c.Stop(t.Context())
			t.Errorf("%s: started", name)
			continue
		}
		for _, want := range []string{"--max-model-len 641", "640 tokens"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in %v", name, want, err)
			}
		}
	}
}

// TestIncidentForgedPool: where a prefill advertises a pool larger than it has, what is just over its pool gets a typed refusal.
// Nothing is copied into decode's pages, nothing reads them, and the client gets an error and nothing else.
func TestIncidentForgedPool(t *testing.T) {
	const pool = 320
	r := newRig(t, rig.Options{})
	ctx := t.Context()
	if err := r.AddDecode(ctx, 128); err != nil {
		t.Fatal(err)
	}
	forged := func(hb *kvtransfer.Heartbeat) { hb.MaxModelLen, hb.Pages.Total, hb.Pages.Free = 2048, 128, 128 }
	if err := r.AddPrefill(ctx, pool/16, forged); err != nil {
		t.Fatal(err)
	}
	if err := r.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	asks := uint64(0)
	for _, n := range []int{pool + 1, 600} {
		p, err := r.Padded("My name is Ada.", "What is my name?", n)
		if err != nil {
			t.Fatal(err)
		}
		for _, way := range everyWay() {
			a, err := way.ask(ctx, r, p, 16)
			if err != nil {
				t.Fatal(way.name, err)
			}
			asks++
			onlyAnError(t, way.name, a)
			if a.Status != 400 || a.Error != string(kvtransfer.ContextLengthExceeded) || !strings.Contains(a.Detail, fmt.Sprintf("%d tokens, limit %d", n, pool)) {
				t.Errorf("%s, %d tokens: %d %s: %s", way.name, n, a.Status, a.Error, a.Detail)
			}
		}
	}
	if err := r.Quiet(ctx, asks); err != nil {
		t.Fatal(err)
	}
	if k, w := r.DecodeEngine.Kernels(), r.DecodeEngine.Writes(); k != 0 || w != 0 {
		t.Errorf("decode's pages were read %d times and written %d times", k, w)
	}
	// What fits the real pool is answered, to the token.
	p, err := r.Padded("My name is Ada.", "What is my name?", pool)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := r.Solo(p.Tokens, 16)
	if err != nil {
		t.Fatal(err)
	}
	a, err := r.Ask(ctx, "/v1/chat/completions", "", p.Chat(16, false))
	if err != nil || a.Status != 200 || a.Text != alone.Text {
		t.Errorf("%d tokens: %v, %d %s; want %q", pool, err, a.Status, a.Body, alone.Text)
	}
}

// TestIncidentOneToken: the only prefill holds a valid key and sends a manifest of one token for a reservation of 600. At both
// doors, streaming or not, the client gets an error with both numbers, and no kernel has run.
func TestIncidentOneToken(t *testing.T) {
	r := newRig(t, rig.Options{})
	ctx := t.Context()
	if err := r.AddDecode(ctx, 128); err != nil {
		t.Fatal(err)
	}
	if err := r.AddRogue(ctx, 128, rig.OneToken("default")); err != nil {
		t.Fatal(err)
	}
	if err := r.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	p, err := r.Padded("My name is Ada.", "What is my name?", rig.SceneTokens)
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range everyWay() {
		a, err := way.ask(ctx, r, p, 16)
		if err != nil {
			t.Fatal(way.name, err)
		}
		onlyAnError(t, way.name, a)
		if a.Status != 500 || a.Error != string(kvtransfer.HandoffRefused) || !strings.Contains(a.Detail, "reserved 600, manifest 1") {
			t.Errorf("%s: %d %s: %s", way.name, a.Status, a.Error, a.Detail)
		}
	}
	if err := r.Quiet(ctx, 8); err != nil {
		t.Fatal(err)
	}
	if k := r.DecodeEngine.Kernels(); k != 0 {
		t.Errorf("%d kernel calls read decode's pages", k)
	}
	if c := r.Decode.Stats().Counters; c.GateRefused != 8 || c.Admitted != 0 {
		t.Errorf("refused by the gate %d, admitted %d; want 8 and 0", c.GateRefused, c.Admitted)
	}
}

// TestIncidentOtherPrefill: beside the rogue there is an honest prefill. What the rogue sends is refused, and the one new attempt, with a
// new reservation, goes to the other: the client gets the answer that the prompt has alone.
func TestIncidentOtherPrefill(t *testing.T) {
	r := newRig(t, rig.Options{})
	ctx := t.Context()
	for _, add := range []func() error{
		func() error { return r.AddDecode(ctx, 128) },
		func() error { return r.AddPrefill(ctx, 128, nil) },
		func() error { return r.AddRogue(ctx, 128, rig.OneToken("default")) },
		func() error { return r.Ready(ctx) },
	} {
		if err := add(); err != nil {
			t.Fatal(err)
		}
	}
	p, err := r.Padded("My name is Ada.", "What is my name?", 100)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := r.Solo(p.Tokens, 16)
	if err != nil {
		t.Fatal(err)
	}
	const asks = 12
	for i := range asks {
		a, err := r.Ask(ctx, "/v1/chat/completions", "", p.Chat(16, i%2 == 0))
		if err != nil || a.Status != 200 || a.Text != alone.Text {
			t.Errorf("request %d: %v, %d %s; want %q", i, err, a.Status, a.Body, alone.Text)
		}
	}
	if err := r.Quiet(ctx, asks); err != nil {
		t.Fatal(err)
	}
	c := r.Decode.Stats().Counters
	if c.Finished != asks || c.GateRefused == 0 || c.Reserved != asks+c.GateRefused {
		t.Errorf("finished %d of %d, refused by the gate %d, reserved %d", c.Finished, asks, c.GateRefused, c.Reserved)
	}
}

// TestIncidentContent: acme's prompts hold secrets in words and fill the pool; it is freed. Umbra's requests of one token less than
// the limit, the limit and one more never say a secret, and what they say is what an engine says that nobody else has used.
func TestIncidentContent(t *testing.T) {
	const limit, maxTokens = 640, 16
	r := newRig(t, rig.Options{Keys: map[string]string{"key-acme": "acme", "key-umbra": "umbra"}})
	ctx := t.Context()
	for _, add := range []func() error{
		func() error { return r.AddDecode(ctx, limit/16) },
		func() error { return r.AddPrefill(ctx, limit/16, nil) },
		func() error { return r.Ready(ctx) },
	} {
		if err := add(); err != nil {
			t.Fatal(err)
		}
	}
	secrets := []string{"zorvane", "plimdor", "kestovik", "branulo", "tavishen"}
	fill := func(size int, secrets ...string) {
		t.Helper()
		var wg sync.WaitGroup
		for _, secret := range secrets {
			p, err := r.Padded("The password is "+secret+".", "What is the password?", size-maxTokens)
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				a, err := r.Ask(ctx, "/v1/chat/completions", "key-acme", p.Chat(maxTokens, false))
				if err != nil || a.Status != 200 || !strings.Contains(a.Text, secret) {
					t.Errorf("acme's own secret %s: %v, %d %s", secret, err, a.Status, a.Body)
				}
			})
		}
		wg.Wait()
	}
	reserved := uint64(0)
	for round, sizes := range []int{limit, limit / 4} {
		n := limit / sizes
		fill(sizes, secrets[round:round+n]...)
		reserved += uint64(n)
		if err := r.Quiet(ctx, reserved); err != nil {
			t.Fatal(err)
		}
		if d, p := r.DecodeEngine.Stale(), r.PrefillEngine.Stale(); d >= 0 || p >= 0 {
			t.Errorf("all pages are free; decode's page %d, prefill's page %d hold what acme left", d, p)
		}
		for _, total := range []int{limit - 1, limit, limit + 1} {
			for _, fact := range []string{"The weather is fine.", "My name is Ada."} {
				reserved += umbraAsks(t, r, fact, total, maxTokens, limit, secrets)
			}
		}
	}
}

// umbraAsks asks for a secret with so many tokens in all, in both ways, and says how many reservations that took.
func umbraAsks(t *testing.T, r *rig.Rig, fact string, total, maxTokens, limit int, secrets []string) (reservations uint64) {
	t.Helper()
	p, err := r.Padded(fact, "What is the password?", total-maxTokens)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := r.Solo(p.Tokens, maxTokens)
	if err != nil {
		t.Fatal(err)
	}
	for _, stream := range []bool{false, true} {
		a, err := r.Ask(t.Context(), "/v1/chat/completions", "key-umbra", p.Chat(maxTokens, stream))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range secrets {
			if strings.Contains(a.Body, s) || strings.Contains(alone.Text, s) {
				t.Errorf("%d tokens: umbra got %s, alone %q", total, a.Body, alone.Text)
			}
		}
		switch {
		case total > limit:
			onlyAnError(t, fmt.Sprint(total, " tokens"), a)
			if a.Status != 400 || a.Error != string(kvtransfer.ContextLengthExceeded) || !strings.Contains(a.Detail, fmt.Sprint(limit)) {
				t.Errorf("%d tokens: %d %s", total, a.Status, a.Body)
			}
		default:
			reservations++
			if a.Status != 200 || a.Text != alone.Text || a.Finish != alone.Finish {
				t.Errorf("%d tokens, stream %t: %d %q %s, alone %q %s", total, stream, a.Status, a.Text, a.Finish, alone.Text, alone.Finish)
			}
		}
	}
	return reservations
}
