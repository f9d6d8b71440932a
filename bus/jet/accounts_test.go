package jet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quire/bus"
	"quire/bus/bustest"
)

// template is the configuration that docs/nats-accounts.md gives, as a file.
func template(t *testing.T, change func(string) string) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/nats-accounts.md")
	must(t, err)
	_, rest, ok := strings.Cut(string(doc), "```\nlisten:")
	config, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatal("docs/nats-accounts.md has no configuration that begins with listen:")
	}
	config = "listen:" + config
	if change != nil {
		config = change(config)
	}
	path := filepath.Join(t.TempDir(), "server.conf")
	must(t, os.WriteFile(path, []byte(config), 0o600))
	for _, who := range []string{"QUIRE", "ACME", "BETA"} {
		t.Setenv(who+"_PASSWORD", "secret-of-"+who)
	}
	t.Setenv("QUIRE_STORE", t.TempDir())
	return path
}

func TestTenantAccounts(t *testing.T) {
	s := serveConfig(t, template(t, nil))
	as := func(user, who string, plain bool) *Conn {
		return connect(t, ConnectOptions{URLs: []string{s.URL()}, User: user, Password: "secret-of-" + who, Plain: plain})
	}
	var n bus.Names
	ctx := context.Background()
	role := as("quire", "QUIRE", false)
	must(t, role.Streams().EnsureShared(ctx))
	_, err := role.Serve(ctx, bus.ServiceSpec{
		Name: "quire", Version: "1.0.0", Queue: "router",
		Endpoints: []bus.Endpoint{{Name: "chat", Subject: n.API("*", "chat")}, {Name: "models", Subject: n.API("*", "models")}},
	}, func(c *bus.Call) {
		if c.Endpoint == "models" {
			_ = c.Reply([]byte(c.Tenant))
			return
		}
		for i := range 100 {
			_ = c.Send(nil, fmt.Appendf(nil, "%s %d", c.Tenant, i))
		}
		_ = c.End()
	})
	must(t, err)
	for _, tenant := range []string{"acme", "beta"} {
		c := as(tenant+"-app", strings.ToUpper(tenant), true)
		m, err := c.Request(ctx, "quire.v1.models", nil)
		must(t, err)
		if string(m.Data) != tenant {
			t.Errorf("a call from account %s arrives as tenant %q", tenant, m.Data)
		}
		frames := 0
		must(t, c.Stream(ctx, bus.Ask{Subject: "quire.v1.chat", Data: []byte("?")}, func(m bus.Msg) error {
			if want := fmt.Sprintf("%s %d", tenant, frames); string(m.Data) != want {
				return fmt.Errorf("frame %q, want %q", m.Data, want)
			}
			frames++
			return nil
		}))
		if frames != 100 {
			t.Errorf("%d frames of 100 crossed the accounts", frames)
		}
	}
	acme := as("acme-app", "ACME", true)
	for _, forged := range []string{n.API("beta", "models"), n.API("acme", "models"), n.API("default", "models"), "quire.v1.models.models"} {
		if _, err := acme.Request(ctx, forged, nil); !errors.Is(err, bus.ErrNoResponders) {
			t.Errorf("a call to %s from account acme: %v", forged, err)
		}
	}
	if err := acme.Streams().EnsureShared(ctx); err == nil {
		t.Error("a tenant made streams")
	}
	if _, err := Connect(ctx, ConnectOptions{URLs: []string{s.URL()}, User: "acme-app", Password: "secret-of-ACME"}); err == nil ||
		!strings.Contains(err.Error(), "JetStream is not enabled for this account") {
		t.Errorf("a role in an account without JetStream: %v", err)
	}
}

// TestGoneAcrossAccounts: a caller in another account is never taken for gone. The server delivers to the mapping between the
// accounts and does not say whether anybody listened behind it.
func TestGoneAcrossAccounts(t *testing.T) {
	s := serveConfig(t, template(t, nil))
	as := func(user, who string, plain bool) *Conn {
		return connect(t, ConnectOptions{URLs: []string{s.URL()}, User: user, Password: "secret-of-" + who, Plain: plain})
	}
	var n bus.Names
	ctx := context.Background()
	role, ended := as("quire", "QUIRE", false), make(chan error, 2)
	_, err := role.Serve(ctx, bus.ServiceSpec{
		Name: "quire", Version: "1.0.0", Queue: "router", Endpoints: []bus.Endpoint{{Name: "chat", Subject: n.API("*", "chat")}},
	}, func(c *bus.Call) {
		go func() { ended <- bustest.Frames(c, 5*bus.ProbeEvery/2) }()
	})
	must(t, err)
	mine, acme := errors.New("mine"), as("acme-app", "ACME", true)
	must(t, acme.Stream(ctx, bus.Ask{Subject: "quire.v1.chat"}, func(bus.Msg) error { return nil }))
	must(t, <-ended)
	if err := acme.Stream(ctx, bus.Ask{Subject: "quire.v1.chat"}, func(bus.Msg) error { return mine }); !errors.Is(err, mine) {
		t.Fatal(err)
	}
	must(t, <-ended) // which the server does not tell
}

func TestForeignImportIsRefused(t *testing.T) {
	path := template(t, func(c string) string { return strings.Replace(c, "quire.v1.beta.*", "quire.v1.acme.*", 1) })
	s, err := Serve(ServerOptions{Config: path, Addr: "127.0.0.1:0"})
	if err == nil {
		s.Stop()
		t.Fatal("account beta imports the subjects of acme")
	}
	if !strings.Contains(err.Error(), "not authorized") {
		t.Fatalf("refused with %v", err)
	}
}

func serveConfig(t *testing.T, path string) *Server {
	t.Helper()
	s, err := Serve(ServerOptions{Config: path, Addr: "127.0.0.1:0"})
	must(t, err)
	t.Cleanup(s.Stop)
	return s
}
