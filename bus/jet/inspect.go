package jet

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"quire/bus"
)

// Finding is one thing looked at.
type Finding struct {
	Name string // "nats server", "stream QUIRE_JOBS"
	OK   bool
	Text string // what was found, with numbers; where it is not OK, the remedy too
}

// journalWarning is the part of QUIRE_JOURNAL's bytes at which it is called nearly full.
const journalWarning = 0.8

// Inspect looks at the server and the streams and changes nothing: for "quire doctor".
func (c *Conn) Inspect(ctx context.Context) []Finding {
	ctx, cancel := bounded(ctx)
	defer cancel()
	l := c.Limits()
	out := []Finding{
		finding("nats server", safeVersion(l.Server), fmt.Sprintf("%s at %s", l.Server, l.URL),
			"accounts are not safe from each other: upgrade to 2.14.0 (or 2.12.7, 2.11.16) or later"),
		finding("max_payload", l.MaxPayload >= bus.DefaultPayload, fmt.Sprintf("%d bytes", l.MaxPayload),
			"long prompts are refused above it: set max_payload: 8388608 in the server's configuration"),
	}
	if err := c.ready("inspect"); err != nil {
		return append(out, Finding{Name: "connection", Text: err.Error()})
	}
	if _, err := c.js.AccountInfo(ctx); err != nil {
		return append(out, Finding{Name: "jetstream", Text: err.Error() + ": start the server with -js and enable it for the account"})
	}
	out = append(out, Finding{Name: "jetstream", OK: true, Text: "enabled"})
	for _, spec := range c.sharedSpecs() {
		out = append(out, c.inspectStream(ctx, spec))
	}
	if err := c.checkForeign(ctx); err != nil {
		return append(out, Finding{Name: "foreign streams", Text: err.Error()})
	}
	return append(out, Finding{Name: "foreign streams", OK: true, Text: "none"})
}

func finding(name string, ok bool, found, remedy string) Finding {
	if !ok {
		found += ": " + remedy
	}
	return Finding{Name: name, OK: ok, Text: found}
}

func (c *Conn) inspectStream(ctx context.Context, spec bus.StreamSpec) Finding {
	f := Finding{Name: "stream " + spec.Name}
	st, err := c.js.Stream(ctx, spec.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		f.Text = "not there yet: quire up, quire bus or a router makes it"
		return f
	case err != nil:
		f.Text = err.Error()
		return f
	}
	info := st.CachedInfo()
	if err := differ(config(spec, 1), info.Config); err != nil {
		f.Text = err.Error()
		return f
	}
	f.OK = true
	limit, text := info.Config.MaxBytes, "any number"
	if limit > 0 {
		text = fmt.Sprint(limit)
	}
	f.Text = fmt.Sprintf("%d messages, %d bytes of %s", info.State.Msgs, info.State.Bytes, text)
	if age := info.Config.MaxAge; spec.File && age > 0 {
		f.Text += fmt.Sprintf(", kept for %v", age)
	}
	if have := info.Config.Replicas; c.replicas() >= clustered && have < clustered && spec.DenyPurge {
		f.OK = false
		f.Text += fmt.Sprintf(": %d replica on a NATS cluster: the record is lost with one server: nats stream edit %s --replicas %d", have, spec.Name, clustered)
	}
	if spec.DenyPurge && limit > 0 && float64(info.State.Bytes) > journalWarning*float64(limit) {
		f.OK = false
		f.Text += ": nearly full, and a full journal stops decode: raise its max_bytes (nats stream edit " + spec.Name + ") or lower its age"
	}
	return f
}
