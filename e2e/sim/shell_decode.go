package sim

import (
	"fmt"

	"quire/bus"
	"quire/decode"
	"quire/kvtransfer"
	"quire/model/modeltest"
)

// decodeShell stands for decode's service: it turns the simulated world into events of the production loop and performs its
// effects, as service.go and life*.go do with goroutines.
type decodeShell struct {
	w     *World
	p     *proc
	peer  kvtransfer.Peer
	dev   *device
	loop  *decode.Loop
	ended bool // this life; the process may begin another

	deliveries map[uint64]*delivery
	asks       map[uint64]string
	handles    uint64

	control, frames, steps, witnesses, zeros crew
	journal                                  *journalWriter
	full                                     bool
	kv                                       *member
	subs                                     []*subscription
	members                                  []*member
	unwatch                                  func()
	reached                                  kvtransfer.Tick
	waiting                                  bool // the KV stream is being made again
}

const (
	decodeTick   = 60 * ms
	decodeBeat   = 250 * ms
	storeTimeout = 800 * ms
	retryEvery   = 150 * ms
	kvAckWait    = 400 * ms
)

// bootDecode starts a decode process; its memory is fresh.
func bootDecode(o modeltest.Options) func(*proc) {
	return func(p *proc) {
		dev := newDevice(p, o, false)
		p.w.devices = append(p.w.devices, dev)
		startDecodeLife(p, dev)
	}
}

// startDecodeLife takes an epoch and joins the bus.
func startDecodeLife(p *proc, dev *device) {
	s := &decodeShell{w: p.w, p: p, dev: dev, deliveries: map[uint64]*delivery{}, asks: map[uint64]string{},
		control: crew{size: 1}, frames: crew{size: 2}, steps: crew{size: 1}, witnesses: crew{size: 1}, zeros: crew{size: 1}}
	s.retry("epoch", func(cb func(error)) {
		p.c.nextEpoch("decode", p.n.id, storeTimeout, func(epoch uint64, err error) {
			if err == nil {
				s.peer = kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: p.n.id, Epoch: epoch}
				p.peer = s.peer
			}
			cb(err)
		})
	}, s.live)
}

func (s *decodeShell) live() {
	w := s.w
	cfg := w.plan.decode
	cfg.Self, cfg.Model, cfg.ModelSlug, cfg.Info, cfg.Pool = s.peer, "fake", "fake", s.dev.info, decodePool
	cfg.Entropy, cfg.KeyPair = w.entropy, w.keyPair
	cfg.PromptDigest = w.digest
	cfg.BeatEvery = kvtransfer.Tick(decodeBeat)
	s.loop = decode.New(cfg)
	s.p.idle = s.left
	w.decodes = append(w.decodes, s)
	s.journal = newJournal(s.p, s.w.plan.JournalBuffer)
	s.reached = s.p.now()
	s.tick()
	s.retry("watch epoch", func(cb func(error)) {
		s.p.c.watchEpoch("decode", s.p.n.id, storeTimeout, func(epoch uint64) {
			if epoch > s.peer.Epoch {
				s.stop("a younger epoch", false)
			}
		}, func(_ *epochWatch, err error) { cb(err) })
	}, func() { s.openKV(s.listen) })
}

// retry repeats try until it works or this life ends.
func (s *decodeShell) retry(what string, try func(cb func(error)), then func()) {
	if s.ended {
		return
	}
	try(func(err error) {
		switch {
		case s.ended:
		case err == nil:
			then()
		default:
			s.p.after(retryEvery, func() { s.retry(what, try, then) })
		}
	})
}

// openKV makes the KV stream, empty, and reads it.
func (s *decodeShell) openKV(then func()) {
	n := s.w.names
	s.retry("KV stream", func(cb func(error)) {
		s.p.c.ensureKV(s.peer.ID, s.peer.Epoch, storeTimeout, func(err error) {
			if err != nil || s.ended {
				cb(err)
				return
			}
			s.p.c.consume(bus.Consumer{
				Stream: n.KVStream(s.peer.ID, s.peer.Epoch), Name: "kv", Subjects: []string{n.AllKV(s.peer.ID, s.peer.Epoch)},
				AckWait: duration(kvAckWait), MaxPending: 64,
			}, false, storeTimeout, s.onKV, func(m *member, err error) {
				if err == nil {
					s.kv = m
				}
				cb(err)
			})
		})
	}, then)
}

// listen is heard of by routers last, by its first heartbeat.
func (s *decodeShell) listen() {
	n := s.w.names
	s.retry("control", func(cb func(error)) {
		s.p.c.consume(bus.Consumer{
			Stream: n.ControlStream(), Name: fmt.Sprintf("decode-%s-%d", s.peer.ID, s.peer.Epoch),
			Subjects: []string{n.AllControl("decode", s.peer.ID, s.peer.Epoch)}, AckWait: duration(kvAckWait),
		}, false, storeTimeout, s.onControl, func(m *member, err error) {
			if err == nil {
				s.members = append(s.members, m)
			}
			cb(err)
		})
	}, func() {
		s.subscribe(n.Reserve(s.peer.ID, s.peer.Epoch), func(m bus.Msg) {
			ev, err := decode.OpenReserve(s.w.keys, m.Data)
			s.ask(m, ev, err)
		})
		s.subscribe(n.Resend(s.peer.ID, s.peer.Epoch), func(m bus.Msg) {
			ev, err := decode.OpenResend(s.w.keys, m.Data)
			s.ask(m, ev, err)
		})
		s.subscribe(n.Heartbeat("router", "*"), func(m bus.Msg) {
			if ev, err := decode.OpenHeartbeat(s.w.keys, m.Data); err == nil {
				s.handle(ev)
			}
		})
		down := false
		s.unwatch = s.p.c.watch(func(st bus.State) {
			if st == bus.Up && down {
				s.remakeKV()
			}
			down = st == bus.Down
		})
		s.keepKV()
		s.ticks()
	})
}

func (s *decodeShell) subscribe(subject string, fn func(bus.Msg)) {
	s.retry("subscribe", func(cb func(error)) {
		sub, err := s.p.c.subscribe(subject, "", fn)
		if err == nil {
			s.subs = append(s.subs, sub)
		}
		cb(err)
	}, func() {})
}

func (s *decodeShell) ticks() {
	if s.ended {
		return
	}
	s.tick()
	s.p.after(decodeTick, s.ticks)
}

func (s *decodeShell) tick() { s.handle(decode.Tick{Now: s.p.now()}) }

// keepKV looks whether the stream is still there. Out of reach for two leases, it ends this life.
func (s *decodeShell) keepKV() {
	lease := s.w.lease()
	name := s.w.names.KVStream(s.peer.ID, s.peer.Epoch)
	s.p.after(lease/2, func() {
		if s.ended {
			return
		}
		if s.p.now()-s.reached >= kvtransfer.Tick(2*lease) {
			s.w.cov.mark("time-out: KV stream out of reach for two leases")
			s.stop("the KV stream is out of reach", true)
			return
		}
		s.p.c.listStreams(name, storeTimeout, func(names []string, err error) {
			switch {
			case s.ended || err != nil:
			case len(names) > 0:
				s.reached = s.p.now()
			default:
				s.remakeKV()
			}
			s.keepKV()
		})
	})
}

func (s *decodeShell) remakeKV() {
	if s.ended || s.waiting {
		return
	}
	s.waiting = true
	if s.kv != nil {
		s.kv.drain()
	}
	s.openKV(func() {
		s.waiting, s.reached = false, s.p.now()
		s.handle(decode.StreamLost{})
	})
}

// stop ends this life; again says that the process begins another, with its pages cleared.
func (s *decodeShell) stop(why string, again bool) {
	if s.ended {
		return
	}
	s.w.logf("%s stops: %s", s.peer, why)
	s.ended = true
	s.journal.close()
	for _, sub := range s.subs {
		sub.drain()
	}
	for _, m := range append(s.members, s.kv) {
		if m != nil {
			m.drain()
		}
	}
	if s.unwatch != nil {
		s.unwatch()
	}
	if !again {
		s.p.kill(0)
		if s.p.n.cur == s.p {
			s.p.n.startIn(100 * ms)
		}
		return
	}
	// Nothing of the old life may touch the pages any more: its operations are over before the next begins.
	s.dev.rest(kvtransfer.StallStop*s.w.lease(), func(ok bool) {
		if !ok {
			s.w.cov.mark("time-out: decode: device silent after a life")
		}
		if !ok || s.dev.e.Zero(s.dev.allPages()) != nil {
			s.p.kill(0)
			s.p.n.startIn(100 * ms)
			return
		}
		s.dev.shadow = newShadow(s.w, "decode", s.dev.info)
		startDecodeLife(s.p, s.dev)
	})
}

func (s *decodeShell) ask(m bus.Msg, ev decode.Event, err error) {
	if err != nil || m.Reply == "" {
		s.w.cov.mark("refused: request not signed")
		return
	}
	s.handles++
	s.asks[s.handles] = m.Reply
	switch e := ev.(type) {
	case decode.ReserveAsked:
		e.ID = s.handles
		ev = e
	case decode.ResendAsked:
		e.ID = s.handles
		ev = e
	}
	s.handle(ev)
}

func (s *decodeShell) onControl(d *delivery) {
	ev, err := decode.OpenControl(s.w.keys, d.Data)
	s.take(d, ev, err)
}

func (s *decodeShell) onKV(d *delivery) {
	ev, err := decode.OpenKV(s.w.keys, d.Data)
	s.take(d, ev, err)
}

// take hands a delivery on; one that cannot be read or is not signed is refused for good.
func (s *decodeShell) take(d *delivery, ev decode.Event, err error) {
	if s.ended {
		return
	}
	if err != nil {
		s.w.cov.mark("refused: message not signed")
		_ = d.ack()
		return
	}
	s.handles++
	s.deliveries[s.handles] = d
	switch e := ev.(type) {
	case decode.ClaimCame:
		e.Delivery = s.handles
		ev = e
	case decode.ProgressCame:
		e.Delivery = s.handles
		ev = e
	case decode.AbortCame:
		e.Delivery = s.handles
		ev = e
	case decode.CancelCame:
		e.Delivery = s.handles
		ev = e
	case decode.ManifestCame:
		e.Delivery = s.handles
		ev = e
	case decode.FrameCame:
		e.Delivery = s.handles
		ev = e
	}
	s.handle(ev)
}

// handle gives the loop an event, behind a tick, and performs what it answers.
func (s *decodeShell) handle(ev decode.Event) {
	if s.ended {
		return
	}
	if _, isTick := ev.(decode.Tick); !isTick {
		s.once(decode.Tick{Now: s.p.now()})
	}
	s.once(ev)
}

func (s *decodeShell) once(ev decode.Event) {
	s.w.note(s.peer, s.w.cov.decode(s.loop, ev))
	fxs := s.loop.Handle(ev)
	for _, fx := range fxs {
		s.w.cov.decodeEffect(fx)
		s.perform(fx)
	}
	if _, isTick := ev.(decode.Tick); !isTick || len(fxs) > 0 {
		s.w.pages.verify(s.peer, s.loop.Verify)
	}
}

// left says what is not over in this process; "" when nothing is.
func (s *decodeShell) left() string {
	switch {
	case s.ended:
		return ""
	case !s.loop.Idle():
		return fmt.Sprintf("%s is not idle:\n%s", s.peer, s.loop.Dump())
	case len(s.deliveries) > 0:
		return fmt.Sprintf("%s: %d deliveries not answered", s.peer, len(s.deliveries))
	case len(s.asks) > 0:
		return fmt.Sprintf("%s: %d requests not answered", s.peer, len(s.asks))
	}
	if n := s.dev.e.NonZero(s.dev.allPages()); n >= 0 {
		return fmt.Sprintf("%s: page %d is not zero", s.peer, n)
	}
	return ""
}
