package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"quire/bus"
	"quire/bus/jet"
	"quire/e2e/rig"
)

// canary is a made-up word that stands in prompts; nothing but an answer to its own tenant may repeat it.
const canary = "zorvane quibblefrost"

// disguises are the forms in which a canary may turn up: as it is, coded, and as the decimal list of its token ids.
func disguises(r *rig.Rig) map[string]string {
	out := map[string]string{"plain": canary, "plain, one word": strings.Fields(canary)[1], "hex": hex.EncodeToString([]byte(canary))}
	for shift := range 3 { // base64 of a text that begins at any of three places
		b := base64.StdEncoding.EncodeToString([]byte("xx"[:shift%3] + canary))
		out[fmt.Sprint("base64, shifted by ", shift)] = b[4 : len(b)-4]
	}
	for name, text := range map[string]string{"token ids": canary, "token ids behind a space": " " + canary} {
		ids := r.Text.Encode(text, false)
		for _, sep := range []string{" ", ",", ", "} {
			out[name+" "+fmt.Sprintf("%q", sep)] = strings.Trim(strings.ReplaceAll(fmt.Sprint(ids[1:]), " ", sep), "[]")
		}
	}
	return out
}

// logs is a log that several goroutines write.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestCanaries puts a canary into prompts of requests that end in every way, and looks for it where prompts must never be: logs of every
// level, metrics, every record of the journal, the monitoring pages and what other tenants get.
func TestCanaries(t *testing.T) {
	log := &logs{}
	r := newRig(t, rig.Options{Keys: map[string]string{acmeKey: "acme", umbraKey: "umbra"}, MaxOpen: 8,
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug - 4}))})
	ctx := t.Context()
	if err := errors.Join(r.AddDecode(ctx, 64), r.AddPrefill(ctx, 40, nil), r.Ready(ctx)); err != nil {
		t.Fatal(err)
	}
	c := &reports{Rig: r, limit: 640}
	told := c.tellCanary(t)
	if err := r.Quiet(ctx, 0); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{"logs": log.String(), "journal": c.journal(t)}
	for _, path := range []string{"/metrics", "/health", "/ready", "/version", "/v1/models", "/console", "/console/api/state", "/console/api/past"} {
		found[path] = c.page(t, path)
	}
	id := told
	for what, status := range map[string]func() string{
		"another tenant's status of it": func() string { return c.page(t, "/v1/requests/"+id) },
		"an error of another tenant":    func() string { return c.ask(t, "/v1/chat/completions", c.prompt(t, c.limit).Chat(1, false)).Body },
		"an answer of another tenant":   func() string { return c.ask(t, "/v1/chat/completions", c.prompt(t, 60).Chat(24, false)).Body },
	} {
		found[what] = status()
	}
	c.seesCanaries(t)
	for where, text := range found {
		if text == "" {
			t.Errorf("%s is empty: nothing was looked at", where)
		}
		for form, word := range disguises(r) {
			if len(word) < 6 {
				t.Fatalf("%s: %q is too short to mean anything", form, word)
			}
			if i := strings.Index(text, word); i >= 0 {
				t.Errorf("%s has the canary as %s: %q", where, form, text[max(0, i-80):min(len(text), i+80)])
			}
		}
	}
	if !strings.Contains(found["logs"], "level=DEBUG") || strings.Count(found["journal"], "\n") < 10 {
		t.Error("the logs have no line of level debug, or the journal next to nothing")
	}
}

// seesCanaries shows that the search would find what it looks for, wherever the canary stands in a text.
func (c *reports) seesCanaries(t *testing.T) {
	t.Helper()
	for pad := range 3 {
		text := "a prompt"[:6+pad] + " " + canary + ", and more"
		for form, leak := range map[string]string{"plain": text, "hex": hex.EncodeToString([]byte(text)), "base64": base64.StdEncoding.EncodeToString([]byte(text)),
			"token ids": fmt.Sprint(c.Text.Encode(text, false)), "token ids in JSON": strings.ReplaceAll(fmt.Sprint(c.Text.Encode(text, false)), " ", ",")} {
			seen := false
			for _, word := range disguises(c.Rig) {
				seen = seen || strings.Contains(leak, word)
			}
			if !seen {
				t.Errorf("a leak as %s would not be seen: %s", form, leak)
			}
		}
	}
}

// tellCanary asks as acme, in requests that are answered, refused, malformed and given up; it gives an id of one.
func (c *reports) tellCanary(t *testing.T) (id string) {
	t.Helper()
	p, err := c.Padded("The secret word is "+canary+".", "What is the secret word?", 200)
	if err != nil {
		t.Fatal(err)
	}
	whole := c.as(t, acmeKey, "/v1/chat/completions", p.Chat(16, false))
	var answer struct{ ID string }
	if err := json.Unmarshal([]byte(whole.Body), &answer); err != nil || whole.Status != 200 {
		t.Fatalf("%v: %d %s", err, whole.Status, whole.Body)
	}
	c.as(t, acmeKey, "/v1/chat/completions", p.Chat(16, true))
	c.as(t, acmeKey, "/v1/completions", p.Completion(16, false))
	c.as(t, acmeKey, "/v1/completions", map[string]any{"prompt": strings.Repeat(canary+" ", 400), "max_tokens": 8}) // too long
	for _, bad := range []map[string]any{
		{"prompt": canary, "max_tokens": -1}, {"prompt": canary, "temperature": canary}, {canary: canary, "prompt": "x"},
		{"prompt": []any{canary, 1}}, {"prompt": canary, "stop": []any{canary, 7}}, {"model": canary, "prompt": canary},
	} {
		c.as(t, acmeKey, "/v1/completions", bad)
	}
	if _, err := c.AskNATS(t.Context(), "completions", map[string]any{"prompt": canary + " " + canary, "max_tokens": 4}); err != nil {
		t.Fatal(err)
	}
	body := p.Completion(300, true)
	body["ignore_eos"], body["stop"] = true, []string{canary + "x"}
	gone, rest, err := c.openStream(t, t.Context(), body)
	if err != nil {
		t.Fatal(err)
	}
	c.cancel(t, umbraKey, gone)
	if _, err := io.Copy(io.Discard, rest); err != nil {
		t.Fatal(err)
	}
	_ = rest.Close()
	return answer.ID
}

// page is what tenant umbra, who may be the operator of a loopback, gets of a path.
func (c *reports) page(t *testing.T, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.HTTP+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+umbraKey)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// journal is every record as it is stored, one a line.
func (c *reports) journal(t *testing.T) string {
	t.Helper()
	conn, err := jet.Connect(t.Context(), jet.ConnectOptions{URLs: []string{c.NATS}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var b strings.Builder
	if err := rig.Wait(t.Context(), "facts in the journal", func() bool {
		b.Reset()
		_, err := conn.Read(t.Context(), bus.Names{}.JournalStream(), 1, func(m bus.Stored) error {
			fmt.Fprintf(&b, "%s %s %v\n", m.Subject, m.Data, m.Header)
			return nil
		})
		return err == nil && strings.Count(b.String(), "\n") >= 10
	}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
