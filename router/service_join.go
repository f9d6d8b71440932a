package router

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"quire/bus"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
)

// join subscribes to what the router listens to.
func (s *Service) join(ctx context.Context) error {
	subscribe := func(subject string, fn func(bus.Msg)) error {
		return s.retry(ctx, "subscribe to "+subject, func() error {
			sub, err := s.cfg.Bus.Subscribe(subject, "", fn)
			if err == nil {
				s.subs = append(s.subs, sub)
			}
			return err
		})
	}
	n, id, epoch := s.cfg.Names, s.peer.ID, s.peer.Epoch
	for _, on := range []struct {
		subject string
		fn      func(bus.Msg)
	}{
		{n.AllReplies(id, epoch), s.onReply},
		{n.AllHeartbeats(), s.onHeartbeat},
		{n.Router(id, epoch, opCancel), s.onRouterAsk},
		{n.Router(id, epoch, opStatus), s.onRouterAsk},
	} {
		if err := subscribe(on.subject, on.fn); err != nil {
			return err
		}
	}
	s.undo = append(s.undo, s.cfg.Bus.Watch(func(st bus.State, _ error) {
		s.post(BusChanged{Up: st == bus.Up, MaxPayload: min(s.cfg.Bus.Limits().MaxPayload, wire.MaxMessage)})
	}))
	return s.retry(ctx, "watch epoch", func() error {
		undo, err := s.cfg.Bus.Streams().WatchEpoch(ctx, string(kvtransfer.RoleRouter), id, func(e uint64) {
			if e > epoch {
				s.stop(fmt.Errorf("router: %s has a younger life, epoch %d", s.peer, e))
			}
		})
		if err == nil {
			s.undo = append(s.undo, undo)
		}
		return err
	})
}

// onReply opens a reply; what does not open is counted and changes nothing.
func (s *Service) onReply(m bus.Msg) {
	r, err := wire.DecodeReply(m.Data)
	if err != nil {
		s.meter.ignored.Inc()
		return
	}
	body, err := s.box.open(r)
	if errors.Is(err, errNoAttempt) {
		s.meter.late.Inc()
		return
	}
	if err != nil {
		s.meter.ignored.Inc()
		return
	}
	s.post(Replied{Key: r.Header.Key, Number: r.Header.Number, Body: body})
}

// onHeartbeat takes the heartbeats of prefill and decode workers.
func (s *Service) onHeartbeat(m bus.Msg) {
	env, err := seal.OpenEnvelope(s.cfg.Keys, m.Data)
	if err != nil || env.Kind != kvtransfer.KindHeartbeat {
		s.meter.ignored.Inc()
		return
	}
	if env.From.Role != kvtransfer.RolePrefill && env.From.Role != kvtransfer.RoleDecode {
		return
	}
	hb, err := wire.Decode[kvtransfer.Heartbeat](env.Body)
	if err != nil || hb.Peer != env.From {
		s.meter.ignored.Inc()
		return
	}
	if hb.Peer.Role == kvtransfer.RoleDecode {
		s.beats.heard(s.cfg.Names.KVStream(hb.Peer.ID, hb.Peer.Epoch), time.Now())
	}
	s.post(Heard{Heartbeat: hb})
}

// beat publishes the router's own heartbeat: after a verdict it is what keeps its requests running.
func (s *Service) beat() {
	st := s.snap.Load()
	b, err := s.sign(kvtransfer.KindHeartbeat, kvtransfer.Heartbeat{
		Peer: s.peer, Model: s.cfg.Served.Name, MaxModelLen: st.Limit.Tokens, Running: st.Prefilling + st.Running, Draining: st.Draining,
	})
	if err != nil {
		s.stop(fmt.Errorf("router: heartbeat: %w", err))
		return
	}
	// A heartbeat that does not go out is silence, which is what it means.
	_ = s.cfg.Bus.Publish(s.cfg.Names.Heartbeat(string(kvtransfer.RoleRouter), s.cfg.ID), nil, b)
}

// epochs remembers when each decode epoch's stream was last known to have an owner.
type epochs struct {
	mu   sync.Mutex
	last map[string]time.Time // by stream name
}

func (e *epochs) heard(stream string, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last == nil {
		e.last = map[string]time.Time{}
	}
	e.last[stream] = now
}

// dead gives the streams whose owner has been silent for too long; one seen for the first time has its time from now.
func (e *epochs) dead(streams []string, now time.Time) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	seen := make(map[string]time.Time, len(streams))
	var list []string
	for _, name := range streams {
		last, ok := e.last[name]
		if !ok {
			last = now
		}
		seen[name] = last
		if now.Sub(last) > silentEpoch {
			list = append(list, name)
		}
	}
	e.last = seen
	return list
}

// janitor deletes the streams of decode epochs that are silent for good.
func (s *Service) janitor() {
	every := time.NewTicker(janitorPeriod)
	defer every.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-every.C:
		}
		ctx, cancel := context.WithTimeout(s.ctx, janitorPeriod/2)
		names, err := s.cfg.Bus.Streams().Names(ctx, s.cfg.Names.KVPrefix())
		if err == nil {
			for _, name := range s.beats.dead(names, time.Now()) {
				s.cfg.Log.Info("delete the stream of a dead epoch", "stream", name, "error", s.cfg.Bus.Streams().Delete(ctx, name))
			}
		}
		cancel()
	}
}

// parseID splits <router>-<epoch>-<32 hex digits>.
func parseID(text string) (router string, epoch uint64, id kvtransfer.HandoffID, ok bool) {
	rest, digits, found := cutLast(text)
	if !found || len(digits) != 2*len(id) || strings.ToLower(digits) != digits {
		return "", 0, id, false
	}
	router, number, found := cutLast(rest)
	if !found || router == "" {
		return "", 0, id, false
	}
	epoch, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return "", 0, id, false
	}
	for i := range id {
		b, err := strconv.ParseUint(digits[2*i:2*i+2], 16, 8)
		if err != nil {
			return "", 0, id, false
		}
		id[i] = byte(b)
	}
	return router, epoch, id, true
}

func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, '-')
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+1:], true
}
