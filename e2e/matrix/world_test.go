package matrix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"quire/bus"
	"quire/bus/jet"
	"quire/decode"
	"quire/keys"
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/model"
	"quire/model/modeltest"
	"quire/prefill"
	"quire/router"
	"quire/router/openai"
)

// The pool of decode holds one request, so that whoever comes next gets the pages that the last one had.
const (
	promptLen = 10
	maxTokens = 4
	pageSize  = 4
	pages     = (promptLen + maxTokens + pageSize - 1) / pageSize
	lease     = 1500 * kvtransfer.Millisecond
	patience  = 40 * time.Second // of one wait, on a machine with other things to do
)

var fake = modeltest.Options{Pages: pages, PageSize: pageSize, Vocab: 50}

// words stands for a tokenizer: prompts are token ids here.
type words struct{}

func (words) Encode(string, bool) []int32                                { return []int32{1} }
func (words) Chat([]openai.Message, openai.ChatOptions) ([]int32, error) { return []int32{1}, nil }
func (words) Decode(ids []int32) string                                  { return strings.Repeat("x", len(ids)) }
func (words) Piece(int32) []byte                                         { return []byte("x") }
func (words) Vocab() int                                                 { return fake.Vocab }

// worker is one life of a decode or a prefill.
type worker struct {
	tap    *tap
	engine *modeltest.Engine
	conn   *jet.Conn
}

// world is a cluster whose every message goes through a tap.
type world struct {
	ctx    context.Context
	server *jet.Server
	ring   *keys.Ring
	net    *network

	router   *router.Service
	front    *tap
	decode   *decode.Service
	d        worker
	prefills [2]*prefill.Service
	p        [2]worker
	stops    []func()
	frozen   sync.RWMutex // a witness takes place when nobody has locked it
	epoch    uint64       // of decode when the message was held
	past     uint64       // what the lives that are over have refused
}

var pools atomic.Uint64

func newWorld(ctx context.Context, server *jet.Server, ring *keys.Ring, prefix string) (*world, error) {
	w := &world{ctx: ctx, server: server, ring: ring, net: &network{names: bus.Names{Prefix: prefix}, keys: ring}}
	conn, err := w.connect("router/r1")
	if err != nil {
		return w, err
	}
	w.front = w.net.tap(conn, "router")
	policy := router.Policy{Silence: 900 * kvtransfer.Millisecond, LostAfter: 1200 * kvtransfer.Millisecond, Grace: 40 * kvtransfer.Second, MaxAttempts: 12}
	w.router, err = router.Start(ctx, router.Config{
		ID: "r1", Served: router.Served{Name: "fake", Fingerprint: modeltest.NewEngine(fake).Info().Fingerprints.Model, Context: 4096},
		Text: words{}, Policy: policy, Bus: w.front, Names: w.net.names, Keys: ring,
	})
	if err != nil {
		return w, err
	}
	w.stops = append(w.stops, func() { _ = w.router.Close() })
	if err := w.startDecode(); err != nil {
		return w, err
	}
	return w, errors.Join(w.startPrefill(0), w.startPrefill(1))
}

func (w *world) connect(name string) (*jet.Conn, error) {
	c, err := jet.Connect(w.ctx, jet.ConnectOptions{Server: w.server, Name: name, Names: w.net.names})
	if err != nil {
		return nil, err
	}
	w.stops = append(w.stops, func() { _ = c.Close() })
	return c, nil
}

// newWorker makes what one life of a worker needs.
func (w *world) newWorker(name string) (worker, uint64, error) {
	conn, err := w.connect(name)
	if err != nil {
		return worker{}, 0, err
	}
	o := fake
	o.Pool = pools.Add(1)
	o.Fail = func(op string) error {
		if op == "witness" {
			w.frozen.RLock()
			defer w.frozen.RUnlock()
		}
		return nil
	}
	return worker{tap: w.net.tap(conn, name), engine: modeltest.NewEngine(o), conn: conn}, o.Pool, nil
}

func (w *world) startDecode() error {
	var pool uint64
	var err error
	if w.d, pool, err = w.newWorker("decode/d1"); err != nil {
		return err
	}
	w.decode, err = decode.Start(w.ctx, decode.Config{
		ID: "d1", Model: "fake", ModelSlug: "fake", Pool: pool, Lease: lease, Bus: w.d.tap, Names: w.net.names, Keys: w.ring,
		Engine: w.d.engine, NewPicker: func(decode.Picking) *model.Picker { return &model.Picker{} },
	})
	if err == nil {
		s := w.decode
		w.stops = append(w.stops, func() { _ = s.Close() })
	}
	return err
}

func (w *world) startPrefill(i int) error {
	id := "p" + strconv.Itoa(i+1)
	var pool uint64
	var err error
	if w.p[i], pool, err = w.newWorker("prefill/" + id); err != nil {
		return err
	}
	w.prefills[i], err = prefill.Start(w.ctx, prefill.Config{
		ID: id, Model: "fake", ModelSlug: "fake", PoolNumber: pool, Bus: w.p[i].tap, Names: w.net.names, Keys: w.ring, Engine: w.p[i].engine,
	})
	if err == nil {
		s := w.prefills[i]
		w.stops = append(w.stops, func() { _ = s.Close() })
	}
	return err
}

// close takes the world down, last things first.
func (w *world) close() {
	for _, t := range []*tap{w.front, w.d.tap, w.p[0].tap, w.p[1].tap} {
		if t != nil {
			t.die()
		}
	}
	for i := len(w.stops) - 1; i >= 0; i-- {
		w.stops[i]()
	}
}

// until waits for a condition.
func (w *world) until(what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	for !done() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("waited %s for %s\n%s", patience, what, w.figures())
		}
	}
	return nil
}

func (w *world) figures() string {
	d := w.decode.Stats()
	out := fmt.Sprintf("decode %s %+v pages %+v\nrouter %+v\n", d.Peer, d.Counters, d.Heartbeat.Pages, w.router.Stats())
	for _, p := range w.prefills {
		out += fmt.Sprintf("prefill %+v\n", p.Stats())
	}
	return out
}

// crash ends a worker as kill -9 does: it says nothing more.
func (w *world) crashDecode() error {
	w.past += w.refusedByDecode()
	w.d.tap.die()
	if err := w.decode.Close(); err != nil {
		return err
	}
	return w.startDecode()
}

func (w *world) crashPrefill(i int) error {
	w.past += w.refusedByPrefill(i)
	w.p[i].tap.die()
	if err := w.prefills[i].Close(); err != nil {
		return err
	}
	return w.startPrefill(i)
}

func (w *world) refusedByDecode() uint64 {
	c := w.decode.Stats().Counters
	return c.ReserveRefused + c.ClaimsRefused + c.ControlIgnored + c.FramesRefused + c.FramesUnopened + c.ManifestsRefused
}

func (w *world) refusedByPrefill(i int) uint64 {
	s := w.prefills[i].Stats().Stats
	return s.Ignored + s.JobsRefused + s.JobsUnsigned
}

var lateReplies = regexp.MustCompile(`(?m)^quire_router_late_replies_total (\d+)`)

// collect keeps the first message of each step.
func (w *world) collect() func(step) []byte {
	var mu sync.Mutex
	kept := map[step][]byte{}
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	w.net.watch = func(m *message) {
		mu.Lock()
		defer mu.Unlock()
		if kept[m.step] == nil {
			kept[m.step] = m.data
		}
	}
	return func(s step) []byte {
		mu.Lock()
		defer mu.Unlock()
		return kept[s]
	}
}

// refused is what the whole world has refused and counted so far.
func (w *world) refused() uint64 {
	var b strings.Builder
	w.router.WriteMetrics(&b)
	n := w.past + w.refusedByDecode() + w.refusedByPrefill(0) + w.refusedByPrefill(1) + w.router.Stats().RepliesIgnored
	if m := lateReplies.FindStringSubmatch(b.String()); m != nil {
		late, _ := strconv.ParseUint(m[1], 10, 64)
		n += late
	}
	return n
}

// request is one client's request.
type request struct {
	tenant string
	prompt []int32
	stream router.Stream
	cancel context.CancelFunc
	done   chan struct{}
	got    []int32
	err    error
}

// promptOf is the prompt of a tenant: no two have a token in common at the same place.
func promptOf(tenant string) []int32 {
	out := make([]int32, promptLen)
	for i := range out {
		out[i] = int32(tenant[0]+byte(7*i)) % 50
	}
	return out
}

// solo is what a single process answers.
func solo(prompt []int32) []int32 {
	tokens := append([]int32(nil), prompt...)
	for range maxTokens {
		tokens = append(tokens, modeltest.Token(fake, tokens).ID)
	}
	return tokens[len(prompt):]
}

// ask submits a request and reads its answer.
func (w *world) ask(tenant string) (*request, error) {
	r := &request{tenant: tenant, prompt: promptOf(tenant), done: make(chan struct{})}
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(w.ctx)
	w.stops = append(w.stops, r.cancel)
	submit := func() error {
		var err error
		r.stream, err = w.router.Submit(ctx, router.Request{Tenant: tenant, Body: openai.Request{
			Op: openai.OpCompletion, PromptTokens: r.prompt, MaxTokens: maxTokens, Sampling: kvtransfer.Sampling{Logprobs: -1},
		}})
		return err
	}
	var err error
	waited := w.until("admission of "+tenant, func() bool { // until the workers have been heard
		err = submit()
		e, _ := router.AsError(err)
		return err == nil || e.Code != kvtransfer.NoPrefill && e.Code != kvtransfer.NoDecode && e.Code != kvtransfer.BusDown
	})
	if err = errors.Join(err, waited); err != nil {
		return nil, err
	}
	go r.read(w.ctx)
	return r, nil
}

func (r *request) read(ctx context.Context) {
	defer close(r.done)
	for {
		p, err := r.stream.Next(ctx)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				r.err = err
			}
			return
		}
		for _, t := range p.Tokens {
			r.got = append(r.got, t.ID)
		}
	}
}

// wait gives the request's end.
func (w *world) wait(r *request) error {
	select {
	case <-r.done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("no end of %s's request within %s\n%s", r.tenant, patience, w.figures())
	}
}

// answered checks that a request got what a single process answers.
func (w *world) answered(r *request) error {
	if err := w.wait(r); err != nil {
		return err
	}
	if want := solo(r.prompt); r.err != nil || fmt.Sprint(r.got) != fmt.Sprint(want) {
		return fmt.Errorf("%s got %v and %v, alone it is %v\n%s", r.tenant, r.got, r.err, want, w.figures())
	}
	return nil
}

// clean waits until every page is free and holds zeros.
func (w *world) clean() error {
	all := make([]page.ID, pages)
	for i := range all {
		all[i] = page.ID(i)
	}
	err := w.until("free pages of zeros", func() bool {
		d, p, q := w.decode.Stats().Heartbeat.Pages, w.prefills[0].Stats().Figures.Pages, w.prefills[1].Stats().Figures.Pages
		dirty := slices.ContainsFunc([]*modeltest.Engine{w.d.engine, w.p[0].engine, w.p[1].engine}, func(e *modeltest.Engine) bool {
			return e.NonZero(all) >= 0
		})
		return d.Free == pages && p.Free == pages && q.Free == pages && !dirty
	})
	for _, s := range []interface{ Err() error }{w.router, w.decode, w.prefills[0], w.prefills[1]} {
		err = errors.Join(err, s.Err())
	}
	return err
}
