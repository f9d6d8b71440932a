package model

import (
	"context"
	"crypto/sha1" // names small files on the hub; not a matter of trust
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Hub is where models come from.
const Hub = "https://huggingface.co"

// Limits of a pull.
const (
	maxFile      = 1 << 40 // bytes
	maxRedirects = 5       // on the hub itself
	pullTries    = 6       // of one file; each goes on where the last one broke off
)

// PullOptions says how a model is fetched. The zero value is fine.
type PullOptions struct {
	Base     string                                       // "" = Hub
	Client   *http.Client                                 // nil = http.DefaultClient
	Token    string                                       // for gated models; sent to Base alone
	Progress func(file string, done, total int64)         // may be nil
	Wait     func(ctx context.Context, attempt int) error // between tries; nil = 1 s, 2 s, 4 s, ...
}

// Pull fetches a known model into dir/<name> and gives the path for Open. Files that are there already are checked and kept;
// a broken download goes on where it ended. Every file is checked against its sum (the one listed with the model, else the
// one that the hub names for it) before it gets its name.
func Pull(ctx context.Context, name, dir string, o PullOptions) (string, error) {
	k, err := findKnown(name)
	if err != nil {
		return "", err
	}
	return k.pull(ctx, dir, o)
}

func (k Known) pull(ctx context.Context, dir string, o PullOptions) (string, error) {
	if o.Base == "" {
		o.Base = Hub
	}
	if o.Client == nil {
		o.Client = http.DefaultClient
	}
	if o.Wait == nil {
		o.Wait = backoff
	}
	to := filepath.Join(dir, k.Name)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return "", fmt.Errorf("model: pull: %w", err)
	}
	for _, f := range k.Files {
		p := &pull{o: o, repo: k.Repo, file: f, to: filepath.Join(to, f.Name)}
		if err := p.run(ctx); err != nil {
			return "", fmt.Errorf("model: pull: %s/%s: %w", k.Repo, f.Name, err)
		}
	}
	return k.path(dir), nil
}

func backoff(ctx context.Context, attempt int) error {
	t := time.NewTimer(time.Second << min(attempt, 5))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pull is the fetching of one file.
type pull struct {
	o    PullOptions
	repo string
	file KnownFile
	to   string

	url  string
	size int64
	sum  string // hexadecimal: SHA-256, or for small files git's SHA-1
}

func (p *pull) run(ctx context.Context) error {
	var err error
	for attempt := range pullTries {
		if attempt > 0 {
			if werr := p.o.Wait(ctx, attempt-1); werr != nil {
				return errors.Join(err, werr)
			}
		}
		if err = p.try(ctx); err == nil || ctx.Err() != nil || errors.As(err, new(finalError)) {
			return err
		}
	}
	return fmt.Errorf("%w (after %d tries; what has arrived is kept and a new pull goes on from there)", err, pullTries)
}

// finalError is one that another try does not mend.
type finalError struct{ error }

func final(format string, args ...any) error { return finalError{fmt.Errorf(format, args...)} }

func (p *pull) try(ctx context.Context) error {
	if p.sum == "" {
		if err := p.describe(ctx); err != nil {
			return err
		}
	}
	if sum, err := p.sumOf(p.to); err == nil && sum == p.sum {
		p.report(p.size)
		return nil
	}
	part := p.to + ".part"
	if err := p.fetch(ctx, part); err != nil {
		return err
	}
	sum, err := p.sumOf(part)
	if err != nil {
		return err
	}
	if sum != p.sum {
		_ = os.Remove(part)
		return fmt.Errorf("sum %s, want %s: the download was damaged and is thrown away", sum, p.sum)
	}
	if err := os.Rename(part, p.to); err != nil {
		return err
	}
	return syncDir(filepath.Dir(p.to))
}

// describe asks the hub for size and sum, and pins the revision.
func (p *pull) describe(ctx context.Context) error {
	at := strings.TrimSuffix(p.o.Base, "/") + "/" + p.repo + "/resolve/main/" + p.file.Name
	client := *p.o.Client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for range maxRedirects {
		res, err := p.do(ctx, &client, http.MethodHead, at, 0)
		if err != nil {
			return err
		}
		res.Body.Close()
		next, err := p.learn(res, at)
		if err != nil || next == "" {
			return err
		}
		at = next
	}
	return final("more than %d redirections", maxRedirects)
}

// learn reads the answer to a HEAD; next is where to ask instead.
func (p *pull) learn(res *http.Response, at string) (next string, err error) {
	h := res.Header
	switch {
	case res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden:
		return "", final("the hub says %s: the model may need a token (HF_TOKEN) and its licence accepted", res.Status)
	case res.StatusCode >= 500 || res.StatusCode == http.StatusTooManyRequests:
		return "", fmt.Errorf("the hub says %s", res.Status)
	case res.StatusCode >= 400:
		return "", final("the hub says %s", res.Status)
	}
	etag, size := h.Get("X-Linked-Etag"), h.Get("X-Linked-Size")
	if etag == "" && res.StatusCode >= 300 {
		to, err := url.Parse(h.Get("Location"))
		if err != nil {
			return "", final("redirection to %q", h.Get("Location"))
		}
		base, err := url.Parse(at)
		if err != nil {
			return "", err
		}
		if to = base.ResolveReference(to); to.Host != base.Host || to.Scheme != base.Scheme {
			return "", final("redirection to %s, which is not the hub, without a sum", to.Host)
		}
		return to.String(), nil
	}
	if etag == "" {
		etag, size = h.Get("ETag"), strconv.FormatInt(res.ContentLength, 10)
	}
	sum := strings.ToLower(strings.Trim(strings.TrimPrefix(etag, "W/"), `"`))
	if want := p.file.SHA256; want != "" {
		if len(sum) == 64 && sum != want {
			return "", final("the hub has sum %s, want %s: the file was changed there", sum, want)
		}
		sum = want
	}
	if _, err := hex.DecodeString(sum); err != nil || (len(sum) != 64 && len(sum) != 40) {
		return "", final("the hub names no sum (ETag %q)", etag)
	}
	if p.size, err = strconv.ParseInt(size, 10, 64); err != nil || p.size < 0 || p.size > maxFile {
		return "", final("the hub names size %q, 0 to %d is possible", size, int64(maxFile))
	}
	if commit := h.Get("X-Repo-Commit"); len(commit) == 40 {
		at = strings.Replace(at, "/resolve/main/", "/resolve/"+commit+"/", 1)
	}
	p.url, p.sum = at, sum
	return "", nil
}

func (p *pull) do(ctx context.Context, c *http.Client, method, at string, from int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, at, nil)
	if err != nil {
		return nil, finalError{err}
	}
	req.Header.Set("User-Agent", "quire")
	req.Header.Set("Accept-Encoding", "identity")
	if p.o.Token != "" {
		req.Header.Set("Authorization", "Bearer "+p.o.Token)
	}
	if from > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	return c.Do(req)
}

// follow goes where the hub sends a download: never from HTTPS to HTTP, and without the token where that is another host.
func follow(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	if len(via) > maxRedirects {
		return final("more than %d redirections", maxRedirects)
	}
	if first.Scheme == "https" && req.URL.Scheme != "https" {
		return final("redirection from HTTPS to %s", req.URL.Scheme)
	}
	if req.URL.Host != first.Host {
		req.Header.Del("Authorization")
	}
	return nil
}

// fetch appends to the partial file what it lacks.
func (p *pull) fetch(ctx context.Context, part string) error {
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return finalError{err}
	}
	defer f.Close()
	have, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if have > p.size {
		have = 0
	}
	if have < p.size || p.size == 0 {
		if have, err = p.receive(ctx, f, have); err != nil {
			return err
		}
	}
	if have != p.size {
		return fmt.Errorf("%d bytes of %d have arrived", have, p.size)
	}
	return f.Sync()
}

// receive gives how many bytes the file has afterwards.
func (p *pull) receive(ctx context.Context, f *os.File, have int64) (int64, error) {
	client := *p.o.Client
	client.CheckRedirect = follow
	res, err := p.do(ctx, &client, http.MethodGet, p.url, have)
	if err != nil {
		return have, err
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusPartialContent:
		if !strings.HasPrefix(res.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", have)) {
			return have, fmt.Errorf("asked for bytes from %d on, got %q", have, res.Header.Get("Content-Range"))
		}
	case http.StatusOK:
		have = 0
	case http.StatusRequestedRangeNotSatisfiable:
		have = 0
		return have, errors.Join(errors.New("the rest of the file is not to be had: starting over"), f.Truncate(0))
	default:
		return have, fmt.Errorf("the hub says %s", res.Status)
	}
	if err := f.Truncate(have); err != nil {
		return have, err
	}
	if _, err := f.Seek(have, io.SeekStart); err != nil {
		return have, err
	}
	// One byte more than announced is enough to know that the answer is another file.
	n, err := io.Copy(f, &counter{r: io.LimitReader(res.Body, p.size-have+1), p: p, done: have})
	if have+n > p.size {
		return have, errors.Join(final("more than the announced %d bytes arrive", p.size), f.Truncate(0))
	}
	return have + n, err
}

func (p *pull) report(done int64) {
	if p.o.Progress != nil {
		p.o.Progress(p.file.Name, done, p.size)
	}
}

// counter reports what passes.
type counter struct {
	r    io.Reader
	p    *pull
	done int64
}

// Read is part of io.Reader.
func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.done += int64(n)
	c.p.report(min(c.done, c.p.size))
	return n, err
}

// sumOf gives a file's sum in the form that is wanted.
func (p *pull) sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	var h hash.Hash
	if len(p.sum) == 64 {
		h = sha256.New()
	} else {
		h = sha1.New()
		fmt.Fprintf(h, "blob %d\x00", st.Size())
	}
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, os.ErrInvalid) {
		return err
	}
	return nil
}
