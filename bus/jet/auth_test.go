package jet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"quire/bus"
)

// pingable says that a connection works.
func pingable(t *testing.T, c *Conn) {
	t.Helper()
	must(t, c.Streams().EnsureShared(context.Background()))
}

func refused(t *testing.T, o ConnectOptions, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	o.reconnectWait = 10 * time.Millisecond
	c, err := Connect(ctx, o)
	if err == nil {
		_ = c.Close()
		t.Fatalf("connected; want an error that says %q", text)
	}
	if !strings.Contains(err.Error(), text) || ctx.Err() != nil {
		t.Errorf("error %v does not say %q", err, text)
	}
}

func TestUserTokenAndNkey(t *testing.T) {
	t.Parallel()
	t.Run("user", func(t *testing.T) {
		s := serve(t, ServerOptions{User: "quire", Password: "secret"})
		pingable(t, connect(t, ConnectOptions{URLs: []string{s.URL()}, User: "quire", Password: "secret"}))
		pingable(t, connect(t, ConnectOptions{URLs: []string{"nats://quire:secret@" + s.Addr()}}))
		pingable(t, connect(t, ConnectOptions{Server: s, User: "quire", Password: "secret"}))
		refused(t, ConnectOptions{URLs: []string{s.URL()}, User: "quire", Password: "wrong"}, "check --nats-creds")
		refused(t, ConnectOptions{URLs: []string{s.URL()}}, "Authorization")
	})
	t.Run("token", func(t *testing.T) {
		s := serve(t, ServerOptions{Token: "secret"})
		pingable(t, connect(t, ConnectOptions{URLs: []string{s.URL()}, Token: "secret"}))
		refused(t, ConnectOptions{URLs: []string{s.URL()}, Token: "wrong"}, "Authorization")
	})
	t.Run("nkey", func(t *testing.T) {
		pair, err := nkeys.CreateUser()
		must(t, err)
		public, err := pair.PublicKey()
		must(t, err)
		s := serve(t, ServerOptions{NKeys: []string{public}})
		pingable(t, connect(t, ConnectOptions{URLs: []string{s.URL()}, NKey: seedFile(t, pair)}))
		stranger, err := nkeys.CreateUser()
		must(t, err)
		refused(t, ConnectOptions{URLs: []string{s.URL()}, NKey: seedFile(t, stranger)}, "Authorization")
	})
	refused(t, ConnectOptions{User: "a", Token: "b"}, "2 kinds set")
	refused(t, ConnectOptions{Creds: filepath.Join(t.TempDir(), "none")}, "no such file")
	refused(t, ConnectOptions{TLSCert: seedFileText(t, "x")}, "come together")
}

func seedFile(t *testing.T, pair nkeys.KeyPair) string {
	t.Helper()
	seed, err := pair.Seed()
	must(t, err)
	return seedFileText(t, string(seed))
}

func seedFileText(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "seed")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestCreds connects with a credentials file to a server in operator mode.
func TestCreds(t *testing.T) {
	t.Parallel()
	operator, account, user := pairOf(t, nkeys.CreateOperator), pairOf(t, nkeys.CreateAccount), pairOf(t, nkeys.CreateUser)
	system := pairOf(t, nkeys.CreateAccount)
	oc := jwt.NewOperatorClaims(public(t, operator))
	oc.SystemAccount = public(t, system)
	ac := jwt.NewAccountClaims(public(t, account))
	ac.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	encode := func(c jwt.Claims, by nkeys.KeyPair) string {
		text, err := c.Encode(by)
		must(t, err)
		return text
	}
	userJWT := encode(jwt.NewUserClaims(public(t, user)), account)
	conf := fmt.Sprintf("operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: { %s: %s, %s: %s }\njetstream { store_dir: '%s' }\n",
		encode(oc, operator), public(t, system), public(t, account), encode(ac, operator),
		public(t, system), encode(jwt.NewAccountClaims(public(t, system)), operator), t.TempDir())
	s := serveConfig(t, seedFileText(t, conf))
	seed, err := user.Seed()
	must(t, err)
	creds, err := jwt.FormatUserConfig(userJWT, seed)
	must(t, err)
	pingable(t, connect(t, ConnectOptions{URLs: []string{s.URL()}, Creds: seedFileText(t, string(creds))}))
}

func pairOf(t *testing.T, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
	t.Helper()
	p, err := create()
	must(t, err)
	return p
}

func public(t *testing.T, p nkeys.KeyPair) string {
	t.Helper()
	text, err := p.PublicKey()
	must(t, err)
	return text
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ca, cert, key := certificates(t)
	s := serve(t, ServerOptions{TLSCA: ca, TLSCert: cert, TLSKey: key})
	url := "tls://" + s.Addr()
	pingable(t, connect(t, ConnectOptions{URLs: []string{url}, TLSCA: ca, TLSCert: cert, TLSKey: key}))
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if c, err := Connect(ctx, ConnectOptions{URLs: []string{url}, TLSCA: ca, reconnectWait: 10 * time.Millisecond}); err == nil {
		_ = c.Close()
		t.Error("connected without a client certificate")
	}
}

// certificates makes a CA and one certificate for 127.0.0.1, for server and client.
func certificates(t *testing.T) (caFile, certFile, keyFile string) {
	t.Helper()
	dir := t.TempDir()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	must(t, err)
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, leafKey.Public(), caKey)
	must(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(leafKey)
	must(t, err)
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	return write("ca.pem", "CERTIFICATE", caDER), write("cert.pem", "CERTIFICATE", leafDER), write("key.pem", "PRIVATE KEY", keyDER)
}

func TestNATSContext(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	write := func(name, text string) {
		folder := filepath.Join(dir, "nats", "context")
		must(t, os.MkdirAll(folder, 0o700))
		must(t, os.WriteFile(filepath.Join(folder, name+".json"), []byte(text), 0o600))
	}
	s := serve(t, ServerOptions{User: "quire", Password: "secret"})
	write("lab", fmt.Sprintf(`{"description":"x","url":%q,"user":"quire","password":"secret","inbox_prefix":"_INBOX_me"}`, s.URL()))
	c := connect(t, ConnectOptions{Context: "lab"})
	pingable(t, c)
	if inbox := c.nc.NewInbox(); !strings.HasPrefix(inbox, "_INBOX_me.") {
		t.Errorf("inbox %s", inbox)
	}
	write("other", `{"url":"nats://127.0.0.1:1","user":"quire","password":"wrong"}`)
	pingable(t, connect(t, ConnectOptions{Context: "other", URLs: []string{s.URL()}, User: "quire", Password: "secret"}))
	write("nsc", `{"nsc":"nsc://x/y/z"}`)
	refused(t, ConnectOptions{Context: "nsc"}, "field nsc is not supported")
	write("broken", `{"url":`)
	refused(t, ConnectOptions{Context: "broken"}, "broken.json")
	refused(t, ConnectOptions{Context: "none"}, "nats context ls")
	refused(t, ConnectOptions{Context: "../lab"}, "not a name")
}

func TestNoSecretInLimitsAndErrors(t *testing.T) {
	s := serve(t, ServerOptions{User: "quire", Password: "hunter2"})
	c := connect(t, ConnectOptions{URLs: []string{"nats://quire:hunter2@" + s.Addr()}})
	if strings.Contains(c.Limits().URL, "hunter2") {
		t.Errorf("limits say %s", c.Limits().URL)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := Connect(ctx, ConnectOptions{URLs: []string{"nats://quire:hunter2@127.0.0.1:1"}}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %v", err)
	}
	var _ bus.Bus = c
}

// TestServiceDiscovery asks as the nats CLI does ("nats micro ls", "nats micro stats").
func TestServiceDiscovery(t *testing.T) {
	t.Parallel()
	c := connect(t, ConnectOptions{Server: serve(t, ServerOptions{DontListen: true})})
	ctx := context.Background()
	_, err := c.Serve(ctx, bus.ServiceSpec{
		Name: "quire", Version: "1.2.3", Queue: "router", Description: "inference", Metadata: map[string]string{"id": "r1"},
		Endpoints: []bus.Endpoint{{Name: "chat", Subject: bus.Names{}.API("*", "chat"), Metadata: map[string]string{"schema": "docs/api.md"}}},
		Stats:     func() any { return map[string]int{"refused": 7} },
	}, func(*bus.Call) {})
	must(t, err)
	for subject, texts := range map[string][]string{
		"$SRV.PING.quire":  {`"version":"1.2.3"`, `"id":"r1"`},
		"$SRV.INFO.quire":  {`"queue_group":"router"`, `quire.v1.*.chat`, "inference", "docs/api.md"},
		"$SRV.STATS.quire": {`"refused":7`},
	} {
		m, err := c.Request(ctx, subject, nil)
		must(t, err)
		for _, text := range texts {
			if !strings.Contains(string(m.Data), text) {
				t.Errorf("%s: %s does not say %s", subject, m.Data, text)
			}
		}
	}
}
