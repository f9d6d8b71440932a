package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"quire/e2e/rig"
)

var update = flag.Bool("update", false, "write docs/incident.md, and the twins anew from their sources")

const root = "../.."

// twins are the files that an overlay puts in place of shipped ones, with the functions that differ.
var twins = map[string][]string{
	"kvtransfer/gate.go":         {"Checks", "kept"},
	"kvtransfer/witness.go":      {"WitnessedRows", "WitnessedLast"},
	"kvtransfer/page/release.go": {"Zeroed"},
	"decode/zero.go":             {"zero"},
}

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
	checkTranscript(t, scenes["gate,witness,zeroing"], scenes[""])
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

// checkTranscript holds docs/incident.md to what happened.
func checkTranscript(t *testing.T, shipped, removed rig.Scene) {
	file := filepath.Join(root, "docs", "incident.md")
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

// TestTwinsAreTheSources holds every twin to its source: nothing but the functions named above may differ.
func TestTwinsAreTheSources(t *testing.T) {
	var overlay struct{ Replace map[string]string }
	b, err := os.ReadFile(filepath.Join(root, "e2e/testdata/twins/overlay.json"))
	if err == nil {
		err = json.Unmarshal(b, &overlay)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(overlay.Replace)), slices.Sorted(maps.Keys(twins)); !slices.Equal(got, want) {
		t.Fatalf("the overlay replaces %q, this test knows %q", got, want)
	}
	for source, differ := range twins {
		twin := overlay.Replace[source]
		if *update {
			if err := renew(source, twin, differ); err != nil {
				t.Fatal(err)
			}
		}
		a, b := decls(t, source), decls(t, twin)
		var other []string
		for name := range union(a, b) {
			if name != "import" && a[name] != b[name] {
				other = append(other, name)
			}
		}
		slices.Sort(other)
		want := slices.Sorted(slices.Values(differ))
		if !slices.Equal(other, want) {
			t.Errorf("%s and %s differ in %q, want %q; -update takes the rest over from the source", source, twin, other, want)
		}
	}
}

func union(a, b map[string]string) map[string]bool {
	all := map[string]bool{}
	for name := range a {
		all[name] = true
	}
	for name := range b {
		all[name] = true
	}
	return all
}

// decls gives the text of every declaration of a file, comments included, by name.
func decls(t *testing.T, file string) map[string]string {
	out, err := parseDecls(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	text := map[string]string{}
	for _, d := range out.list {
		text[d.name] = out.text[d.from:d.to]
	}
	return text
}

type declared struct {
	text string
	list []decl
}

type decl struct {
	name     string
	from, to int
}

func parseDecls(file string) (declared, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return declared{}, err
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, b, parser.ParseComments)
	if err != nil {
		return declared{}, err
	}
	out := declared{text: string(b)}
	for i, d := range f.Decls {
		from, name := d.Pos(), fmt.Sprintf("declaration %d", i)
		var doc *ast.CommentGroup
		switch d := d.(type) {
		case *ast.FuncDecl:
			name, doc = d.Name.Name, d.Doc
		case *ast.GenDecl:
			doc = d.Doc
			switch s := d.Specs[0].(type) {
			case *ast.ImportSpec:
				name = "import"
			case *ast.TypeSpec:
				name = s.Name.Name
			case *ast.ValueSpec:
				name = s.Names[0].Name
			}
		}
		if doc != nil {
			from = doc.Pos()
		}
		out.list = append(out.list, decl{name, fset.Position(from).Offset, fset.Position(d.End()).Offset})
	}
	return out, nil
}

// renew writes a twin anew: its source, with the twin's own imports and functions.
func renew(source, twin string, differ []string) error {
	s, err := parseDecls(filepath.Join(root, source))
	if err != nil {
		return err
	}
	w, err := parseDecls(filepath.Join(root, twin))
	if err != nil {
		return err
	}
	own := map[string]string{}
	for _, d := range w.list {
		if d.name == "import" || slices.Contains(differ, d.name) {
			own[d.name] = w.text[d.from:d.to]
		}
	}
	var b strings.Builder
	at := 0
	for _, d := range s.list {
		if text, ok := own[d.name]; ok {
			b.WriteString(s.text[at:d.from] + text)
			at = d.to
			delete(own, d.name)
		}
	}
	b.WriteString(s.text[at:])
	for _, d := range w.list {
		if text, ok := own[d.name]; ok {
			b.WriteString("\n" + text + "\n")
		}
	}
	return os.WriteFile(filepath.Join(root, twin), []byte(b.String()), 0o644)
}
