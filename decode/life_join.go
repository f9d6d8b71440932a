package decode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"quire/bus"
	"quire/kvtransfer"
	tracing "quire/trace"
)

// How a life listens: requests, control messages, frames, routers' heartbeats, its own epoch, the state of the bus.

// join makes the KV stream and starts to listen. Routers hear of this life last, by its first heartbeat.
func (l *life) join(ctx context.Context) error {
	n, role := l.cfg.Names, string(kvtransfer.RoleDecode)
	var unwatch func()
	err := l.retry(ctx, "watch of its epoch", func() (err error) {
		unwatch, err = l.cfg.Bus.Streams().WatchEpoch(ctx, role, l.cfg.ID, l.onEpoch)
		return err
	})
	if err != nil {
		return err
	}
	l.unwatch = append(l.unwatch, unwatch)
	if err := l.retry(ctx, n.KVStream(l.peer.ID, l.peer.Epoch), func() error { return l.openKV(ctx) }); err != nil {
		return err
	}
	control := bus.Consumer{
		Stream: n.ControlStream(), Name: fmt.Sprintf("decode-%s-%d", l.peer.ID, l.peer.Epoch),
		Subjects: []string{n.AllControl(role, l.peer.ID, l.peer.Epoch)},
	}
	err = l.retry(ctx, control.Stream, func() error {
		sub, err := l.cfg.Bus.Consume(ctx, control, l.onControl)
		return l.keep(sub, err)
	})
	if err != nil {
		return err
	}
	for _, listen := range []struct {
		subject string
		fn      func(bus.Msg)
	}{
		{n.Reserve(l.peer.ID, l.peer.Epoch), l.onReserve},
		{n.Resend(l.peer.ID, l.peer.Epoch), l.onResend},
		{n.Heartbeat(string(kvtransfer.RoleRouter), "*"), l.onBeat},
		{n.Pages(role, l.peer.ID, l.peer.Epoch), l.onPages},
	} {
		sub, err := l.cfg.Bus.Subscribe(listen.subject, "", listen.fn)
		if err := l.keep(sub, err); err != nil {
			return fmt.Errorf("decode: listen: %w", err)
		}
	}
	l.unwatch = append(l.unwatch, l.cfg.KV.Watch(l.onBus()))
	l.wg.Go(l.keepKV)
	return nil
}

// keep remembers what close must drain.
func (l *life) keep(sub bus.Sub, err error) error {
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subs = append(l.subs, sub)
	return nil
}

// openKV makes the KV stream, empty, and reads it.
func (l *life) openKV(ctx context.Context) error {
	if err := l.cfg.KV.Streams().EnsureKV(ctx, l.peer.ID, l.peer.Epoch); err != nil {
		return err
	}
	n := l.cfg.Names
	sub, err := l.cfg.KV.Consume(ctx, bus.Consumer{
		Stream: n.KVStream(l.peer.ID, l.peer.Epoch), Name: "kv", Subjects: []string{n.AllKV(l.peer.ID, l.peer.Epoch)},
		AckWait: kvAckWait, MaxPending: kvPending, MaxBytes: bus.MaxPullBytes,
	}, l.onKV)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kv = sub
	return nil
}

// onBus tells keepKV when the bus is back.
func (l *life) onBus() func(bus.State, error) {
	down := false
	return func(s bus.State, _ error) {
		if s == bus.Up && down {
			select {
			case l.kick <- struct{}{}:
			default:
			}
		}
		down = s == bus.Down
	}
}

// keepKV makes the KV stream again when the server lost it, which a restart does. Out of reach for a lease, it ends this life.
func (l *life) keepKV() {
	lease := time.Duration(l.cfg.Lease) * time.Microsecond
	check := time.NewTicker(lease / 4)
	defer check.Stop()
	reached := time.Now()
	for {
		lost := false
		select {
		case <-l.ctx.Done():
			return
		case <-l.kick:
			lost = true
		case <-check.C:
		}
		if time.Since(reached) >= lease+lease/4 {
			l.stop(errNewEpoch)
			return
		}
		if !lost {
			there, err := l.haveKV()
			if err == nil && there {
				reached = time.Now()
				continue
			}
			lost = err == nil
		}
		if lost && l.remakeKV(lease) {
			reached = time.Now()
		} else if lost {
			l.stop(errNewEpoch)
			return
		}
	}
}

// haveKV says whether the stream is there and answers. In a cluster a stream whose only server is gone is still listed: to purge
// nothing is what only the server that has it can do.
func (l *life) haveKV() (bool, error) {
	ctx, cancel := context.WithTimeout(l.ctx, storeTimeout)
	defer cancel()
	n := l.cfg.Names
	name := n.KVStream(l.peer.ID, l.peer.Epoch)
	names, err := l.cfg.KV.Streams().Names(ctx, name)
	if err != nil || !slices.Contains(names, name) {
		return false, err
	}
	return true, l.cfg.KV.Streams().Purge(ctx, name, n.KV(l.peer.ID, l.peer.Epoch, "none"))
}

// remakeKV makes the stream again within a lease, and tells the loop that what was in it is gone.
func (l *life) remakeKV(within time.Duration) bool {
	ctx, cancel := context.WithTimeout(l.ctx, within)
	defer cancel()
	l.mu.Lock()
	old := l.kv
	l.kv = nil
	l.mu.Unlock()
	if old != nil {
		l.warn("drain", old.Drain())
	}
	if err := l.retry(ctx, "KV stream", func() error { return l.openKV(ctx) }); err != nil {
		return l.ctx.Err() != nil
	}
	l.post(StreamLost{})
	return true
}

// onEpoch stops this process when a younger one has its name.
func (l *life) onEpoch(epoch uint64) {
	if epoch > l.peer.Epoch {
		l.stop(fmt.Errorf("decode: %s: epoch %d has started", l.peer, epoch))
	}
}

func (l *life) onReserve(m bus.Msg) {
	ev, err := OpenReserve(l.cfg.Keys, m.Data)
	l.ask(m, ev, err)
}

func (l *life) onResend(m bus.Msg) {
	ev, err := OpenResend(l.cfg.Keys, m.Data)
	l.ask(m, ev, err)
}

// ask hands a request on; one that is not signed as it must be gets no answer.
func (l *life) ask(m bus.Msg, ev Event, err error) {
	if err != nil || m.Reply == "" {
		l.unsigned.Add(1)
		l.warn("request ignored", errors.Join(err))
		return
	}
	l.postInput(input{ev: ev, reply: m.Reply, of: tracing.FromHeader(m.Header)})
}

func (l *life) onControl(d bus.Delivery) {
	ev, err := OpenControl(l.cfg.Keys, d.Data)
	l.take(d, ev, err)
}

func (l *life) onKV(d bus.Delivery) {
	ev, err := OpenKV(l.cfg.Keys, d.Data)
	l.take(d, ev, err)
}

// take hands a delivery on; one that cannot be read or is not signed is refused for good.
func (l *life) take(d bus.Delivery, ev Event, err error) {
	if err != nil {
		l.unsigned.Add(1)
		l.warn("message refused", err)
		l.warn("term", d.Term())
		return
	}
	l.postInput(input{ev: ev, delivery: &d})
}

// onBeat notes a router's heartbeat; what is not signed is no heartbeat.
func (l *life) onBeat(m bus.Msg) {
	ev, err := OpenHeartbeat(l.cfg.Keys, m.Data)
	if err != nil {
		l.unsigned.Add(1)
		return
	}
	l.post(ev)
}
