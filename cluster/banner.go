package cluster

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Something that the built-in model can answer from its context.
const (
	askSystem = "Tom hid the red key under the bridge."
	askUser   = "Where is the red key?"
)

// Banner prints what runs, what the limits are and what to paste next.
func (c *Cluster) Banner(w io.Writer, colour bool) {
	i := c.info
	bold, plain := "", ""
	if colour {
		bold, plain = "\x1b[1m", "\x1b[0m"
	}
	var b strings.Builder
	what := "built in"
	if !i.Model.BuiltIn {
		what = "from " + c.o.Model.Path
	}
	fmt.Fprintf(&b, "%squire %s%s   %s (%s, %.1f MB)   context %s   %s\n", bold, c.o.Version, plain, i.Model.Name, what,
		float64(i.Model.Bytes)/1e6, thousands(i.Model.Context), i.Device)
	where := "embedded, JetStream in " + shorter(c.o.Data)
	if i.External {
		where = "external"
	}
	line := func(name, value, note string) { fmt.Fprintf(&b, "  %-8s %-34s %s\n", name, value, note) }
	line("bus", i.NATS, "NATS "+i.Server+", "+where)
	for _, x := range i.Workers {
		line(x.Role, x.ID, fmt.Sprintf("pool %s tokens (%s pages of %d)", thousands(x.Tokens()), thousands(x.Pages), x.PageSize))
	}
	line("limit", thousands(i.Limit)+" tokens a request", "set by: "+i.LimitedBy)
	tenants := "no API key asked for: everybody is tenant default"
	if n := len(c.o.Door.Keys); n > 0 {
		tenants = fmt.Sprintf("API keys asked for: %d", n)
	}
	line("door", "http://"+i.HTTP, tenants)
	look := "for this machine, without tenants' names"
	if c.o.Door.AdminKey != "" {
		look = "asks for the admin key"
	} else if c.o.Door.Insecure {
		look = "for everybody, without tenants' names"
	}
	line("console", "http://"+i.HTTP+"/console", look)
	fmt.Fprintf(&b, "%sready in %.1f s%s\n\n", bold, c.took.Seconds(), plain)
	b.WriteString(c.hints())
	io.WriteString(w, b.String()) //nolint:errcheck // a terminal that went away is no reason to stop serving
}

// hints are lines to paste: each asks something that can be answered.
func (c *Cluster) hints() string {
	i := c.info
	body := fmt.Sprintf(`{"messages":[{"role":"system","content":%q},{"role":"user","content":%q}],"temperature":0}`, askSystem, askUser)
	auth, key := "", ""
	if len(c.o.Door.Keys) > 0 {
		auth, key = `-H "Authorization: Bearer $KEY" `, ` --key "$KEY"`
	}
	http, nats := "", ""
	if i.HTTP != "127.0.0.1:8080" {
		http = " --http " + i.HTTP
	}
	if !i.External && i.NATS != "nats://127.0.0.1:4222" {
		nats = "-s " + i.NATS + " "
	}
	self := cmp.Or(c.o.Self, "quire")
	var b strings.Builder
	fmt.Fprintf(&b, "  curl -s http://%s/v1/chat/completions %s-d '%s'\n", i.HTTP, auth, body)
	fmt.Fprintf(&b, "  %s chat%s%s --temperature 0 -s %q -m %q\n", self, http, key, askSystem, askUser)
	streamed := strings.TrimSuffix(body, "}") + `,"stream":true}`
	fmt.Fprintf(&b, "  nats %sreq %s.v1.default.chat --wait-for-empty --reply-timeout 60s --timeout 5m '%s'   (needs the nats CLI)\n",
		nats, c.o.Bus.Prefix, streamed)
	if i.Model.BuiltIn {
		fmt.Fprintf(&b, "  a bigger model: %s pull smollm2-135m && %s up --model smollm2-135m\n", self, self)
	}
	return b.String()
}

// shorter gives a path as seen from the working directory, where it is inside.
func shorter(path string) string {
	here, err := os.Getwd()
	if err != nil {
		return path
	}
	if rel, err := filepath.Rel(here, path); err == nil && filepath.IsLocal(rel) {
		return "." + string(filepath.Separator) + rel
	}
	return path
}

// thousands writes 16384 as 16,384.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
