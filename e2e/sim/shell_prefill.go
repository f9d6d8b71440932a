package sim

import (
	"errors"
	"fmt"

	"quire/bus"
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/kvtransfer/seal"
	"quire/model"
	"quire/model/modeltest"
	"quire/prefill"
)

// prefillShell stands for prefill's service.
type prefillShell struct {
	w     *World
	p     *proc
	peer  kvtransfer.Peer
	dev   *device
	loop  *prefill.Loop
	rogue *rogue // nil in an honest one

	claimed map[kvtransfer.ClaimID]bool // said to be the one by decode

	deliveries map[uint64]*delivery
	handles    uint64
	jobs, own  jobQueue // for all, and for this worker
	ended      bool

	control, frames, steps, zeros crew
}

const (
	prefillTick = 50 * ms
	prefillBeat = 250 * ms
	jobAckWait  = 3 * sec
)

// bootPrefill starts a prefill process; its memory is fresh.
func bootPrefill(o modeltest.Options, strange bool) func(*proc) {
	return func(p *proc) {
		s := &prefillShell{w: p.w, p: p, dev: newDevice(p, o, strange), deliveries: map[uint64]*delivery{},
			claimed: map[kvtransfer.ClaimID]bool{}, control: crew{size: 1}, frames: crew{size: 4}, steps: crew{size: 1}, zeros: crew{size: 1}}
		s.rogue = p.w.roguePrefill(p.n)
		p.w.devices = append(p.w.devices, s.dev)
		s.retry(func(cb func(error)) {
			p.c.nextEpoch("prefill", p.n.id, storeTimeout, func(epoch uint64, err error) {
				if err == nil {
					s.peer = kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: p.n.id, Epoch: epoch}
					p.peer = s.peer
				}
				cb(err)
			})
		}, s.live)
	}
}

func (s *prefillShell) retry(try func(cb func(error)), then func()) {
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

func (s *prefillShell) live() {
	cfg := s.w.plan.prefill
	cfg.Peer, cfg.Info, cfg.Pool, cfg.PromptKey, cfg.Entropy = s.peer, s.dev.info, prefillPool, s.w.keys.promptKey(), s.w.entropy
	cfg.KeyPair, cfg.Lease = s.w.keyPair, s.w.plan.decode.Lease
	s.loop = prefill.New(cfg)
	s.p.idle = s.left
	s.w.prefills = append(s.w.prefills, s)
	s.handle(prefill.Tick{Now: s.p.now()})
	s.ticks()
	s.beats()
	n := s.w.names
	s.retry(func(cb func(error)) {
		_, err := s.p.c.subscribe(n.Heartbeat("decode", "*"), "", func(m bus.Msg) {
			if ev, err := prefill.OpenHeartbeat(s.w.keys, m.Data); err == nil {
				s.handle(ev)
			}
		})
		cb(err)
	}, s.watch)
}

func (s *prefillShell) watch() {
	n := s.w.names
	control := bus.Consumer{Stream: n.ControlStream(), Name: fmt.Sprintf("prefill-%s-%d", s.peer.ID, s.peer.Epoch),
		Subjects: []string{n.AllControl("prefill", s.peer.ID, s.peer.Epoch)}, AckWait: duration(kvAckWait)}
	pool := s.dev.info.Fingerprints.Pool()
	jobs := bus.Consumer{Stream: n.JobsStream(), Name: "jobs-fake-" + pool, Subjects: []string{n.AllJobs("fake", pool)},
		MaxDeliver: 1, AckWait: duration(jobAckWait), MaxPending: 1024}
	own := jobs
	own.Name, own.Subjects = jobs.Name+"-"+s.peer.ID, []string{n.JobsFor("fake", pool, s.peer.ID)}
	s.retry(func(cb func(error)) {
		s.p.c.watchEpoch("prefill", s.peer.ID, storeTimeout, func(epoch uint64) {
			if epoch > s.peer.Epoch {
				s.stop("a younger epoch")
			}
		}, func(_ *epochWatch, err error) { cb(err) })
	}, func() {
		s.retry(func(cb func(error)) {
			s.p.c.consume(control, false, storeTimeout, s.onControl, func(_ *member, err error) { cb(err) })
		}, func() {
			s.retry(func(cb func(error)) {
				s.p.c.consume(own, true, storeTimeout, func(d *delivery) { s.onJob(d, true) }, s.own.reads(cb))
			}, func() {
				s.own.start()
				s.retry(func(cb func(error)) {
					s.p.c.consume(jobs, true, storeTimeout, func(d *delivery) { s.onJob(d, false) }, s.jobs.reads(cb))
				}, s.jobs.start)
			})
		})
	})
}

func (s *prefillShell) ticks() {
	if !s.ended {
		s.handle(prefill.Tick{Now: s.p.now()})
		s.p.after(prefillTick, s.ticks)
	}
}

func (s *prefillShell) beats() {
	if s.ended {
		return
	}
	f, prints := s.loop.Figures(), s.dev.info.Fingerprints
	s.w.pages.beat(s.peer, f.Pages)
	m := kvtransfer.Heartbeat{Peer: s.peer, Model: "fake", ModelSlug: "fake", Pool: prints.Pool(), Fingerprints: prints,
		MaxModelLen: f.MaxModelLen, PageSize: s.dev.info.PageSize, Pages: f.Pages, Slots: f.Slots, SlotsFree: f.SlotsFree,
		Running: f.Running, Draining: f.Draining}
	if !f.Silent {
		_ = s.p.c.publish(bus.Msg{Subject: s.w.names.Heartbeat("prefill", s.peer.ID), Data: s.sign(kvtransfer.KindHeartbeat, &m)})
	}
	s.p.after(prefillBeat, s.beats)
}

func (s *prefillShell) sign(kind kvtransfer.Kind, m any) []byte {
	return seal.Sign(s.w.keys.signer("prefill"), s.peer, kind, s.w.encode(m))
}

func (s *prefillShell) stop(why string) {
	if s.ended {
		return
	}
	s.w.logf("%s stops: %s", s.peer, why)
	s.ended = true
	s.p.kill(0)
	if s.p.n.cur == s.p {
		s.p.n.startIn(100 * ms)
	}
}

// jobQueue is one of a prefill's two consumers of jobs.
type jobQueue struct {
	m    *member
	want int // jobs asked for before the consumer was there
}

func (q *jobQueue) reads(cb func(error)) func(*member, error) {
	return func(m *member, err error) {
		q.m = m
		cb(err)
	}
}

func (q *jobQueue) start() {
	for ; q.want > 0; q.want-- {
		q.m.want()
	}
}

func (q *jobQueue) pull() {
	if q.m == nil {
		q.want++
		return
	}
	q.m.want()
}

// onJob verifies a job. One that nobody signed is terminated.
func (s *prefillShell) onJob(d *delivery, direct bool) {
	if s.ended {
		return
	}
	job, err := prefill.OpenJob(s.w.keys, d.Data)
	if err != nil {
		s.w.cov.mark("refused: job not signed")
		_ = d.ack()
		s.handle(prefill.JobRefused{Direct: direct})
		return
	}
	s.handles++
	job.Delivery, job.Direct = s.handles, direct
	s.deliveries[job.Delivery] = d
	s.handle(job)
}

func (s *prefillShell) onControl(d *delivery) {
	if s.ended {
		return
	}
	ev, err := prefill.OpenControl(s.w.keys, d.Data)
	if err == nil {
		s.handle(ev)
	} else {
		s.w.cov.mark("refused: message not signed")
	}
	_ = d.ack()
}

func (s *prefillShell) handle(ev prefill.Event) {
	if s.ended {
		return
	}
	if _, isTick := ev.(prefill.Tick); !isTick {
		s.once(prefill.Tick{Now: s.p.now()})
	}
	s.once(ev)
}

func (s *prefillShell) once(ev prefill.Event) {
	if s.ended {
		return
	}
	s.w.note(s.peer, s.w.cov.prefill(s.loop, ev))
	if c, ok := ev.(prefill.Claimed); ok {
		s.claimed[c.Msg.Claim] = true
	}
	fxs := s.loop.Handle(ev)
	for _, fx := range fxs {
		s.w.cov.prefillEffect(fx)
		s.perform(fx)
	}
	if _, isTick := ev.(prefill.Tick); !isTick || len(fxs) > 0 {
		s.w.pages.verify(s.peer, s.loop.Verify)
	}
}

func (s *prefillShell) perform(fx prefill.Effect) {
	switch fx := fx.(type) {
	case prefill.PullJob:
		if fx.Direct {
			s.own.pull()
		} else {
			s.jobs.pull()
		}
	case prefill.AckJob:
		if d, ok := s.deliveries[fx.Delivery]; ok {
			delete(s.deliveries, fx.Delivery)
			_ = d.ack()
		}
	case prefill.SendClaim:
		s.sendControl(fx.To, kvtransfer.KindClaim, fx.Msg.Key, s.rogue.claim(fx.Msg))
	case prefill.SendProgress:
		s.sendControl(fx.To, kvtransfer.KindProgress, fx.Msg.Key, &fx.Msg)
	case prefill.SendAbort:
		s.sendControl(fx.To, kvtransfer.KindAbort, fx.Msg.Key, &fx.Msg)
	case prefill.Compute:
		s.job(&s.steps, func() prefill.Event { return s.compute(fx) })
	case prefill.SealAndSend:
		if !s.claimed[fx.Frame.Claim] {
			s.w.fail("writes", "%s sends frame %d of %s before decode said Claimed", s.peer, fx.Frame.Index, fx.Frame.Key)
		}
		s.frames.push(func(done func()) { s.sendFrame(fx, done) })
	case prefill.SendManifest:
		s.frames.push(func(done func()) { s.sendManifest(fx, done) })
	case prefill.Zero:
		s.job(&s.zeros, func() prefill.Event {
			ids := append([]page.ID(nil), fx.Pages...)
			return prefill.Zeroed{Pages: ids, Err: s.dev.zero(ids)}
		})
	case prefill.Halt:
		s.w.stopped(s.peer, fx.Error)
		s.stop(fx.Error.Detail)
	}
}

func (s *prefillShell) job(c *crew, op func() prefill.Event) {
	c.push(func(done func()) {
		var ev prefill.Event
		s.dev.do(func() { ev = op() }, func() { s.handle(ev); done() })
	})
}

func (s *prefillShell) sendControl(to kvtransfer.Peer, kind kvtransfer.Kind, k kvtransfer.Key, m any) {
	s.control.push(func(done func()) {
		s.p.c.enqueue(bus.Enqueue{Subject: s.w.names.Control(string(to.Role), to.ID, to.Epoch, k.String()), Data: s.sign(kind, m),
			Expect: s.w.names.ControlStream()}, storeTimeout, func(uint64, error) { done() })
	})
}

func (s *prefillShell) compute(fx prefill.Compute) prefill.Event {
	work := append([]model.Work(nil), fx.Work...)
	keys := make([]kvtransfer.Key, len(work))
	for i, q := range work {
		keys[i] = kvtransfer.Key{ID: q.Grant.Owner().Handoff, Attempt: q.Grant.Owner().Attempt}
		work[i].Tokens = s.rogue.tokens(q.Tokens)
	}
	res, err := s.dev.step(keys, work)
	done := prefill.ChunkDone{Step: fx.Step, Err: err}
	for _, r := range res {
		done.Hidden = append(done.Hidden, r.Hidden)
	}
	return done
}

// sendFrame reads a frame's rows, seals and stores them.
func (s *prefillShell) sendFrame(fx prefill.SealAndSend, done func()) {
	h := fx.Header
	var plain []byte
	var err error
	s.dev.do(func() {
		plain, err = s.dev.read(h.Key, fx.View, model.Range{LayerFrom: h.LayerFrom, LayerTo: h.LayerTo, RowFrom: h.RowFrom, RowTo: h.RowTo})
	}, func() {
		if err != nil {
			s.handle(prefill.FrameFailed{Frame: fx.Frame, Error: kvtransfer.Errorf(kvtransfer.DeviceFailed, "prefill: read frame %d: %v", h.Index, err)})
			done()
			return
		}
		fx, plain, extra := s.rogue.frame(fx, plain)
		data, tag := prefill.SealFrame(fx, plain)
		if more := s.rogue.beside(data); more != nil {
			extra = append(extra, more)
		}
		s.handle(prefill.FrameSealed{Frame: fx.Frame})
		for _, more := range extra {
			s.p.c.enqueue(s.toKV(fx.To, h.Key, "", more), storeTimeout, func(uint64, error) {})
		}
		if s.rogue.withholds() {
			data = nil
		}
		s.store(fx.To, h.Key, fx.MsgID, data, func(err error) {
			switch {
			case err == nil:
				s.handle(prefill.FrameStored{Frame: fx.Frame, Tag: tag})
			case errors.Is(err, bus.ErrTooLarge):
				s.handle(prefill.FrameFailed{Frame: fx.Frame, Sealed: true, Error: kvtransfer.Errorf(kvtransfer.BusFailed, "prefill: frame %d: %v", h.Index, err)})
			default:
				s.handle(prefill.FrameFull{Frame: fx.Frame})
			}
			done()
		})
	})
}

func (s *prefillShell) sendManifest(fx prefill.SendManifest, done func()) {
	k, c := fx.Msg.Key, fx.Msg.Claim
	m := s.rogue.manifest(fx.Msg)
	if other, lies := s.rogue.second(m); lies {
		s.p.after(1*ms, func() {
			s.p.c.enqueue(s.toKV(fx.To, k, "", s.sign(kvtransfer.KindManifest, &other)), storeTimeout, func(uint64, error) {})
		})
	}
	s.store(fx.To, k, fx.MsgID, s.sign(kvtransfer.KindManifest, &m), func(err error) {
		switch {
		case err == nil:
			s.handle(prefill.ManifestStored{Key: k, Claim: c})
		case errors.Is(err, bus.ErrTooLarge):
			s.handle(prefill.ManifestFailed{Key: k, Claim: c, Error: kvtransfer.Errorf(kvtransfer.BusFailed, "prefill: manifest: %v", err)})
		default:
			s.handle(prefill.ManifestFull{Key: k, Claim: c})
		}
		done()
	})
}

func (s *prefillShell) toKV(to kvtransfer.Peer, k kvtransfer.Key, id string, data []byte) bus.Enqueue {
	return bus.Enqueue{Subject: s.w.names.KV(to.ID, to.Epoch, k.String()), ID: id, Data: data, Expect: s.w.names.KVStream(to.ID, to.Epoch)}
}

// store publishes to decode's stream; no data means that a rogue only says so. What the stream has already is stored.
func (s *prefillShell) store(to kvtransfer.Peer, k kvtransfer.Key, id string, data []byte, cb func(error)) {
	if len(data) == 0 {
		s.p.after(1*ms, func() { cb(nil) })
		return
	}
	s.p.c.enqueue(s.toKV(to, k, id, data), storeTimeout, func(_ uint64, err error) {
		if errors.Is(err, bus.ErrDuplicate) {
			err = nil
		}
		cb(err)
	})
}

// left says what is not over in this process; "" when nothing is.
func (s *prefillShell) left() string {
	f := s.loop.Figures()
	switch {
	case s.ended:
		return ""
	case f.Running > 0 || f.Pages.Free != f.Pages.Total:
		return fmt.Sprintf("%s is not idle:\n%s", s.peer, s.loop.Dump())
	case len(s.deliveries) > 0:
		return fmt.Sprintf("%s: %d jobs not answered", s.peer, len(s.deliveries))
	}
	if n := s.dev.e.NonZero(s.dev.allPages()); n >= 0 {
		return fmt.Sprintf("%s: page %d is not zero", s.peer, n)
	}
	return ""
}
