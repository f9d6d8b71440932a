package main

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"quire/e2e/rig"
)

var update = flag.Bool("update", false, "write the transcript in README.md and docs/incident.md, and the twins anew from their sources")

const root = "../.."

// TestIncidentTwins removes gate, witness and zeroing: the scene then answers umbra with acme's secret, in words. With any one of
// them removed and the others in place it does not, and a test of that guard fails.
func TestIncidentTwins(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program a second time")
	}
	bin := filepath.Join(t.TempDir(), "twins.test")
	build := exec.Command("go", "test", "-c", "-overlay", "e2e/testdata/twins/overlay.json", "-o", bin, "./e2e/incident")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build with twins: %v\n%s", err, out)
	}
	cases := []struct {
		keep  string
		fails []string // tests that fail then, and no others
		leaks bool     // the scene gives umbra acme's secret
	}{
		{"gate,witness,zeroing", nil, false},
		{"witness,zeroing", []string{"TestIncidentScene/verdict"}, false},
		{"gate,zeroing", []string{"TestIncidentForeignRows"}, false},
		{"gate,witness", []string{"TestIncidentForeignRows", "TestIncidentScene/bytes_of_freed_pages"}, false},
		{"", []string{"TestIncidentForeignRows", "TestIncidentScene/answer", "TestIncidentScene/bytes_of_freed_pages", "TestIncidentScene/verdict"}, true},
	}
	var all sync.Mutex
	scenes := map[string]rig.Scene{}
	t.Run("keep", func(t *testing.T) {
		for _, c := range cases {
			t.Run(c.keep, func(t *testing.T) {
				t.Parallel()
				s, failed := runTwins(t, bin, c.keep)
				if !slices.Equal(failed, c.fails) {
					t.Errorf("tests that failed: %q, want %q", failed, c.fails)
				}
				if leaked := strings.Contains(s.UmbraAnswer.Text, rig.Secret) && s.UmbraAnswer.Status == 200; leaked != c.leaks {
					t.Errorf("umbra got the secret: %t, want %t\n%s", leaked, c.leaks, s.Transcript())
				}
				all.Lock()
				scenes[c.keep] = s
				all.Unlock()
			})
		}
	})
	if t.Failed() {
		return
	}
	for _, page := range []string{"README.md", "docs/incident.md"} {
		checkTranscript(t, page, scenes["gate,witness,zeroing"], scenes[""])
	}
}

// runTwins runs the tests of this package in the build with twins, with some guards kept, and says what happened in the scene and
// which tests failed.
func runTwins(t *testing.T, bin, keep string) (s rig.Scene, failed []string) {
	file := filepath.Join(t.TempDir(), "scene.json")
	cmd := exec.CommandContext(t.Context(), bin, "-test.v", "-test.run", "^TestIncident(Scene|ForeignRows)$", "-scene", file)
	cmd.Env = append(os.Environ(), "QUIRE_KEEP="+keep)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); ok {
			name, _, _ = strings.Cut(name, " ")
			failed = append(failed, name)
		}
	}
	// A test fails with its parts: name the parts alone.
	failed = slices.DeleteFunc(failed, func(name string) bool {
		return slices.ContainsFunc(failed, func(part string) bool { return strings.HasPrefix(part, name+"/") })
	})
	slices.Sort(failed)
	return s, failed
}

// checkTranscript holds a page to what happened.
func checkTranscript(t *testing.T, page string, shipped, removed rig.Scene) {
	file := filepath.Join(root, page)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), "<!-- transcript -->\n")
	_, after, closed := strings.Cut(rest, "<!-- end of transcript -->\n")
	if !ok || !closed {
		t.Fatalf("%s: no place for the transcript", file)
	}
	want := before + "<!-- transcript -->\n" + transcript(shipped, removed) + "<!-- end of transcript -->\n" + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(b) != want {
		t.Errorf("%s tells another story than what happened; go test ./e2e/incident -run Twins -update writes:\n%s", file, transcript(shipped, removed))
	}
}

func transcript(shipped, removed rig.Scene) string {
	block := func(command string, s rig.Scene) string {
		return "```\n$ " + command + "\n" + s.Transcript() + "```\n"
	}
	return "As shipped:\n\n" + block("go run ./e2e/incident", shipped) +
		"\nWith no-op twins in place of the gate, the witness and the zeroing of pages:\n\n" +
		block("go run -overlay e2e/testdata/twins/overlay.json ./e2e/incident", removed)
}
