package jet

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Leaf makes a server a leaf node of others: messages for subjects that somebody listens to here come over one connection, and
// its own JetStream, under a domain of its own, is apart from theirs.
type Leaf struct {
	URLs   []string // where the others take leaf nodes; nats-leaf://HOST:PORT
	Domain string   // of the JetStream here; not empty

	Creds, NKey            string // file with a JWT and seed; file with an nkey seed
	User, Password         string
	TLSCA, TLSCert, TLSKey string // PEM files
}

// remote is the leaf as the server's options want it.
func (l *Leaf) remote() (*server.RemoteLeafOpts, error) {
	if l.Domain == "" {
		return nil, errors.New("bus: leaf node: no JetStream domain")
	}
	// Frames are sealed: they do not get smaller.
	r := &server.RemoteLeafOpts{Credentials: l.Creds, Compression: server.CompressionOpts{Mode: server.CompressionOff}}
	for _, text := range l.URLs {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("bus: leaf node: %q is no URL like nats-leaf://127.0.0.1:7422", text)
		}
		if l.User != "" && u.User == nil {
			u.User = url.UserPassword(l.User, l.Password)
		}
		r.URLs = append(r.URLs, u)
	}
	if len(r.URLs) == 0 {
		return nil, errors.New("bus: leaf node: no server to be a leaf of")
	}
	for _, f := range []string{l.Creds, l.NKey} {
		if f == "" {
			continue
		}
		if _, err := os.Stat(f); err != nil {
			return nil, fmt.Errorf("bus: leaf node: %w", err)
		}
	}
	if l.NKey != "" {
		seed, err := os.ReadFile(l.NKey)
		if err != nil {
			return nil, fmt.Errorf("bus: leaf node: %w", err)
		}
		r.Nkey = string(seed)
	}
	if l.TLSCA != "" || l.TLSCert != "" {
		cfg, err := server.GenTLSConfig(&server.TLSConfigOpts{CertFile: l.TLSCert, KeyFile: l.TLSKey, CaFile: l.TLSCA})
		if err != nil {
			return nil, fmt.Errorf("bus: leaf node: TLS: %w", err)
		}
		cfg.RootCAs, cfg.ClientCAs = cfg.ClientCAs, nil
		r.TLS, r.TLSConfig = true, cfg
	}
	return r, nil
}

// leafs fills in whom this server takes as leaf nodes, and whose leaf it is.
func (s *Server) leafs(o *server.Options) error {
	if s.opt.LeafAddr != "" {
		host, port, err := net.SplitHostPort(s.opt.LeafAddr)
		if err != nil {
			return fmt.Errorf("bus: leaf nodes: address %q: %w; want HOST:PORT", s.opt.LeafAddr, err)
		}
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("bus: leaf nodes: address %q: port %s, allowed 1 to 65535", s.opt.LeafAddr, port)
		}
		if !loopback(host) && o.Host != host && !s.opt.Insecure && s.open(o) {
			return fmt.Errorf("bus: leaf nodes on %s: anybody who reaches that address could read and write everything: "+
				"set credentials, listen on 127.0.0.1, or say --insecure", host)
		}
		o.LeafNode.Host, o.LeafNode.Port = host, n
		o.LeafNode.Compression = server.CompressionOpts{Mode: server.CompressionOff}
		if o.TLSConfig != nil && o.LeafNode.TLSConfig == nil {
			o.LeafNode.TLSConfig, o.LeafNode.TLSTimeout = o.TLSConfig, o.TLSTimeout
		}
	}
	if s.opt.Leaf != nil {
		r, err := s.opt.Leaf.remote()
		if err != nil {
			return err
		}
		o.LeafNode.Remotes, o.JetStreamDomain = append(o.LeafNode.Remotes, r), s.opt.Leaf.Domain
		o.LeafNode.ReconnectInterval = time.Second
	}
	return nil
}

// open says that a server asks nobody who they are.
func (s *Server) open(o *server.Options) bool {
	return o.Username == "" && o.Authorization == "" && len(o.Nkeys) == 0 && len(o.Users) == 0 &&
		len(o.TrustedOperators) == 0 && o.AuthCallout == nil && s.opt.TLSCA == ""
}

// Leafs is how many leaf node connections the server has: leafs of it, and those by which it is one.
func (s *Server) Leafs() int {
	s.mu.Lock()
	ns := s.ns
	s.mu.Unlock()
	if ns == nil {
		return 0
	}
	return ns.NumLeafNodes()
}
