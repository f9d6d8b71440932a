package jet

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"quire/bus"
)

// accountsSite is a server with the accounts that quire bus --accounts makes, two tenants, streams, a frame and a fact.
type accountsSite struct {
	t    *testing.T
	dir  string
	s    *Server
	n    bus.Names
	boss *Conn
}

func newAccountsSite(t *testing.T) *accountsSite {
	t.Helper()
	x := &accountsSite{t: t, dir: t.TempDir()}
	path, err := WriteAccounts(x.dir, x.n, []string{"acme", "beta"})
	must(t, err)
	x.s, err = Serve(ServerOptions{Config: path, Addr: "127.0.0.1:0", Data: t.TempDir()})
	must(t, err)
	t.Cleanup(x.s.Stop)
	ctx := context.Background()
	x.boss = x.as(bus.UserBus)
	must(t, x.boss.Streams().EnsureShared(ctx))
	must(t, x.as("decode").Streams().EnsureKV(ctx, "d1", 1))
	for subject, data := range map[string]string{x.n.KV("d1", 1, "h-1"): "a frame", x.n.Journal("verdict", "decode-d1-1"): "a fact",
		x.n.Job("m", "p", "h-1"): "a job", x.n.Control("decode", "d1", 1, "h-1"): "a claim"} {
		_, err := x.boss.Enqueue(ctx, bus.Enqueue{Subject: subject, Data: []byte(data)})
		must(t, err)
	}
	return x
}

// as connects with the seed of a user.
func (x *accountsSite) as(user string) *Conn {
	x.t.Helper()
	o := ConnectOptions{URLs: []string{x.s.URL()}, NKey: SeedFile(x.dir, user), Plain: strings.HasPrefix(user, tenantPrefix)}
	if p, ok := x.n.Permissions(user); ok {
		o.InboxPrefix = p.Inbox
	}
	return connect(x.t, o)
}

// TestWhoMayPublish tries every subject of Quire as every user: what is not that role's to say reaches nobody.
func TestWhoMayPublish(t *testing.T) {
	x := newAccountsSite(t)
	n := x.n
	subjects := map[string][]string{ // who may
		n.Reserve("d1", 1):                                                        {"router"},
		n.Resend("d1", 1):                                                         {"router"},
		n.Router("r1", 1, "cancel"):                                               {"router"},
		n.Pages("prefill", "p1", 1):                                               {"router"},
		n.Pages("decode", "d1", 1):                                                {"router"},
		n.Job("m", "p", "h-2"):                                                    {"router"},
		n.JobFor("m", "p", "p1", "h-2"):                                           {"router"},
		n.Control("decode", "d1", 1, "h-2"):                                       {"router", "prefill"},
		n.Control("prefill", "p1", 1, "h-2"):                                      {"decode"},
		n.KV("d1", 1, "h-2"):                                                      {"prefill"},
		n.Reply("r1", 1, "h-2"):                                                   {"decode"},
		n.Heartbeat("router", "r1"):                                               {"router"},
		n.Heartbeat("prefill", "p1"):                                              {"prefill"},
		n.Heartbeat("decode", "d1"):                                               {"decode"},
		n.Journal("claimed", "prefill-p1-1"):                                      {"router", "prefill", "decode"},
		n.API("acme", "chat"):                                                     nil,
		n.Tape("acme", "h-2"):                                                     nil,
		n.TapeKey("acme"):                                                         nil,
		"$KV.QUIRE_EPOCH.router.r1":                                               {"router"},
		"$KV.QUIRE_EPOCH.decode.d1":                                               {"decode"},
		"$KV.QUIRE_EPOCH.prefill.p1":                                              {"prefill"},
		"_INBOX_router.x":                                                         nil,
		"_INBOX_decode.x":                                                         nil,
		"$JS.API.STREAM.DELETE.QUIRE_JOURNAL":                                     nil,
		"$JS.API.STREAM.PURGE.QUIRE_JOURNAL":                                      nil,
		"$JS.API.STREAM.UPDATE.QUIRE_JOURNAL":                                     nil,
		"$JS.API.STREAM.MSG.DELETE.QUIRE_JOURNAL":                                 nil,
		"$JS.API.STREAM.MSG.GET.QUIRE_JOURNAL":                                    nil,
		"$JS.API.STREAM.MSG.GET.QUIRE_KV_d1_1":                                    nil,
		"$JS.API.DIRECT.GET.QUIRE_KV_d1_1":                                        nil,
		"$JS.API.STREAM.SNAPSHOT.QUIRE_KV_d1_1":                                   nil,
		"$JS.API.CONSUMER.CREATE.QUIRE_JOURNAL":                                   nil,
		"$JS.API.CONSUMER.MSG.NEXT.QUIRE_JOURNAL.c":                               {"auditor"},
		"$JS.API.CONSUMER.CREATE.QUIRE_JOURNAL.c." + n.Journal("*", "*"):          {"auditor"},
		"$JS.API.CONSUMER.CREATE.QUIRE_KV_d1_1.c":                                 nil,
		"$JS.API.CONSUMER.CREATE.QUIRE_KV_d1_1.c." + n.AllKV("d1", 1):             {"decode"},
		"$JS.API.CONSUMER.DURABLE.CREATE.QUIRE_KV_d1_1.c":                         nil,
		"$JS.API.CONSUMER.MSG.NEXT.QUIRE_KV_d1_1.c":                               {"decode"},
		"$JS.API.CONSUMER.MSG.NEXT.QUIRE_JOBS.c":                                  {"prefill"},
		"$JS.API.CONSUMER.CREATE.QUIRE_CTL.c." + n.AllControl("decode", "d1", 1):  {"decode"},
		"$JS.API.CONSUMER.CREATE.QUIRE_CTL.c." + n.AllControl("prefill", "p1", 1): {"prefill"},
		"$JS.API.STREAM.DELETE.QUIRE_KV_d1_1":                                     {"router", "decode"},
		"$JS.API.STREAM.DELETE.QUIRE_JOBS":                                        nil,
		"$JS.API.STREAM.MSG.DELETE.QUIRE_JOBS":                                    {"router"},
	}
	got := map[string][]string{}
	came := make(chan string, 4096)
	spy, err := x.boss.nc.Subscribe(">", func(m *nats.Msg) {
		if who, ok := strings.CutPrefix(string(m.Data), "try of "); ok {
			came <- m.Subject + " " + who
		}
	})
	must(t, err)
	must(t, x.boss.nc.Flush())
	users := []string{"router", "prefill", "decode", "auditor", "tenant-acme"}
	for _, user := range users {
		c := x.as(user)
		for subject := range subjects {
			must(t, c.nc.Publish(subject, []byte("try of "+user)))
		}
		must(t, c.nc.Flush())
	}
	must(t, x.boss.nc.Publish("end", []byte("try of end")))
	for s := range came {
		subject, who, _ := strings.Cut(s, " ")
		if who == "end" {
			break
		}
		got[subject] = append(got[subject], who)
	}
	must(t, spy.Unsubscribe())
	for subject, may := range subjects {
		have := got[subject]
		slices.Sort(have)
		slices.Sort(may)
		if !slices.Equal(have, may) {
			t.Errorf("%s: published by %v, may be by %v", subject, have, may)
		}
	}
}

// TestWhoHears tries to listen to every subject of Quire, and to read every stream, as every user.
func TestWhoHears(t *testing.T) {
	x := newAccountsSite(t)
	n := x.n
	hears := map[string][]string{
		n.Reserve("d1", 1): {"decode"}, n.Resend("d1", 1): {"decode"}, n.Router("r1", 1, "status"): {"router"},
		n.Pages("prefill", "p1", 1): {"prefill"}, n.Pages("decode", "d1", 1): {"decode"},
		n.Job("m", "p", "h-3"): nil, n.Control("decode", "d1", 1, "h-3"): nil, n.KV("d1", 1, "h-3"): nil,
		n.Reply("r1", 1, "h-3"): {"router"}, n.Journal("verdict", "decode-d1-1"): nil, n.Heartbeat("decode", "d1"): {"decode", "prefill", "router"},
		n.API("acme", "chat"): {"router"}, "_INBOX_router.x": {"router"}, "_INBOX_decode.x": {"decode"}, "_INBOX_prefill.x": {"prefill"},
		"_INBOX.x": nil, "_R_.x": nil, "$JS.ACK.QUIRE_KV_d1_1.c.1.1.1.1.1": nil,
	}
	for _, user := range []string{"router", "prefill", "decode", "auditor", "tenant-acme"} {
		c := x.as(user)
		heard := map[string]bool{}
		subs := map[string]*nats.Subscription{}
		for subject := range hears {
			sub, err := c.nc.SubscribeSync(subject)
			must(t, err)
			subs[subject] = sub
		}
		for _, all := range []string{">", "quire.>", "_INBOX_router.>", n.AllKV("d1", 1)} {
			if all == "_INBOX_router.>" && user == "router" {
				continue
			}
			sub, err := c.nc.SubscribeSync(all)
			must(t, err)
			subs[all] = sub
		}
		must(t, c.nc.Flush())
		for subject := range hears {
			must(t, x.boss.nc.Publish(subject, []byte("a secret")))
		}
		must(t, x.boss.nc.Flush())
		must(t, c.nc.Flush()) // what was delivered is here
		for pattern, sub := range subs {
			for m, err := sub.NextMsg(time.Millisecond); err == nil; m, err = sub.NextMsg(time.Millisecond) {
				if string(m.Data) == "a secret" {
					heard[m.Subject] = true
					if pattern != m.Subject && user != "tenant-acme" {
						t.Errorf("%s hears %s by %s", user, m.Subject, pattern)
					}
				}
			}
		}
		for subject, may := range hears {
			if heard[subject] != slices.Contains(may, user) {
				t.Errorf("%s hears %s: %t", user, subject, heard[subject])
			}
		}
	}
}

// TestWhoReadsStreams: frames, jobs and the journal come to those alone whose they are, whatever kind of consumer is asked for.
func TestWhoReadsStreams(t *testing.T) {
	x := newAccountsSite(t)
	n := x.n
	streams := map[string]struct {
		filter string
		may    []string
	}{
		n.KVStream("d1", 1): {n.AllKV("d1", 1), []string{"decode"}},
		n.JournalStream():   {"quire.journal.>", []string{"auditor"}},
		n.JobsStream():      {"quire.job.>", []string{"prefill"}},
	}
	var wg sync.WaitGroup
	for _, user := range []string{"router", "prefill", "decode", "auditor", "tenant-acme"} {
		c := x.as(user)
		for stream, s := range streams {
			wg.Go(func() {
				if got := readsStream(c, user, stream, s.filter); got != slices.Contains(s.may, user) {
					t.Errorf("%s reads %s: %t", user, stream, got)
				}
			})
		}
	}
	wg.Wait()
}

// readsStream tries to read a stream in several ways; it says whether any brought a message.
func readsStream(c *Conn, user, stream, filter string) bool {
	within := func(d time.Duration) (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), d)
	}
	for _, cfg := range []jetstream.ConsumerConfig{
		{Name: "spy-" + user, FilterSubject: filter, AckPolicy: jetstream.AckExplicitPolicy, InactiveThreshold: time.Minute},
		{Name: "all-" + user, AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: time.Minute},
	} {
		ctx, done := within(time.Second)
		cons, err := c.js.CreateConsumer(ctx, stream, cfg)
		done()
		if err != nil {
			continue
		}
		got, err := cons.Fetch(1, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			continue
		}
		for range got.Messages() {
			return true
		}
	}
	ctx, done := within(500 * time.Millisecond)
	defer done()
	m, err := c.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, []byte(`{"seq":1}`))
	return err == nil && !strings.Contains(string(m.Data), `"error"`)
}

// TestTenantsApart: a tenant's calls reach Quire as its own, another's answers do not reach it, and nothing of Quire is there.
func TestTenantsApart(t *testing.T) {
	x := newAccountsSite(t)
	ctx := context.Background()
	_, err := x.as("router").Serve(ctx, bus.ServiceSpec{Name: "quire", Version: "1.0.0", Queue: "router",
		Endpoints: []bus.Endpoint{{Name: "chat", Subject: x.n.API("*", "chat")}}}, func(c *bus.Call) {
		for range 50 {
			_ = c.Send(nil, []byte(c.Tenant))
		}
		_ = c.End()
	})
	must(t, err)
	acme, beta := x.as("tenant-acme"), x.as("tenant-beta")
	spy, err := beta.nc.SubscribeSync(">")
	must(t, err)
	must(t, beta.nc.Flush())
	frames := 0
	must(t, acme.Stream(ctx, bus.Ask{Subject: "quire.v1.chat", Data: []byte("?")}, func(m bus.Msg) error {
		if frames++; string(m.Data) != "acme" {
			t.Errorf("frame of tenant %s", m.Data)
		}
		return nil
	}))
	if frames != 50 {
		t.Errorf("%d frames", frames)
	}
	for _, other := range []string{x.n.API("beta", "chat"), x.n.API("acme", "chat"), "quire.v1.chat.beta"} {
		if _, err := acme.Request(ctx, other, nil); !errors.Is(err, bus.ErrNoResponders) {
			t.Errorf("acme asks %s: %v", other, err)
		}
	}
	must(t, beta.nc.Flush())
	if m, err := spy.NextMsg(time.Millisecond); err == nil {
		t.Errorf("beta hears %s", m.Subject)
	}
}

// TestAccountsStay: the files of a directory stay as they are, tenants are added, and nobody else may read the seeds.
func TestAccountsStay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "accounts")
	_, err := WriteAccounts(dir, bus.Names{}, []string{"acme"})
	must(t, err)
	before, err := os.ReadFile(TenantSeedFile(dir, "acme"))
	must(t, err)
	path, err := WriteAccounts(dir, bus.Names{Prefix: "other"}, []string{"beta"})
	must(t, err)
	after, err := os.ReadFile(TenantSeedFile(dir, "acme"))
	must(t, err)
	conf, err := os.ReadFile(path)
	must(t, err)
	for _, text := range []string{"\n  acme {", "\n  beta {", `"other.v1.acme.*"`, "account_token_position: 3"} {
		if !strings.Contains(string(conf), text) {
			t.Errorf("the configuration does not say %q", text)
		}
	}
	if string(before) != string(after) {
		t.Error("a seed was made anew")
	}
	files, err := os.ReadDir(dir)
	must(t, err)
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f.Name(), info.Mode(), err)
		}
	}
	if len(files) != len(bus.Users())+3 {
		t.Errorf("%d files", len(files))
	}
	must(t, os.WriteFile(TenantSeedFile(dir, "acme"), []byte("SUAnonsense"), 0o600))
	if _, err := WriteAccounts(dir, bus.Names{}, nil); err == nil {
		t.Error("a seed that is none was taken")
	}
}
