package router

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"quire/bus"
	"quire/bus/bustest"
	"quire/journal"
	"quire/keys"
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
	"quire/router/openai"
)

var names = bus.Names{Prefix: "quire"}

// words is a tokenizer for tests: one id for each word, its length.
type words struct{}

func (words) Encode(text string, _ bool) []int32 {
	var ids []int32
	for _, w := range strings.Fields(text) {
		ids = append(ids, int32(len(w)))
	}
	return ids
}

func (w words) Chat(messages []openai.Message, _ openai.ChatOptions) ([]int32, error) {
	var ids []int32
	for _, m := range messages {
		ids = append(ids, w.Encode(m.Content, false)...)
	}
	return ids, nil
}
func (words) Decode(ids []int32) string { return strings.Repeat("x ", len(ids)) }
func (words) Piece(int32) []byte        { return []byte("x") }
func (words) Vocab() int                { return 100 }

// fakeDecode plays an honest decode and its prefill: it promises, waits for the job, and answers with the prompt's own tokens.
type fakeDecode struct {
	t      *testing.T
	conn   *bustest.Conn
	ring   *keys.Ring
	signer seal.Signer
	peer   kvtransfer.Peer

	mu      sync.Mutex
	open    map[kvtransfer.Key]*fakeHandoff
	acked   chan kvtransfer.Key
	lose    int // every so manyth reply is not sent
	sent    int
	outcome kvtransfer.Error // what the gate says; zero = OK
	mute    bool             // answers nothing after the outcome, no resend either
	refuse  kvtransfer.Error
}

type fakeHandoff struct {
	reserve kvtransfer.Reserve
	body    []byte
	key     [32]byte
	public  [32]byte
	replies []kvtransfer.Reply
}

func newFakeDecode(t *testing.T, broker *bustest.Broker, ring *keys.Ring) *fakeDecode {
	t.Helper()
	signer, err := ring.Signer(kvtransfer.RoleDecode)
	if err != nil {
		t.Fatal(err)
	}
	d := &fakeDecode{t: t, conn: broker.Connect(), ring: ring, signer: signer, peer: kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 1},
		open: map[kvtransfer.Key]*fakeHandoff{}, acked: make(chan kvtransfer.Key, 16)}
	for subject, fn := range map[string]func(bus.Msg){
		names.Reserve("d1", 1): d.onReserve, names.Resend("d1", 1): d.onResend,
	} {
		if _, err := d.conn.Subscribe(subject, "", fn); err != nil {
			t.Fatal(err)
		}
	}
	jobs := bus.Consumer{Stream: names.JobsStream(), Name: "p1", Subjects: []string{names.AllJobs("m", "*")}, MaxDeliver: 1}
	if _, err := d.conn.Consume(t.Context(), jobs, func(m bus.Delivery) {
		d.onJob(m.Msg)
		if err := m.Ack(); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return d
}

// beat sends a heartbeat of the decode and of a prefill.
func (d *fakeDecode) beat() {
	p, _ := d.ring.Signer(kvtransfer.RolePrefill)
	for _, hb := range []kvtransfer.Heartbeat{beatOf(kvtransfer.RoleDecode, "d1", 1, 64, 8), beatOf(kvtransfer.RolePrefill, "p1", 1, 64, 8)} {
		signer := d.signer
		if hb.Peer.Role == kvtransfer.RolePrefill {
			signer = p
		}
		body, err := wire.Encode(hb)
		if err != nil {
			d.t.Error(err)
		}
		if err := d.conn.Publish(names.Heartbeat(string(hb.Peer.Role), hb.Peer.ID), nil, seal.Sign(signer, hb.Peer, kvtransfer.KindHeartbeat, body)); err != nil && !errors.Is(err, bus.ErrDown) {
			d.t.Error(err)
		}
	}
}

func (d *fakeDecode) answer(m bus.Msg, kind kvtransfer.Kind, v any) []byte {
	body, err := wire.Encode(v)
	if err != nil {
		d.t.Error(err)
	}
	if err := d.conn.Publish(m.Reply, nil, seal.Sign(d.signer, d.peer, kind, body)); err != nil {
		d.t.Error(err)
	}
	return body
}

func (d *fakeDecode) onReserve(m bus.Msg) {
	env, err := seal.OpenEnvelope(d.ring, m.Data)
	if err != nil {
		d.t.Error(err)
		return
	}
	r, err := wire.Decode[kvtransfer.Reserve](env.Body)
	if err != nil || r.Digest != seal.PromptDigest(d.ring.PromptKey(), r.Tenant, r.Tokens) {
		d.t.Errorf("reserve: %v, digest of %d tokens", err, len(r.Tokens))
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.refuse.IsZero() {
		d.answer(m, kvtransfer.KindRefused, kvtransfer.Refused{Key: r.Key, Error: d.refuse})
		return
	}
	var private [32]byte
	private[0] = byte(r.Key.Attempt)
	h := &fakeHandoff{reserve: r, public: seal.PublicKey(private)}
	h.body = d.answer(m, kvtransfer.KindReservation, kvtransfer.Reservation{
		Key: r.Key, Decode: d.peer, Router: r.Router, Tenant: r.Tenant, N: len(r.Tokens), MaxTokens: r.MaxTokens, Digest: r.Digest,
		Pages: make([]page.Slot, (len(r.Tokens)+r.MaxTokens+3)/4), PageSize: 4, Fingerprints: r.Fingerprints, Lease: kvtransfer.Second, DecodeKey: h.public,
	})
	if h.key, err = seal.ReplyKey(private, r.RouterKey, seal.HashReservation(h.body)); err != nil {
		d.t.Error(err)
	}
	d.open[r.Key] = h
}

// onJob plays the whole hand-off.
func (d *fakeDecode) onJob(m bus.Msg) {
	env, err := seal.OpenEnvelope(d.ring, m.Data)
	if err != nil || env.Kind != kvtransfer.KindJob {
		d.t.Errorf("job: %v", err)
		return
	}
	job, err := wire.Decode[kvtransfer.Job](env.Body)
	if err != nil {
		d.t.Error(err)
		return
	}
	inner, err := seal.OpenEnvelope(d.ring, job.Reservation)
	if err != nil {
		d.t.Errorf("the reservation in the job: %v", err)
		return
	}
	rv, err := wire.Decode[kvtransfer.Reservation](inner.Body)
	if err != nil {
		d.t.Error(err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.open[rv.Key]
	if !d.outcome.IsZero() {
		d.reply(h, kvtransfer.ReplyBody{Outcome: &kvtransfer.Outcome{Error: d.outcome}})
		return
	}
	d.reply(h, good())
	if d.mute {
		return
	}
	n := h.reserve.MaxTokens
	for i := range n {
		d.reply(h, tokens(int32(len(h.reserve.Tokens)-h.reserve.Prompt+i)))
	}
	made := len(h.reserve.Tokens) - h.reserve.Prompt + n
	d.reply(h, kvtransfer.ReplyBody{End: &kvtransfer.End{Finish: kvtransfer.FinishLength, Prompt: h.reserve.Prompt, Output: made, Replies: uint32(n) + 2}})
}

func (d *fakeDecode) reply(h *fakeHandoff, body kvtransfer.ReplyBody) {
	b, err := wire.Encode(body)
	if err != nil {
		d.t.Error(err)
	}
	r := kvtransfer.Reply{Header: kvtransfer.ReplyHeader{Key: h.reserve.Key, Number: uint32(len(h.replies)), DecodeKey: h.public}}
	r.Sealed = seal.SealReply(h.key, r.Header, b)
	h.replies = append(h.replies, r)
	if d.sent++; d.lose > 0 && d.sent%d.lose == 0 {
		return
	}
	to := h.reserve.Router
	if err := d.conn.Publish(names.Reply(to.ID, to.Epoch, h.reserve.Key.String()), nil, wire.EncodeReply(r)); err != nil {
		d.t.Error(err)
	}
}

func (d *fakeDecode) onResend(m bus.Msg) {
	env, err := seal.OpenEnvelope(d.ring, m.Data)
	if err != nil {
		d.t.Error(err)
		return
	}
	r, err := wire.Decode[kvtransfer.Resend](env.Body)
	if err != nil {
		d.t.Error(err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.open[r.Key]
	if d.mute && !r.Ack {
		return
	}
	out := kvtransfer.Resent{Key: r.Key, Known: h != nil}
	if h != nil {
		out.Next = uint32(len(h.replies))
		for n := r.From; n < out.Next && !r.Ack; n++ {
			out.Replies = append(out.Replies, h.replies[n])
		}
	}
	d.answer(m, kvtransfer.KindResent, out)
	if r.Ack && h != nil {
		delete(d.open, r.Key)
		d.acked <- r.Key
	}
}

// bench is a router over a fake bus with a fake decode, in a bubble.
type bench struct {
	*testing.T
	broker *bustest.Broker
	ring   *keys.Ring
	decode *fakeDecode
	router *Service
	stop   context.CancelFunc
}

func withRouter(t *testing.T, test func(b *bench)) {
	ring, err := keys.Ensure(t.TempDir() + "/keys")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, broker: bustest.New(bustest.Options{Names: names}), ring: ring}
		b.router = b.start("r1")
		b.decode = newFakeDecode(t, b.broker, ring)
		ctx, stop := context.WithCancel(context.Background())
		b.stop = stop
		var beats sync.WaitGroup
		beats.Go(func() {
			for ctx.Err() == nil {
				b.decode.beat()
				select {
				case <-time.After(250 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
		defer func() {
			stop()
			beats.Wait()
			if err := b.router.Close(); err != nil {
				t.Error(err)
			}
			b.broker.Close()
		}()
		synctest.Wait()
		test(b)
	})
}

func (b *bench) start(id string) *Service {
	var f kvtransfer.Fingerprints
	f.Model[0] = 1
	s, err := Start(b.Context(), Config{ID: id, Served: Served{Name: "m", Fingerprint: f.Model, Context: 200}, Text: words{}, Bus: b.broker.Connect(), Names: names, Keys: b.ring})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func textRequest(tenant string, maxTokens int) Request {
	return Request{Tenant: tenant, Body: openai.Request{Op: openai.OpCompletion, Prompt: "a bb ccc", MaxTokens: maxTokens, Sampling: kvtransfer.Sampling{Logprobs: -1}}}
}

// drainStream reads an answer to its end.
func drainStream(t *testing.T, st Stream) (ids []int32, end *kvtransfer.End, err error) {
	t.Helper()
	started := false
	for {
		p, err := st.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return ids, end, nil
		}
		if err != nil {
			return ids, end, err
		}
		if !p.Started && !started {
			t.Error("something before the verdict")
		}
		started = true
		for _, tok := range p.Tokens {
			ids = append(ids, tok.ID)
		}
		if p.End != nil {
			end = p.End
		}
	}
}

func TestServiceAnswers(t *testing.T) {
	for _, lose := range []int{0, 2, 3} {
		withRouter(t, func(b *bench) {
			b.decode.lose = lose
			st, err := b.router.Submit(b.Context(), textRequest("ann", 5))
			if err != nil {
				b.Fatal(err)
			}
			ids, end, err := drainStream(b.T, st)
			if err != nil || len(ids) != 5 || end == nil || end.Output != 5 || end.Prompt != 3 {
				b.Fatalf("lose %d: %v, %v, %+v", lose, ids, err, end)
			}
			for i, id := range ids {
				if id != int32(i) {
					b.Errorf("lose %d: token %d is %d", lose, i, id)
				}
			}
			<-b.decode.acked
			if router, epoch, _, ok := parseID(st.ID()); !ok || router != "r1" || epoch != b.router.Peer().Epoch {
				b.Errorf("id %q", st.ID())
			}
			synctest.Wait()
			var records [][]byte // those that waited for each other share a message
			for _, m := range b.broker.Stored(names.JournalStream()) {
				records = append(records, journal.Split(m.Data)...)
			}
			if len(records) != 3 { // started, job, finished
				b.Fatalf("%d records", len(records))
			}
			r, err := journal.Decode(records[2])
			if f, ok := r.Facts.(journal.Finished); err != nil || !ok || f.Finish != "length" || f.Output != 5 || r.Tenant != "ann" {
				b.Errorf("%v %+v", err, r)
			}
		})
	}
}

// TestServiceRefusal: the gate's refusal reaches the client as an error, with its numbers, and no Started.
func TestServiceRefusal(t *testing.T) {
	withRouter(t, func(b *bench) {
		b.decode.outcome = kvtransfer.Errorf(kvtransfer.HandoffCount, "token count: reserved 600, manifest 1")
		st, err := b.router.Submit(b.Context(), textRequest("ann", 5))
		if err != nil {
			b.Fatal(err)
		}
		_, err = st.Next(b.Context())
		e, _ := AsError(err)
		if e.Code != kvtransfer.HandoffRefused || !strings.Contains(e.Detail, "reserved 600, manifest 1") {
			b.Errorf("%v", err)
		}
		if _, err := st.Next(b.Context()); !errors.Is(err, io.EOF) {
			b.Errorf("after the end: %v", err)
		}
	})
}

func TestServiceAdmission(t *testing.T) {
	withRouter(t, func(b *bench) {
		_, err := b.router.Submit(b.Context(), textRequest("ann", 198))
		if e, _ := AsError(err); e.Code != kvtransfer.ContextLengthExceeded || !strings.Contains(e.Detail, "model context") {
			b.Errorf("%v", err)
		}
		for _, tenant := range []string{"", "Ann", "a.b", strings.Repeat("a", 33)} {
			if e, _ := AsError(submitErr(b, tenant)); e.Code != kvtransfer.NotAllowed {
				b.Errorf("tenant %q: %v", tenant, e)
			}
		}
		if m := b.router.Model(); m.MaxModelLen != 200 || m.LimitedBy != "model context" {
			b.Errorf("%+v", m)
		}
		if h := b.router.Health(); h.Stuck != "" || len(h.Missing) != 0 {
			b.Errorf("%+v", h)
		}
		b.stop() // no more heartbeats
		time.Sleep(4 * time.Second)
		if h := b.router.Health(); strings.Join(h.Missing, ",") != "prefill,decode" {
			b.Errorf("%+v", h)
		}
		_, err = b.router.Submit(b.Context(), textRequest("ann", 5))
		if e, _ := AsError(err); e.Code != kvtransfer.NoPrefill {
			b.Errorf("%v", err)
		}
	})
}

func submitErr(b *bench, tenant string) error {
	_, err := b.router.Submit(b.Context(), textRequest(tenant, 5))
	return err
}

// TestServiceLost: a decode that falls silent loses the attempt, three times, and then the client is told.
func TestServiceLost(t *testing.T) {
	withRouter(t, func(b *bench) {
		b.decode.mute = true
		start := time.Now()
		st, err := b.router.Submit(b.Context(), textRequest("ann", 5))
		if err != nil {
			b.Fatal(err)
		}
		_, _, err = drainStream(b.T, st)
		if e, _ := AsError(err); e.Code != kvtransfer.WorkerLost {
			b.Errorf("%v", err)
		}
		if took := time.Since(start); took < 9*time.Second || took > 25*time.Second {
			b.Errorf("it took %v", took)
		}
	})
}

// TestServiceClientGone: the end of the client's context ends the attempt at decode.
func TestServiceClientGone(t *testing.T) {
	withRouter(t, func(b *bench) {
		b.decode.mute = true
		ctx, cancel := context.WithCancel(b.Context())
		st, err := b.router.Submit(ctx, textRequest("ann", 5))
		if err != nil {
			b.Fatal(err)
		}
		if p, err := st.Next(ctx); err != nil || !p.Started {
			b.Fatal(p, err)
		}
		cancel()
		<-b.decode.acked
		synctest.Wait()
		if s := b.router.Stats(); s.Running != 0 {
			time.Sleep(100 * time.Millisecond)
			if s = b.router.Stats(); s.Running != 0 {
				b.Errorf("%+v", s)
			}
		}
		if n := len(b.broker.Stored(names.ControlStream())); n != 1 {
			b.Errorf("%d cancels stored", n)
		}
	})
}

// TestServiceCancel: by exact id and tenant, from the router that owns the request and from another.
func TestServiceCancel(t *testing.T) {
	withRouter(t, func(b *bench) {
		other := b.start("r2")
		defer other.Close()
		b.decode.mute = true
		for _, asked := range []*Service{b.router, other} {
			st, err := b.router.Submit(b.Context(), textRequest("ann", 5))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := st.Next(b.Context()); err != nil {
				b.Fatal(err)
			}
			if got, err := asked.Status(b.Context(), "ann", st.ID()); err != nil || got.State != "running" || got.ID != st.ID() {
				b.Errorf("%+v, %v", got, err)
			}
			for _, wrong := range [][2]string{{"bob", st.ID()}, {"", st.ID()}, {"ann", "r1-99-" + strings.Repeat("0", 32)}, {"ann", "r9-1-" + strings.Repeat("0", 32)}} {
				if e, _ := AsError(asked.Cancel(b.Context(), wrong[0], wrong[1])); e.Code != kvtransfer.NotFound {
					b.Errorf("%v: %v", wrong, e)
				}
			}
			for _, bad := range []string{"", st.ID()[:len(st.ID())-1], "x" + strings.Repeat("0", 32), strings.ToUpper(st.ID()), "*-1-" + strings.Repeat("0", 31)} {
				if e, _ := AsError(asked.Cancel(b.Context(), "ann", bad)); e.Code != kvtransfer.InvalidRequest && e.Code != kvtransfer.NotFound {
					b.Errorf("%q: %v", bad, e)
				}
			}
			if err := asked.Cancel(b.Context(), "ann", st.ID()); err != nil {
				b.Error(err)
			}
			_, _, err = drainStream(b.T, st)
			if e, _ := AsError(err); e.Code != kvtransfer.Cancelled {
				b.Errorf("%v", err)
			}
		}
	})
}

// TestServiceDrain: what runs may end; what is new is refused; what does not end in time is told.
func TestServiceDrain(t *testing.T) {
	withRouter(t, func(b *bench) {
		b.decode.mute = true
		st, err := b.router.Submit(b.Context(), textRequest("ann", 5))
		if err != nil {
			b.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, _, err := drainStream(b.T, st)
			ended <- err
		}()
		ctx, cancel := context.WithTimeout(b.Context(), 2*time.Second)
		defer cancel()
		drained := make(chan error, 1)
		go func() { drained <- b.router.Drain(ctx) }()
		synctest.Wait()
		_, err = b.router.Submit(b.Context(), textRequest("ann", 5))
		if e, _ := AsError(err); e.Code != kvtransfer.Draining {
			b.Errorf("%v", err)
		}
		if err := <-drained; err != nil {
			b.Error(err)
		}
		if e, _ := AsError(<-ended); e.Code != kvtransfer.Draining {
			b.Errorf("%v", e)
		}
	})
}

// TestServiceBusRestart: an answer under way when the server goes and comes back is completed.
func TestServiceBusRestart(t *testing.T) {
	withRouter(t, func(b *bench) {
		b.broker.Stop()
		synctest.Wait()
		_, err := b.router.Submit(b.Context(), textRequest("ann", 5))
		if e, _ := AsError(err); e.Code != kvtransfer.BusDown {
			b.Errorf("%v", err)
		}
		if h := b.router.Health(); len(h.Missing) == 0 || h.Missing[0] != "bus" {
			b.Errorf("%+v", h)
		}
		b.broker.Start()
		time.Sleep(500 * time.Millisecond)
		st, err := b.router.Submit(b.Context(), textRequest("ann", 5))
		if err != nil {
			b.Fatal(err)
		}
		if ids, _, err := drainStream(b.T, st); err != nil || len(ids) != 5 {
			b.Errorf("%v %v", ids, err)
		}
	})
}

// TestServiceYounger: a router that sees a younger life of its name stops.
func TestServiceYounger(t *testing.T) {
	withRouter(t, func(b *bench) {
		younger := b.start("r1")
		defer younger.Close()
		<-b.router.Done()
		if b.router.Err() == nil || younger.Err() != nil {
			b.Errorf("%v, %v", b.router.Err(), younger.Err())
		}
		_, err := b.router.Submit(b.Context(), textRequest("ann", 5))
		if e, _ := AsError(err); e.Code != kvtransfer.Draining {
			b.Errorf("%v", err)
		}
	})
}

// TestServiceMetrics: what a request leaves behind in the metrics, and no tenant.
func TestServiceMetrics(t *testing.T) {
	withRouter(t, func(b *bench) {
		st, err := b.router.Submit(b.Context(), textRequest("ann-the-tenant", 5))
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := drainStream(b.T, st); err != nil {
			b.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		var text strings.Builder
		b.router.WriteMetrics(&text)
		for _, want := range []string{"quire_requests_total 1\n", "quire_generation_tokens_total 5\n", "quire_prompt_tokens_total 3\n", `quire_requests_finished_total{reason="length"} 1`,
			"quire_time_to_first_token_seconds_count 1", "quire_max_model_len_tokens 200"} {
			if !strings.Contains(text.String(), want) {
				b.Errorf("no %q in\n%s", want, text.String())
			}
		}
		if strings.Contains(text.String(), "ann") {
			b.Error("a tenant in the metrics")
		}
	})
}
