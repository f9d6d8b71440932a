package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// twins are the files that an overlay puts in place of shipped ones, with the functions that differ.
var twins = map[string][]string{
	"kvtransfer/gate.go":         {"Checks", "kept"},
	"kvtransfer/witness.go":      {"WitnessedRows", "WitnessedLast"},
	"kvtransfer/page/release.go": {"Zeroed"},
	"decode/zero.go":             {"zero"},
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
