package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"quire/bus"
	"quire/bus/jet"
	"quire/keys"
	"quire/kvtransfer/seal"
	"quire/replay"
)

// pastFlags say where the journal is read from: a live bus, a backup of its stream, or a bundle.
type pastFlags struct {
	dataFlags
	busFlags
	From string `name:"from" placeholder:"PATH" help:"A bundle of quire replay export, or what nats stream backup wrote (its folder, or a tar of it); the live bus otherwise."`
	JSON bool   `name:"json" help:"Print JSON."`
}

// windowFlags bound what is looked at by the server's time.
type windowFlags struct {
	Since  string `name:"since" placeholder:"TIME" help:"From this time on, like 2026-09-01T12:00:00Z or 2026-09-01; the beginning otherwise."`
	Until  string `name:"until" placeholder:"TIME" help:"Before this time; the end otherwise."`
	Tenant string `name:"tenant" placeholder:"TENANT" help:"One tenant alone."`
}

func (w windowFlags) times() (since, until time.Time, err error) {
	for _, t := range []struct {
		flag, text string
		to         *time.Time
	}{{"since", w.Since, &since}, {"until", w.Until, &until}} {
		if t.text == "" {
			continue
		}
		m, err := replay.ParseMoment(t.text)
		if err != nil || m.Time.IsZero() {
			return since, until, usage("--%s %s: a time like 2026-09-01T12:00:00Z is wanted", t.flag, t.text)
		}
		*t.to = m.Time
	}
	return since, until, nil
}

// source opens what --from names, or the bus. The caller closes it.
func (f pastFlags) source(ctx context.Context) (replay.Source, func(), error) {
	if f.From != "" {
		if replay.IsBundle(f.From) {
			return replay.Bundle{Path: f.From}, func() {}, nil
		}
		b, err := jet.OpenBackup(ctx, f.From)
		if err != nil {
			return nil, nil, err
		}
		return replay.Stream{Reader: b, Name: b.Stream}, func() { _ = b.Close() }, nil
	}
	conn, names, err := f.busFlags.connect(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("%w; --from reads a bundle or a backup", err)
	}
	return replay.Stream{Reader: conn, Name: names.JournalStream()}, func() { _ = conn.Close() }, nil
}

// connect goes to the bus, as an operator.
func (f busFlags) connect(ctx context.Context) (*jet.Conn, bus.Names, error) {
	if err := f.checkURLs(); err != nil {
		return nil, bus.Names{}, err
	}
	o := f.roleBus()
	names := bus.Names{Prefix: o.Prefix}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	conn, err := jet.Connect(ctx, jet.ConnectOptions{URLs: o.URLs, Name: "quire replay", Creds: o.Creds, NKey: o.NKey, User: o.User,
		Password: o.Password, Token: o.Token, TLSCA: o.CA, TLSCert: o.Cert, TLSKey: o.CertKey, Context: o.Context, InboxPrefix: o.Inbox, Names: names})
	return conn, names, err
}

// verifier are the public keys, nil where there are none: then a line says that no signature is checked.
func (f pastFlags) verifier(s streams) (seal.Verifier, error) {
	dir := f.keysDir()
	if _, err := os.Stat(dir); err != nil && f.Keys == "" {
		fmt.Fprintf(s.err, "quire: no signature is checked: no keys in %s; --keys names a folder with cluster.json\n", dir)
		return nil, nil
	}
	ring, err := keys.Public(dir)
	if err != nil {
		return nil, err
	}
	return ring, nil
}

func (f pastFlags) keysDir() string {
	if f.Keys != "" {
		return f.Keys
	}
	return filepath.Join(f.Data, "keys")
}

// past reads the whole journal.
func (f pastFlags) past(ctx context.Context, s streams) (*replay.Past, error) {
	verifier, err := f.verifier(s)
	if err != nil {
		return nil, err
	}
	src, done, err := f.source(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return replay.Read(ctx, src, verifier)
}

// printJSON prints one value, indented.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
