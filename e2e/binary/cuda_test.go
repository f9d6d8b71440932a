//go:build cuda && linux

package binary

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"quire/device/cuda/emulator"
)

func init() { buildTags = "-tags=cuda" }

// emulate gives the environment in which a process finds so many emulated devices.
func emulate(t *testing.T, devices string) []string {
	t.Helper()
	lib, err := emulator.Build()
	if err != nil {
		t.Fatal(err)
	}
	return []string{"QUIRE_LIBCUDA=" + lib, "QUIRE_EMULATOR_DEVICES=" + devices, "QUIRE_KV_PAGES=200"}
}

// TestCUDAUp: all roles in one process on an emulated device, through both doors.
func TestCUDAUp(t *testing.T) {
	p := start(t, t.TempDir(), environ(emulate(t, "1")...), quire, "up", "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--device", "cuda")
	nats := p.wait(`bus +nats://(127\.0\.0\.1:\d+) `, 1)[1]
	http := p.wait(`door +http://(127\.0\.0\.1:\d+) `, 1)[1]
	p.wait(`(?m)^ready in \d+\.\d s$`, 1)
	if !strings.Contains(p.output(), "cuda: sm_80-") {
		t.Errorf("the banner names no GPU:\n%s", p.output())
	}
	ask(t, http)
	out, code := run(t, environ(), "", "chat", "-q", "-s", system, "-m", question, "--temperature", "0", "--nats-url", "nats://"+nats)
	if code != 0 || out != answer+"\n" {
		t.Errorf("over NATS: want %q and 0, got %q and %d", answer, out, code)
	}
	p.signal(syscall.SIGTERM)
	if code := p.exit(5 * time.Second); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

// TestCUDAProcfile: real processes, prefill on one device and decode on another; decode is killed and comes back.
func TestCUDAProcfile(t *testing.T) {
	env, http, _ := clusterEnv(t)
	p := start(t, root(t), append(env, emulate(t, "2")...), quire, "up", "-f", "Procfile.gpu")
	ready(t, http)
	ask(t, http)
	pid, err := strconv.Atoi(p.wait(`decode1 started, pid (\d+)`, 1)[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.wait(`decode1 +\| .* ready  `, 2)
	ask(t, http)
	p.signal(syscall.SIGTERM)
	if code := p.exit(6 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestCUDAWithoutDriver: cuda fails with the reason, auto says it and computes on the CPU; doctor shows either.
func TestCUDAWithoutDriver(t *testing.T) {
	env := environ("QUIRE_LIBCUDA=/nowhere/libcuda.so.1")
	args := []string{"--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--data", t.TempDir()}
	out, code := run(t, env, "", append([]string{"up", "--device", "cuda:1"}, args...)...)
	if code == 0 || !strings.Contains(out, "--device cuda:1: ") || !strings.Contains(out, "no CUDA driver: /nowhere/libcuda.so.1") {
		t.Errorf("up --device cuda:1 without a driver: %d\n%s", code, out)
	}
	if out, code := run(t, env, "", append([]string{"doctor"}, args...)...); code != 0 || !strings.Contains(out, "gpu      none: ") {
		t.Errorf("doctor without a driver: %d\n%s", code, out)
	}
	p := start(t, t.TempDir(), env, quire, append([]string{"up"}, args...)...)
	p.wait(`no GPU, computing on the CPU: .*/nowhere/libcuda\.so\.1`, 1)
	p.wait(`(?m)^ready in \d+\.\d s$`, 1)
	p.signal(syscall.SIGTERM)
	if code := p.exit(5 * time.Second); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}
