package cluster

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"quire/bus"
	"quire/bus/jet"
	"quire/kvtransfer"
	"quire/model"
)

const checkTime = 5 * time.Second // for the bus, and for the router

// bus connects where a bus is said to be, or where one was found.
func (c *check) bus(ctx context.Context) {
	o := c.o.Bus
	if !o.External() {
		if c.natsAt == "" {
			c.fine("bus", "none is running: quire up and quire bus start one on %s", o.Listen)
			return
		}
		o.URLs = []string{"nats://" + c.natsAt}
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	var heard collector
	conn, err := jet.Connect(ctx, jet.ConnectOptions{URLs: o.URLs, Name: "doctor", Creds: o.Creds, NKey: o.NKey, User: o.User, Password: o.Password,
		Token: o.Token, TLSCA: o.CA, TLSCert: o.Cert, TLSKey: o.CertKey, Context: o.Context, Names: c.o.names(), Log: slog.New(&heard)})
	if err != nil {
		c.bad(Fail, "bus", "quire bus starts a server; --nats-url names another", "%v", err)
		return
	}
	defer conn.Close()
	l := conn.Limits()
	c.fine("bus", "%s, NATS %s, JetStream on, max_payload %d", l.URL, l.Server, l.MaxPayload)
	for _, f := range heard.take() {
		f.Name = "bus"
		c.out = append(c.out, f)
	}
	c.streams(ctx, conn)
}

// streams compares the shared streams with what they should be; it makes none.
func (c *check) streams(ctx context.Context, b bus.Bus) {
	have, err := b.Streams().Names(ctx, "")
	if err != nil {
		c.bad(Fail, "streams", "", "%v", err)
		return
	}
	var missing []string
	for _, s := range bus.SharedStreams(c.o.names()) {
		if !slices.Contains(have, s.Name) {
			missing = append(missing, s.Name)
		}
	}
	if len(missing) > 0 {
		c.fine("streams", "not made yet: %s; the bus role and routers make them", strings.Join(missing, ", "))
		return
	}
	if err := b.Streams().EnsureShared(ctx); err != nil {
		c.bad(Fail, "streams", "change the stream back, or remove it when its content may go (nats stream edit, nats stream rm)", "%v", err)
		return
	}
	c.fine("streams", "%d streams, all as they should be", len(bus.SharedStreams(c.o.names())))
}

// model opens the model and compares limits and pools.
func (c *check) model() {
	m := c.o.Model
	src, err := model.Open(m.Path, model.OpenOptions{Name: m.Name})
	if err != nil {
		c.bad(Fail, "model", "--model takes a GGUF file, a Hugging Face directory or a name that quire pull lists", "%v", err)
		return
	}
	defer src.Close()
	template := "with a chat template"
	if src.Template == nil {
		template = "without a chat template: /v1/completions only"
	}
	c.fine("model", "%s, %.1f MB, context %d, %s", src.Name, float64(src.Bytes)/1e6, src.Config.Context, template)
	k := begin(c.o)
	l := &loaded{src: src}
	workers, err := k.plan(l, map[kvtransfer.Role][]string{
		kvtransfer.RolePrefill: number("p", c.o.Prefill), kvtransfer.RoleDecode: number("d", c.o.Decode)})
	if err != nil {
		c.bad(Fail, "limit", "", "%v", err)
		return
	}
	need := int64(0)
	for _, w := range workers {
		need += int64(w.pages) * int64(c.o.Pool.PageSize) * int64(l.rowBytes(c.o))
	}
	text := fmt.Sprintf("%d tokens a request, set by %s; page pools take %.1f MB", k.info.Limit, k.info.LimitedBy, float64(need)/1e6)
	if m := memory(); m > 0 && need+src.Bytes > m {
		c.bad(Fail, "limit", "lower --kv-pages", "%s, more than this machine's %.1f GB", text, float64(m)/1e9)
		return
	}
	c.fine("limit", "%s", text)
}

// router asks a running router whether it is ready.
func (c *check) router(ctx context.Context) {
	if c.httpAt == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.httpAt+"/ready", nil)
	if err != nil {
		c.bad(Fail, "router", "", "%v", err)
		return
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.bad(Fail, "router", "", "%v", err)
		return
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if text := strings.TrimSpace(string(b)); resp.StatusCode != http.StatusOK || err != nil {
		c.bad(Fail, "router", "start what is missing: quire prefill, quire decode", "%s answers %s: %s", c.httpAt, resp.Status, text)
		return
	}
	c.fine("router", "%s is ready", c.httpAt)
}

// collector keeps warnings and errors that a part logs, as findings.
type collector struct {
	mu  sync.Mutex
	got []Finding
}

var _ slog.Handler = (*collector)(nil)

// Enabled says that warnings and worse are kept.
func (k *collector) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle keeps a record.
func (k *collector) Handle(_ context.Context, r slog.Record) error {
	f := Finding{State: Warn, Text: r.Message}
	if r.Level >= slog.LevelError {
		f.State = Fail
	}
	r.Attrs(func(a slog.Attr) bool { f.Text += " " + a.String(); return true })
	k.mu.Lock()
	defer k.mu.Unlock()
	k.got = append(k.got, f)
	return nil
}

// WithAttrs and WithGroup change nothing: a finding is one line.
func (k *collector) WithAttrs([]slog.Attr) slog.Handler { return k }

// WithGroup is WithAttrs's twin.
func (k *collector) WithGroup(string) slog.Handler { return k }

func (k *collector) take() []Finding {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.got
}
