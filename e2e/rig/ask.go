package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"quire/bus"
	"quire/router/openai"
)

// Answer is what a client got.
type Answer struct {
	Status int    // of HTTP; 0 for an answer without a door
	Body   string // as it came
	Text   string // of the answer, "" with an error
	Tokens []int32
	Finish string
	Error  string // code of the error object
	Detail string // message of the error object
	Usage  struct{ Prompt, Output int }
}

// Ask posts a body to a path of the HTTP door and reads the answer, streamed or whole.
func (r *Rig) Ask(ctx context.Context, path, key string, body any) (Answer, error) {
	return Ask(ctx, r.HTTP, path, key, body)
}

// Ask posts a body to a path of an HTTP door and reads the answer, streamed or whole. An error is one of the connection alone.
func Ask(ctx context.Context, base, path, key string, body any) (Answer, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return Answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, bytes.NewReader(b))
	if err != nil {
		return Answer{}, err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer res.Body.Close()
	a := Answer{Status: res.StatusCode}
	all, err := io.ReadAll(res.Body)
	a.Body = string(all)
	if err != nil {
		return a, err
	}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		return a, a.events()
	}
	return a, a.take(all)
}

// AskNATS sends a body to an operation of the NATS door, as tenant default, and reads all frames of the answer. Status is the code of
// the error headers, or 200.
func (r *Rig) AskNATS(ctx context.Context, op string, body map[string]any) (Answer, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Status: http.StatusOK}
	subject := bus.Names{}.API("default", op)
	if body["stream"] != true {
		m, err := r.client.Request(ctx, subject, b)
		if err != nil {
			return a, err
		}
		return a, errors.Join(a.refused(bus.AsServiceError(m)), a.frame(m))
	}
	err = r.client.Stream(ctx, bus.Ask{Subject: subject, Data: b}, a.frame)
	var refused *bus.ServiceError
	if errors.As(err, &refused) {
		return a, a.refused(refused)
	}
	return a, err
}

func (a *Answer) frame(m bus.Msg) error {
	a.Body += string(m.Data) + "\n"
	return a.take(m.Data)
}

func (a *Answer) refused(e *bus.ServiceError) error {
	if e == nil {
		return nil
	}
	a.Status = e.Code
	a.Body += string(e.Data)
	return a.take(e.Data)
}

// piece is the union of what a whole answer, a chunk and an error look like.
type piece struct {
	Choices []struct {
		Text    string `json:"text"`
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
		Tokens []int32 `json:"token_ids"`
		Finish string  `json:"finish_reason"`
	} `json:"choices"`
	Usage struct {
		Prompt int `json:"prompt_tokens"`
		Output int `json:"completion_tokens"`
	} `json:"usage"`
	Error struct {
		Code    any    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func (a *Answer) take(b []byte) error {
	var p piece
	if err := json.Unmarshal(b, &p); err != nil {
		return fmt.Errorf("rig: answer %q: %w", b, err)
	}
	for _, c := range p.Choices {
		a.Text += c.Text + c.Message.Content + c.Delta.Content
		a.Tokens = append(a.Tokens, c.Tokens...)
		if c.Finish != "" {
			a.Finish = c.Finish
		}
	}
	if p.Usage.Prompt > 0 {
		a.Usage.Prompt, a.Usage.Output = p.Usage.Prompt, p.Usage.Output
	}
	if p.Error.Message != "" {
		a.Error, a.Detail = fmt.Sprint(p.Error.Code), p.Error.Message
	}
	return nil
}

// events reads server-sent events.
func (a *Answer) events() error {
	for line := range strings.Lines(a.Body) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		if err := a.take([]byte(data)); err != nil {
			return err
		}
	}
	return nil
}

// Ready waits until the router sees workers that fit each other.
func (r *Rig) Ready(ctx context.Context) error {
	return wait(ctx, "not ready", func() bool {
		res, err := http.Get(r.HTTP + "/ready")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
}

// Quiet waits until decode has made at least so many reservations in its life, every one has ended, and every page is free.
func (r *Rig) Quiet(ctx context.Context, reservations uint64) error {
	return wait(ctx, "decode's pages", func() bool {
		s := r.Decode.Stats()
		c, p := s.Counters, s.Heartbeat.Pages
		ended := c.Finished + c.Failed + c.Lost + c.Cancelled + c.GateRefused + c.WitnessFailed
		return c.Reserved >= reservations && ended == c.Reserved && p.Total > 0 && p.Free == p.Total
	})
}

// Tokens are those of a conversation, the mark of the answer included.
func (r *Rig) Tokens(system, user string) ([]int32, error) {
	return r.Text.Chat([]openai.Message{{Role: "system", Content: system}, {Role: "user", Content: user}}, openai.ChatOptions{GenerationPrompt: true})
}
