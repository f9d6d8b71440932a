// Package cluster wires roles into one process: all of them for `quire up`, one for `quire bus`, `router`, `prefill` and
// `decode`. It decides nothing about requests: it opens what the roles need, in order, checks what must hold before anything
// is served, and takes everything down again.
package cluster

import (
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"quire/bus"
	"quire/router/console"
)

// Options of a cluster or of a single role. cmd/quire fills them from flags; the zero value of a number means its default.
type Options struct {
	Version string
	Self    string // how to call this program, for lines to paste; "" = quire
	ID      string // of a single role: slug [a-z0-9-]{1,32}
	Data    string // directory of JetStream's files and, unless Keys says otherwise, of the keys
	Keys    string
	Bus     BusOptions
	Model   ModelOptions
	Pool    PoolOptions
	Door    DoorOptions
	Prefill int // workers of `up`
	Decode  int
	Log     *slog.Logger
	// Env looks up what OpenTelemetry's variables say; nil = traces are sent nowhere.
	Env func(name string) string
	// Past, when set, begins to read a journal anew for the console's slider.
	Past func(r bus.Reader, stream string) console.Past
	// Progress, when set, gives what is told how many of total bytes are done of the thing with this label.
	Progress func(label string) func(done, total int64)
}

// BusOptions say where the bus is.
type BusOptions struct {
	Listen  string   // HOST:PORT of the embedded server; port 0 = a free one
	URLs    []string // servers to use instead of an embedded one
	Context string   // name of a NATS context
	Config  string   // nats-server configuration file of the embedded server; "" = none
	Inbox   string   // prefix of this process's inboxes; "" = _INBOX
	Creds   string   // file
	NKey    string   // file with a user's seed
	CA      string   // PEM file; with the embedded server: clients must show a certificate of it
	Cert    string   // PEM file: what this side shows
	CertKey string

	Accounts string   // directory of an accounts configuration, which the embedded server makes and serves; "" = none
	Tenants  []string // who gets an account in it, beside those that have one

	Leafs     string   // HOST:PORT where the embedded server takes leaf nodes; "" = it takes none
	Embed     bool     // decode: a server in this process takes the frames, as a leaf node of LeafURLs
	LeafURLs  []string // none = port 7422 of the hosts in URLs
	Frames    string   // HOST:PORT where that server listens for frames; "" = they come through the bus
	FramesURL string   // where prefill workers find it; "" = at Frames

	User, Password, Token string
	Prefix                string // of subjects; default quire
	Replicas              int    // of the shared streams, on a NATS cluster; 0 = 1
	JournalOpen           bool   // decode works on, and counts, when the journal takes no facts
	JournalOff            bool   // nothing is recorded: for measuring alone
}

// External says that the bus is somebody else's server.
func (b BusOptions) External() bool { return len(b.URLs) > 0 || b.Context != "" }

// Credentials says that a client has something to show to the server.
func (b BusOptions) Credentials() bool {
	return b.Creds != "" || b.NKey != "" || b.Cert != "" || b.Context != "" || b.User != "" || b.Token != "" ||
		slices.ContainsFunc(b.URLs, func(u string) bool { return strings.Contains(u, "@") })
}

// ModelOptions say what is served.
type ModelOptions struct {
	Path   string // GGUF file or Hugging Face directory; "" = the embedded model
	Name   string // as clients name it; "" = what the file says
	MaxLen int    // tokens a request may take; 0 = the largest that fits
	KVType string // f16 (default), f32 or q8_0
}

// PoolOptions size a worker.
type PoolOptions struct {
	Device      string // auto (default), cpu, cuda or cuda:N
	PageSize    int    // token slots of a page; default 16
	Pages       int    // of each pool; 0 = chosen by the model's context and the machine's memory
	Threads     int    // of the device; 0 = one for each CPU
	Variant     string // of the kernels; "" = the fastest that runs here
	Activations string // int8 or f32; "" = the device's default
	Running     int    // requests that a worker works on at once; 0 = the service's default
	Chunk       int    // rows of one prefill step; 0 = the service's default
	Lease       time.Duration
}

// DoorOptions are about clients.
type DoorOptions struct {
	HTTP             string            // HOST:PORT; port 0 = a free one
	Keys             map[string]string // API key -> tenant; empty = no key is asked for and everybody is tenant default
	AdminKey         string            // of the console and the profiles; "" = none
	DefaultMaxTokens int
	Queue            int           // requests that may wait in all
	TenantQueue      int           // requests of one tenant that may wait
	Open             int           // requests that may be open at each door, waiting or not
	Deadline         time.Duration // of a request that names none
	MixedCompute     bool
	Accounts         bool     // the bus has an account for each tenant, whose name the server fills into its subjects
	Tape             []string // tenants whose content is recorded: by a router prompts and answers, by a decode what came in their hand-offs
	Insecure         bool     // allow other machines in without keys or credentials
}

// progress is Progress, or nil.
func (o Options) progress(label string) func(done, total int64) {
	if o.Progress == nil {
		return nil
	}
	return o.Progress(label)
}

// keysDir is where the keys are.
func (o Options) keysDir() string {
	if o.Keys != "" {
		return o.Keys
	}
	return filepath.Join(o.Data, "keys")
}

// checkExposure refuses doors that anybody on the network could use, unless the operator said so. The embedded server looks after
// its own door.
func (o Options) checkExposure(http bool) error {
	if o.Door.Insecure {
		return nil
	}
	if http && !loopback(o.Door.HTTP) && len(o.Door.Keys) == 0 {
		return fmt.Errorf("cluster: --http %s is open to other machines and no API key is asked for: give --api-key KEY=TENANT, "+
			"listen on 127.0.0.1, or say --insecure", o.Door.HTTP)
	}
	for _, u := range o.Bus.URLs {
		if !loopback(hostOf(u)) && !o.Bus.Credentials() {
			return fmt.Errorf("cluster: --nats-url %s is on another machine and there are no credentials for it: give --nats-creds, "+
				"--nats-nkey, --nats-context or --nats-cert, or say --insecure", hostOf(u))
		}
	}
	return nil
}

// hostOf gives HOST:PORT of a NATS URL.
func hostOf(u string) string {
	if _, rest, ok := strings.Cut(u, "://"); ok {
		u = rest
	}
	if i := strings.LastIndex(u, "@"); i >= 0 {
		u = u[i+1:]
	}
	u = strings.TrimSuffix(u, "/")
	if _, _, err := net.SplitHostPort(u); err != nil {
		return net.JoinHostPort(strings.Trim(u, "[]"), "4222")
	}
	return u
}

// loopback says whether only this machine reaches an address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
