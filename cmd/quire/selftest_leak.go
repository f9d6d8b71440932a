package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// leakTest plants canaries as one tenant and looks for them as another.
//
// First the second tenant's prompts are answered alone. Then, round after round, the first tenant fills pages with prompts that repeat a
// secret, some of them cancelled while they are answered, and the second tenant asks its prompts again, at once. An answer that differs
// from the one alone, or that holds the secret, is a finding. So is a request above the limit that is not refused.
type leakTest struct {
	plant, look *httpDoor
	model       string
	limit       int
	filler      []int32 // ids of an innocent text
	canary      string
	marks       []int32 // ids of a text that repeats the canary
	lengths     []int   // of the prompts that are computed, in tokens
	alone       map[int]string
	rounds      int
	canaries    bool // the model gives the canary back when it is asked with it: its absence means something

	before    pools  // before the first request
	pagesText string // what became of them
	patience  time.Duration

	requests, cancelled, refused, busy int
	findings                           []string
	began                              time.Time
}

const leakTokens = 12 // tokens of an answer

// newLeakTest reads what the cluster serves.
func newLeakTest(ctx context.Context, c *leakCmd) (*leakTest, error) {
	keys := append(slices.Clone(c.Keys), "", "")
	if len(c.Keys) == 1 {
		keys[1] = c.Keys[0]
	}
	t := &leakTest{plant: newHTTPDoor(c.HTTP, keys[0]), look: newHTTPDoor(c.HTTP, keys[1]), rounds: c.Rounds, patience: c.Settle, alone: map[int]string{}, began: time.Now()}
	models, err := t.look.models(ctx)
	if err != nil {
		return nil, err
	}
	if len(models) == 0 || models[0].MaxModelLen < 8+leakTokens {
		return nil, fmt.Errorf("nothing is served that takes %d tokens", 8+leakTokens)
	}
	t.model, t.limit = models[0].ID, models[0].MaxModelLen
	secret := make([]byte, 8)
	rand.Read(secret)
	t.canary = "canary-" + hex.EncodeToString(secret)
	if t.filler, err = t.ids(ctx, strings.Repeat("The quick brown fox jumps over the lazy dog. ", 8)); err != nil {
		return nil, err
	}
	if t.marks, err = t.ids(ctx, strings.Repeat("The secret is "+t.canary+". ", 4)); err != nil {
		return nil, err
	}
	most := min(c.MaxPrompt, t.limit-leakTokens)
	for _, n := range []int{1, 2, 7, 16, 17, 64, most / 3, most - 1, most} {
		if n >= 1 && n <= most && !slices.Contains(t.lengths, n) {
			t.lengths = append(t.lengths, n)
		}
	}
	return t, nil
}

// ids gives the token ids of a text.
func (t *leakTest) ids(ctx context.Context, text string) ([]int32, error) {
	resp, err := t.look.send(ctx, http.MethodPost, "/tokenize", map[string]any{"prompt": text})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var out struct {
		Tokens []int32 `json:"tokens"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(&out); err != nil {
		return nil, fmt.Errorf("/tokenize: %w", err)
	}
	if len(out.Tokens) == 0 {
		return nil, errors.New("/tokenize: no tokens")
	}
	return out.Tokens, nil
}

// prompt is n tokens of a pattern.
func prompt(pattern []int32, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = pattern[i%len(pattern)]
	}
	return out
}

// ask completes a prompt and gives the whole body of the answer. A full cluster is asked again.
func (t *leakTest) ask(ctx context.Context, d *httpDoor, tokens []int32, maxTokens int) (text, body string, err error) {
	q := map[string]any{"model": t.model, "prompt": tokens, "max_tokens": maxTokens, "temperature": 0, "seed": 1}
	for {
		t.requests++
		resp, err := d.send(ctx, http.MethodPost, "/v1/completions", q)
		var api *apiError
		if errors.As(err, &api) && (api.Status == http.StatusTooManyRequests || api.Status == http.StatusServiceUnavailable) {
			t.busy++
			select {
			case <-time.After(time.Second): // what Retry-After says at least
				continue
			case <-ctx.Done():
				return "", "", ctx.Err()
			}
		}
		if err != nil {
			return "", "", err
		}
		b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
		_ = resp.Body.Close()
		if err != nil {
			return "", "", err
		}
		var out struct {
			Choices []struct {
				Text string `json:"text"`
			} `json:"choices"`
		}
		if err := json.Unmarshal(b, &out); err != nil || len(out.Choices) != 1 {
			return "", "", fmt.Errorf("/v1/completions: %d choices: %w", len(out.Choices), err)
		}
		return out.Choices[0].Text, string(b), nil
	}
}

func (t *leakTest) find(format string, args ...any) {
	if len(t.findings) < 100 {
		t.findings = append(t.findings, fmt.Sprintf(format, args...))
	}
}

// clean says whether a text holds the canary or a part of it that chance does not give.
func (t *leakTest) clean(what, text string) {
	secret := strings.TrimPrefix(t.canary, "canary-")
	for i := 0; i+6 <= len(secret); i++ {
		if strings.Contains(text, secret[i:i+6]) {
			t.find("%s holds the other tenant's canary", what)
			return
		}
	}
}

func (t *leakTest) run(ctx context.Context) (err error) {
	if t.before, err = t.pools(ctx); err != nil {
		return fmt.Errorf("page counts: %w", err)
	}
	for _, n := range t.lengths {
		text, body, err := t.ask(ctx, t.look, prompt(t.filler, n), leakTokens)
		if err != nil {
			return fmt.Errorf("prompt of %d tokens, alone: %w", n, err)
		}
		t.alone[n] = text
		t.clean(fmt.Sprintf("the answer to %d tokens, before any canary,", n), body)
	}
	if err := t.atLimit(ctx); err != nil {
		return err
	}
	for round := range t.rounds {
		if err := t.round(ctx, round); err != nil {
			return fmt.Errorf("round %d of %d: %w", round+1, t.rounds, err)
		}
	}
	if err := t.atLimit(ctx); err != nil {
		return err
	}
	return t.settle(ctx)
}

// round fills pages with canaries, gives some requests up, and takes the pages over.
func (t *leakTest) round(ctx context.Context, round int) error {
	longest := t.lengths[len(t.lengths)-1]
	text, _, err := t.ask(ctx, t.plant, prompt(t.marks, longest), leakTokens)
	if err != nil {
		return err
	}
	if strings.Contains(t.canary, strings.TrimSpace(text)) || strings.Contains(text, t.canary[:8]) {
		t.canaries = true
	}
	var open sync.WaitGroup
	for i := range 2 { // given up at different moments
		open.Go(func() {
			t.giveUp(ctx, prompt(t.marks, max(1, longest-i)), time.Duration(1+7*round*(i+1))*time.Millisecond)
		})
	}
	defer open.Wait()
	t.cancelled += 2
	for _, n := range t.lengths {
		text, body, err := t.ask(ctx, t.look, prompt(t.filler, n), leakTokens)
		if err != nil {
			return fmt.Errorf("prompt of %d tokens: %w", n, err)
		}
		what := fmt.Sprintf("the answer to %d tokens in round %d", n, round+1)
		t.clean(what, body)
		if text != t.alone[n] {
			t.find("%s differs from the one alone", what)
		}
	}
	return nil
}

// giveUp asks and closes the connection after a while, whatever has come by then.
func (t *leakTest) giveUp(ctx context.Context, tokens []int32, after time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, after)
	defer cancel()
	b, err := json.Marshal(map[string]any{"model": t.model, "prompt": tokens, "max_tokens": leakTokens, "stream": true})
	if err != nil {
		return
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.plant.base+"/v1/completions", bytes.NewReader(b))
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/json")
	if t.plant.key != "" {
		req.Header.Set("Authorization", "Bearer "+t.plant.key)
	}
	if resp, err := http.DefaultClient.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// atLimit tries requests above the limit, which must be refused by name before anything is computed.
func (t *leakTest) atLimit(ctx context.Context) error {
	for _, c := range []struct{ prompt, max int }{{t.limit, 1}, {t.limit + 1, 1}, {2*t.limit + 3, leakTokens}, {1, t.limit}} {
		_, body, err := t.ask(ctx, t.look, prompt(t.filler, c.prompt), c.max)
		var api *apiError
		switch {
		case err == nil:
			t.find("a prompt of %d tokens with max_tokens %d was answered, the limit is %d", c.prompt, c.max, t.limit)
			t.clean("that answer", body)
		case !errors.As(err, &api):
			return err
		case api.Status == http.StatusRequestEntityTooLarge:
		case api.Status != http.StatusBadRequest || api.Code != "context_length_exceeded":
			t.find("a prompt of %d tokens with max_tokens %d above the limit of %d: status %d %s", c.prompt, c.max, t.limit, api.Status, api.Code)
		}
		if err != nil {
			t.refused++
			t.clean("the refusal", err.Error())
		}
	}
	return nil
}

// print gives the figures and the findings.
func (t *leakTest) print(w io.Writer) {
	tenants := "two tenants"
	if t.plant.key == t.look.key {
		tenants = "one tenant (two --api-key of different tenants test more)"
	}
	fmt.Fprintf(w, "model %s, limit %d tokens, %s\n", t.model, t.limit, tenants)
	fmt.Fprintf(w, "%d requests in %d s: %d prompt lengths from %d to %d tokens, %d rounds, %d given up on the way, %d above the limit, %d told to come again\n",
		t.requests, int(time.Since(t.began).Seconds()), len(t.lengths), t.lengths[0], t.lengths[len(t.lengths)-1], t.rounds, t.cancelled, t.refused, t.busy)
	if t.canaries {
		fmt.Fprintln(w, "the model repeats the canary when its own prompt holds it, so its absence from other answers means something")
	}
	if t.pagesText != "" {
		fmt.Fprintln(w, t.pagesText)
	}
	for _, f := range t.findings {
		fmt.Fprintln(w, "FOUND: "+f)
	}
}
