//go:build unix

package binary

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// metric sums the samples of a metric whose labels contain a text.
func metric(t *testing.T, http, name, label string) int {
	t.Helper()
	body := fetch(t, "http://"+http+"/metrics")
	sum := 0
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(\{[^}]*\})? (\d+)$`).FindAllStringSubmatch(body, -1) {
		if strings.Contains(m[1], label) {
			n, err := strconv.Atoi(m[2])
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// result is what a client got: Text and Finish of a whole answer or of the chunks together, or an error.
type result struct {
	Status       int
	Text, Finish string
	Picks        string // every token and its log probability, where they were asked for
	Error        string // code
	Done         bool   // [DONE] came

	Roles, Ends    int // chunks with a role, and with a finish reason
	Prompt, Output int // tokens, as the usage says
}

// perform asks and reads the answer to its end, whole or streamed. onEvent hears of every event.
func perform(ctx context.Context, http_ string, path string, body map[string]any, onEvent func(n int)) (r result, err error) {
	b, err := json.Marshal(body)
	if err != nil {
		return r, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+http_+path, bytes.NewReader(b))
	if err != nil {
		return r, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	r.Status = resp.StatusCode
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		all, err := io.ReadAll(resp.Body)
		if err != nil {
			return r, err
		}
		return r, r.take(all)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	n := 0
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case !ok:
			continue
		case data == "[DONE]":
			r.Done = true
			continue
		}
		n++
		if onEvent != nil {
			onEvent(n)
		}
		if err := r.take([]byte(data)); err != nil {
			return r, err
		}
	}
	return r, lines.Err()
}

func (r *result) take(b []byte) error {
	var p struct {
		Choices []struct {
			Text     string
			Message  struct{ Content string }
			Delta    struct{ Role, Content string }
			Finish   string `json:"finish_reason"`
			Logprobs struct {
				Content []struct { // of a chat
					Bytes   []byte
					Logprob json.Number
				}
				Tokens  []string      // of a completion
				Offered []json.Number `json:"token_logprobs"`
			}
		}
		Usage struct {
			Prompt int `json:"prompt_tokens"`
			Output int `json:"completion_tokens"`
		}
		Error struct{ Code string }
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return fmt.Errorf("%w in %s", err, b)
	}
	for _, c := range p.Choices {
		r.Text += c.Text + c.Message.Content + c.Delta.Content
		if c.Finish != "" {
			r.Finish = c.Finish
			r.Ends++
		}
		if c.Delta.Role != "" {
			r.Roles++
		}
		for _, l := range c.Logprobs.Content {
			r.Picks += fmt.Sprintf("%x %s\n", l.Bytes, l.Logprob)
		}
		for i, token := range c.Logprobs.Tokens {
			r.Picks += fmt.Sprintf("%q %s\n", token, c.Logprobs.Offered[i])
		}
	}
	if p.Usage.Output > 0 {
		r.Prompt, r.Output = p.Usage.Prompt, p.Usage.Output
	}
	if p.Error.Code != "" {
		r.Error = p.Error.Code
	}
	return nil
}

// story is a request that makes exactly so many tokens.
func story(name string, tokens int, stream bool) map[string]any {
	return map[string]any{"prompt": "Once upon a time there was a kind fox named " + name + ".", "max_tokens": tokens, "ignore_eos": true,
		"temperature": 0, "stream": stream}
}

// apart starts every role as a process of its own.
func apart(t *testing.T, workers ...string) (processes map[string]*process, http, nats string, again func(name string)) {
	t.Helper()
	env, http, nats := clusterEnv(t)
	env = append(env, "QUIRE_LEASE=2s")
	dir := t.TempDir()
	processes = map[string]*process{}
	again = func(name string) {
		t.Helper()
		role, id, _ := strings.Cut(name, " ")
		args := []string{role, "--id", id}
		if role == "bus" {
			args = []string{role, "--nats", nats}
		}
		processes[name] = start(t, dir, env, quire, args...)
	}
	for _, name := range append([]string{"bus", "router r1"}, workers...) {
		again(name)
	}
	ready(t, http)
	return processes, http, nats, again
}

// A prefill that is killed in the middle of its work costs nobody an answer: its requests are Lost and made again by the other.
func TestKillPrefill(t *testing.T) {
	p, http, _, again := apart(t, "prefill p1", "prefill p2", "decode d1")
	// A worker that is stopped before it asked for its first job has none to lose: then it is started and killed once more. It asks
	// when it is ready, and has asked by the time that another request is served.
	for round := 1; ; round++ {
		p["prefill p1"].wait("prefill p1 +ready", 1)
		eventually(t, "both prefills", func() bool { return metric(t, http, "quire_prefill_workers", "") == 2 })
		if _, err := perform(t.Context(), http, "/v1/completions", story("Dov", 20, false), nil); err != nil {
			t.Fatal(err)
		}
		killPrefill(t, p["prefill p1"], http)
		if t.Failed() || metric(t, http, "quire_handoff_lost_total", "") > 0 {
			return
		}
		if round == 8 {
			t.Fatalf("no hand-off was lost in %d rounds: the prefill was killed without a job", round)
		}
		again("prefill p1")
	}
}

// killPrefill stops a worker with its next job in hand, asks, and kills it once the router has made an attempt at every request. Each
// must get the answer that it gets alone.
func killPrefill(t *testing.T, worker *process, http string) {
	t.Helper()
	before := metric(t, http, "quire_handoff_attempts_total", "")
	worker.signal(syscall.SIGSTOP)
	got := make([]result, 6)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			var err error
			if got[i], err = perform(t.Context(), http, "/v1/completions", story("Bix"+strconv.Itoa(i), 20, i%2 == 0), nil); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "a request with prefill", func() bool { return metric(t, http, "quire_handoff_attempts_total", "") >= before+len(got) })
	worker.signal(syscall.SIGKILL)
	wg.Wait()
	for i, g := range got {
		alone, err := perform(t.Context(), http, "/v1/completions", story("Bix"+strconv.Itoa(i), 20, i%2 == 0), nil)
		if err != nil || g != alone || g.Status != 200 || g.Finish != "length" {
			t.Errorf("request %d: %+v, alone %+v, %v", i, g, alone, err)
		}
	}
}

// A decode that is killed in the middle of an answer and started again: the answer goes on where it was, or ends with an error and
// without [DONE]. It never ends as if it were whole.
func TestKillDecode(t *testing.T) {
	p, http, _, again := apart(t, "prefill p1", "decode d1")
	const tokens = 600
	alone, err := perform(t.Context(), http, "/v1/completions", story("Gevou", tokens, true), nil)
	if err != nil || alone.Status != 200 || !alone.Done {
		t.Fatalf("alone: %+v, %v", alone, err)
	}
	got, err := perform(t.Context(), http, "/v1/completions", story("Gevou", tokens, true), func(n int) {
		if n == 3 {
			p["decode d1"].signal(syscall.SIGKILL)
			again("decode d1")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("finish %q, error %q, %d of %d bytes", got.Finish, got.Error, len(got.Text), len(alone.Text))
	switch {
	case got.Error != "":
		if got.Done || got.Finish != "" || !strings.HasPrefix(alone.Text, got.Text) {
			t.Errorf("after an error: %+v", got)
		}
	case got != alone:
		t.Errorf("the answer went on as %+v\nalone it is %+v", got, alone)
	}
	if now, err := perform(t.Context(), http, "/v1/completions", story("Gevou", tokens, true), nil); err != nil || now != alone {
		t.Errorf("after that: %+v, %v", now, err)
	}
}

// The bus is killed with requests under way and started again. Each has a right answer or an error, and what comes later is answered
// without anybody's help.
func TestKillBus(t *testing.T) {
	p, http, _, again := apart(t, "prefill p1", "decode d1")
	const tokens = 400
	alone := make([]result, 4)
	for i := range alone {
		var err error
		if alone[i], err = perform(t.Context(), http, "/v1/completions", story("Ada"+strconv.Itoa(i), tokens, true), nil); err != nil {
			t.Fatal(err)
		}
	}
	var once sync.Once
	var wg sync.WaitGroup
	for i := range alone {
		wg.Go(func() {
			got, err := perform(t.Context(), http, "/v1/completions", story("Ada"+strconv.Itoa(i), tokens, true), func(n int) {
				if n == 2 {
					once.Do(func() {
						p["bus"].killed(syscall.SIGKILL)
						again("bus")
					})
				}
			})
			switch {
			case err != nil:
				t.Error(err)
			case got.Error != "" && (got.Done || !strings.HasPrefix(alone[i].Text, got.Text)):
				t.Errorf("after an error: %+v", got)
			case got.Error == "" && got != alone[i]:
				t.Errorf("request %d: %+v, alone %+v", i, got, alone[i])
			}
		})
	}
	wg.Wait()
	eventually(t, "an answer after the bus came back", func() bool {
		got, err := perform(t.Context(), http, "/v1/completions", story("Ada0", tokens, true), nil)
		return err == nil && got == alone[0]
	})
	for _, q := range p { // at once: none waits in vain for the bus to drain
		q.killed(syscall.SIGKILL)
	}
}

// Many at once, of different kinds: each gets what it gets alone, to the byte and to the last bit of every token's log probability.
func TestManyEqualTheirSoloAnswers(t *testing.T) {
	_, http, _ := up(t, "--prefill", "2", "--decode", "2", "--max-running-requests", "8", "--chunked-prefill-size", "48")
	type ask struct {
		path string
		body map[string]any
	}
	var asks []ask
	for i := range 24 {
		body := map[string]any{"max_tokens": 16 + i, "seed": i, "temperature": float64(i%3) * 0.6, "stream": i%2 == 0, "top_p": 0.95}
		if i%4 < 2 {
			body["messages"] = []turn{{"system", fmt.Sprintf("Mia's code is 48%d1. ", i) + strings.Repeat("The wind moved the tall grass. ", 3*i)}, {"user", "What is Mia's code?"}}
			body["logprobs"] = true
			asks = append(asks, ask{"/v1/chat/completions", body})
			continue
		}
		body["prompt"], body["ignore_eos"] = strings.Repeat("Once upon a time ", 1+i*2), true
		body["logprobs"] = 1
		asks = append(asks, ask{"/v1/completions", body})
	}
	together := make([]result, len(asks))
	var wg sync.WaitGroup
	for i, a := range asks {
		wg.Go(func() {
			var err error
			if together[i], err = perform(t.Context(), http, a.path, a.body, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i, a := range asks {
		alone, err := perform(t.Context(), http, a.path, a.body, nil)
		if err != nil || alone.Status != 200 || alone.Text == "" || alone.Picks == "" || together[i] != alone {
			t.Errorf("request %d: together %+v\nalone %+v, %v", i, together[i], alone, err)
		}
	}
}

// Clients that go away, in the queue, in prefill or in the middle of an answer, leave nothing behind.
func TestDisconnectFreesEverything(t *testing.T) {
	_, http, _ := up(t, "--max-running-requests", "4")
	free := func() int { return metric(t, http, "quire_pages", `state="free"`) }
	ask(t, http)
	eventually(t, "the pages of all workers", func() bool { return free() > 0 && metric(t, http, "quire_requests_running", "") == 0 })
	var before int
	eventually(t, "all pages to be free", func() bool {
		before = free()
		return before > 0 && metric(t, http, "quire_pages", "") == before
	})
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if i >= 6 {
				timer := time.AfterFunc(time.Duration(i)*10*time.Millisecond, cancel)
				defer timer.Stop()
			}
			_, err := perform(ctx, http, "/v1/completions", story("Zoe"+strconv.Itoa(i), 1800, true), func(n int) {
				if n == 1+i {
					cancel()
				}
			})
			if err == nil {
				t.Errorf("request %d ended by itself", i)
			}
		})
	}
	wg.Wait()
	eventually(t, "every page to be free again", func() bool {
		return free() == before && metric(t, http, "quire_pages", "") == before && metric(t, http, "quire_requests_running", "")+
			metric(t, http, "quire_requests_prefilling", "")+metric(t, http, "quire_requests_waiting", "") == 0
	})
	if n := metric(t, http, "quire_requests_finished_total", `reason="client_gone"`); n != 12 {
		t.Errorf("%d requests ended because their clients went away, want 12:\n%s", n, fetch(t, "http://"+http+"/metrics"))
	}
	ask(t, http)
}
