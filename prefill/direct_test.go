package prefill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"quire/bus"
	"quire/kvtransfer"
)

// enqueuer notes what it is given, and fails as it is told.
type enqueuer struct {
	bus.Bus // of which only Enqueue is used
	name    string
	mu      *sync.Mutex
	log     *[]string
	err     error
}

func (e *enqueuer) note(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	*e.log = append(*e.log, e.name+" "+fmt.Sprintf(format, args...))
}

func (e *enqueuer) Enqueue(_ context.Context, m bus.Enqueue) (uint64, error) {
	e.note("%s", m.Data)
	return 1, e.err
}

func (e *enqueuer) Close() error { e.note("closed"); return nil }

// TestDirect: frames go straight where that is possible and through the bus where it is not; connections come with heartbeats and
// go with silence, a younger life and Close.
func TestDirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var log []string
		on := func(name string) *enqueuer { return &enqueuer{name: name, mu: &mu, log: &log} }
		straight, dialErr := on("straight"), errors.New("nobody there")
		ctx, cancel := context.WithCancelCause(context.Background())
		defer cancel(nil)
		s := &Service{ctx: ctx, cfg: Config{Bus: on("bus")}}
		s.direct = direct{links: map[kvtransfer.Peer]*link{}, warn: func(string, error) {}, dial: func(context.Context, string) (FrameBus, error) {
			if dialErr != nil {
				return nil, dialErr
			}
			return straight, nil
		}}
		one := kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 1}
		two := one
		two.Epoch = 2
		beat := func(p kvtransfer.Peer, url string) {
			s.direct.heard(ctx, p, url, time.Now())
			synctest.Wait()
		}
		send := func(to kvtransfer.Peer, text string) {
			t.Helper()
			if err := s.storeKV(to, bus.Enqueue{Data: []byte(text)}); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
		beat(one, "")
		send(one, "no address")
		beat(one, "u")
		send(one, "dial failed")
		dialErr = nil
		beat(one, "u")
		send(one, "too soon to dial again")
		time.Sleep(dialPause + time.Millisecond)
		beat(one, "u")
		send(one, "connected")
		straight.err = bus.ErrDuplicate
		send(one, "stored before")
		straight.err = bus.ErrTimeout
		send(one, "lost")
		straight.err = bus.ErrFull
		if err := s.storeKV(one, bus.Enqueue{Data: []byte("full")}); !errors.Is(err, bus.ErrFull) {
			t.Errorf("full: %v", err)
		}
		straight.err = nil
		send(two, "another life")
		beat(two, "u")
		send(one, "the old life")
		send(two, "the new life")
		time.Sleep(linkIdle + time.Millisecond)
		beat(kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d2", Epoch: 1}, "v")
		send(two, "silent for long")
		s.direct.close()
		want := []string{"bus no address", "bus dial failed", "bus too soon to dial again", "straight connected", "straight stored before",
			"straight lost", "bus lost", "straight full", "bus another life", "straight closed", "bus the old life", "straight the new life",
			"straight closed", "bus silent for long", "straight closed"}
		if !slices.Equal(log, want) {
			t.Errorf("got  %q\nwant %q", log, want)
		}
	})
}
