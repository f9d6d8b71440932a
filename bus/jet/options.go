package jet

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"quire/bus"
)

// ConnectOptions say where the server is and who asks.
type ConnectOptions struct {
	URLs   []string // any of these; "" entries are ignored; none = nats://127.0.0.1:4222
	Server *Server  // a server in this process, reached without a socket; URLs are then ignored
	Name   string   // shown by "nats server report connections", as role/id

	Creds                  string // file with a JWT and seed
	NKey                   string // file with an nkey seed
	User, Password, Token  string
	TLSCA, TLSCert, TLSKey string // PEM files
	TLSFirst               bool   // TLS before the server's greeting
	Context                string // name of a NATS context; fields set above win over it
	InboxPrefix            string // "" = _INBOX

	Names        bus.Names
	Plain        bool          // a client without JetStream: only the version and max_payload are looked at
	Replicas     int           // of the streams that all share; 0 = 3 on a NATS cluster of three servers or more, else 1
	JournalBytes int64         // 0 = bus.JournalBytes
	JournalAge   time.Duration // 0 = bus.JournalAge
	Log          *slog.Logger

	reconnectWait time.Duration // tests shorten it, and
	inactive      time.Duration // the time after which the server drops a consumer that nobody pulls from
}

// natsOptions turns what the user gave into options of nats.go.
func (o *ConnectOptions) natsOptions() ([]nats.Option, error) {
	opts := []nats.Option{
		nats.Name(o.Name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectBufSize(-1), // what cannot be sent now fails now
		nats.ReconnectWait(o.reconnectWait),
		nats.ReconnectJitter(o.reconnectWait/4, o.reconnectWait/2),
		nats.Timeout(3 * time.Second),
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.DrainTimeout(closeWithin),
	}
	if o.Server != nil {
		opts = append(opts, nats.InProcessServer(o.Server))
	}
	if o.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(o.InboxPrefix))
	}
	auth, err := o.auth()
	if err != nil {
		return nil, err
	}
	return append(opts, auth...), nil
}

func (o *ConnectOptions) auth() (opts []nats.Option, err error) {
	ways := 0
	for _, set := range []bool{o.Creds != "", o.NKey != "", o.User != "", o.Token != ""} {
		if set {
			ways++
		}
	}
	if ways > 1 {
		return nil, fmt.Errorf("bus: credentials: %d kinds set, want one of creds, nkey, user and token", ways)
	}
	for _, f := range []string{o.Creds, o.NKey, o.TLSCA, o.TLSCert, o.TLSKey} {
		if f == "" {
			continue
		}
		if _, err := os.Stat(f); err != nil {
			return nil, fmt.Errorf("bus: credentials: %w", err)
		}
	}
	switch {
	case o.Creds != "":
		opts = append(opts, nats.UserCredentials(o.Creds))
	case o.NKey != "":
		nkey, err := nats.NkeyOptionFromSeed(o.NKey)
		if err != nil {
			return nil, fmt.Errorf("bus: nkey seed %s: %w", o.NKey, err)
		}
		opts = append(opts, nkey)
	case o.User != "":
		opts = append(opts, nats.UserInfo(o.User, o.Password))
	case o.Token != "":
		opts = append(opts, nats.Token(o.Token))
	}
	if o.TLSCA != "" {
		opts = append(opts, nats.RootCAs(o.TLSCA))
	}
	if (o.TLSCert == "") != (o.TLSKey == "") {
		return nil, errors.New("bus: credentials: a TLS certificate and its key come together")
	}
	if o.TLSCert != "" {
		opts = append(opts, nats.ClientCert(o.TLSCert, o.TLSKey))
	}
	if o.TLSFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	return opts, nil
}

func (o *ConnectOptions) urls() string {
	var urls []string
	for _, u := range o.URLs {
		for _, one := range strings.Split(u, ",") {
			if one = strings.TrimSpace(one); one != "" {
				urls = append(urls, one)
			}
		}
	}
	if len(urls) == 0 {
		return nats.DefaultURL
	}
	return strings.Join(urls, ",")
}
