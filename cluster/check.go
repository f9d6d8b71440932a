package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"quire/device/cpu"
	"quire/keys"
)

// Finding is one line of `quire doctor`.
type Finding struct {
	Name string
	State
	Text string
	Do   string // the remedy, where there is something to do
}

// State says how bad a finding is.
type State uint8

// Fail means that something would stop serving.
const (
	Fine State = iota
	Warn
	Fail
)

// String gives the word that doctor prints.
func (s State) String() string { return [...]string{"ok", "warn", "FAIL"}[s] }

// check collects findings.
type check struct {
	o   Options
	out []Finding
	// natsAt and httpAt are where a NATS server and a Quire answered, "" where none did.
	natsAt, httpAt string
}

func (c *check) fine(name, format string, args ...any) {
	c.out = append(c.out, Finding{Name: name, Text: fmt.Sprintf(format, args...)})
}

func (c *check) bad(s State, name, do, format string, args ...any) {
	c.out = append(c.out, Finding{name, s, fmt.Sprintf(format, args...), do})
}

// Check looks at everything that `up` with these options needs, without starting or changing anything.
func Check(ctx context.Context, o Options) []Finding {
	c := &check{o: o}
	c.machine()
	c.gpu()
	c.ports(ctx)
	c.data()
	c.ring()
	c.bus(ctx)
	c.model()
	c.exposure()
	c.router(ctx)
	return c.out
}

func (c *check) machine() {
	dev, err := cpu.New(c.o.Pool.device())
	if err != nil {
		c.bad(Fail, "cpu", "leave --cpu-variant and --cpu-activations out", "%v", err)
		return
	}
	i := dev.Info()
	if err := dev.Close(); err != nil {
		c.bad(Fail, "cpu", "", "%v", err)
		return
	}
	text := fmt.Sprintf("%s/%s, %d CPUs, kernels %s with %d threads", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), i.Variant, i.Threads)
	if i.Variant == "portable" {
		c.bad(Warn, "cpu", "a processor with AVX2 is several times as fast", "%s: no kernels made for this processor", text)
	} else {
		c.fine("cpu", "%s", text)
	}
	if m := memory(); m > 0 {
		c.fine("memory", "%.1f GB", float64(m)/1e9)
	}
}

func (c *check) ports(ctx context.Context) {
	c.port(ctx, "http", c.o.Door.HTTP, &c.httpAt, func() string {
		if v := probeHTTP(ctx, c.o.Door.HTTP); strings.HasPrefix(v, "Quire") {
			return v
		}
		return ""
	})
	if c.o.Bus.External() {
		return
	}
	c.port(ctx, "nats", c.o.Bus.Listen, &c.natsAt, func() string {
		if v := probeNATS(ctx, c.o.Bus.Listen); v != "" {
			return "a NATS server " + v
		}
		return ""
	})
}

// port checks one address; a server of the kind that belongs there is noted in at and looked at later.
func (c *check) port(ctx context.Context, flag, address string, at *string, who func() string) {
	err := checkPort(ctx, flag, address)
	if err == nil {
		c.fine(flag, "%s is free", address)
		return
	}
	if v := who(); v != "" {
		*at = address
		c.fine(flag, "%s answers on %s", v, address)
		return
	}
	host, _, splitErr := net.SplitHostPort(address)
	if splitErr != nil {
		host = "127.0.0.1"
	}
	c.bad(Fail, flag, fmt.Sprintf("--%s %s picks a free port", flag, net.JoinHostPort(host, "0")), "%v", err)
}

// roomWanted is what the journal may take, and a little more: bytes.
const roomWanted = 3 << 29

func (c *check) data() {
	dir := c.o.Data
	parent := dir
	for {
		if st, err := os.Stat(parent); err == nil {
			if !st.IsDir() {
				c.bad(Fail, "data", "--data DIR names another", "%s is no directory", parent)
				return
			}
			break
		}
		parent = filepath.Dir(parent)
	}
	probe, err := os.CreateTemp(parent, ".quire-check-")
	if err == nil {
		err = errors.Join(probe.Close(), os.Remove(probe.Name()))
	}
	free := diskFree(parent)
	switch {
	case err != nil:
		c.bad(Fail, "data", "--data DIR names another", "%s cannot be written: %v", dir, err)
	case free > 0 && free < roomWanted:
		c.bad(Warn, "data", "make room, or --data DIR on another disk: a full disk turns JetStream off, and nothing is admitted then",
			"%s has %.1f GB left; the journal may take 1.1 GB", dir, float64(free)/1e9)
	default:
		c.fine("data", "%s can be written, %.1f GB left", dir, float64(free)/1e9)
	}
}

func (c *check) ring() {
	dir := c.o.keysDir()
	r, err := keys.Load(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.fine("keys", "none yet: quire up and quire bus make them in %s", dir)
	case err != nil:
		c.bad(Fail, "keys", "mend the file that is named, or remove the directory of a cluster that is stopped", "%v", err)
	default:
		var mine []string
		for _, role := range keys.Roles {
			if _, err := r.Signer(role); err == nil {
				mine = append(mine, string(role))
			}
		}
		c.fine("keys", "%s, may sign as %s", dir, strings.Join(mine, ", "))
	}
}

func (c *check) exposure() {
	if err := c.o.checkExposure(true); err != nil {
		c.bad(Fail, "doors", "", "%v", err)
		return
	}
	keys := "no API key is asked for: everybody who reaches the door is tenant default"
	if n := len(c.o.Door.Keys); n > 0 {
		keys = fmt.Sprintf("API keys asked for: %d", n)
	}
	c.fine("doors", "http %s, %s", c.o.Door.HTTP, keys)
}
