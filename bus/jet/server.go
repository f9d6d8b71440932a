package jet

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"quire/bus"
)

// ServerOptions configure an embedded server.
type ServerOptions struct {
	Addr       string // HOST:PORT; port 0 picks a free one; "" = 127.0.0.1:4222
	DontListen bool   // in-process connections only; Addr is ignored
	Data       string // directory of JetStream's files; it makes a folder "jetstream" there
	MaxPayload int    // bytes; 0 = 8 MiB, at most 64 MiB
	MaxMemory  int64  // bytes of streams in memory; 0 = three quarters of the machine's
	MaxStore   int64  // bytes of streams on disk; 0 = three quarters of what is free
	Config     string // a nats-server configuration file (accounts, users, TLS, cluster); the fields above win where they are set
	Name       string // server name; "" = a generated one

	User, Password, Token  string   // at most one of the ways to authenticate may be set here
	NKeys                  []string // public user nkeys that may connect
	TLSCA, TLSCert, TLSKey string   // PEM files; a CA means that clients must show a certificate
	Insecure               bool     // allow to listen beyond loopback without any of the above
	HTTPPort               int      // NATS monitoring on the same host; 0 = none
	LeafAddr               string   // HOST:PORT where leaf nodes connect; "" = none do
	Leaf                   *Leaf    // makes this server a leaf node of others
	Log                    *slog.Logger
}

// readyTimeout bounds a server's start: a journal of many blocks takes seconds to recover.
const readyTimeout = time.Minute

// Server is an embedded NATS server with JetStream.
type Server struct {
	opt   ServerOptions
	log   *slog.Logger
	store string         // JetStream's directory
	sick  chan struct{}  // a store is broken
	stop  chan struct{}  // ends heal; nil while stopped
	ended chan struct{}  // heal has ended
	mu    sync.Mutex     // guards ns and addr
	ns    *server.Server // nil while stopped
	addr  string         // as bound
}

// Serve starts a server and returns when it takes connections. A port that is in use gives an InUse.
func Serve(o ServerOptions) (*Server, error) {
	switch {
	case o.DontListen:
		o.Addr = ""
	case o.Addr == "" && o.Config == "":
		o.Addr = "127.0.0.1:4222"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{opt: o, log: o.Log, addr: o.Addr, sick: make(chan struct{}, 1)}
	if err := s.start(); err != nil {
		return nil, err
	}
	s.watch()
	return s, nil
}

// watch starts heal.
func (s *Server) watch() {
	stop, ended := make(chan struct{}), make(chan struct{})
	s.stop, s.ended = stop, ended
	go func() {
		defer close(ended)
		s.heal(stop)
	}()
}

func (s *Server) start() error {
	opts, err := s.options()
	if err != nil {
		return err
	}
	if !opts.DontListen && opts.Port > 0 {
		if err := probe(net.JoinHostPort(opts.Host, strconv.Itoa(opts.Port))); err != nil {
			return err
		}
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("bus: server: %w", err)
	}
	fatal := make(chan string, 1)
	ns.SetLoggerV2(serverLog{s.log, fatal, s.sick}, false, false, false)
	ns.Start()
	ready := time.Now().Add(readyTimeout)
	for !ns.ReadyForConnections(100 * time.Millisecond) {
		select {
		case text := <-fatal:
			ns.Shutdown()
			return fmt.Errorf("bus: server: %s", text)
		default:
		}
		if time.Now().After(ready) {
			ns.Shutdown()
			return fmt.Errorf("bus: server: not ready after %v", readyTimeout)
		}
	}
	if !ns.JetStreamEnabled() {
		ns.Shutdown()
		return errors.New("bus: server: JetStream is off: add jetstream { store_dir: DIR } to the server's configuration")
	}
	s.mu.Lock()
	s.ns, s.store = ns, opts.StoreDir
	if !opts.DontListen {
		s.addr = ns.Addr().String()
	}
	s.mu.Unlock()
	return nil
}

// options turns ServerOptions into the server's own.
func (s *Server) options() (*server.Options, error) {
	o := &server.Options{}
	if s.opt.Config != "" {
		var err error
		if o, err = server.ProcessConfigFile(s.opt.Config); err != nil {
			return nil, fmt.Errorf("bus: server configuration %s: %w", s.opt.Config, err)
		}
	}
	if s.addr != "" {
		host, port, err := net.SplitHostPort(s.addr)
		if err != nil {
			return nil, fmt.Errorf("bus: server address %q: %w; want HOST:PORT", s.addr, err)
		}
		n, err := strconv.Atoi(port)
		if err != nil || n < 0 || n > 65535 {
			return nil, fmt.Errorf("bus: server address %q: port %s, allowed 0 to 65535", s.addr, port)
		}
		o.Host, o.Port = host, n
		if n == 0 {
			o.Port = server.RANDOM_PORT
		}
	}
	o.NoSigs, o.NoLog, o.DisableJetStreamBanner = true, true, true
	o.DontListen = s.opt.DontListen
	if s.opt.Name != "" {
		o.ServerName = s.opt.Name
	}
	if s.opt.MaxPayload != 0 {
		o.MaxPayload = int32(s.opt.MaxPayload)
	} else if s.opt.Config == "" {
		o.MaxPayload = bus.DefaultPayload
	}
	if s.opt.HTTPPort != 0 {
		o.HTTPHost, o.HTTPPort = o.Host, s.opt.HTTPPort
	}
	if s.opt.Data != "" {
		o.JetStream, o.StoreDir = true, s.opt.Data
	}
	if s.opt.MaxMemory != 0 {
		o.JetStreamMaxMemory = s.opt.MaxMemory
	}
	if s.opt.MaxStore != 0 {
		o.JetStreamMaxStore = s.opt.MaxStore
	}
	o.SyncAlways = true // the journal's acknowledgement means that it is on disk
	if err := errors.Join(s.secure(o), s.leafs(o)); err != nil {
		return nil, err
	}
	if o.JetStream && o.StoreDir == "" {
		return nil, errors.New("bus: server: no directory for JetStream's files")
	}
	return o, nil
}

// secure fills in who may connect, and refuses a server that anybody could reach.
func (s *Server) secure(o *server.Options) error {
	if s.opt.User != "" {
		o.Username, o.Password = s.opt.User, s.opt.Password
	}
	if s.opt.Token != "" {
		o.Authorization = s.opt.Token
	}
	for _, k := range s.opt.NKeys {
		o.Nkeys = append(o.Nkeys, &server.NkeyUser{Nkey: k})
	}
	if s.opt.TLSCert != "" {
		cfg, err := server.GenTLSConfig(&server.TLSConfigOpts{
			CertFile: s.opt.TLSCert, KeyFile: s.opt.TLSKey, CaFile: s.opt.TLSCA, Verify: s.opt.TLSCA != "",
		})
		if err != nil {
			return fmt.Errorf("bus: server TLS: %w", err)
		}
		o.TLSConfig, o.TLS, o.TLSTimeout = cfg, true, 5
	}
	if s.open(o) && !o.DontListen && !s.opt.Insecure && !loopback(o.Host) {
		return fmt.Errorf("bus: server on %s: anybody who reaches that address could read and write everything: "+
			"set credentials, listen on 127.0.0.1, or say --insecure", o.Host)
	}
	return nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Addr is the address on which the server listens, HOST:PORT; "" when it does not.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// URL is what clients connect to; "" when the server does not listen.
func (s *Server) URL() string {
	if addr := s.Addr(); addr != "" {
		return "nats://" + dialable(addr)
	}
	return ""
}

// Version is the server's version.
func (s *Server) Version() string { return server.VERSION }

// InProcessConn gives a connection to the server as it is now; it lets connections of this process survive a Restart.
func (s *Server) InProcessConn() (net.Conn, error) {
	s.mu.Lock()
	ns := s.ns
	s.mu.Unlock()
	if ns == nil {
		return nil, errors.New("bus: server: stopped")
	}
	return ns.InProcessConn()
}

// Clients is how many connections are open, those of this process included.
func (s *Server) Clients() int {
	s.mu.Lock()
	ns := s.ns
	s.mu.Unlock()
	if ns == nil {
		return 0
	}
	return ns.NumClients()
}

// Stop shuts the server down and waits for it; streams on disk stay. Stop and Restart are for one goroutine at a time.
func (s *Server) Stop() {
	if s.stop != nil {
		close(s.stop)
		<-s.ended
		s.stop = nil
	}
	s.shut()
}

func (s *Server) shut() {
	s.mu.Lock()
	ns := s.ns
	s.ns = nil
	s.mu.Unlock()
	if ns != nil {
		ns.Shutdown()
		ns.WaitForShutdown()
	}
}

// Restart starts a stopped server again, on the same address and directory.
func (s *Server) Restart() error {
	s.Stop()
	if err := s.start(); err != nil {
		return err
	}
	s.watch()
	return nil
}

// serverLog gives the server's own lines to slog: notices as debug, since the caller says what matters.
type serverLog struct {
	log   *slog.Logger
	fatal chan string
	sick  chan struct{}
}

func (l serverLog) Noticef(f string, v ...any) { l.log.Debug("nats: " + fmt.Sprintf(f, v...)) }
func (l serverLog) Warnf(f string, v ...any)   { l.log.Warn("nats: " + fmt.Sprintf(f, v...)) }
func (l serverLog) Errorf(f string, v ...any) {
	text := fmt.Sprintf(f, v...)
	l.log.Error("nats: " + text)
	if broken(text) {
		select {
		case l.sick <- struct{}{}:
		default: // said already
		}
	}
}
func (l serverLog) Debugf(f string, v ...any) {}
func (l serverLog) Tracef(f string, v ...any) {}
func (l serverLog) Fatalf(f string, v ...any) {
	text := fmt.Sprintf(f, v...)
	l.log.Error("nats: " + text)
	select {
	case l.fatal <- text:
	default:
	}
}
