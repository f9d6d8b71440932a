package sim

import (
	"errors"
	"fmt"

	"quire/bus"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
	"quire/router"
)

// routerShell stands for the router's service.
type routerShell struct {
	w     *World
	p     *proc
	peer  kvtransfer.Peer
	loop  *router.Loop
	rogue *rogue
	keys  map[kvtransfer.Key]*replyKey
	asks  map[uint64]*ask // of clients, by ref
	ref   uint64
	ended bool
	ready bool // clients reach it

	journal *journalWriter
}

// replyKey is an attempt's key: half of it is made with the Reserve, the other half comes with the reservation.
type replyKey struct {
	pair        seal.KeyPair
	decode, key [32]byte
	ready       bool
}

const (
	routerTick  = 100 * ms
	routerBeat  = 250 * ms
	callTimeout = 400 * ms
)

func bootRouter(p *proc) {
	s := &routerShell{w: p.w, p: p, keys: map[kvtransfer.Key]*replyKey{}, asks: map[uint64]*ask{}}
	s.rogue = p.w.rogueRouter(p.n)
	p.died = append(p.died, s.lost)
	s.retry(func(cb func(error)) {
		p.c.ensureShared(storeTimeout, func(err error) {
			if err != nil {
				cb(err)
				return
			}
			p.c.nextEpoch("router", p.n.id, storeTimeout, func(epoch uint64, err error) {
				if err == nil {
					s.peer = kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: p.n.id, Epoch: epoch}
					p.peer = s.peer
				}
				cb(err)
			})
		})
	}, s.live)
}

func (s *routerShell) retry(try func(cb func(error)), then func()) {
	if s.ended {
		return
	}
	try(func(err error) {
		switch {
		case s.ended:
		case err == nil:
			then()
		default:
			s.p.after(retryEvery, func() { s.retry(try, then) })
		}
	})
}

func (s *routerShell) live() {
	s.loop = router.New(router.LoopConfig{Router: s.peer, Policy: s.w.plan.router, Entropy: s.w.entropy, Digest: s.w.digest})
	s.p.idle = s.left
	s.journal = newJournal(s.p, 1024)
	s.w.routers = append(s.w.routers, s)
	n := s.w.names
	s.retry(func(cb func(error)) {
		_, err := s.p.c.subscribe(n.AllReplies(s.peer.ID, s.peer.Epoch), "", s.onReply)
		if err == nil {
			_, err = s.p.c.subscribe(n.AllHeartbeats(), "", s.onHeartbeat)
		}
		cb(err)
	}, func() {
		s.p.c.watch(func(st bus.State) {
			s.handle(router.BusChanged{Up: st == bus.Up, MaxPayload: min(s.w.bus.maxPayload, wire.MaxMessage)})
		})
		s.ticks()
		s.beats()
		s.retry(func(cb func(error)) {
			s.p.c.watchEpoch("router", s.peer.ID, storeTimeout, func(epoch uint64) {
				if epoch > s.peer.Epoch {
					s.stop("a younger epoch")
				}
			}, func(_ *epochWatch, err error) { cb(err) })
		}, func() { s.ready = true })
	})
}

func (s *routerShell) ticks() {
	if !s.ended {
		s.handle(router.Tick{Now: s.p.now()})
		s.p.after(routerTick, s.ticks)
	}
}

func (s *routerShell) beats() {
	if s.ended {
		return
	}
	_ = s.p.c.publish(bus.Msg{Subject: s.w.names.Heartbeat("router", s.peer.ID),
		Data: s.sign(kvtransfer.KindHeartbeat, &kvtransfer.Heartbeat{Peer: s.peer, Model: "fake"})})
	s.p.after(routerBeat, s.beats)
}

func (s *routerShell) sign(kind kvtransfer.Kind, m any) []byte {
	return seal.Sign(s.w.keys.signer("router"), s.peer, kind, s.w.encode(m))
}

// stop ends the process: what is open ends with an error, as the service does it.
func (s *routerShell) stop(why string) {
	if s.ended {
		return
	}
	s.w.logf("%s stops: %s", s.peer, why)
	for _, a := range s.w.clients.of(s) {
		a.finish(kvtransfer.End{Error: kvtransfer.Errorf(kvtransfer.Draining, "router: stopped")})
	}
	s.p.kill(0)
	if s.p.n.cur == s.p {
		s.p.n.startIn(100 * ms)
	}
}

// lost is what clients see of a router that died.
func (s *routerShell) lost() {
	s.ended, s.ready = true, false
	for _, a := range s.w.clients.of(s) {
		a.routerDied = true
	}
}

func (s *routerShell) handle(ev router.Event) {
	if s.ended {
		return
	}
	if _, isTick := ev.(router.Tick); !isTick {
		s.loop.Now(s.p.now())
	}
	s.w.note(s.peer, s.w.cov.router(s.loop, ev))
	fxs := s.loop.Handle(ev)
	for _, fx := range fxs {
		s.w.cov.routerEffect(fx)
		s.perform(fx)
	}
	if _, isTick := ev.(router.Tick); !isTick || len(fxs) > 0 {
		s.w.pages.verify(s.peer, s.loop.Verify)
	}
}

func (s *routerShell) perform(fx router.Effect) {
	switch e := fx.(type) {
	case router.Accept, router.Begin, router.Give, router.Finish:
		s.tell(fx)
	case router.SendReserve:
		s.reserve(e)
	case router.StoreJob:
		s.storeJob(e)
	case router.DropJob:
		s.p.c.deleteMessage(s.w.names.JobsStream(), e.Sequence, storeTimeout, func(error) {})
	case router.AskResend:
		s.resend(e)
	case router.SendCancel:
		s.p.c.enqueue(bus.Enqueue{
			Subject: s.w.names.Control("decode", e.To.ID, e.To.Epoch, e.Key.String()),
			Data:    s.sign(kvtransfer.KindCancel, &kvtransfer.Cancel{Key: e.Key, Error: e.Error}), Expect: s.w.names.ControlStream(),
		}, storeTimeout, func(uint64, error) {})
	case router.Forget:
		delete(s.keys, e.Key)
	case router.Record:
		s.w.cov.finished(e.Finished)
		s.journal.put("finished", s.peer, e.Finished.Key)
	}
}

// tell passes on what a client is to know.
func (s *routerShell) tell(fx router.Effect) {
	switch e := fx.(type) {
	case router.Accept:
		if a := s.asks[e.Ref]; a != nil {
			a.accepted, a.id, a.seed, a.most = true, e.ID, e.Seed, e.MaxTokens
		}
	case router.Begin:
		if a := s.asks[e.Ref]; a != nil {
			a.begun++
		}
	case router.Give:
		if a := s.asks[e.Ref]; a != nil {
			a.give(e.Tokens)
		}
	case router.Finish:
		if a := s.asks[e.Ref]; a != nil {
			switch {
			case s.w.plant == plantTwoEnds:
				a.finish(e.End)
			case s.w.plant == plantNoEnd && e.End.Error.IsZero():
				return
			}
			a.finish(e.End)
		}
	}
}

// ask sends a signed request to a decode and gives its answer, if that decode signed it.
func (s *routerShell) ask(to kvtransfer.Peer, subject string, data []byte, cb func(wire.Envelope, router.BusFault)) {
	s.p.c.request(bus.Msg{Subject: subject, Data: data}, callTimeout, func(m bus.Msg, err error) {
		if err != nil {
			cb(wire.Envelope{}, fault(err))
			return
		}
		env, err := seal.OpenEnvelope(s.w.keys, m.Data)
		if err != nil || env.From != to {
			cb(wire.Envelope{}, router.FaultInvalid)
			return
		}
		cb(env, router.FaultNone)
	})
}

func fault(err error) router.BusFault {
	switch {
	case errors.Is(err, bus.ErrNoResponders):
		return router.FaultNobody
	case errors.Is(err, bus.ErrTooLarge):
		return router.FaultTooLarge
	case errors.Is(err, bus.ErrTimeout):
		return router.FaultTimeout
	}
	return router.FaultFailed
}

func (s *routerShell) reserve(e router.SendReserve) {
	if s.keys[e.Key] == nil {
		s.keys[e.Key] = &replyKey{pair: s.w.keyPair(e.Seed)}
	}
	e.Reserve.RouterKey = s.keys[e.Key].pair.Public()
	m := s.rogue.reserve(e.Reserve)
	s.ask(e.To, s.w.names.Reserve(e.To.ID, e.To.Epoch), s.sign(kvtransfer.KindReserve, &m), func(env wire.Envelope, bad router.BusFault) {
		s.handle(s.reserved(e.Key, env, bad))
	})
}

func (s *routerShell) reserved(k kvtransfer.Key, env wire.Envelope, bad router.BusFault) router.Reserved {
	out := router.Reserved{Key: k, Err: bad}
	switch {
	case bad != router.FaultNone:
	case env.Kind == kvtransfer.KindRefused:
		r, err := wire.Decode[kvtransfer.Refused](env.Body)
		if err != nil || r.Key != k || r.Error.IsZero() {
			out.Err = router.FaultInvalid
		}
		out.Refused = r.Error
	case env.Kind == kvtransfer.KindReservation:
		rv, err := wire.Decode[kvtransfer.Reservation](env.Body)
		if err == nil {
			err = s.bind(k, seal.HashReservation(env.Body), rv.DecodeKey)
		}
		if err != nil {
			out.Err = router.FaultInvalid
			return out
		}
		out.Reservation, out.Envelope = &rv, append(append([]byte(nil), env.Signed...), env.Sig...)
	default:
		out.Err = router.FaultInvalid
	}
	return out
}

func (s *routerShell) bind(k kvtransfer.Key, hash, decode [32]byte) error {
	r := s.keys[k]
	if r == nil {
		return fmt.Errorf("sim: reply key of %s: the attempt is over", k)
	}
	key, err := seal.PairReplyKey(r.pair, decode, hash)
	r.decode, r.key, r.ready = decode, key, err == nil
	return err
}

func (s *routerShell) storeJob(e router.StoreJob) {
	if e.Target != kvtransfer.AnyWorker {
		s.w.cov.mark("job for one prefill")
	}
	job := s.rogue.job(kvtransfer.Job{Reservation: e.Reservation, Tokens: e.Tokens})
	s.p.c.enqueue(bus.Enqueue{Subject: s.w.names.JobFor(e.Model, e.Pool, e.Target, e.Key.String()), ID: "job." + e.Key.String(),
		Data: s.sign(kvtransfer.KindJob, &job), Expect: s.w.names.JobsStream()}, storeTimeout, func(seq uint64, err error) {
		out := router.JobStored{Key: e.Key, Sequence: seq}
		if err != nil && !errors.Is(err, bus.ErrDuplicate) {
			out.Err = fault(err)
		}
		s.handle(out)
	})
}

func (s *routerShell) resend(e router.AskResend) {
	data := s.sign(kvtransfer.KindResend, &kvtransfer.Resend{Key: e.Key, From: e.From, Ack: e.Ack})
	s.ask(e.To, s.w.names.Resend(e.To.ID, e.To.Epoch), data, func(env wire.Envelope, bad router.BusFault) {
		out := router.Resent{Key: e.Key, Err: bad}
		if bad == router.FaultNone {
			m, err := wire.Decode[kvtransfer.Resent](env.Body)
			if err != nil || env.Kind != kvtransfer.KindResent || m.Key != e.Key {
				out.Err = router.FaultInvalid
			} else {
				out.Known, out.Next = m.Known, m.Next
				for _, r := range m.Replies {
					if body, err := s.open(r); err == nil && r.Header.Key == e.Key {
						out.Replies = append(out.Replies, router.Replied{Key: r.Header.Key, Number: r.Header.Number, Body: body})
					}
				}
			}
		}
		s.handle(out)
	})
}

func (s *routerShell) open(r kvtransfer.Reply) (kvtransfer.ReplyBody, error) {
	k := s.keys[r.Header.Key]
	if k == nil || !k.ready || k.decode != r.Header.DecodeKey {
		return kvtransfer.ReplyBody{}, fmt.Errorf("sim: reply %d of %s: no such attempt", r.Header.Number, r.Header.Key)
	}
	plain, err := seal.OpenReply(k.key, r.Header, r.Sealed)
	if err != nil {
		return kvtransfer.ReplyBody{}, err
	}
	return wire.Decode[kvtransfer.ReplyBody](plain)
}

// onReply opens a reply; what does not open changes nothing.
func (s *routerShell) onReply(m bus.Msg) {
	r, err := wire.DecodeReply(m.Data)
	if err == nil {
		var body kvtransfer.ReplyBody
		if body, err = s.open(r); err == nil {
			s.handle(router.Replied{Key: r.Header.Key, Number: r.Header.Number, Body: body})
			return
		}
	}
	s.w.cov.mark("refused: reply not opened")
}

func (s *routerShell) onHeartbeat(m bus.Msg) {
	env, err := seal.OpenEnvelope(s.w.keys, m.Data)
	if err != nil || env.Kind != kvtransfer.KindHeartbeat || env.From.Role != kvtransfer.RolePrefill && env.From.Role != kvtransfer.RoleDecode {
		return
	}
	if hb, err := wire.Decode[kvtransfer.Heartbeat](env.Body); err == nil && hb.Peer == env.From {
		s.handle(router.Heard{Heartbeat: hb})
	}
}

// left says what is not over in this process; "" when nothing is.
func (s *routerShell) left() string {
	st := s.loop.Stats()
	if s.ended || st.Queued+st.Prefilling+st.Running+st.Closing == 0 && len(s.keys) == 0 {
		return ""
	}
	return fmt.Sprintf("%s is not idle: %d reply keys\n%s", s.peer, len(s.keys), s.loop.Dump())
}
