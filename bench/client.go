package bench

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
	"time"
)

// Limits on what a server may send: one line of a stream, one body.
const (
	maxEvent = 4 << 20
	maxBody  = 16 << 20
)

// Target is an OpenAI-compatible server.
type Target struct {
	URL     string // http://host:port, without a slash at the end
	Key     string // API key; "" = none
	Model   string // "" = the first one that the server lists
	Vocab   int    // prompts are token ids below this; 0 = what the server says, else words are sent
	Context int    // tokens of a request; 0 = what the server says, if it does
	Words   bool   // send words instead of token ids
	Stops   bool   // let answers end where the model ends them
	Client  *http.Client
}

// Sample is one request as its client saw it. Times are seconds.
type Sample struct {
	At     float64   `json:"at"`   // due, from the load's begin
	TTFT   float64   `json:"ttft"` // from due to the first token
	E2E    float64   `json:"e2e"`  // from due to the end
	Prompt int       `json:"prompt_tokens"`
	Output int       `json:"output_tokens"`
	Gaps   []float64 `json:"-"`               // between events with a token
	Error  string    `json:"error,omitempty"` // the server's code, http_<status>, cut, timeout or transport
}

// TPOT is the mean time of a token after the first.
func (s Sample) TPOT() float64 {
	if s.Output < 2 {
		return 0
	}
	return (s.E2E - s.TTFT) / float64(s.Output-1)
}

func (t *Target) request(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, t.URL+path, r)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if t.Key != "" {
		req.Header.Set("Authorization", "Bearer "+t.Key)
	}
	return t.Client.Do(req)
}

// Discover asks the server for what is not set: model, vocabulary and context.
func (t *Target) Discover(ctx context.Context) error {
	resp, err := t.request(ctx, http.MethodGet, "/v1/models", nil)
	if err != nil {
		return fmt.Errorf("bench: serve: %w", err)
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct {
			ID    string `json:"id"`
			Len   int    `json:"max_model_len"`
			Vocab int    `json:"vocab_size"`
			Meta  struct {
				Vocab int `json:"n_vocab"`
			} `json:"meta"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(&list); err != nil || resp.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("bench: serve: %s/v1/models: %s", t.URL, resp.Status), err)
	}
	for _, m := range list.Data {
		if t.Model != "" && m.ID != t.Model {
			continue
		}
		t.Model = m.ID
		if t.Vocab == 0 {
			t.Vocab = max(m.Vocab, m.Meta.Vocab)
		}
		if t.Context == 0 {
			t.Context = m.Len
		}
		return nil
	}
	return fmt.Errorf("bench: serve: %s serves no model %q", t.URL, t.Model)
}

// body is a streaming completion of one arrival.
func (t *Target) body(a Arrival, seed uint32) map[string]any {
	b := map[string]any{"model": t.Model, "max_tokens": a.Output, "temperature": 0, "stream": true,
		"stream_options": map[string]any{"include_usage": true}}
	if !t.Stops {
		b["ignore_eos"] = true
	}
	if t.Words || t.Vocab == 0 {
		b["prompt"] = strings.Repeat("a ", a.Prompt)
	} else {
		b["prompt"] = story(a.Prompt, t.Vocab, seed)
	}
	return b
}

// ask sends one request and reads its stream. due is when it should have been sent: a client that is late is part of the time.
func (t *Target) ask(ctx context.Context, a Arrival, seed uint32, due time.Time) Sample {
	s := Sample{Prompt: a.Prompt}
	err := t.stream(ctx, a, seed, due, &s)
	s.E2E = time.Since(due).Seconds()
	var code codeError
	switch {
	case err == nil:
	case errors.As(err, &code):
		s.Error = string(code)
	case errors.Is(err, context.DeadlineExceeded):
		s.Error = "timeout"
	default:
		s.Error = "transport"
	}
	return s
}

// codeError is the code of an answer that is an error.
type codeError string

func (c codeError) Error() string { return string(c) }

type streamEvent struct {
	Choices []struct {
		Text   string  `json:"text"`
		Finish *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Prompt int `json:"prompt_tokens"`
		Output int `json:"completion_tokens"`
	} `json:"usage"`
	Error *struct {
		Code any `json:"code"`
	} `json:"error"`
}

// code is what an error event or body calls itself.
func (e streamEvent) code(otherwise string) codeError {
	if e.Error != nil {
		if c, ok := e.Error.Code.(string); ok && c != "" {
			return codeError(c)
		}
	}
	return codeError(otherwise)
}

func (t *Target) stream(ctx context.Context, a Arrival, seed uint32, due time.Time, s *Sample) error {
	resp, err := t.request(ctx, http.MethodPost, "/v1/completions", t.body(a, seed))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var e streamEvent
		_ = json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(&e) // a body that is no JSON leaves the status
		return e.code(fmt.Sprintf("http_%d", resp.StatusCode))
	}
	return s.read(resp.Body, due)
}

// read takes the events of a stream until [DONE]; a stream that ends before it was cut.
func (s *Sample) read(r io.Reader, due time.Time) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4096), maxEvent)
	var last time.Time
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue
		}
		now := time.Now()
		if data = bytes.TrimSpace(data); string(data) == "[DONE]" {
			return nil
		}
		var e streamEvent
		if err := json.Unmarshal(data, &e); err != nil {
			return codeError("no_json")
		}
		if e.Error != nil {
			return e.code("error")
		}
		// The last event, with the reason alone, carries no token, unless nothing came before: an answer without a visible text.
		if len(e.Choices) > 0 && (e.Choices[0].Text != "" || e.Choices[0].Finish == nil || last.IsZero()) {
			if last.IsZero() {
				s.TTFT = now.Sub(due).Seconds()
			} else {
				s.Gaps = append(s.Gaps, now.Sub(last).Seconds())
			}
			last = now
			s.Output++
		}
		if e.Usage != nil {
			s.Prompt, s.Output = e.Usage.Prompt, e.Usage.Output
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return codeError("cut")
}
