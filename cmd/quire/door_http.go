package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Limits on what a server may send: one line of a stream, one body.
const (
	maxEvent = 4 << 20
	maxBody  = 16 << 20
)

// httpDoor speaks OpenAI's API.
type httpDoor struct {
	base string // http://host:port, without a slash at the end
	key  string
}

// newHTTPDoor takes HOST:PORT or a URL.
func newHTTPDoor(address, key string) *httpDoor {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	return &httpDoor{base: strings.TrimSuffix(address, "/"), key: key}
}

func (h *httpDoor) name() string { return h.base }
func (h *httpDoor) close()       {}

func (h *httpDoor) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, h.base+path, r)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if h.key != "" {
		req.Header.Set("Authorization", "Bearer "+h.key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w (is `quire up` running? --http names another address)", err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, httpError(resp)
	}
	return resp, nil
}

func httpError(resp *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return fmt.Errorf("%s: %w", resp.Status, err)
	}
	var body struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(b, &body); err != nil || body.Error == nil {
		return &apiError{Status: resp.StatusCode, Message: strings.TrimSpace(string(b[:min(len(b), 300)]))}
	}
	body.Error.Status = resp.StatusCode
	return body.Error
}

// chunk is one event of a streamed chat completion.
type chunk struct {
	Choices []struct {
		Delta  struct{ Content string } `json:"delta"`
		Finish *string                  `json:"finish_reason"`
	} `json:"choices"`
	Usage *usageCount `json:"usage"`
	Error *apiError   `json:"error"`
}

func (h *httpDoor) chat(ctx context.Context, q question, fn func(string)) (ending, error) {
	q.Stream, q.Options = true, &options{IncludeUsage: true}
	resp, err := h.send(ctx, http.MethodPost, "/v1/chat/completions", q)
	if err != nil {
		return ending{}, err
	}
	defer resp.Body.Close()
	return readEvents(resp.Body, fn)
}

// readEvents reads server-sent events until [DONE].
func readEvents(r io.Reader, fn func(string)) (ending, error) {
	var end ending
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 4096), maxEvent)
	for s.Scan() {
		data, ok := strings.CutPrefix(s.Text(), "data:")
		if !ok {
			continue
		}
		if data = strings.TrimSpace(data); data == "[DONE]" {
			if end.Finish == "" {
				return end, errCut
			}
			return end, nil
		}
		var c chunk
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			return end, fmt.Errorf("an event that is no JSON: %w", err)
		}
		if c.Error != nil {
			return end, c.Error
		}
		end.take(c, fn)
	}
	if err := s.Err(); err != nil {
		return end, errors.Join(errCut, err)
	}
	return end, errCut
}

func (e *ending) take(c chunk, fn func(string)) {
	for _, choice := range c.Choices {
		if choice.Delta.Content != "" {
			fn(choice.Delta.Content)
		}
		if choice.Finish != nil {
			e.Finish = *choice.Finish
		}
	}
	if c.Usage != nil {
		e.Usage = *c.Usage
	}
}

func (h *httpDoor) models(ctx context.Context) ([]served, error) {
	resp, err := h.send(ctx, http.MethodGet, "/v1/models", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var list struct {
		Data []served `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(&list); err != nil {
		return nil, fmt.Errorf("%s/v1/models: %w", h.base, err)
	}
	return list.Data, nil
}
