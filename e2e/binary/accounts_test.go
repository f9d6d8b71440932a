//go:build unix

package binary

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestAccounts: a cluster whose roles each have a user of their own answers through both doors, its journal is read by the auditor, and
// no role tries anything that its user may not.
func TestAccounts(t *testing.T) {
	env, http, nats := clusterEnv(t)
	dir := filepath.Join(t.TempDir(), "accounts")
	seed := func(user string) []string {
		return []string{"--nats-nkey", filepath.Join(dir, user+".nk"), "--nats-inbox-prefix", "_INBOX_" + user}
	}
	procs := []*process{start(t, t.TempDir(), env, quire, "bus", "--nats", nats, "--accounts", dir, "--tenant", "acme,beta")}
	procs[0].wait("ready", 1)
	for _, role := range []string{"router", "prefill", "decode"} {
		args := append([]string{role, "--id", role + "1"}, seed(role)...)
		if role == "router" {
			args = append(args, "--nats-accounts")
		}
		procs = append(procs, start(t, t.TempDir(), env, quire, args...))
	}
	ready(t, http)
	ask(t, http)
	for _, tenant := range []string{"acme", "beta"} {
		out, code := run(t, env, question+"\n", "chat", "--nats-url", "nats://"+nats, "--nats-accounts", "--nats-nkey", filepath.Join(dir, "tenant-"+tenant+".nk"), "--system", system, "--temperature", "0")
		if code != 0 || !strings.Contains(out, answer) {
			t.Errorf("tenant %s: exit code %d:\n%s", tenant, code, out)
		}
	}
	for _, verb := range [][]string{{"replay", "list"}, {"audit", "exposure"}} {
		var out string
		var code int
		eventually(t, strings.Join(verb, " "), func() bool {
			out, code = run(t, env, "", append(verb, seed("auditor")...)...)
			return code == 0 && (verb[0] == "audit" || strings.Count(out, "stop") == 3 && strings.Contains(out, "acme") && strings.Contains(out, "beta"))
		})
	}
	if out, code := run(t, env, "", append([]string{"replay", "list"}, seed("prefill")...)...); code == 0 {
		t.Errorf("a prefill reads the journal:\n%s", out)
	}
	for _, p := range procs[1:] {
		if strings.Contains(strings.ToLower(p.output()), "permissions violation") {
			t.Errorf("%s tries what it may not:\n%s", p.name, p.output())
		}
	}
}
