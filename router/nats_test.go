package router

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"quire/bus"
	"quire/bus/bustest"
	"quire/kvtransfer"
	"quire/router/openai"
)

// openNATS opens a NATS door over a backend and gives a client's connection.
func openNATS(t *testing.T, b Backend, accounts bool) *bustest.Conn {
	t.Helper()
	broker := bustest.New(bustest.Options{})
	d, err := OpenNATS(t.Context(), b, NATSConfig{API: broker.Connect(), Names: bus.Names{Prefix: "quire"}, Accounts: accounts, Version: "dev"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		broker.Close()
	})
	return broker.Connect()
}

func ask(t *testing.T, c *bustest.Conn, subject, body string) bus.Msg {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	m, err := c.Request(ctx, subject, []byte(body))
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	return m
}

func frameKind(m bus.Msg) string { return strings.Join(m.Header[openai.HeaderFrame], ",") }

func TestNATSOperations(t *testing.T) {
	b := newFake(said("he", "llo"))
	b.cancel = func(tenant, id string) error {
		if tenant != DefaultTenant || id != fakeID {
			return kvtransfer.Errorf(kvtransfer.NotFound, "router: no such request")
		}
		return nil
	}
	c := openNATS(t, b, false)
	for _, x := range []struct{ op, body, contains string }{
		{"chat", chatBody, `"content":"hello"`},
		{"completions", `{"prompt":"x"}`, `"text":"hello"`},
		{"models", ``, `"max_model_len":64`},
		{"tokenize", `{"prompt":"a b"}`, `"count":2`},
		{"detokenize", `{"tokens":[1]}`, `{"prompt":"x"}`},
		{"cancel", `{"id":"` + fakeID + `"}`, `"cancelled":true`},
		{"status", `{"id":"chatcmpl-` + fakeID + `"}`, `"state":"running"`},
	} {
		m := ask(t, c, "quire.v1.default."+x.op, x.body)
		if e := bus.AsServiceError(m); e != nil || !strings.Contains(string(m.Data), x.contains) {
			t.Errorf("%s: %v %s", x.op, e, m.Data)
		}
	}
	if got := b.last(); got.Tenant != DefaultTenant {
		t.Errorf("tenant %q", got.Tenant)
	}
	if _, err := c.Request(t.Context(), "quire.v1.ann.chat", []byte(chatBody)); !errors.Is(err, bus.ErrNoResponders) {
		t.Errorf("a tenant of its own choice was served on a bus without accounts: %v", err)
	}
}

func TestNATSTenants(t *testing.T) {
	b := newFake(said("x"))
	c := openNATS(t, b, true)
	ask(t, c, "quire.v1.ann.chat", chatBody)
	if got := b.last(); got.Tenant != "ann" {
		t.Errorf("tenant %q", got.Tenant)
	}
}

// TestNATSErrors: the same codes and bodies as at the HTTP door, in headers and JSON.
func TestNATSErrors(t *testing.T) {
	for _, m := range kvtransfer.Table {
		c := openNATS(t, newFake(func(Request) ([]step, error) {
			return nil, kvtransfer.Error{Code: m.Code, Detail: "router: 7 of 8"}
		}), false)
		e := bus.AsServiceError(ask(t, c, "quire.v1.default.chat", chatBody))
		if e == nil || e.Code != m.NATS || !strings.HasPrefix(e.Text, "router: 7 of 8") || !strings.Contains(string(e.Data), `"code":"`+string(m.Code)+`"`) {
			t.Errorf("%s: %+v", m.Code, e)
		}
	}
	c := openNATS(t, newFake(said("x")), false)
	for op, body := range map[string]string{"chat": `{"messages":[]}`, "completions": `{`, "tokenize": `{}`, "detokenize": `{}`, "cancel": `{}`, "status": `{"id":7}`} {
		if e := bus.AsServiceError(ask(t, c, "quire.v1.default."+op, body)); e == nil || e.Code != 400 || !strings.Contains(string(e.Data), "invalid_request") {
			t.Errorf("%s: %+v", op, e)
		}
	}
}

func TestNATSStream(t *testing.T) {
	c := openNATS(t, newFake(said("he", "llo")), false)
	var got []bus.Msg
	err := c.Stream(t.Context(), bus.Ask{Subject: "quire.v1.default.chat", Data: []byte(streamBody)}, func(m bus.Msg) error {
		got = append(got, m)
		return nil
	})
	if err != nil || len(got) < 4 {
		t.Fatalf("%v, %d frames", err, len(got))
	}
	if frameKind(got[0]) != openai.FrameStatus || !strings.Contains(string(got[0].Data), `"data":"received","id":"`+fakeID) {
		t.Errorf("first: %v %s", got[0].Header, got[0].Data)
	}
	sum, text := sha256.New(), ""
	for i, m := range got[1 : len(got)-1] {
		if frameKind(m) != openai.FrameChunk || strings.Join(m.Header[openai.HeaderSeq], "") != strconv.Itoa(i) {
			t.Errorf("chunk %d: %v", i, m.Header)
		}
		sum.Write(m.Data)
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if err := json.Unmarshal(m.Data, &chunk); err != nil {
			t.Fatal(err)
		}
		for _, ch := range chunk.Choices {
			text += ch.Delta.Content
		}
	}
	var final openai.FinalFrame
	if err := json.Unmarshal(got[len(got)-1].Data, &final); err != nil {
		t.Fatal(err)
	}
	want := openai.FinalFrame{Type: openai.FrameFinal, ID: fakeID, FinishReason: "stop", Usage: openai.Usage{PromptTokens: 3, CompletionTokens: 2, TotalTokens: 5},
		Frames: len(got) - 2, Digest: hex.EncodeToString(sum.Sum(nil))}
	if final != want || text != "hello" {
		t.Errorf("final %+v, want %+v, text %q", final, want, text)
	}
}

// TestNATSStreamErrors: the error comes as one, before the verdict or after tokens, and no final frame follows.
func TestNATSStreamErrors(t *testing.T) {
	lost := kvtransfer.Errorf(kvtransfer.WorkerLost, "router: gone")
	for name, script := range map[string]func(Request) ([]step, error){
		"at once": func(Request) ([]step, error) { return nil, lost },
		"waiting": func(Request) ([]step, error) { return []step{{err: lost}}, nil },
		"answering": func(Request) ([]step, error) {
			return []step{{part: Part{Started: true}}, {part: Part{Tokens: []kvtransfer.Token{{Text: []byte("x")}}}}, {err: lost}}, nil
		},
	} {
		c := openNATS(t, newFake(script), false)
		final := false
		err := c.Stream(t.Context(), bus.Ask{Subject: "quire.v1.default.chat", Data: []byte(streamBody)}, func(m bus.Msg) error {
			final = final || frameKind(m) == openai.FrameFinal
			return nil
		})
		var e *bus.ServiceError
		if !errors.As(err, &e) || e.Code != 503 || final {
			t.Errorf("%s: %v, final %t", name, err, final)
		}
	}
}

// TestNATSKeepAlive: while nothing comes, keep-alives do, on the bubble's clock.
func TestNATSKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		verdict := make(chan struct{})
		broker := bustest.New(bustest.Options{})
		b := newFake(func(Request) ([]step, error) { return append([]step{{wait: verdict}}, mustSay("x")...), nil })
		d, err := OpenNATS(t.Context(), b, NATSConfig{API: broker.Connect(), Names: bus.Names{Prefix: "quire"}, KeepAlive: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		start := time.Now()
		err = broker.Connect().Stream(t.Context(), bus.Ask{Subject: "quire.v1.default.chat", Data: []byte(streamBody), Idle: 6 * time.Second}, func(m bus.Msg) error {
			kinds = append(kinds, frameKind(m))
			if len(kinds) == 4 {
				close(verdict)
			}
			return nil
		})
		want := "[status keep-alive keep-alive keep-alive chunk chunk chunk chunk final]"
		if err != nil || fmt.Sprint(kinds) != want || time.Since(start) != 15*time.Second {
			t.Errorf("%v after %v: %v, want %s", kinds, time.Since(start), err, want)
		}
		if err := errors.Join(d.Drain(t.Context()), d.Close()); err != nil {
			t.Error(err)
		}
		broker.Close()
	})
}

// TestNATSClientGone: a client that leaves while nothing comes is noticed by the next keep-alive, and its request cancelled. One
// that stays as long is not.
func TestNATSClientGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		verdict := make(chan struct{})
		broker := bustest.New(bustest.Options{})
		b := newFake(func(r Request) ([]step, error) { return append([]step{{wait: verdict}}, mustSay("x")...), nil })
		d, err := OpenNATS(t.Context(), b, NATSConfig{API: broker.Connect(), Names: bus.Names{Prefix: "quire"}, KeepAlive: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		leave, start := errors.New("leave"), time.Now()
		ask := bus.Ask{Subject: "quire.v1.default.chat", Data: []byte(streamBody)}
		if err := broker.Connect().Stream(t.Context(), ask, func(bus.Msg) error { return leave }); !errors.Is(err, leave) {
			t.Fatal(err)
		}
		if id := <-b.closed; id != fakeID || time.Since(start) != 5*time.Second {
			t.Errorf("%s cancelled after %v", id, time.Since(start))
		}
		frames := 0
		err = broker.Connect().Stream(t.Context(), ask, func(bus.Msg) error {
			if frames++; frames == 20 {
				close(verdict)
			}
			return nil
		})
		if err != nil || len(b.closed) != 0 {
			t.Errorf("after %d frames: %v, cancelled %d", frames, err, len(b.closed))
		}
		if err := errors.Join(d.Drain(t.Context()), d.Close()); err != nil {
			t.Error(err)
		}
		broker.Close()
	})
}

// TestNATSTooLarge: an answer that the bus cannot carry is an error, not a silence.
func TestNATSTooLarge(t *testing.T) {
	broker := bustest.New(bustest.Options{MaxPayload: 2048})
	defer broker.Close()
	d, err := OpenNATS(t.Context(), newFake(said(strings.Repeat("x", 4000))), NATSConfig{API: broker.Connect(), Names: bus.Names{Prefix: "quire"}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	c := broker.Connect()
	if e := bus.AsServiceError(ask(t, c, "quire.v1.default.chat", chatBody)); e == nil || e.Code != 413 {
		t.Errorf("%+v", e)
	}
	err = c.Stream(t.Context(), bus.Ask{Subject: "quire.v1.default.chat", Data: []byte(streamBody)}, func(bus.Msg) error { return nil })
	var e *bus.ServiceError
	if !errors.As(err, &e) || e.Code != 503 {
		t.Errorf("stream: %v", err)
	}
}
