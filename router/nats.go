package router

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"quire/bus"
	"quire/kvtransfer"
	"quire/router/openai"
	"quire/trace"
)

// NATSConfig says how the NATS door is opened. Zero values of numbers and durations are replaced by their defaults.
type NATSConfig struct {
	API       bus.API
	Names     bus.Names
	Accounts  bool          // the bus fills in each account's own token, so all tenants are served; else tenant "default" alone
	Version   string        // of the program; "1.0.0" when it is no SemVer
	ID        string        // of the router, for discovery
	MaxOpen   int           // requests at a time; default 4096
	KeepAlive time.Duration // silence in a stream after which a keep-alive is sent; default 5 s
	Stats     func() any    // for $SRV.STATS; may be nil
	Log       *slog.Logger
}

// NATSDoor is an open NATS door.
type NATSDoor struct {
	b      Backend
	cfg    NATSConfig
	sub    bus.Sub
	ctx    context.Context
	cancel context.CancelFunc
	slots  chan struct{}
	wg     sync.WaitGroup
}

// operations are the endpoints, and which of them may stream.
var operations = map[string]func(*NATSDoor, *bus.Call) error{
	"chat":        func(d *NATSDoor, c *bus.Call) error { return d.generate(c, openai.OpChat) },
	"completions": func(d *NATSDoor, c *bus.Call) error { return d.generate(c, openai.OpCompletion) },
	"models":      (*NATSDoor).models,
	"tokenize":    (*NATSDoor).tokenize,
	"detokenize":  (*NATSDoor).detokenize,
	"cancel":      (*NATSDoor).cancelRequest,
	"status":      (*NATSDoor).status,
}

// Operations lists the endpoints of the NATS door in the order in which discovery shows them.
var Operations = []string{"chat", "completions", "models", "tokenize", "detokenize", "cancel", "status"}

// OpenNATS listens for requests until Close.
func OpenNATS(ctx context.Context, b Backend, cfg NATSConfig) (*NATSDoor, error) {
	if cfg.MaxOpen <= 0 {
		cfg.MaxOpen = 4096
	}
	if cfg.KeepAlive <= 0 {
		cfg.KeepAlive = 5 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	d := &NATSDoor{b: b, cfg: cfg, slots: make(chan struct{}, cfg.MaxOpen)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	tenant := DefaultTenant
	if cfg.Accounts {
		tenant = "*"
	}
	spec := bus.ServiceSpec{
		Name: "quire", Version: semver(cfg.Version), Queue: "quire-router", Stats: cfg.Stats,
		Description: "Quire: inference with verified hand-offs, the same JSON as the OpenAI-compatible HTTP API",
		Metadata:    map[string]string{"router": cfg.ID, "model": b.Rules().Model},
	}
	for _, op := range Operations {
		spec.Endpoints = append(spec.Endpoints, bus.Endpoint{Name: op, Subject: cfg.Names.API(tenant, op)})
	}
	sub, err := cfg.API.Serve(ctx, spec, d.take)
	if err != nil {
		d.cancel()
		return nil, fmt.Errorf("router: nats: %w", err)
	}
	d.sub = sub
	return d, nil
}

// semver gives a version that discovery takes.
func semver(v string) string {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(v, "%d.%d.%d", &major, &minor, &patch); n == 3 && v == fmt.Sprintf("%d.%d.%d", major, minor, patch) {
		return v
	}
	return "1.0.0"
}

// Drain takes no new requests and waits for the answers under way: drain the Service first or at the same time.
func (d *NATSDoor) Drain(ctx context.Context) error {
	err := d.sub.Drain()
	ended := make(chan struct{})
	go func() {
		d.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return err
	case <-ctx.Done():
		return fmt.Errorf("router: nats: drain: %d requests open: %w", len(d.slots), ctx.Err())
	}
}

// Close cancels what is open.
func (d *NATSDoor) Close() error {
	err := d.sub.Drain()
	d.cancel()
	d.wg.Wait()
	return err
}

// take hands a call on to a goroutine of its own; the bound on their number is the door's.
func (d *NATSDoor) take(c *bus.Call) {
	select {
	case d.slots <- struct{}{}:
	default:
		d.fail(c, kvtransfer.Errorf(kvtransfer.Overloaded, "router: nats: %d requests are open, no more may be", d.cfg.MaxOpen), wantsStream(c.Data))
		return
	}
	d.wg.Go(func() {
		defer func() { <-d.slots }()
		serve := operations[c.Endpoint]
		if serve == nil {
			d.fail(c, kvtransfer.Errorf(kvtransfer.NotFound, "router: nats: no such operation"), false)
			return
		}
		if err := serve(d, c); err != nil {
			d.cfg.Log.Debug("answer not sent", "operation", c.Endpoint, "error", err)
		}
	})
}

// wantsStream says whether the caller waits for the end of a stream, even where the body is not valid otherwise.
func wantsStream(body []byte) bool {
	var v struct {
		Stream bool `json:"stream"`
	}
	return json.Unmarshal(body, &v) == nil && v.Stream
}

func (d *NATSDoor) fail(c *bus.Call, err error, streamed bool) {
	e, _ := AsError(err)
	body := openai.NewErrorBody(e)
	if sendErr := c.Fail(kvtransfer.Lookup(e.Code).NATS, body.Error.Message, openai.EncodeError(e), streamed); sendErr != nil {
		d.cfg.Log.Debug("error not sent", "operation", c.Endpoint, "error", sendErr)
	}
}

func (d *NATSDoor) reply(c *bus.Call, v any, err error) error {
	if err != nil {
		d.fail(c, err, false)
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return d.replyBytes(c, b)
}

// replyBytes sends an answer, or says that it does not fit.
func (d *NATSDoor) replyBytes(c *bus.Call, b []byte) error {
	if len(b) > c.Room {
		d.fail(c, kvtransfer.Errorf(kvtransfer.PayloadTooLarge, "router: nats: the answer has %d bytes, the bus takes %d; ask with stream: true", len(b), c.Room), false)
		return nil
	}
	return c.Reply(b)
}

func (d *NATSDoor) models(c *bus.Call) error {
	return d.reply(c, openai.ModelList{Object: "list", Data: []openai.Model{d.b.Model()}}, nil)
}

func (d *NATSDoor) tokenize(c *bus.Call) error {
	out, err := tokenize(d.b, c.Data)
	return d.reply(c, out, err)
}

func (d *NATSDoor) detokenize(c *bus.Call) error {
	out, err := detokenize(d.b, c.Data)
	return d.reply(c, out, err)
}

func (d *NATSDoor) cancelRequest(c *bus.Call) error {
	id, err := openai.ParseID(c.Data)
	if err == nil {
		err = d.b.Cancel(d.ctx, c.Tenant, id)
	}
	return d.reply(c, openai.Cancelled{ID: id, Cancelled: true}, err)
}

func (d *NATSDoor) status(c *bus.Call) error {
	id, err := openai.ParseID(c.Data)
	var st Status
	if err == nil {
		st, err = d.b.Status(d.ctx, c.Tenant, id)
	}
	return d.reply(c, st, err)
}

// generate answers a chat or a completion, by the same validation and admission as the HTTP door.
func (d *NATSDoor) generate(c *bus.Call, op openai.Op) error {
	deadline, err := timeout(header(c, openai.HeaderTimeout))
	var body openai.Request
	if err == nil {
		body, err = openai.Parse(op, c.Data, d.b.Rules())
	}
	if err != nil {
		d.fail(c, err, wantsStream(c.Data))
		return nil
	}
	ctx, cancel := d.following(c)
	defer cancel()
	st, err := d.b.Submit(ctx, Request{Tenant: c.Tenant, Label: header(c, "Quire-Label"), Deadline: deadline, Body: body,
		Trace: trace.FromHeader(c.Header)})
	if err != nil {
		d.fail(c, err, body.Stream)
		return nil
	}
	defer st.Close()
	answer := newAnswer(d.b, body, st.ID())
	if body.Stream {
		return d.stream(ctx, c, st, answer)
	}
	if err = started(ctx, st); err == nil {
		var end kvtransfer.End
		if end, err = collect(ctx, st, answer); err == nil {
			return d.replyBytes(c, answer.Whole(end))
		}
	}
	d.fail(c, err, false)
	return nil
}

// following is the life of a call: it ends with the door, or when the bus says that nobody listens for its frames. The end of it
// cancels the request.
func (d *NATSDoor) following(c *bus.Call) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(d.ctx)
	if c.Gone != nil {
		go func() {
			select {
			case <-c.Gone:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	return ctx, cancel
}

func header(c *bus.Call, name string) string {
	if v := c.Header[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// frames numbers and digests the chunks of one answer.
type frames struct {
	c      *bus.Call
	n      int
	digest hash.Hash
}

func (f *frames) send(kind string, body []byte) error {
	return f.c.Send(map[string][]string{openai.HeaderFrame: {kind}}, body)
}

// status sends the first frame, which says how to find the request's trace too.
func (f *frames) status(st Stream, body []byte) error {
	h := map[string][]string{openai.HeaderFrame: {openai.FrameStatus}}
	if id := traceID(st); id != "" {
		h[openai.HeaderTrace] = []string{id}
	}
	return f.c.Send(h, body)
}

func (f *frames) chunks(bodies [][]byte) error {
	for _, b := range bodies {
		err := f.c.Send(map[string][]string{openai.HeaderFrame: {openai.FrameChunk}, openai.HeaderSeq: {strconv.Itoa(f.n)}}, b)
		if err != nil {
			return err
		}
		f.digest.Write(b)
		f.n++
	}
	return nil
}

// stream sends the status frame, then chunks as they come, the final frame that counts them, and the end.
func (d *NATSDoor) stream(ctx context.Context, c *bus.Call, st Stream, answer *openai.Answer) error {
	f := &frames{c: c, digest: sha256.New()}
	if err := f.status(st, marshal(openai.StatusFrame{Type: openai.FrameStatus, Data: "received", ID: st.ID()})); err != nil {
		return err
	}
	for {
		p, quiet, err := next(ctx, st, d.cfg.KeepAlive)
		if err != nil {
			d.fail(c, err, true)
			return nil
		}
		switch {
		case quiet:
			err = f.send(openai.FrameKeepAlive, marshal(openai.KeepAliveFrame{Type: openai.FrameKeepAlive}))
		case p.Started:
			err = f.chunks(answer.Open())
		default:
			err = f.chunks(answer.Tokens(p.Tokens))
		}
		if err == nil && p.End != nil {
			if err = f.chunks(answer.Close(*p.End)); err == nil {
				err = f.send(openai.FrameFinal, openai.Final(st.ID(), *p.End, f.n, hex.EncodeToString(f.digest.Sum(nil))))
			}
			if err == nil {
				return c.End()
			}
		}
		if err != nil { // one frame did not fit or the bus is away: an answer with a hole is no answer
			d.fail(c, kvtransfer.Errorf(kvtransfer.BusFailed, "router: nats: frame %d not sent", f.n), true)
			return err
		}
	}
}

// marshal is for this package's own plain structs, which cannot fail.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("router: nats: " + err.Error())
	}
	return b
}
