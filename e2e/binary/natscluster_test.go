//go:build unix

package binary

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"quire/kvtransfer"
)

// threeNodes starts three bus processes that form one NATS cluster, and gives their client URLs. again starts one of them once more.
func threeNodes(t *testing.T, dir string, env []string) (urls []string, nodes []*process, again func(i int)) {
	t.Helper()
	var ports, routes []string
	for range 3 {
		ports, routes = append(ports, freePort(t)), append(routes, freePort(t))
	}
	nodes = make([]*process, 3)
	again = func(i int) {
		nodes[i] = start(t, dir, env, quire, "bus", "--nats", ports[i], "--nats-config", filepath.Join(dir, fmt.Sprintf("n%d.conf", i)),
			"--data", filepath.Join(dir, fmt.Sprintf("n%d", i)))
	}
	for i := range nodes {
		conf := fmt.Sprintf("server_name: n%d\nmax_payload: 8388608\ncluster { name: lab, listen: %q, routes: [ nats://%s ] }\n", i, routes[i], strings.Join(routes, ", nats://"))
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("n%d.conf", i)), []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		again(i)
		urls = append(urls, "nats://"+ports[i])
		if i == 0 { // it makes the keys, which all three share
			eventually(t, "the keys", func() bool { _, err := os.Stat(filepath.Join(dir, "keys", "cluster.json")); return err == nil })
		}
	}
	return urls, nodes, again
}

// A NATS cluster of three nodes, with three copies of the shared streams, loses a node (with -steps each in turn, among them the one that has
// decode's own stream) while an answer is on its way. The client has the whole answer, or one typed error; then questions are answered by
// the two nodes that are left, and by all three when the lost one is back.
func TestNATSClusterLosesNodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := environ("QUIRE_KEYS="+filepath.Join(dir, "keys"), "QUIRE_NATS_REPLICAS=3", "QUIRE_LEASE=2s", "QUIRE_HTTP=127.0.0.1:0", "QUIRE_DATA="+filepath.Join(dir, "q"))
	urls, nodes, again := threeNodes(t, dir, env)
	env = append(env, "QUIRE_NATS_URL="+strings.Join(urls, ","))
	processes := map[string]*process{}
	for _, name := range []string{"router r1", "prefill p1", "prefill p2", "decode d1"} {
		role, id, _ := strings.Cut(name, " ")
		processes[role] = start(t, dir, env, quire, role, "--id", id)
	}
	http := processes["router"].wait(` ready .*http=(127\.0\.0\.1:\d+)`, 1)[1]
	ready(t, http)
	const tokens = 400
	ask := func(onEvent func(int)) asked {
		var a asked
		a.result, a.err = perform(t.Context(), http, "/v1/chat/completions", tale(tokens), onEvent)
		return a
	}
	alone := ask(nil)
	if alone.err != nil || !alone.Done || alone.Output != tokens {
		t.Fatalf("alone: %+v", alone)
	}
	lost := 1
	if *everyStep {
		lost = len(nodes)
	}
	for i := range lost {
		got := ask(func(n int) {
			if n == 3 {
				nodes[i].killed(syscall.SIGKILL)
			}
		})
		t.Logf("node %d lost: finish %q, error %q", i, got.Finish, got.Error)
		switch class := kvtransfer.Lookup(kvtransfer.Code(got.Error)).Class; {
		case got.err != nil:
			t.Error(got.err)
		case got.Error == "" && got.result != alone.result:
			t.Errorf("node %d: %+v\nalone %+v", i, got, alone)
		case got.Error != "" && (got.Done || got.Ends > 0 || !strings.HasPrefix(alone.Text, got.Text) ||
			class != kvtransfer.ClassRefused && class != kvtransfer.ClassLost && class != kvtransfer.ClassFailed):
			t.Errorf("node %d, after an error: %+v", i, got)
		}
		eventually(t, "an answer by two nodes", func() bool { return ask(nil) == alone })
		again(i)
		nodes[i].wait(" ready ", 1)
		eventually(t, "an answer by three nodes", func() bool { return ask(nil) == alone })
	}
}
