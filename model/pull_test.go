package model

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// hub is a hub of one repository, a/b, as huggingface.co answers: large files are redirected to another host with their
// SHA-256, small ones come at once with git's SHA-1.
type hub struct {
	*httptest.Server
	cdn     *httptest.Server
	large   map[string][]byte
	small   map[string][]byte
	gets    atomic.Int32
	cut     func(get int, body []byte) []byte // what a download really sends
	noRange bool
	noSum   bool
	auth    []string // Authorization headers that the other host saw
}

const commit = "0123456789abcdef0123456789abcdef01234567"

func newHub(t *testing.T) *hub {
	h := &hub{large: map[string][]byte{}, small: map[string][]byte{}}
	h.cdn = httptest.NewServer(http.HandlerFunc(h.serveLarge))
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(h.cdn.Close)
	t.Cleanup(h.Server.Close)
	return h
}

func (h *hub) serve(w http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/a/b/resolve/")
	rev, name, _ := strings.Cut(rest, "/")
	if !ok || (rev != "main" && rev != commit) {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("X-Repo-Commit", commit)
	if b, ok := h.small[name]; ok {
		w.Header().Set("ETag", fmt.Sprintf("%q", gitSum(b)))
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(b))
		return
	}
	b, ok := h.large[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if !h.noSum {
		sum := sha256.Sum256(b)
		w.Header().Set("X-Linked-Etag", fmt.Sprintf("%q", hex.EncodeToString(sum[:])))
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(b)))
	}
	http.Redirect(w, r, h.cdn.URL+"/"+name, http.StatusFound)
}

func (h *hub) serveLarge(w http.ResponseWriter, r *http.Request) {
	h.auth = append(h.auth, r.Header.Get("Authorization"))
	b := h.large[strings.TrimPrefix(r.URL.Path, "/")]
	from := 0
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil && !h.noRange {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(b)-1, len(b)))
	} else {
		from = 0
	}
	send := b[from:]
	if h.cut != nil {
		send = h.cut(int(h.gets.Add(1)), send)
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(b)-from))
	if from > 0 {
		w.WriteHeader(http.StatusPartialContent)
	}
	_, _ = w.Write(send) // less than announced breaks the connection
}

func gitSum(b []byte) string {
	s := sha1.Sum(append([]byte(fmt.Sprintf("blob %d\x00", len(b))), b...))
	return hex.EncodeToString(s[:])
}

func noWait(context.Context, int) error { return nil }

func TestPull(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	sum := sha256.Sum256(body)
	right := hex.EncodeToString(sum[:])
	k := Known{Name: "test", Repo: "a/b", Files: []KnownFile{{Name: "m.safetensors"}, {Name: "config.json"}}}
	for _, c := range []struct {
		name string
		set  func(h *hub)
		sum  string
		err  string // "" = success
		gets int32
	}{
		{name: "whole"},
		{name: "listed sum", sum: right},
		{name: "broken off twice", gets: 3, set: func(h *hub) {
			h.cut = func(get int, b []byte) []byte { return b[:min(len(b), 30000)] }
		}},
		{name: "broken off, no ranges", gets: 2, set: func(h *hub) {
			h.noRange = true
			h.cut = func(get int, b []byte) []byte {
				if get == 1 {
					return b[:100]
				}
				return b
			}
		}},
		{name: "damaged once", gets: 2, set: func(h *hub) {
			h.cut = func(get int, b []byte) []byte {
				if get == 1 {
					return bytes.ToUpper(b)
				}
				return b
			}
		}},
		{name: "damaged always", err: "the download was damaged", gets: pullTries, set: func(h *hub) {
			h.cut = func(get int, b []byte) []byte { return bytes.ToUpper(b) }
		}},
		{name: "never whole", err: "after 6 tries", gets: pullTries, set: func(h *hub) {
			h.cut = func(get int, b []byte) []byte { return b[:min(len(b), 10)] }
		}},
		{name: "changed on the hub", sum: strings.Repeat("ab", 32), err: "the file was changed there"},
		{name: "no sum", set: func(h *hub) { h.noSum = true }, err: "without a sum"},
		{name: "gone", set: func(h *hub) { delete(h.large, "m.safetensors") }, err: "404"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHub(t)
			h.large["m.safetensors"], h.small["config.json"] = body, []byte("{}")
			if c.set != nil {
				c.set(h)
			}
			k := k
			k.Files = append([]KnownFile(nil), k.Files...)
			k.Files[0].SHA256 = c.sum
			dir := t.TempDir()
			last := int64(0)
			path, err := k.pull(t.Context(), dir, PullOptions{Base: h.URL, Token: "secret", Wait: noWait, Progress: func(file string, done, total int64) {
				if file == "m.safetensors" {
					last = done
				}
			}})
			if c.gets > 0 && h.gets.Load() != c.gets {
				t.Errorf("%d downloads, want %d", h.gets.Load(), c.gets)
			}
			for _, a := range h.auth {
				if a != "" {
					t.Errorf("the token went to another host: %q", a)
				}
			}
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				if _, err := os.Stat(filepath.Join(dir, "test", "m.safetensors")); err == nil {
					t.Error("a file that was not checked got its name")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(path, "m.safetensors"))
			if err != nil || !bytes.Equal(got, body) || last != int64(len(body)) {
				t.Errorf("%d bytes, %v, progress %d", len(got), err, last)
			}
			before := h.gets.Load()
			if _, err := k.pull(t.Context(), dir, PullOptions{Base: h.URL, Wait: noWait}); err != nil || h.gets.Load() != before {
				t.Errorf("pulling again: %v, %d downloads", err, h.gets.Load()-before)
			}
		})
	}
}

func TestPullStopsWithItsContext(t *testing.T) {
	h := newHub(t)
	h.large["m.gguf"] = bytes.Repeat([]byte("x"), 1000)
	h.cut = func(int, []byte) []byte { return nil }
	ctx, cancel := context.WithCancel(t.Context())
	k := Known{Name: "test", Repo: "a/b", Files: []KnownFile{{Name: "m.gguf"}}}
	_, err := k.pull(ctx, t.TempDir(), PullOptions{Base: h.URL, Wait: func(ctx context.Context, _ int) error { cancel(); return ctx.Err() }})
	if err == nil || h.gets.Load() != 1 {
		t.Errorf("%v after %d downloads", err, h.gets.Load())
	}
}

func TestResolve(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "x.gguf")
	if err := os.WriteFile(file, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	pulled := filepath.Join(dir, "smollm2-135m", "SmolLM2-135M-Instruct.Q4_1.gguf")
	if err := os.MkdirAll(filepath.Dir(pulled), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pulled, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ in, want, err string }{
		{"", "", ""}, {file, file, ""}, {"smollm2-135m", pulled, ""}, {"smollm2-1.7b", "", "quire pull smollm2-1.7b"},
		{"nothing", "", "these are: llama-3.2-1b, qwen2.5-0.5b"},
	} {
		got, err := Resolve(c.in, dir)
		if got != c.want || (err == nil) != (c.err == "") || (err != nil && !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%q: %q, %v, want %q, %q", c.in, got, err, c.want, c.err)
		}
	}
	if _, err := Pull(t.Context(), "nothing", dir, PullOptions{}); err == nil {
		t.Error("an unknown model is pulled")
	}
}

func TestPlainProgress(t *testing.T) {
	var b bytes.Buffer
	now := time.Unix(0, 0)
	p := lines(&b, "loading", func() time.Time { return now })
	for i := range int64(13) {
		p(i*1e6, 12e6)
		now = now.Add(time.Second)
	}
	if want := "loading: 42 % of 12.0 MB\nloading: 83 % of 12.0 MB\nloading: 100 % of 12.0 MB\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
