package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"quire/bus/jet"
	"quire/prefill"
)

// leafPort is where NATS servers take leaf nodes unless told otherwise.
const leafPort = "7422"

// embed starts a server in this process that keeps the frames of one decode worker in its memory, from where they reach the
// worker without a socket. They come straight to it where it listens, else over its leaf node connection to the bus, on which
// everything else stays.
func (c *Cluster) embed(ctx context.Context, w *worker) error {
	b := c.o.Bus
	if b.Token != "" || b.Context != "" {
		return errors.New("cluster: --embed-bus: a leaf node shows a user and password, an nkey, a creds file or a certificate, " +
			"not a token or a context: give those flags")
	}
	urls, err := b.leafURLs()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "quire-decode-*") // JetStream wants one; the frames' stream is in memory
	if err != nil {
		return fmt.Errorf("cluster: --embed-bus: %w", err)
	}
	c.add("directory of the embedded bus", func(context.Context) error { return os.RemoveAll(dir) })
	s, err := jet.Serve(jet.ServerOptions{Addr: b.Frames, DontListen: b.Frames == "", Data: dir, User: b.User, Password: b.Password, TLSCA: b.CA,
		TLSCert: b.Cert, TLSKey: b.CertKey, Insecure: c.o.Door.Insecure, Log: c.log, Leaf: &jet.Leaf{URLs: urls, Domain: "decode-" + w.id,
			Creds: b.Creds, NKey: b.NKey, User: b.User, Password: b.Password, TLSCA: b.CA, TLSCert: b.Cert, TLSKey: b.CertKey}})
	if err != nil {
		return err
	}
	c.add("embedded bus", func(context.Context) error { s.Stop(); return nil })
	err = c.wait(ctx, fmt.Sprintf("a leaf node connection to %v", hosts(urls)), func() error {
		if s.Leafs() == 0 {
			return errors.New("not connected")
		}
		return nil
	}, func(error) bool { return true })
	if err != nil {
		return err
	}
	conn, err := jet.Connect(ctx, jet.ConnectOptions{Server: s, Name: "decode/" + w.id + "/kv", User: b.User, Password: b.Password, TLSCA: b.CA,
		Names: c.o.names(), Log: c.log})
	if err != nil {
		return err
	}
	c.add("connection to the embedded bus", func(context.Context) error { return conn.Close() })
	w.kv = conn
	if b.Frames != "" {
		w.frames = cmp.Or(b.FramesURL, s.URL())
	}
	return nil
}

// dialFrames connects prefill to the server of a decode.
func (c *Cluster) dialFrames(id string) func(ctx context.Context, url string) (prefill.FrameBus, error) {
	return func(ctx context.Context, url string) (prefill.FrameBus, error) {
		b := c.o.Bus
		b.URLs = []string{url}
		if err := (Options{Bus: b, Door: c.o.Door}).checkExposure(false); err != nil {
			return nil, err
		}
		return jet.Connect(ctx, jet.ConnectOptions{URLs: b.URLs, Name: "prefill/" + id + "/frames", User: b.User, Password: b.Password, TLSCA: b.CA,
			TLSCert: b.Cert, TLSKey: b.CertKey, Names: c.o.names(), Log: c.log})
	}
}

// leafURLs are where to connect as a leaf node.
func (b BusOptions) leafURLs() ([]string, error) {
	if len(b.LeafURLs) > 0 {
		return b.LeafURLs, nil
	}
	var urls []string
	for _, u := range b.URLs {
		host, _, err := net.SplitHostPort(hostOf(u))
		if err != nil {
			return nil, fmt.Errorf("cluster: --nats-url %s: %w", hostOf(u), err)
		}
		urls = append(urls, "nats-leaf://"+net.JoinHostPort(host, leafPort))
	}
	return urls, nil
}

// hosts are URLs as they may be logged.
func hosts(urls []string) []string {
	var out []string
	for _, u := range urls {
		out = append(out, hostOf(u))
	}
	return out
}
