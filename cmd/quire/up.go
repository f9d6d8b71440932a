package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"

	"quire/cluster"
	"quire/procfile"
)

// upFlags are what everything in one process needs.
type upFlags struct {
	role
	modelFlags
	poolFlags
	journalFlags
	doorFlags
	busFlags
	serverFlags
	Prefill int `name:"prefill" default:"1" placeholder:"N" help:"Prefill workers."`
	Decode  int `name:"decode" default:"1" placeholder:"N" help:"Decode workers."`
}

type upCmd struct {
	upFlags
	Procfile    string `name:"procfile" short:"f" placeholder:"FILE" help:"Run the processes of a Procfile instead, each restarted when it dies."`
	ExitOnDeath bool   `name:"exit-on-death" help:"With -f: the first death stops all."`
}

// Run starts everything in this process, or a Procfile's processes.
func (u *upCmd) Run(s streams, src origins) error {
	if u.Procfile != "" {
		return u.supervise(s)
	}
	o, err := u.options(s, src)
	if err != nil {
		return err
	}
	return serve(func(ctx context.Context) (*cluster.Cluster, error) { return cluster.Up(ctx, o) },
		func(c *cluster.Cluster) {
			c.Banner(s.out, colour(s.out))
			if u.LogFormat == "json" {
				c.LogReady()
			}
		})
}

func (u *upFlags) options(s streams, src origins) (cluster.Options, error) {
	if u.Prefill < 1 || u.Prefill > 64 || u.Decode < 1 || u.Decode > 64 {
		return cluster.Options{}, usage("--prefill %d --decode %d: 1 to 64 of each are possible", u.Prefill, u.Decode)
	}
	if _, _, err := net.SplitHostPort(u.NATS); err != nil {
		return cluster.Options{}, usage("--nats %s: HOST:PORT is wanted, 127.0.0.1:0 for a free port", u.NATS)
	}
	b := u.busFlags.options()
	b.Listen, b.Config, b.JournalOpen = u.NATS, u.NATSConfig, u.Journal == "open"
	b.JournalOff = u.Journal == "off"
	o, err := u.role.options(s, b)
	if err != nil {
		return o, err
	}
	if o.Model, err = u.modelFlags.options(u.KVType); err != nil {
		return o, err
	}
	if o.Pool, err = u.poolFlags.options(); err != nil {
		return o, err
	}
	if o.Door, err = u.doorFlags.options(u.Insecure, src); err != nil {
		return o, err
	}
	if err := u.checkURLs(); err != nil {
		return o, err
	}
	o.Prefill, o.Decode = u.Prefill, u.Decode
	return o, nil
}

// supervise runs a Procfile's processes until a signal, or with --exit-on-death until the first death.
func (u *upCmd) supervise(s streams) error {
	o, err := u.supervisor(s)
	if err != nil {
		return err
	}
	signals := ends()
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sup := procfile.New(o)
	go func() {
		<-signals
		cancel()
		<-signals
		sup.Kill()
	}()
	err = sup.Run(ctx)
	var died *procfile.Died
	if errors.As(err, &died) {
		return &coded{died.Code, err}
	}
	return err
}

func (u *upCmd) supervisor(s streams) (procfile.Options, error) {
	f, err := os.Open(u.Procfile)
	if err != nil {
		return procfile.Options{}, usage("%v", err)
	}
	defer f.Close()
	entries, err := procfile.Parse(f)
	if err != nil {
		return procfile.Options{}, usage("%s: %v", u.Procfile, err)
	}
	dir := filepath.Dir(u.Procfile)
	env, err := procfileEnv(dir)
	if err != nil {
		return procfile.Options{}, err
	}
	base := 0
	if p := os.Getenv("PORT"); p != "" {
		if base, err = strconv.Atoi(p); err != nil || base < 1 || base > 65535-100*len(entries) {
			return procfile.Options{}, usage("$PORT %s: no base for %d ports", p, len(entries))
		}
	}
	return procfile.Options{Entries: entries, Dir: dir, Env: env, BasePort: base, Out: s.out, Colour: colour(s.out), ExitOnDeath: u.ExitOnDeath}, nil
}

// procfileEnv is the environment of a Procfile's processes: this one's, what .env beside the Procfile adds, and QUIRE, this
// binary, so that a Procfile runs the build that reads it.
func procfileEnv(dir string) ([]string, error) {
	env := os.Environ()
	if f, err := os.Open(filepath.Join(dir, ".env")); err == nil {
		defer f.Close()
		file, err := procfile.ParseEnv(f)
		if err != nil {
			return nil, usage("%s: %v", f.Name(), err)
		}
		env = procfile.MergeEnv(env, file)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("up: %w", err)
	}
	return procfile.MergeEnv(env, []string{"QUIRE=" + self}), nil
}
