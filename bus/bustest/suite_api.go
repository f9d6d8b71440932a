package bustest

import (
	"errors"
	"testing"
	"time"

	"quire/bus"
)

// apiGone: a caller that leaves in the middle of an answer is noticed, and one that stays is never taken for gone.
func apiGone(t *testing.T, b bus.Bus) {
	api, has := b.(bus.API)
	if !has {
		t.Skip("this bus has no API door")
	}
	stays, leaves := make(chan error, 1), make(chan error, 1)
	spec := bus.ServiceSpec{
		Name: "quire", Version: "1.0.0", Queue: "router", Endpoints: []bus.Endpoint{{Name: "chat", Subject: names.API("*", "chat")}},
	}
	_, err := api.Serve(within(t), spec, func(c *bus.Call) {
		if string(c.Data) == "stays" {
			go func() { stays <- Frames(c, 2*bus.ProbeEvery+bus.ProbeEvery/2) }()
		} else {
			go func() { leaves <- Frames(c, patience) }()
		}
	})
	ok(t, "serve", err)
	mine := errors.New("mine")
	err = api.Stream(within(t), bus.Ask{Subject: names.API("acme", "chat"), Data: []byte("leaves")}, func(bus.Msg) error { return mine })
	is(t, "the callback's error", err, mine)
	ok(t, "stream", api.Stream(within(t), bus.Ask{Subject: names.API("acme", "chat"), Data: []byte("stays")}, func(bus.Msg) error { return nil }))
	is(t, "one that left", get(t, "one that left", leaves), ErrGone)
	ok(t, "one that stayed", get(t, "one that stayed", stays))
}

// ErrGone is what Frames says of a caller that was said to be gone.
var ErrGone = errors.New("bustest: the caller is gone")

// Frames answers a call with a frame every now and then until d has passed, then ends the answer; ErrGone when Gone was closed.
func Frames(c *bus.Call, d time.Duration) error {
	end, tick := time.NewTimer(d), time.NewTicker(bus.ProbeEvery/10)
	defer end.Stop()
	defer tick.Stop()
	for {
		if err := c.Send(nil, []byte("frame")); err != nil {
			return err
		}
		select {
		case <-c.Gone:
			return ErrGone
		case <-tick.C:
		case <-end.C:
			return c.End()
		}
	}
}
