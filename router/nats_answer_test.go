package router

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"quire/bus"
	"quire/kvtransfer"
	"quire/router/openai"
)

// scripted is a stream whose steps are all there at once. Reading on after its end, or after so many keep-alives, ends the test.
type scripted struct {
	t     *testing.T
	steps []step
	quiet int // keep-alives before each step
	waits int
}

func (s *scripted) ID() string { return fakeID }
func (s *scripted) Close()     {}

func (s *scripted) Next(ctx context.Context) (Part, error) {
	if len(s.steps) == 0 {
		s.t.Fatal("the answer is read on after its end")
	}
	if s.waits < s.quiet {
		s.waits++
		<-ctx.Done() // the keep-alive's time
		return Part{}, ctx.Err()
	}
	next := s.steps[0]
	s.steps, s.waits = s.steps[1:], 0
	return next.part, next.err
}

// TestNATSFrames: which frames a streamed answer is made of, whatever the stream and the bus do. A frame that could not be sent ends
// the answer: no frame follows but the error.
func TestNATSFrames(t *testing.T) {
	down := errors.New("the bus is away")
	together := []step{{part: Part{Started: true}}, {part: Part{Tokens: []kvtransfer.Token{{Text: []byte("x")}}, End: &kvtransfer.End{Finish: kvtransfer.FinishStop}}}}
	lost := step{err: kvtransfer.Errorf(kvtransfer.WorkerLost, "router: gone")}
	for _, c := range []struct {
		what  string
		steps []step
		quiet int
		fails int // the message whose sending fails, from 1; 0 = none
		err   error
		want  string
	}{
		{"whole", mustSay("x"), 0, 0, nil, "status chunk chunk chunk final end"},
		{"slow", mustSay("x"), 1, 0, nil, "status keep-alive chunk keep-alive chunk keep-alive chunk final end"},
		{"refused", []step{lost}, 0, 0, nil, "status error end"},
		{"lost", append(mustSay("x")[:2], lost), 0, 0, nil, "status chunk chunk error end"},
		{"nothing leaves", mustSay("x"), 0, 1, down, ""},
		{"the first chunk does not leave", mustSay("x"), 0, 2, down, "status error end"},
		{"a token does not leave", mustSay("x"), 0, 3, down, "status chunk error end"},
		{"a keep-alive does not leave", mustSay("x"), 1, 2, down, "status error end"},
		{"the last chunk does not leave", mustSay("x"), 0, 4, down, "status chunk chunk error end"},
		{"the last token does not leave", together, 0, 3, down, "status chunk error end"},
		{"the count does not leave", mustSay("x"), 0, 5, down, "status chunk chunk chunk error end"},
	} {
		t.Run(strings.ReplaceAll(c.what, " ", "_"), func(t *testing.T) {
			var sent []string
			n := 0
			call := &bus.Call{Endpoint: "chat", Room: 1 << 20, Reach: func(header map[string][]string, data []byte) error {
				if n++; n == c.fails {
					return down
				}
				if n > 20 {
					t.Fatal("the answer does not end")
				}
				kind := strings.Join(header[openai.HeaderFrame], ",")
				switch {
				case len(header[bus.HeaderError]) > 0:
					kind = "error"
				case len(header) == 0 && len(data) == 0:
					kind = "end"
				}
				sent = append(sent, kind)
				return nil
			}}
			b := newFake(nil)
			body, err := openai.Parse(openai.OpChat, []byte(`{"stream":true,"messages":[{"role":"user","content":"hi"}]}`), b.Rules())
			if err != nil {
				t.Fatal(err)
			}
			d := &NATSDoor{b: b, cfg: NATSConfig{KeepAlive: time.Millisecond}}
			st := &scripted{t: t, steps: c.steps, quiet: c.quiet}
			err = d.stream(t.Context(), call, st, newAnswer(b, body, st.ID()))
			if got := strings.Join(sent, " "); got != c.want || !errors.Is(err, c.err) {
				t.Errorf("%s, %v; want %s, %v", got, err, c.want, c.err)
			}
		})
	}
}

// TestNATSRefusals: who waits for a stream gets its end after the error, who waits for one answer gets one.
func TestNATSRefusals(t *testing.T) {
	for body, want := range map[string]int{`{"messages":[],"stream":true}`: 2, `{"messages":[]}`: 1, `{"stream":true`: 1} {
		n := 0
		call := &bus.Call{Endpoint: "chat", Room: 1 << 20, Reach: func(map[string][]string, []byte) error { n++; return nil }}
		call.Data = []byte(body)
		d := &NATSDoor{b: newFake(nil)}
		if err := d.generate(call, openai.OpChat); err != nil || n != want {
			t.Errorf("%s: %d messages, want %d: %v", body, n, want, err)
		}
	}
}

// TestNATSStreamOnlyWhereAsked: a body that asks for a stream gets frames, another gets one message.
func TestNATSStreamOnlyWhereAsked(t *testing.T) {
	for body, want := range map[string]int{streamBody: 7, chatBody: 1} {
		n := 0
		call := &bus.Call{Endpoint: "chat", Room: 1 << 20, Reach: func(map[string][]string, []byte) error { n++; return nil }}
		call.Data = []byte(body)
		d := &NATSDoor{b: newFake(said("x")), ctx: t.Context(), cfg: NATSConfig{KeepAlive: time.Minute}}
		if err := d.generate(call, openai.OpChat); err != nil || n != want {
			t.Errorf("%s: %d messages, want %d: %v", body, n, want, err)
		}
	}
}

// traced is a backend whose answers have a trace, or none.
type traced struct {
	*fakeBackend
	id string
}

type tracedStream struct {
	Stream
	id string
}

func (s tracedStream) TraceID() string { return s.id }

func (b traced) Submit(ctx context.Context, r Request) (Stream, error) {
	st, err := b.fakeBackend.Submit(ctx, r)
	return tracedStream{st, b.id}, err
}

// TestAnswersNameTheirTrace: an answer that has a trace names it in a header, another has no such header.
func TestAnswersNameTheirTrace(t *testing.T) {
	for _, id := range []string{"", "0af7651916cd43dd8448eb211c80319c"} {
		s := serve(t, traced{newFake(said("x")), id}, HTTPConfig{})
		r := send(t, s, "POST", "/v1/chat/completions", chatBody)
		if got, there := r.header[openai.HeaderTrace]; there != (id != "") || there && got[0] != id {
			t.Errorf("trace %q: header %q", id, got)
		}
	}
}
