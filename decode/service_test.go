package decode

import (
	"context"
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"quire/bus"
	"quire/bus/bustest"
	"quire/journal"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
	"quire/model"
	"quire/model/modeltest"
)

// testKeys has one key per role, made of its name.
type testKeys struct{}

func roleKey(r kvtransfer.Role) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	copy(seed, r)
	return ed25519.NewKeyFromSeed(seed)
}

func (testKeys) Verify(r kvtransfer.Role, msg, sig []byte) bool {
	return ed25519.Verify(roleKey(r).Public().(ed25519.PublicKey), msg, sig)
}
func (testKeys) Signer(r kvtransfer.Role) (seal.Signer, error) { return roleSigner(r), nil }
func (testKeys) PromptKey() [32]byte                           { return cluster }

type roleSigner kvtransfer.Role

func (r roleSigner) Sign(msg []byte) []byte { return ed25519.Sign(roleKey(kvtransfer.Role(r)), msg) }

// site is a service over a fake bus, and the router and the prefill worker that talk to it.
type site struct {
	t       *testing.T
	w       *world // for prefill's sums
	broker  *bustest.Broker
	conn    *bustest.Conn
	names   bus.Names
	s       *Service
	control chan wire.Envelope
	replies chan kvtransfer.Reply
	alive   bool // the router sends heartbeats
	ended   chan struct{}
}

// inSite runs a test in a bubble, on its own clock.
func inSite(t *testing.T, change func(*Config), fn func(*site)) {
	synctest.Test(t, func(t *testing.T) {
		x := &site{
			t: t, broker: bustest.New(bustest.Options{}), control: make(chan wire.Envelope, 100), replies: make(chan kvtransfer.Reply, 1000),
			alive: true, ended: make(chan struct{}),
		}
		x.w = &world{t: t, o: modeltest.Options{Pages: 8, PageSize: 4, Vocab: 50}}
		x.w.eng = modeltest.NewEngine(x.w.o)
		x.conn = x.broker.Connect()
		ctx := t.Context()
		if err := x.conn.Streams().EnsureShared(ctx); err != nil {
			t.Fatal(err)
		}
		x.listen()
		cfg := Config{
			ID: "d1", Model: "fake", ModelSlug: "fake", Pool: 1, MaxOpen: 4, Bus: x.broker.Connect(), Keys: testKeys{}, Engine: x.w.eng,
			NewPicker: func(Picking) *model.Picker { return &model.Picker{} },
		}
		if change != nil {
			change(&cfg)
		}
		var err error
		if x.s, err = Start(ctx, cfg); err != nil {
			t.Fatal(err)
		}
		go x.beat()
		fn(x)
		close(x.ended)
		if err := x.s.Close(); err != nil {
			t.Error(err)
		}
		x.broker.Close()
	})
}

// listen takes what decode sends: replies to the router, control messages to prefill.
func (x *site) listen() {
	_, err := x.conn.Subscribe(x.names.AllReplies(router.ID, router.Epoch), "", func(m bus.Msg) {
		if r, err := wire.DecodeReply(m.Data); err != nil {
			x.t.Error(err)
		} else {
			x.replies <- r
		}
	})
	if err != nil {
		x.t.Fatal(err)
	}
	c := bus.Consumer{
		Stream: x.names.ControlStream(), Name: "p1", Subjects: []string{x.names.AllControl(string(worker.Role), worker.ID, worker.Epoch)},
	}
	_, err = x.conn.Consume(x.t.Context(), c, func(d bus.Delivery) {
		e, err := seal.OpenEnvelope(testKeys{}, d.Data)
		if err != nil {
			x.t.Error(err)
		}
		x.control <- e
		_ = d.Ack()
	})
	if err != nil {
		x.t.Fatal(err)
	}
}

// beat is the router's heartbeat.
func (x *site) beat() {
	for {
		select {
		case <-x.ended:
			return
		case <-time.After(400 * time.Millisecond):
		}
		if x.alive {
			m := kvtransfer.Heartbeat{Peer: router}
			_ = x.conn.Publish(x.names.Heartbeat(string(router.Role), router.ID), nil, x.signed(router, kvtransfer.KindHeartbeat, &m))
		}
	}
}

func (x *site) signed(from kvtransfer.Peer, kind kvtransfer.Kind, m any) []byte {
	x.t.Helper()
	body, err := wire.Encode(m)
	if err != nil {
		x.t.Fatal(err)
	}
	return seal.Sign(roleSigner(from.Role), from, kind, body)
}

// request asks decode and opens what it answers.
func (x *site) request(subject string, data []byte) (wire.Envelope, error) {
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Second)
	defer cancel()
	m, err := x.conn.Request(ctx, subject, data)
	if err != nil {
		return wire.Envelope{}, err
	}
	return seal.OpenEnvelope(testKeys{}, m.Data)
}

// reserve gets a reservation and makes a job of it.
func (x *site) reserve(k kvtransfer.Key, tokens []int32, max int) *job {
	x.t.Helper()
	m := x.w.reserveMessage(k, "acme", tokens, max)
	e, err := x.request(x.names.Reserve("d1", x.s.Peer().Epoch), x.signed(router, kvtransfer.KindReserve, &m))
	if err != nil || e.Kind != kvtransfer.KindReservation {
		x.t.Fatalf("reserve: kind %d, %v", e.Kind, err)
	}
	res, err := wire.Decode[kvtransfer.Reservation](e.Body)
	if err != nil {
		x.t.Fatal(err)
	}
	return &job{res: res, hash: seal.HashReservation(e.Body), tokens: tokens, from: worker}
}

func (x *site) store(m bus.Enqueue) {
	x.t.Helper()
	if _, err := x.conn.Enqueue(x.t.Context(), m); err != nil {
		x.t.Fatal(err)
	}
}

func (x *site) toDecode(j *job, kind kvtransfer.Kind, m any) {
	x.t.Helper()
	d := j.res.Decode
	x.store(bus.Enqueue{
		Subject: x.names.Control(string(d.Role), d.ID, d.Epoch, j.res.Key.String()), Data: x.signed(worker, kind, m), Expect: x.names.ControlStream(),
	})
}

// claim takes a job and waits for Claimed.
func (x *site) claim(j *job) {
	x.t.Helper()
	j.claim = kvtransfer.Claim{Key: j.res.Key, Claim: kvtransfer.ClaimID{0xc0}, ClaimKey: seal.PublicKey(privP), Reservation: j.hash}
	key, err := seal.FrameKey(privP, j.res.DecodeKey, j.hash, j.claim.Claim)
	if err != nil {
		x.t.Fatal(err)
	}
	j.key = key
	j.cut(x.w, x.w.compute(j.tokens), 2)
	x.toDecode(j, kvtransfer.KindClaim, &j.claim)
	if e := <-x.control; e.Kind != kvtransfer.KindClaimed || e.From != j.res.Decode {
		x.t.Fatalf("claim: answered with kind %d from %s", e.Kind, e.From)
	}
}

func (x *site) kv(j *job, data []byte) {
	x.t.Helper()
	d := j.res.Decode
	x.store(bus.Enqueue{Subject: x.names.KV(d.ID, d.Epoch, j.res.Key.String()), Data: data, Expect: x.names.KVStream(d.ID, d.Epoch)})
}

// transfer sends frames and manifest.
func (x *site) transfer(j *job) {
	x.t.Helper()
	for _, f := range j.frames {
		x.kv(j, wire.EncodeFrame(f))
	}
	x.w.jobs = map[kvtransfer.Key]*job{j.res.Key: j}
	m := x.w.statement(j.res.Key)
	x.kv(j, x.signed(worker, kvtransfer.KindManifest, &m))
}

// reply waits for a reply and opens it.
func (x *site) reply(j *job) (kvtransfer.ReplyHeader, kvtransfer.ReplyBody) {
	x.t.Helper()
	var r kvtransfer.Reply
	select {
	case r = <-x.replies:
	case <-time.After(time.Minute):
		x.t.Fatalf("no reply within a minute; %+v", x.s.Stats())
	}
	return r.Header, x.openReply(j, r)
}

func (x *site) openReply(j *job, r kvtransfer.Reply) kvtransfer.ReplyBody {
	x.t.Helper()
	key, err := seal.ReplyKey(privR, r.Header.DecodeKey, j.hash)
	if err != nil {
		x.t.Fatal(err)
	}
	body, err := seal.OpenReply(key, r.Header, r.Sealed)
	if err != nil {
		x.t.Fatal(err)
	}
	b, err := wire.Decode[kvtransfer.ReplyBody](body)
	if err != nil {
		x.t.Fatal(err)
	}
	return b
}

// answer collects replies to the end.
func (x *site) answer(j *job) (ids []int32, end *kvtransfer.End, outcome *kvtransfer.Outcome) {
	x.t.Helper()
	for end == nil && (outcome == nil || outcome.OK) {
		_, b := x.reply(j)
		for _, t := range b.Tokens {
			ids = append(ids, t.ID)
		}
		if b.Outcome != nil {
			outcome = b.Outcome
		}
		end = b.End
	}
	return ids, end, outcome
}

func (x *site) resend(j *job, from uint32, ack bool) kvtransfer.Resent {
	x.t.Helper()
	m := kvtransfer.Resend{Key: j.res.Key, From: from, Ack: ack}
	e, err := x.request(x.names.Resend("d1", x.s.Peer().Epoch), x.signed(router, kvtransfer.KindResend, &m))
	if err != nil {
		x.t.Fatal(err)
	}
	r, err := wire.Decode[kvtransfer.Resent](e.Body)
	if err != nil {
		x.t.Fatal(err)
	}
	return r
}

// whole runs one request and compares its answer with that of a fresh process.
func (x *site) whole(n, salt, max int) *job {
	x.t.Helper()
	tokens := prompt(n, salt)
	j := x.reserve(key(salt), tokens, max)
	x.claim(j)
	x.transfer(j)
	ids, end, outcome := x.answer(j)
	if outcome == nil || !outcome.OK || end == nil || end.Finish != kvtransfer.FinishLength {
		x.t.Fatalf("outcome %+v, end %+v", outcome, end)
	}
	if want := x.w.expected(tokens, max); !equal(ids, want) {
		x.t.Fatalf("answered %v, want %v", ids, want)
	}
	return j
}

func equal(a, b []int32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestServiceHandsOff(t *testing.T) {
	inSite(t, nil, func(x *site) {
		j := x.whole(6, 1, 3)
		r := x.resend(j, 1, false)
		if !r.Known || r.Next != 5 || len(r.Replies) != 4 {
			t.Fatalf("resent known=%t next=%d replies=%d", r.Known, r.Next, len(r.Replies))
		}
		if b := x.openReply(j, r.Replies[3]); b.End == nil || b.End.Replies != 5 {
			t.Errorf("last reply %+v", b)
		}
		x.resend(j, 5, true)
		if r := x.resend(j, 0, false); r.Known {
			t.Error("known after the end was acknowledged")
		}
		if err := x.s.Drain(x.t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the last facts are on their way
		var kinds []string
		for _, m := range x.broker.Stored(x.names.JournalStream()) {
			for _, b := range journal.Split(m.Data) {
				rec, err := journal.Decode(b)
				if err != nil {
					t.Fatal(err)
				}
				kinds = append(kinds, string(rec.Kind))
				if v, ok := rec.Facts.(journal.Verdict); ok && (!v.OK || v.N != 6 || v.Sent != 6) {
					t.Errorf("verdict %+v", v)
				}
			}
		}
		if got := strings.Join(kinds, " "); got != "started reserved claimed verdict witness finished zeroed" {
			t.Errorf("journal holds %s", got)
		}
		if left := x.broker.Stored(x.names.KVStream("d1", 1)); len(left) > 0 {
			t.Errorf("%d messages left in the KV stream", len(left))
		}
		if left := x.broker.Stored(x.names.ControlStream()); len(left) > 0 {
			t.Errorf("%d control messages left", len(left))
		}
		if x.s.Stats().Peer != x.s.Peer() || x.s.Err() != nil {
			t.Errorf("stats %+v, err %v", x.s.Stats(), x.s.Err())
		}
	})
}

// What is not signed by the right role changes nothing and gets no answer.
func TestServiceIgnoresForgeries(t *testing.T) {
	inSite(t, nil, func(x *site) {
		m := x.w.reserveMessage(key(1), "acme", prompt(6, 1), 2)
		body, err := wire.Encode(&m)
		if err != nil {
			t.Fatal(err)
		}
		forged := seal.Sign(roleSigner(kvtransfer.RolePrefill), router, kvtransfer.KindReserve, body)
		if _, err := x.request(x.names.Reserve("d1", 1), forged); !errors.Is(err, bus.ErrTimeout) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("forged reserve: %v", err)
		}
		j := x.reserve(key(1), prompt(6, 1), 2)
		x.claim(j)
		x.kv(j, []byte("garbage"))
		bad := j.frames[0]
		bad.Sealed = append([]byte(nil), bad.Sealed...)
		bad.Sealed[3] ^= 1
		x.kv(j, wire.EncodeFrame(bad))
		x.transfer(j)
		if ids, _, _ := x.answer(j); !equal(ids, x.w.expected(j.tokens, 2)) {
			t.Errorf("answered %v", ids)
		}
	})
}

// A manifest of one token for six reserved is refused with both numbers, and no step runs.
func TestServiceRefusesOneTokenManifest(t *testing.T) {
	inSite(t, nil, func(x *site) {
		j := x.reserve(key(1), prompt(6, 1), 2)
		x.claim(j)
		for _, f := range j.frames {
			x.kv(j, wire.EncodeFrame(f))
		}
		x.w.jobs = map[kvtransfer.Key]*job{j.res.Key: j}
		m := x.w.statement(j.res.Key)
		m.N, m.Sent, m.Pages = 1, 1, 1
		x.kv(j, x.signed(worker, kvtransfer.KindManifest, &m))
		ids, _, outcome := x.answer(j)
		if outcome.OK || outcome.Error.Detail != "token count: reserved 6, manifest 1" || len(ids) > 0 || x.w.eng.Steps() > 0 {
			t.Errorf("outcome %+v, tokens %d, steps %d", outcome, len(ids), x.w.eng.Steps())
		}
		if e := <-x.control; e.Kind != kvtransfer.KindGone {
			t.Errorf("prefill was told kind %d", e.Kind)
		}
	})
}

// A restart of the server loses the KV stream: what was being filled is Lost, what comes after works.
func TestServiceSurvivesBusRestart(t *testing.T) {
	inSite(t, nil, func(x *site) {
		j := x.reserve(key(1), prompt(6, 1), 2)
		x.claim(j)
		x.kv(j, wire.EncodeFrame(j.frames[0]))
		synctest.Wait()
		x.broker.Stop()
		time.Sleep(time.Second)
		x.broker.Start()
		_, _, outcome := x.answer(j)
		if outcome.OK || outcome.Error.Class() != kvtransfer.ClassLost {
			t.Fatalf("outcome %+v", outcome)
		}
		if e := <-x.control; e.Kind != kvtransfer.KindGone {
			t.Errorf("prefill was told kind %d", e.Kind)
		}
		x.whole(5, 2, 2)
		if x.s.Peer().Epoch != 1 {
			t.Errorf("epoch %d", x.s.Peer().Epoch)
		}
	})
}

// A worker whose KV stream was out of reach for longer than a lease goes on under a new epoch.
func TestServiceStartsNewEpoch(t *testing.T) {
	inSite(t, nil, func(x *site) {
		j := x.reserve(key(1), prompt(6, 1), 2)
		x.claim(j)
		x.broker.Stop()
		time.Sleep(time.Minute)
		x.broker.Start()
		for x.s.Peer().Epoch == 1 {
			time.Sleep(time.Second)
		}
		x.whole(5, 2, 2)
	})
}

// A younger process of the same name ends this one.
func TestServiceYieldsToYoungerEpoch(t *testing.T) {
	inSite(t, nil, func(x *site) {
		if _, err := x.conn.Streams().NextEpoch(x.t.Context(), "decode", "d1"); err != nil {
			t.Fatal(err)
		}
		<-x.s.Done()
		if err := x.s.Err(); err == nil || !strings.Contains(err.Error(), "epoch 2 has started") {
			t.Errorf("err %v", err)
		}
	})
}

// A router that falls silent has its requests cancelled and their pages freed.
func TestServiceCancelsForSilentRouter(t *testing.T) {
	inSite(t, nil, func(x *site) {
		x.alive = false
		x.reserve(key(1), prompt(6, 1), 2)
		time.Sleep(12 * time.Second)
		if p := x.s.Stats().Heartbeat.Pages; p.Free != p.Total {
			t.Errorf("pages %+v", p)
		}
	})
}

func TestStartRefuses(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{ID: "d1", Pool: 1, Keys: testKeys{}}, "no tokenizer"},
		{Config{ID: "d1", Keys: testKeys{}, NewPicker: func(Picking) *model.Picker { return nil }}, "pool number 0"},
	} {
		if _, err := Start(t.Context(), c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// Without a journal no kernel runs: the verdict must be acknowledged first.
func TestServiceWithoutJournal(t *testing.T) {
	inSite(t, nil, func(x *site) {
		x.s.life.Load().journal.Close(x.t.Context()) // takes no facts from now on
		j := x.reserve(key(1), prompt(6, 1), 2)
		x.claim(j)
		x.transfer(j)
		ids, _, outcome := x.answer(j)
		if outcome.OK || outcome.Error.Code != kvtransfer.JournalDown || len(ids) > 0 || x.w.eng.Steps() > 0 {
			t.Errorf("outcome %+v, tokens %d, steps %d", outcome, len(ids), x.w.eng.Steps())
		}
	})
}
