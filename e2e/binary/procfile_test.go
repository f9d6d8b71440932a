//go:build unix

package binary

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// clusterEnv gives a Procfile's processes free ports and a directory of their own.
func clusterEnv(t *testing.T) (env []string, http, nats string) {
	t.Helper()
	http, nats = freePort(t), freePort(t)
	return environ("QUIRE="+quire, "QUIRE_DATA="+filepath.Join(t.TempDir(), "q"), "QUIRE_HTTP="+http, "QUIRE_NATS="+nats,
		"QUIRE_NATS_URL=nats://"+nats), http, nats
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestProcfileUnderQuire(t *testing.T) {
	env, http, _ := clusterEnv(t)
	p := start(t, root(t), env, quire, "up", "-f", "Procfile")
	ready(t, http)
	ask(t, http)

	var pids []int
	for _, name := range []string{"bus", "router", "prefill1", "prefill2", "decode1", "decode2"} {
		pid, err := strconv.Atoi(p.wait(name+` started, pid (\d+)`, 1)[1])
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
		p.wait(name+` +\| .* ready  `, 1)
	}
	// A decode that is killed is started again, and takes requests again; meanwhile the other one does.
	for _, name := range []string{"decode1", "decode2", "prefill1", "prefill2"} {
		pid, err := strconv.Atoi(p.wait(name+` started, pid (\d+)`, 1)[1])
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p.wait(name+` died \(.*\): starting it again`, 1)
		ask(t, http)
		p.wait(name+` +\| .* ready  `, 2)
	}
	ask(t, http)
	p.signal(syscall.SIGTERM)
	if code := p.exit(6 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d was left behind", pid)
		}
	}
}

func TestProcfileExitOnDeath(t *testing.T) {
	env, http, _ := clusterEnv(t)
	p := start(t, root(t), env, quire, "up", "-f", "Procfile", "--exit-on-death")
	ready(t, http)
	pid, err := strconv.Atoi(p.wait(`router started, pid (\d+)`, 1)[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(8 * time.Second); code != 128+int(syscall.SIGKILL) {
		t.Errorf("exit code %d, want 137", code)
	}
	p.noOrphan()
}

// Even a supervisor that is killed leaves nothing, where the kernel tells its processes.
func TestProcfileKilledSupervisor(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a process that its parent died")
	}
	env, _, _ := clusterEnv(t)
	p := start(t, root(t), env, quire, "up", "-f", "Procfile")
	var pids []int
	for _, name := range []string{"bus", "router", "prefill1", "prefill2", "decode1", "decode2"} {
		pid, err := strconv.Atoi(p.wait(name+` started, pid (\d+)`, 1)[1])
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
		p.wait(name+` +\| .* ready  `, 1)
	}
	p.signal(syscall.SIGKILL)
	p.exit(time.Second)
	for _, pid := range pids {
		eventually(t, "process "+strconv.Itoa(pid)+" to end", func() bool { return !alive(pid) })
	}
}

func TestProcfileUnderForeman(t *testing.T) {
	foreman, err := exec.LookPath("foreman")
	if err != nil {
		if os.Getenv("QUIRE_TEST_FOREMAN") == "required" {
			t.Fatal(err)
		}
		t.Skip("foreman is not installed; .ci/run installs it")
	}
	env, http, nats := clusterEnv(t)
	p := start(t, root(t), env, foreman, "start", "-f", "Procfile")
	ready(t, http)
	ask(t, http)
	out, code := run(t, environ(), "", "chat", "-q", "--nats-url", "nats://"+nats, "-s", system, "-m", question, "--temperature", "0")
	if code != 0 || !strings.Contains(out, answer) {
		t.Errorf("over NATS: %d, %q", code, out)
	}
	p.signal(syscall.SIGTERM)
	p.exit(10 * time.Second)
	if strings.Contains(p.output(), "SIGKILL") {
		t.Errorf("foreman had to kill")
	}
	p.noOrphan()
}

// Every process waits for what it needs: workers and router first, the bus last.
func TestRolesInAnyOrder(t *testing.T) {
	env, http, nats := clusterEnv(t)
	dir := t.TempDir()
	decode := start(t, dir, env, quire, "decode", "--id", "d1")
	prefill := start(t, dir, env, quire, "prefill", "--id", "p1")
	router := start(t, dir, env, quire, "router", "--id", "r1")
	decode.wait("waiting for", 1)
	prefill.wait("waiting for", 1)
	router.wait("waiting for", 1)
	bus := start(t, dir, env, quire, "bus", "--nats", nats)
	ready(t, http)
	ask(t, http)

	// The bus goes and comes back: everybody finds it again, and nothing has to be started anew.
	bus.signal(syscall.SIGKILL)
	bus.exit(time.Second)
	decode.wait("lost|disconnected|waiting for NATS|down", 1)
	bus = start(t, dir, env, quire, "bus", "--nats", nats)
	eventually(t, "an answer after the bus came back", func() bool {
		status, body := post(t, "http://"+http+"/v1/chat/completions", chatRequest{Messages: []turn{{"system", system}, {"user", question}}})
		return status == 200 && strings.Contains(body, answer)
	})
	for _, p := range []*process{router, prefill, decode, bus} {
		p.signal(syscall.SIGTERM)
	}
	for _, p := range []*process{router, prefill, decode, bus} {
		if code := p.exit(5 * time.Second); code != 0 {
			t.Errorf("%v: exit code %d", p.cmd.Args, code)
		}
	}
}

// A second process of one id takes over, and the first ends: they never fight.
func TestSameIDTakesOver(t *testing.T) {
	data := filepath.Join(t.TempDir(), "q")
	_, _, nats := up(t, "--data", data)
	env := environ("QUIRE_NATS_URL=nats://"+nats, "QUIRE_DATA="+data)
	dir := t.TempDir()
	first := start(t, dir, env, quire, "decode", "--id", "twin")
	first.wait("ready", 1)
	second := start(t, dir, env, quire, "decode", "--id", "twin")
	second.wait("ready", 1)
	if code := first.exit(10 * time.Second); code != 1 {
		t.Errorf("exit code %d of the one that was replaced, want 1", code)
	}
}

// A runner signals all processes at once: an answer under way still ends well, because the bus waits for those that drain.
func TestProcfileDrains(t *testing.T) {
	env, http, _ := clusterEnv(t)
	p := start(t, root(t), env, quire, "up", "-f", "Procfile")
	ready(t, http)
	s := stream(t, http, 200)
	p.signal(syscall.SIGTERM)
	if out := rest(s); !strings.Contains(out, `"finish_reason":"length"`) || !strings.Contains(out, "data: [DONE]") {
		t.Errorf("a short answer was not allowed to end:\n%s", out)
	}
	if code := p.exit(6 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	p.noOrphan()
}
