package jet

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"quire/bus"
	"quire/bus/bustest"
)

// TestGone: which clients, of those that do not use this package, are taken for gone: only those whose inbox is.
func TestGone(t *testing.T) {
	s := serve(t, ServerOptions{})
	role, ended := connect(t, ConnectOptions{Server: s}), make(chan error, 1)
	for _, c := range []struct {
		what string
		ask  func(t *testing.T, nc *nats.Conn)
		want error
	}{
		{"one that reads an inbox of its own to the end, as the nats command does", func(t *testing.T, nc *nats.Conn) {
			inbox := nc.NewInbox()
			sub, err := nc.SubscribeSync(inbox)
			must(t, err)
			must(t, nc.PublishRequest("quire.v1.default.chat", inbox, nil))
			for {
				m, err := sub.NextMsg(10 * time.Second)
				must(t, err)
				if len(m.Data) == 0 && len(m.Header) == 0 {
					return
				}
			}
		}, nil},
		{"one that takes the first frame and stays connected: its requests share one inbox", func(t *testing.T, nc *nats.Conn) {
			_, err := nc.Request("quire.v1.default.chat", nil, 10*time.Second)
			must(t, err)
			must(t, <-ended)
			ended <- nil
		}, nil},
		{"one that answers each frame", func(t *testing.T, nc *nats.Conn) {
			inbox, end := nc.NewInbox(), make(chan struct{})
			_, err := nc.Subscribe(inbox, func(m *nats.Msg) {
				switch {
				case len(m.Data) == 0 && len(m.Header) == 0:
					close(end)
				case m.Reply != "":
					_ = m.Respond([]byte("503"))
					_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"200"}}})
				}
			})
			must(t, err)
			must(t, nc.PublishRequest("quire.v1.default.chat", inbox, nil))
			<-end
		}, nil},
		{"one whose connection ends", func(t *testing.T, nc *nats.Conn) {
			_, err := nc.Request("quire.v1.default.chat", nil, 10*time.Second)
			must(t, err)
			nc.Close()
		}, bustest.ErrGone},
		{"one that asks for a single answer", func(t *testing.T, nc *nats.Conn) {
			inbox := nc.NewInbox()
			sub, err := nc.SubscribeSync(inbox)
			must(t, err)
			must(t, sub.AutoUnsubscribe(1))
			must(t, nc.PublishRequest("quire.v1.default.chat", inbox, nil))
			_, err = sub.NextMsg(10 * time.Second)
			must(t, err)
		}, bustest.ErrGone},
	} {
		t.Run(c.what, func(t *testing.T) {
			sub, err := role.Serve(context.Background(), bus.ServiceSpec{
				Name: "quire", Version: "1.0.0", Queue: "router", Endpoints: []bus.Endpoint{{Name: "chat", Subject: "quire.v1.*.chat"}},
			}, func(call *bus.Call) {
				go func() { ended <- bustest.Frames(call, 5*bus.ProbeEvery/2) }()
			})
			must(t, err)
			nc, err := nats.Connect(s.URL())
			must(t, err)
			defer nc.Close()
			c.ask(t, nc)
			if err := <-ended; !errors.Is(err, c.want) {
				t.Errorf("ended with %v, want %v", err, c.want)
			}
			must(t, sub.Drain())
		})
	}
}

// TestProbesAreBounded: what was asked about long ago is forgotten, and nothing is asked before its time or across accounts.
func TestProbesAreBounded(t *testing.T) {
	p := probes{inbox: "_INBOX.x", open: map[string]*caller{}}
	if p.ask(&caller{}, "_R_.abc.def") != "" {
		t.Error("asked across accounts")
	}
	c := &caller{gone: make(chan struct{})}
	if p.ask(c, "_INBOX.c") == "" || p.ask(c, "_INBOX.c") != "" {
		t.Error("want the first frame to be asked about and the next one not")
	}
	p.asked[0].at = p.asked[0].at.Add(-probeFor - time.Second)
	old := p.asked[0].token
	for range 3 {
		p.ask(&caller{}, "_INBOX.d")
	}
	if len(p.open) != 3 || len(p.asked) != 3 || p.open[old] != nil {
		t.Errorf("%d open, %d asked", len(p.open), len(p.asked))
	}
	p.heard(&nats.Msg{Subject: "_INBOX.x." + old, Header: nats.Header{"Status": {"503"}}})
	select {
	case <-c.gone:
		t.Error("gone by a word about a frame of long ago")
	default:
	}
}
