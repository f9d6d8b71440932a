package prefill

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"quire/bus"
	"quire/bus/bustest"
	"quire/keys"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
	"quire/model/modeltest"
)

// rig is a worker on a bus in memory, with a router and a decode that the test plays.
type rig struct {
	t       *testing.T
	broker  *bustest.Broker // nil over NATS
	connect func() bus.Bus
	conn    bus.Bus // the test's own
	settle  func()  // lets what runs come to rest, where that can be known
	ring    *keys.Ring
	engine  *modeltest.Engine
	names   bus.Names
	svc     *Service
	stop    chan struct{} // ends the decode's heartbeats

	mu       sync.Mutex
	claims   map[kvtransfer.Key]kvtransfer.Claim
	aborts   map[kvtransfer.Key]kvtransfer.Abort
	frames   map[kvtransfer.Key]map[uint32]kvtransfer.Frame
	manifest map[kvtransfer.Key]kvtransfer.Manifest
	beats    []kvtransfer.Heartbeat
	silent   bool   // decode answers no claim
	target   string // of the jobs that are stored; "" = any worker
}

// start runs fn in a bubble with a worker that has joined.
func start(t *testing.T, bo bustest.Options, eo modeltest.Options, fn func(r *rig)) {
	ring, err := keys.Ensure(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ring, eo)
		r.broker, r.settle = bustest.New(bo), synctest.Wait
		defer r.broker.Close()
		r.connect = func() bus.Bus { return r.broker.Connect() }
		r.run(fn)
	})
}

func newRig(t *testing.T, ring *keys.Ring, eo modeltest.Options) *rig {
	return &rig{t: t, ring: ring, engine: modeltest.NewEngine(eo), stop: make(chan struct{}), settle: func() {},
		claims: map[kvtransfer.Key]kvtransfer.Claim{}, aborts: map[kvtransfer.Key]kvtransfer.Abort{},
		frames: map[kvtransfer.Key]map[uint32]kvtransfer.Frame{}, manifest: map[kvtransfer.Key]kvtransfer.Manifest{}}
}

// run starts the worker and what surrounds it, and ends both after fn.
func (r *rig) run(fn func(r *rig)) {
	r.conn = r.connect()
	r.must(r.conn.Streams().EnsureShared(r.t.Context()))
	r.playDecode()
	svc, err := Start(r.t.Context(), r.config())
	r.must(err)
	r.svc = svc
	defer close(r.stop)
	defer func() { r.must(r.svc.Close()) }()
	fn(r)
}

func (r *rig) config() Config {
	return Config{ID: "p1", Model: "Fake", ModelSlug: "fake", PoolNumber: 1, Slots: 2, Chunk: 8, Bus: r.connect(),
		Names: r.names, Keys: r.ring, Engine: r.engine}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) sign(role kvtransfer.Role, from kvtransfer.Peer, kind kvtransfer.Kind, m any) []byte {
	s, err := r.ring.Signer(role)
	r.must(err)
	body, err := wire.Encode(m)
	r.must(err)
	return seal.Sign(s, from, kind, body)
}

// playDecode answers claims, keeps frames and manifests, and sends heartbeats.
func (r *rig) playDecode() {
	ctx := r.t.Context()
	r.must(r.conn.Streams().EnsureKV(ctx, testDecode.ID, testDecode.Epoch))
	_, err := r.conn.Consume(ctx, bus.Consumer{Stream: r.names.ControlStream(), Name: "decode-d1",
		Subjects: []string{r.names.AllControl("decode", testDecode.ID, testDecode.Epoch)}}, r.onControl)
	r.must(err)
	_, err = r.conn.Consume(ctx, bus.Consumer{Stream: r.names.KVStream(testDecode.ID, testDecode.Epoch), Name: "kv-d1",
		Subjects: []string{r.names.AllKV(testDecode.ID, testDecode.Epoch)}}, r.onKV)
	r.must(err)
	_, err = r.conn.Subscribe(r.names.Heartbeat("prefill", "*"), "", func(m bus.Msg) {
		e, err := seal.OpenEnvelope(r.ring, m.Data)
		r.must(err)
		hb, err := wire.Decode[kvtransfer.Heartbeat](e.Body)
		r.must(err)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.beats = append(r.beats, hb)
	})
	r.must(err)
	beat := r.sign(kvtransfer.RoleDecode, testDecode, kvtransfer.KindHeartbeat, &kvtransfer.Heartbeat{Peer: testDecode, ModelSlug: "fake", Pool: "pool"})
	go func() {
		for {
			_ = r.conn.Publish(r.names.Heartbeat("decode", testDecode.ID), nil, beat)
			select {
			case <-time.After(300 * time.Millisecond):
			case <-r.stop:
				return
			}
		}
	}()
}

func (r *rig) onControl(d bus.Delivery) {
	defer d.Ack()
	e, err := seal.OpenEnvelope(r.ring, d.Data)
	r.must(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Kind {
	case kvtransfer.KindClaim:
		c, err := wire.Decode[kvtransfer.Claim](e.Body)
		r.must(err)
		r.claims[c.Key] = c
		if !r.silent {
			yes := r.sign(kvtransfer.RoleDecode, testDecode, kvtransfer.KindClaimed,
				&kvtransfer.Claimed{Key: c.Key, Claim: c.Claim, LeaseLeft: testLease, DeadlineLeft: 60 * kvtransfer.Second})
			// Without a connection the claim comes again.
			_, _ = r.conn.Enqueue(context.Background(), bus.Enqueue{Subject: r.names.Control("prefill", e.From.ID, e.From.Epoch, c.Key.String()), Data: yes})
		}
	case kvtransfer.KindAbort:
		a, err := wire.Decode[kvtransfer.Abort](e.Body)
		r.must(err)
		r.aborts[a.Key] = a
	}
}

func (r *rig) onKV(d bus.Delivery) {
	defer d.Ack()
	r.mu.Lock()
	defer r.mu.Unlock()
	if f, err := wire.DecodeFrame(d.Data); err == nil {
		if r.frames[f.Header.Key] == nil {
			r.frames[f.Header.Key] = map[uint32]kvtransfer.Frame{}
		}
		r.frames[f.Header.Key][f.Header.Index] = f
		return
	}
	e, err := seal.OpenEnvelope(r.ring, d.Data)
	r.must(err)
	m, err := wire.Decode[kvtransfer.Manifest](e.Body)
	r.must(err)
	r.manifest[m.Key] = m
}

// job publishes a job as router and decode would make it.
func (r *rig) job(id byte, n int, change func(*Job)) Job {
	j := testJob(id, n, func(j *Job) {
		j.Reservation.Fingerprints = r.engine.Info().Fingerprints
		j.Reservation.Digest = seal.PromptDigest(r.ring.PromptKey(), "acme", j.Tokens)
		if change != nil {
			change(j)
		}
	})
	res := r.sign(kvtransfer.RoleDecode, testDecode, kvtransfer.KindReservation, &j.Reservation)
	data := r.sign(kvtransfer.RoleRouter, j.Reservation.Router, kvtransfer.KindJob, &kvtransfer.Job{Reservation: res, Tokens: j.Tokens})
	r.enqueueJob(j.Reservation.Key, data)
	return j
}

// enqueueJob stores a job for r.target, or for any worker.
func (r *rig) enqueueJob(k kvtransfer.Key, data []byte) {
	target := r.target
	if target == "" {
		target = kvtransfer.AnyWorker
	}
	_, err := r.conn.Enqueue(context.Background(), bus.Enqueue{Subject: r.names.JobFor("fake", r.engine.Info().Fingerprints.Pool(), target, k.String()), Data: data})
	r.must(err)
}

// until waits for a condition, in a bubble on its clock.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
		r.settle()
		r.mu.Lock()
		done := ok()
		r.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s: not after a minute; stats %+v", what, r.svc.Stats())
		}
	}
}

// arrived waits for a manifest and checks that the frames hold what a straight computation of the prompt gives.
func (r *rig) arrived(j Job) {
	r.t.Helper()
	k := j.Reservation.Key
	r.until("manifest of "+k.String(), func() bool { return r.manifest[k].Frames > 0 })
	r.mu.Lock()
	defer r.mu.Unlock()
	m, claim := r.manifest[k], r.claims[k]
	key, err := seal.FrameKey([32]byte{k.ID[0], 0xdd}, claim.ClaimKey, j.Hash, claim.Claim)
	r.must(err)
	want := straight(r.t, r.engine.Info().Layers, j.Tokens)
	tags := make([][16]byte, m.Frames)
	for i, f := range r.frames[k] {
		plain, err := seal.OpenFrame(key, j.Hash, f.Header, f.Sealed, nil)
		r.must(err)
		if !slices.Equal(plain, want.frame(f.Header)) {
			r.t.Errorf("%s: frame %d holds other bytes than a straight computation gives", k, i)
		}
		tags[i] = seal.Tag(f.Sealed)
	}
	if m.N != len(j.Tokens) || m.Sent != m.N || m.Frames != len(r.frames[k]) || m.Digest != seal.Digest(tags) {
		r.t.Errorf("%s: manifest %+v, frames %d", k, m, len(r.frames[k]))
	}
}

// TestServiceHandsOff runs more jobs than slots to their manifests, then drains.
func TestServiceHandsOff(t *testing.T) {
	bo := bustest.Options{MaxPayload: kvtransfer.CutOverhead + 16 + 8*32} // 8 rows a frame
	start(t, bo, modeltest.Options{}, func(r *rig) {
		var jobs []Job
		for i := range 5 {
			jobs = append(jobs, r.job(byte(i+1), 1+17*i, nil))
		}
		for _, j := range jobs {
			r.arrived(j)
		}
		r.until("the jobs are acknowledged", func() bool { return len(r.broker.Stored(r.names.JobsStream())) == 0 })
		hb := r.beats[len(r.beats)-1]
		if hb.Peer != r.svc.Peer() || hb.ModelSlug != "fake" || hb.Pool != r.engine.Info().Fingerprints.Pool() || hb.Slots != 2 ||
			hb.Pages.Total != 64 || hb.MaxModelLen != 1024 {
			t.Errorf("heartbeat %+v", hb)
		}
		ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
		defer cancel()
		r.must(r.svc.Drain(ctx))
		r.until("a draining heartbeat", func() bool { return r.beats[len(r.beats)-1].Draining })
		if s := r.svc.Stats(); s.Stats.Done != 5 || s.Figures.Pages.Free != 64 || r.engine.NonZero(allPages(64)) != -1 {
			t.Errorf("after draining: %+v", s)
		}
		// A drained worker leaves jobs to others.
		r.job(9, 3, nil)
		time.Sleep(time.Second)
		if n := len(r.broker.Stored(r.names.JobsStream())); n != 1 {
			t.Errorf("%d jobs wait, want 1", n)
		}
	})
}

// TestServiceStreamTrouble lets publishes fail in every way that passes: the same bytes come again, and arrive once.
func TestServiceStreamTrouble(t *testing.T) {
	var mu sync.Mutex
	n, errs := 0, []error{bus.ErrFull, bus.ErrTimeout, bus.ErrNoStream, bus.ErrDown}
	bo := bustest.Options{MaxPayload: kvtransfer.CutOverhead + 16 + 8*32, Fail: func(op, what string) error {
		mu.Lock()
		defer mu.Unlock()
		if op != "enqueue" || !strings.Contains(what, ".kv.") {
			return nil
		}
		if n++; n%3 == 0 {
			return nil
		}
		return fmt.Errorf("bustest: %w", errs[n%len(errs)])
	}}
	start(t, bo, modeltest.Options{}, func(r *rig) {
		r.arrived(r.job(1, 50, nil))
		if s := r.svc.Stats().Stats; s.Done != 1 || s.FramesFull == 0 {
			r.until("done", func() bool { return r.svc.Stats().Stats.Done == 1 })
		}
	})
}

// TestServiceRestartOfTheBus loses what was open and takes jobs again when the server is back.
func TestServiceRestartOfTheBus(t *testing.T) {
	start(t, bustest.Options{}, modeltest.Options{}, func(r *rig) {
		r.silent = true
		r.job(1, 5, nil)
		r.until("claimed", func() bool { return len(r.claims) == 1 })
		r.broker.Stop()
		time.Sleep(12 * time.Second) // longer than the lease
		r.broker.Start()
		r.until("lost", func() bool { return r.svc.Stats().Stats.Lost == 1 })
		r.mu.Lock()
		r.silent = false
		r.mu.Unlock()
		r.arrived(r.job(2, 5, nil))
	})
}

// TestServiceRefusesJobs drops a job that nobody signed and aborts one whose tokens are not the reserved ones.
func TestServiceRefusesJobs(t *testing.T) {
	start(t, bustest.Options{}, modeltest.Options{}, func(r *rig) {
		r.enqueueJob(kvtransfer.Key{ID: kvtransfer.HandoffID{1}, Attempt: 1}, []byte("a job"))
		wrong := r.job(2, 6, func(j *Job) { j.Tokens = j.Tokens[:1] })
		r.until("abort", func() bool { return len(r.aborts) == 1 })
		a := r.aborts[wrong.Reservation.Key]
		if a.Error.Code != kvtransfer.HandoffCount || !strings.Contains(a.Error.Detail, "reserved 6, job 1") || a.Claim != r.claims[a.Key].Claim {
			t.Errorf("abort %+v", a)
		}
		r.arrived(r.job(3, 6, nil))
		r.until("counted", func() bool {
			s := r.svc.Stats().Stats
			return s.JobsUnsigned == 1 && s.JobsRefused == 1 && s.Done == 1
		})
		if n := len(r.broker.Stored(r.names.JobsStream())); n != 0 || r.engine.Steps() != 1 {
			t.Errorf("%d jobs wait, %d steps", n, r.engine.Steps())
		}
	})
}

// TestServiceTakesItsOwnJobs: a job addressed to this worker comes though its slots for everybody's are taken, one at a time and
// never without a slot; what is addressed to another is left alone.
func TestServiceTakesItsOwnJobs(t *testing.T) {
	start(t, bustest.Options{}, modeltest.Options{}, func(r *rig) {
		waiting := func() int { return len(r.broker.Stored(r.names.JobsStream())) }
		r.silent = true // claims are not answered: slots stay taken for a lease
		r.job(1, 5, nil)
		r.job(2, 5, nil)
		r.until("both slots", func() bool { return len(r.claims) == 2 })
		third := r.job(3, 5, nil)
		r.target = "p2"
		other := r.job(4, 5, nil)
		r.target = "p1"
		own := r.job(5, 5, nil)
		r.until("its own job", func() bool { return len(r.claims) == 3 })
		later := r.job(6, 5, nil)
		synctest.Wait()
		claimed := func(j Job) bool { _, ok := r.claims[j.Reservation.Key]; return ok }
		r.until("all of them in the heartbeat", func() bool {
			f := r.svc.Stats().Figures
			return f.Running == 3 && f.Slots == 2 && f.SlotsFree == 0
		})
		if !claimed(own) || claimed(third) || claimed(later) || claimed(other) {
			t.Errorf("%d claims, %d jobs stored", len(r.claims), waiting())
		}
		r.mu.Lock()
		r.silent = false
		r.mu.Unlock()
		r.arrived(third)
		r.arrived(later)
		r.until("one job left", func() bool { return waiting() == 1 })
		if claimed(other) {
			t.Error("p1 took a job for p2")
		}
		ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
		defer cancel()
		r.must(r.svc.Drain(ctx))
		r.job(7, 5, nil)
		synctest.Wait()
		if n := waiting(); n != 2 {
			t.Errorf("%d jobs wait: a drained worker takes none", n)
		}
	})
	r := newRig(t, nil, modeltest.Options{})
	if _, err := Start(t.Context(), Config{ID: kvtransfer.AnyWorker, Engine: r.engine}); err == nil || !strings.Contains(err.Error(), "any worker") {
		t.Errorf("an id that means any worker: %v", err)
	}
}

// TestServiceAbandons aborts what is open when the time for draining ends.
func TestServiceAbandons(t *testing.T) {
	start(t, bustest.Options{}, modeltest.Options{}, func(r *rig) {
		r.silent = true
		j := r.job(1, 5, nil)
		r.until("claimed", func() bool { return len(r.claims) == 1 })
		ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Second)
		defer cancel()
		if err := r.svc.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("drain: %v", err)
		}
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if a := r.aborts[j.Reservation.Key]; a.Error.Code != kvtransfer.WorkerLost {
			t.Errorf("abort %+v", a)
		}
	})
}

// TestServiceYoungerEpoch says that a worker stops when a process of its name starts.
func TestServiceYoungerEpoch(t *testing.T) {
	start(t, bustest.Options{}, modeltest.Options{}, func(r *rig) {
		younger, err := Start(r.t.Context(), r.config())
		r.must(err)
		<-r.svc.Done()
		if err := r.svc.Err(); err == nil || younger.Err() != nil || younger.Peer().Epoch <= r.svc.Peer().Epoch {
			t.Errorf("older: %v, younger: %v", err, younger.Err())
		}
		r.must(younger.Close())
		if err := younger.Err(); err != nil {
			t.Errorf("after Close: %v", err)
		}
	})
}

// TestServiceStopsOnABrokenDevice says that pages that cannot be zeroed end the worker.
func TestServiceStopsOnABrokenDevice(t *testing.T) {
	tried := false
	eo := modeltest.Options{Fail: func(op string) error {
		if op == "zero" && tried {
			return errors.New("modeltest: out of luck")
		}
		tried = tried || op == "zero" // a worker tries its pool before it starts
		return nil
	}}
	start(t, bustest.Options{}, eo, func(r *rig) {
		r.job(1, 5, nil)
		<-r.svc.Done()
		var e kvtransfer.Error
		if !errors.As(r.svc.Err(), &e) || e.Code != kvtransfer.DeviceFailed {
			t.Errorf("stopped with %v", r.svc.Err())
		}
	})
}

// TestServiceWaitsForItsStreams starts a worker before the bus has its streams, and gives up when the caller does.
func TestServiceWaitsForItsStreams(t *testing.T) {
	ring, err := keys.Ensure(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ring, modeltest.Options{})
		r.broker = bustest.New(bustest.Options{})
		r.connect = func() bus.Bus { return r.broker.Connect() }
		defer r.broker.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := Start(ctx, r.config()); !errors.Is(err, bus.ErrNoStream) {
			t.Errorf("without streams: %v", err)
		}
		go func() {
			time.Sleep(3 * time.Second)
			if err := r.broker.Connect().Streams().EnsureShared(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		svc, err := Start(t.Context(), r.config())
		r.must(err)
		r.must(svc.Close())
		r.must(svc.Close())
	})
}
