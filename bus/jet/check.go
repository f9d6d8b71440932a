package jet

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"quire/bus"
)

// Servers older than these let one account reach another's data (CVE-2026-33222 and the advisories after it).
var oldest = [][3]int{{2, 14, 0}, {2, 12, 7}, {2, 11, 16}}

// safeVersion says whether a server has the fixes: at least 2.14.0, or in its own 2.12 or 2.11 line the release with them.
func safeVersion(version string) bool {
	v, ok := parseVersion(version)
	if !ok {
		return false
	}
	for i, min := range oldest {
		if i > 0 && v[1] != min[1] {
			continue
		}
		if v[0] > min[0] || v[0] == min[0] && (v[1] > min[1] || v[1] == min[1] && v[2] >= min[2]) {
			return true
		}
	}
	return false
}

func parseVersion(text string) (v [3]int, ok bool) {
	text, pre, _ := strings.Cut(strings.TrimPrefix(text, "v"), "-")
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return v, false
	}
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil {
			return v, false
		}
		v[i] = n
	}
	if pre != "" && v[2] > 0 { // 2.14.1-RC.1 comes before 2.14.1
		v[2]--
	}
	return v, true
}

// check looks at the server once it is there.
func (c *Conn) check(ctx context.Context) error {
	l := c.Limits()
	if !safeVersion(l.Server) {
		c.log.Error("bus: the NATS server is too old: accounts are not safe from each other; "+
			"upgrade it to 2.14.0 (or 2.12.7, 2.11.16) or later", "server", l.Server, "url", l.URL)
	}
	if l.MaxPayload < bus.MinPayload {
		return fmt.Errorf("bus: %s: max_payload is %d, Quire needs %d at least: set max_payload: 8388608 in the server's configuration",
			l.URL, l.MaxPayload, bus.MinPayload)
	}
	if l.MaxPayload < 1<<20 {
		c.log.Warn("bus: max_payload is small: frames shrink and long prompts are refused; set max_payload: 8388608 in the server's configuration",
			"max_payload", l.MaxPayload)
	}
	if c.opt.Plain {
		return nil
	}
	return c.checkJetStream(ctx)
}

// checkJetStream asks for the account's JetStream; a cluster that has no leader yet gets time.
func (c *Conn) checkJetStream(ctx context.Context) error {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		try, cancel := context.WithTimeout(ctx, apiTimeout)
		_, err := c.js.AccountInfo(try)
		cancel()
		if err == nil {
			return nil
		}
		switch {
		case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
			return fmt.Errorf("bus: %s: JetStream is not enabled for this account: add jetstream: enabled to the account: %w", c.Limits().URL, err)
		case errors.Is(err, jetstream.ErrJetStreamNotEnabled):
			return fmt.Errorf("bus: %s: JetStream is not enabled: start the server with -js, or add jetstream { store_dir: DIR } to its configuration: %w",
				c.Limits().URL, err)
		}
		c.log.Warn("bus: JetStream does not answer yet", "error", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("bus: %s: JetStream does not answer: %w: %w", c.Limits().URL, ctx.Err(), err)
		case <-time.After(wait):
		}
	}
}

// checkForeign finds streams of others that would store our requests: such a stream answers a request before any service does.
func (c *Conn) checkForeign(ctx context.Context) error {
	all := c.names.API("*", "*")
	root := strings.TrimSuffix(all, ".v1.*.*")
	own := func(name string) bool {
		return strings.HasPrefix(name, strings.TrimSuffix(c.names.JobsStream(), "JOBS"))
	}
	list := c.js.ListStreams(ctx, jetstream.WithStreamListSubject(root+".>"))
	for info := range list.Info() {
		if own(info.Config.Name) || info.Config.NoAck {
			continue
		}
		return fmt.Errorf("bus: stream %s takes subjects %v of Quire's %s.>, so requests would be answered by the stream: "+
			"remove it (nats stream rm %s), give it other subjects or set no_ack",
			info.Config.Name, info.Config.Subjects, root, info.Config.Name)
	}
	return wrap("list streams", list.Err())
}

// redact removes user, password and token from URLs.
func redact(urls string) string {
	list := strings.Split(urls, ",")
	for i, u := range list {
		p, err := url.Parse(u)
		switch {
		case err != nil:
			list[i] = "(unreadable URL)"
		case p.User != nil:
			p.User = nil
			list[i] = p.String()
		}
	}
	return strings.Join(list, ",")
}
