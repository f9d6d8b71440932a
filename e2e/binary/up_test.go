//go:build unix

package binary

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// up starts `quire up` on free ports and gives its addresses.
func up(t *testing.T, args ...string) (p *process, http, nats string) {
	t.Helper()
	p = start(t, t.TempDir(), environ(), quire, append([]string{"up", "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0"}, args...)...)
	nats = p.wait(`bus +nats://(127\.0\.0\.1:\d+) `, 1)[1]
	http = p.wait(`door +http://(127\.0\.0\.1:\d+) `, 1)[1]
	p.wait(`(?m)^ready in \d+\.\d s$`, 1)
	return p, http, nats
}

func TestUpAnswersThroughBothDoors(t *testing.T) {
	p, http, nats := up(t, "--prefill", "2", "--decode", "2")
	banner := p.output()
	for _, want := range []string{"quire-tiny (built in", "prefill  p2", "decode   d2", "2,048 tokens a request", "set by: model context",
		"curl -s http://" + http + "/v1/chat/completions", "quire chat --http " + http, "nats -s nats://" + nats + " req quire.v1.default.chat"} {
		if !strings.Contains(banner, want) {
			t.Errorf("the banner does not say %q:\n%s", want, banner)
		}
	}
	ask(t, http)
	env := environ()
	for _, door := range [][]string{{"--http", http}, {"--nats-url", "nats://" + nats}} {
		out, code := run(t, env, "", append([]string{"chat", "-q", "-s", system, "-m", question, "--temperature", "0"}, door...)...)
		if code != 0 || out != answer+"\n" {
			t.Errorf("chat %v: want %q and 0, got %q and %d", door, answer, out, code)
		}
		out, code = run(t, env, question+"\n", append([]string{"chat", "-s", system, "--temperature", "0"}, door...)...)
		if code != 0 || !strings.HasPrefix(out, answer+"\n") || !strings.Contains(out, "stop · 21 tokens in, 9 out") {
			t.Errorf("chat %v from standard input: got %q and %d", door, out, code)
		}
		out, code = run(t, env, "", append([]string{"models"}, door...)...)
		if code != 0 || !strings.Contains(out, "quire-tiny") || !strings.Contains(out, "2048 tokens a request") {
			t.Errorf("models %v: got %q and %d", door, out, code)
		}
		out, code = run(t, env, "", append([]string{"chat", "-m", strings.Repeat("word ", 3000)}, door...)...)
		if code != 1 || !strings.Contains(out, "context_length_exceeded") || !strings.Contains(out, "2048") {
			t.Errorf("chat %v beyond the limit: got %q and %d", door, out, code)
		}
	}
	out, code := run(t, env, "", "doctor", "--http", http, "--nats", nats)
	if code != 0 || strings.Contains(out, "FAIL") || !strings.Contains(out, "is ready") || !strings.Contains(out, "JetStream on") {
		t.Errorf("doctor of a healthy cluster: %d\n%s", code, out)
	}
	p.signal(syscall.SIGTERM)
	if code := p.exit(2 * time.Second); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	p.noOrphan()
	if log := p.output(); strings.Contains(log, "Tom hid") && strings.Count(log, "Tom hid") > 3 || strings.Contains(log, "word word") {
		t.Errorf("a prompt is in the log:\n%s", log)
	}
}

// stream asks for a long answer and gives its lines as they come.
func stream(t *testing.T, http_ string, tokens int) *bufio.Scanner {
	t.Helper()
	body, err := json.Marshal(map[string]any{"prompt": "Once upon a time", "max_tokens": tokens, "ignore_eos": true, "stream": true, "temperature": 0})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+http_+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != 200 {
		t.Fatalf("status %s", resp.Status)
	}
	s := bufio.NewScanner(resp.Body)
	for s.Scan() {
		if strings.HasPrefix(s.Text(), "data:") {
			return s
		}
	}
	t.Fatalf("no event came: %v", s.Err())
	return nil
}

func rest(s *bufio.Scanner) string {
	var b strings.Builder
	for s.Scan() {
		b.WriteString(s.Text() + "\n")
	}
	return b.String()
}

func TestUpDrains(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		p, http, _ := up(t)
		s := stream(t, http, 200)
		p.signal(sig)
		if out := rest(s); !strings.Contains(out, `"finish_reason":"length"`) || !strings.Contains(out, "data: [DONE]") {
			t.Errorf("%s: a short answer was not allowed to end:\n%s", sig, out)
		}
		if code := p.exit(5 * time.Second); code != 0 {
			t.Errorf("%s: exit code %d", sig, code)
		}
		p.noOrphan()
	}
}

// go run does not pass SIGTERM on: the program sees that its parent is gone.
func TestUpUnderGoRun(t *testing.T) {
	p := start(t, root(t), environ(), "go", "run", "./cmd/quire", "up", "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "q"))
	http := p.wait(`door +http://(127\.0\.0\.1:\d+) `, 1)[1]
	if !strings.Contains(p.output(), "go run ./cmd/quire chat --http") {
		t.Errorf("the banner's lines do not work as they are:\n%s", p.output())
	}
	ask(t, http)
	p.signal(syscall.SIGTERM)
	eventually(t, "the process behind go run to end", func() bool { return syscall.Kill(-p.cmd.Process.Pid, 0) != nil })
}

func TestUpSecondSignalEndsAtOnce(t *testing.T) {
	p, http, _ := up(t, "--threads", "1")
	s := stream(t, http, 2000)
	p.signal(syscall.SIGINT)
	p.wait("stopping", 1)
	p.signal(syscall.SIGINT)
	if code := p.exit(time.Second); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	if out := rest(s); strings.Contains(out, "[DONE]") {
		t.Errorf("a cut answer looks whole:\n%s", out)
	}
}

func TestUpRefusesToStart(t *testing.T) {
	_, http, nats := up(t)
	data := filepath.Join(t.TempDir(), "q")
	free := []string{"--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--data", data}
	cases := []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"nats port in use", []string{"--nats", nats, "--http", "127.0.0.1:0", "--data", data}, 1,
			[]string{nats + " is in use (a NATS server 2.15.2 answers there)", "--nats-url nats://" + nats, "--nats 127.0.0.1:0"}},
		{"http port in use", []string{"--http", http, "--nats", "127.0.0.1:0", "--data", data}, 1,
			[]string{http + " is in use (Quire 0.1.0 answers there)", "--http 127.0.0.1:0"}},
		{"more than a pool", append(free, "--max-model-len", "1601", "--kv-pages", "100"), 1,
			[]string{"--max-model-len 1601", "prefill pool of p1 holds 1600 tokens", "--kv-pages to 101"}},
		{"more than the model", append(free, "--max-model-len", "2049"), 1, []string{"--max-model-len 2049", "takes 2048"}},
		{"open to the network", append(free, "--http", "0.0.0.0:0"), 1, []string{"--api-key", "--insecure"}},
		{"open NATS", append(free, "--nats", "0.0.0.0:0"), 1, []string{"--insecure"}},
		{"no such model", append(free, "--model", filepath.Join(data, "none.gguf")), 1, []string{"none.gguf"}},
		{"unknown flag", []string{"--no-such-flag"}, 2, []string{"--no-such-flag"}},
		{"bad number", []string{"--page-size", "0"}, 2, []string{"--page-size 0"}},
		{"bad key", []string{"--api-key", "sesame=Not A Slug"}, 2, []string{"--api-key number 1"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			out, code := run(t, environ(), "", append([]string{"up"}, c.args...)...)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("want %q in:\n%s", want, out)
				}
			}
			if strings.Contains(out, "sesame") {
				t.Errorf("an API key is printed:\n%s", out)
			}
		})
	}
}

func TestUpLocksItsData(t *testing.T) {
	data := filepath.Join(t.TempDir(), "q")
	up(t, "--data", data)
	out, code := run(t, environ(), "", "up", "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--data", data)
	if code != 1 || !strings.Contains(out, "is in use by process") {
		t.Errorf("want a refusal that names the process, got %d and %q", code, out)
	}
}

// The advertised limit is exact: prompt and max_tokens up to it are served, one token more is refused with the numbers.
func TestUpLimitIsExact(t *testing.T) {
	_, http, _ := up(t, "--kv-pages", "10", "--max-model-len", "auto")
	prompt := make([]int, 100)
	for i := range prompt {
		prompt[i] = 100 + i
	}
	for _, c := range []struct{ max, status int }{{59, 200}, {60, 200}, {61, 400}} {
		status, body := post(t, "http://"+http+"/v1/completions", map[string]any{"prompt": prompt, "max_tokens": c.max, "ignore_eos": true, "temperature": 0})
		if status != c.status {
			t.Errorf("100 + %d of 160: want %d, got %d: %s", c.max, c.status, status, body)
		}
		if c.status == 400 && (!strings.Contains(body, "context_length_exceeded") || !strings.Contains(body, "160")) {
			t.Errorf("the refusal lacks its code or the limit: %s", body)
		}
	}
}
