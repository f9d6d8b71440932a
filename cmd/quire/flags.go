package main

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"quire/cluster"
	"quire/device/open"
	"quire/model"
	"quire/router"
)

// Flags that several verbs share. Names are part of the interface: scripts and config files rely on them.

type logFlags struct {
	LogFormat string `name:"log-format" enum:"text,json" default:"text" help:"text or json: one record a line."`
	LogLevel  string `name:"log-level" enum:"debug,info,warn,error" default:"info" help:"debug, info, warn or error."`
}

type dataFlags struct {
	Data string `name:"data" default:".quire" placeholder:"DIR" help:"Directory for JetStream's files and the keys (.quire)."`
	Keys string `name:"keys" placeholder:"DIR" help:"Directory of the cluster's keys (DATA/keys)."`
}

// natsFlags are what a client shows to a NATS server, and what the embedded server asks of its clients.
type natsFlags struct {
	NATSUser     string `name:"nats-user" placeholder:"USER" help:"User of the NATS server; the embedded server asks for it."`
	NATSPassword string `name:"nats-password" placeholder:"PASSWORD" help:"The user's password."`
	NATSToken    string `name:"nats-token" placeholder:"TOKEN" help:"Token of the NATS server; the embedded server asks for it."`
	NATSCA       string `name:"nats-ca" placeholder:"FILE" help:"Certificate authority of the other side, PEM; the embedded server then wants client certificates."`
	NATSCert     string `name:"nats-cert" placeholder:"FILE" help:"Certificate of this side, PEM."`
	NATSCertKey  string `name:"nats-cert-key" placeholder:"FILE" help:"Its key, PEM."`
	Prefix       string `name:"prefix" default:"quire" help:"First token of every subject."`
	Replicas     int    `name:"nats-replicas" placeholder:"N" help:"Copies of the shared streams on a NATS cluster, 1 to 5; three where there are three servers, else one."`
	Insecure     bool   `name:"insecure" help:"Let other machines in without API keys or NATS credentials."`
}

func (f natsFlags) options() cluster.BusOptions {
	return cluster.BusOptions{User: f.NATSUser, Password: f.NATSPassword, Token: f.NATSToken, CA: f.NATSCA, Cert: f.NATSCert,
		CertKey: f.NATSCertKey, Prefix: f.Prefix, Replicas: f.Replicas}
}

// serverFlags are about the embedded NATS server.
type serverFlags struct {
	NATS       string `name:"nats" default:"127.0.0.1:4222" placeholder:"HOST:PORT" help:"Where the embedded NATS server listens; port 0 picks a free one."`
	NATSConfig string `name:"nats-config" placeholder:"FILE" help:"A nats-server configuration for the embedded server: accounts, users, TLS, cluster."`
}

// busFlags say how to reach a NATS server.
type busFlags struct {
	natsFlags
	NATSURL     []string `name:"nats-url" placeholder:"URL,..." help:"NATS servers to use."`
	NATSContext string   `name:"nats-context" placeholder:"NAME" help:"A context of the nats CLI."`
	NATSCreds   string   `name:"nats-creds" placeholder:"FILE" help:"Credentials file."`
	NATSNKey    string   `name:"nats-nkey" placeholder:"FILE" help:"File with a user's nkey seed."`
	NATSInbox   string   `name:"nats-inbox-prefix" placeholder:"PREFIX" help:"First token of this process's inboxes, where the server allows no others; _INBOX otherwise."`
}

type modelFlags struct {
	Model       string `name:"model" aliases:"model-path" placeholder:"M" help:"GGUF file, Hugging Face directory, or a name from quire pull; the built-in model otherwise."`
	Models      string `name:"models" placeholder:"DIR" help:"Where quire pull keeps models."`
	ServedName  string `name:"served-model-name" placeholder:"NAME" help:"What clients call the model."`
	MaxModelLen string `name:"max-model-len" aliases:"context-length" default:"auto" placeholder:"N" help:"Tokens that a request may take, prompt and answer together, or auto: the largest that fits."`
}

type poolFlags struct {
	Device   string        `name:"device" default:"auto" placeholder:"D" help:"What computes: auto, cpu, cuda (the first GPU) or cuda:N; auto takes a GPU where there is one."`
	PageSize int           `name:"page-size" aliases:"block-size" default:"16" placeholder:"N" help:"Token slots of a page."`
	KVPages  int           `name:"kv-pages" aliases:"num-pages" placeholder:"N" help:"Pages of a worker's pool; chosen by context and memory otherwise."`
	KVType   string        `name:"kv-type" aliases:"kv-cache-dtype" enum:"f16,f32,q8_0" default:"f16" help:"f16, f32 or q8_0: how keys and values are kept."`
	Threads  int           `name:"threads" placeholder:"N" help:"Threads that compute; one for each CPU otherwise."`
	Variant  string        `name:"cpu-variant" placeholder:"V" help:"Kernels to compute with: portable, avx2, avx512, avx512vnni, avx512bf16; the fastest that runs here otherwise."`
	Acts     string        `name:"cpu-activations" placeholder:"A" help:"How activations meet quantised weights: int8, or f32, which is slower and nearer to the model."`
	Running  int           `name:"max-running-requests" aliases:"max-num-seqs" placeholder:"N" help:"Requests that a worker works on at once."`
	Chunk    int           `name:"chunked-prefill-size" placeholder:"N" help:"Rows of one prefill step."`
	Lease    time.Duration `name:"lease" default:"10s" help:"How long a worker may be silent before its hand-off ends."`
}

// journalFlags say what decode does without a journal.
type journalFlags struct {
	Journal string `name:"journal" enum:"required,closed,open,off" default:"required" help:"required or closed: nothing is decoded that the journal has not acknowledged; open: decode on, and count; off: record nothing, for measuring what the record costs (quire up without tenants alone)."`
}

// tapeFlags say whose content is recorded: a router records prompts and answers, a decode the frames of their hand-offs.
type tapeFlags struct {
	Tape []string `name:"tape" placeholder:"TENANT,..." help:"Record content of these tenants, encrypted: prompts, answers, KV pages. quire replay run computes them again."`
}

func (f tapeFlags) tenants() ([]string, error) {
	for _, t := range f.Tape {
		if !slug(t) {
			return nil, usage("--tape %s: a tenant is of a-z, 0-9 and -, at most 32", t)
		}
	}
	return f.Tape, nil
}

// doorFlags are about clients.
type doorFlags struct {
	tapeFlags
	HTTP             string        `name:"http" default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Where the HTTP door listens; port 0 picks a free one, $$PORT counts when this is not given."`
	Host             string        `name:"host" hidden:"" env:"-"`
	Port             int           `name:"port" hidden:"" env:"-"`
	APIKey           []string      `name:"api-key" placeholder:"K=TENANT" help:"An API key and whose it is; may be given more than once."`
	AdminKey         string        `name:"admin-key" placeholder:"KEY" help:"Key of the console and of /debug/pprof, at least 16 characters; without one the console is this machine's alone, without names, and there are no profiles."`
	DefaultMaxTokens int           `name:"default-max-tokens" default:"1024" placeholder:"N" help:"Longest answer when a request names none."`
	Queue            int           `name:"max-queued-requests" placeholder:"N" help:"Requests that may wait."`
	TenantQueue      int           `name:"max-queued-per-tenant" placeholder:"N" help:"Requests of one tenant that may wait."`
	Open             int           `name:"max-open-requests" default:"4096" placeholder:"N" help:"Requests that may be open at each door, waiting or being answered."`
	Deadline         time.Duration `name:"deadline" help:"Longest life of a request."`
	Accounts         bool          `name:"nats-accounts" help:"The NATS server has an account for each tenant (docs/operations.md); else the NATS door serves tenant default alone."`
	MixedCompute     bool          `name:"mixed-compute" help:"Pair workers whose arithmetic differs in the last bits; the witness is weaker then."`
}

func (f busFlags) options() cluster.BusOptions {
	o := f.natsFlags.options()
	o.URLs, o.Context, o.Creds, o.NKey, o.Inbox = f.NATSURL, f.NATSContext, f.NATSCreds, f.NATSNKey, f.NATSInbox
	return o
}

// roleBus is where a single role finds the bus: the flags, else NATS_URL and NATS_CREDS, else this machine.
func (f busFlags) roleBus() cluster.BusOptions {
	o := f.options()
	if o.External() {
		return o
	}
	o.URLs = strings.Split(cmp.Or(os.Getenv("NATS_URL"), "nats://127.0.0.1:4222"), ",")
	o.Creds = cmp.Or(o.Creds, os.Getenv("NATS_CREDS"))
	return o
}

// checkURLs refuses what is no NATS URL before anything starts.
func (f busFlags) checkURLs() error {
	for _, u := range f.NATSURL {
		if !strings.Contains(u, "://") {
			u = "nats://" + u
		}
		p, err := url.Parse(u)
		if err != nil || p.Hostname() == "" {
			return usage("--nats-url %s: a URL like nats://127.0.0.1:4222 is wanted", mask("nats-url", u))
		}
	}
	return nil
}

func (f modelFlags) options(kvType string) (cluster.ModelOptions, error) {
	o := cluster.ModelOptions{Name: f.ServedName, KVType: kvType}
	if f.Model != "" {
		dir, err := modelsDir(f.Models)
		if err == nil {
			o.Path, err = model.Resolve(f.Model, dir)
		}
		if err != nil {
			return o, err
		}
	}
	if f.MaxModelLen != "auto" {
		n, err := strconv.Atoi(f.MaxModelLen)
		if err != nil || n < 1 {
			return o, usage("--max-model-len %s: a number of tokens, at least 1, or auto is wanted", f.MaxModelLen)
		}
		o.MaxLen = n
	}
	return o, nil
}

func (f poolFlags) options() (cluster.PoolOptions, error) {
	o := cluster.PoolOptions{Device: f.Device, PageSize: f.PageSize, Pages: f.KVPages, Threads: f.Threads, Variant: f.Variant, Activations: f.Acts, Running: f.Running, Chunk: f.Chunk, Lease: f.Lease}
	if err := open.Check(f.Device); err != nil {
		return o, usage("--%v", err)
	}
	for _, n := range []struct {
		name            string
		value, min, max int
	}{
		{"page-size", f.PageSize, 1, 4096}, {"kv-pages", f.KVPages, 0, 1 << 28}, {"threads", f.Threads, 0, 1024},
		{"max-running-requests", f.Running, 0, 4096}, {"chunked-prefill-size", f.Chunk, 0, 1 << 20},
	} {
		if n.value < n.min || n.value > n.max {
			return o, usage("--%s %d: %d to %d is possible", n.name, n.value, n.min, n.max)
		}
	}
	if f.Lease < 100*time.Millisecond || f.Lease > time.Hour {
		return o, usage("--lease %s: 100ms to 1h is possible", f.Lease)
	}
	return o, nil
}

func (f doorFlags) options(insecure bool, src origins) (cluster.DoorOptions, error) {
	keys, err := apiKeys(f.APIKey)
	if err != nil {
		return cluster.DoorOptions{}, err
	}
	if n := len(f.AdminKey); n > 0 && n < router.MinAdminKey {
		return cluster.DoorOptions{}, usage("--admin-key: %d characters, at least %d are wanted", n, router.MinAdminKey)
	}
	taped, err := f.tenants()
	if err != nil {
		return cluster.DoorOptions{}, err
	}
	if most := 1 << 20; min(f.Queue, f.TenantQueue) < 0 || max(f.Queue, f.TenantQueue, f.Open) > most || f.Open < 1 {
		return cluster.DoorOptions{}, usage("--max-queued-requests %d --max-queued-per-tenant %d --max-open-requests %d: 0, 0 and 1 to %d are possible",
			f.Queue, f.TenantQueue, f.Open, most)
	}
	address, err := listen("http", f.HTTP, src)
	if err != nil {
		return cluster.DoorOptions{}, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return cluster.DoorOptions{}, usage("--http %s: HOST:PORT is wanted", f.HTTP)
	}
	if f.Host != "" {
		host = f.Host
	}
	if f.Port != 0 {
		port = strconv.Itoa(f.Port)
	}
	return cluster.DoorOptions{HTTP: net.JoinHostPort(host, port), Keys: keys, AdminKey: f.AdminKey, DefaultMaxTokens: f.DefaultMaxTokens, Queue: f.Queue,
		TenantQueue: f.TenantQueue, Open: f.Open, Deadline: f.Deadline, MixedCompute: f.MixedCompute, Accounts: f.Accounts, Tape: taped, Insecure: insecure}, nil
}

// listen checks HOST:PORT; when nobody chose it, $PORT does.
func listen(flag, address string, src origins) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", usage("--%s %s: HOST:PORT is wanted, 127.0.0.1:0 for a free port", flag, address)
	}
	from := "--" + flag
	if p := os.Getenv("PORT"); p != "" && !src.set(flag) {
		from, port = "$PORT", p
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return "", usage("%s: port %s: 0 to 65535 is possible", from, port)
	}
	return net.JoinHostPort(host, port), nil
}

// apiKeys reads KEY=TENANT pairs. The key may hold =; the tenant is a slug.
func apiKeys(pairs []string) (map[string]string, error) {
	out := map[string]string{}
	for i, p := range pairs {
		at := strings.LastIndex(p, "=")
		if at <= 0 || !slug(p[at+1:]) {
			return nil, usage("--api-key number %d: KEY=TENANT is wanted, the tenant of a-z, 0-9 and -, at most 32", i+1)
		}
		if _, twice := out[p[:at]]; twice {
			return nil, usage("--api-key number %d: the same key is there already", i+1)
		}
		out[p[:at]] = p[at+1:]
	}
	return out, nil
}

func slug(s string) bool {
	for _, c := range s {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
			return false
		}
	}
	return s != "" && len(s) <= 32
}

// absolute keeps a path true when a Procfile's processes run elsewhere.
func absolute(path string) (string, error) {
	p, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// clientFlags are those of the verbs that ask a running cluster.
type clientFlags struct {
	busFlags
	Accounts bool   `name:"nats-accounts" help:"This NATS user has an account of its own, and the server fills the tenant in."`
	HTTP     string `name:"http" default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"The HTTP door, or its URL; --nats-url or --nats-context go through NATS instead."`
	Key      string `name:"key" placeholder:"KEY" help:"API key of the HTTP door."`
	Model    string `name:"model" env:"QUIRE_CHAT_MODEL" placeholder:"M" help:"Which model; the one that is served otherwise."`
}

// open chooses the door: NATS when a flag, the environment or the config file names a server, else HTTP.
func (c clientFlags) open(src origins) (door, error) {
	if err := c.checkURLs(); err != nil {
		return nil, err
	}
	if len(c.NATSURL) > 0 || c.NATSContext != "" {
		return newNATSDoor(c.busFlags, c.Accounts)
	}
	return newHTTPDoor(c.HTTP, c.Key), nil
}
