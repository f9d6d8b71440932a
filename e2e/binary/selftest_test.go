//go:build unix

package binary

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// twin builds quire with one line of one source replaced: what a test must find is planted that way, and nothing of it is in the sources.
func twin(t *testing.T, source, line, instead string) (binary string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root(t), source))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(b), line) != 1 {
		t.Fatalf("%s has %d of %q, want one", source, strings.Count(string(b), line), line)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "twin.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(b), line, instead, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root(t), source): changed}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, o, 0o600); err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(dir, "quire")
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", binary, "quire/cmd/quire").CombinedOutput(); err != nil {
		t.Fatalf("build of the twin: %v\n%s", err, out)
	}
	return binary
}

// quire selftest leak finds nothing on a cluster that is well, and the pages of a decode that forgets to have one of each release
// cleared: its answers are right, and its pool shrinks.
func TestSelftestFindsLostPages(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program a second time")
	}
	t.Parallel()
	for _, c := range []struct {
		binary string
		code   int
		says   string
	}{
		{quire, 0, "pages of 2 workers: as many free as before"},
		{twin(t, "decode/loop_step.go", "l.do(Zero{Pages: ids})", "if len(ids) > 1 { l.do(Zero{Pages: ids[1:]}) }"), 1, "FOUND: pages that do not come back: decode d1 has"},
	} {
		p := start(t, t.TempDir(), environ(), c.binary, "up", "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--lease", "1s")
		http := p.wait(`door +http://(127\.0\.0\.1:\d+) `, 1)[1]
		p.wait(`(?m)^ready in`, 1)
		out, code := run(t, environ(), "", "selftest", "leak", "--http", http, "--rounds", "1", "--max-prompt", "256", "--settle", "5s")
		if code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("exit %d, want %d and %q\n%s", code, c.code, c.says, out)
		}
	}
}
