package main

import (
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"quire/kvtransfer"
)

// TestTable holds the table to the source: every function, statement and spared check is there, every check of the gate is taken out
// whole, and the build with all twins is Go.
func TestTable(t *testing.T) {
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	all, err := collect(root)
	if err != nil {
		t.Fatal(err)
	}
	whole := 0
	for _, w := range all {
		if strings.HasPrefix(w.name, "check") && !strings.Contains(w.name, ":") {
			whole++
		}
	}
	if n := len(kvtransfer.Checks()); whole != n {
		t.Errorf("%d checks of the gate taken out whole, it has %d", whole, n)
	}
	dir := t.TempDir()
	if _, err := overlay(root, dir, all); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(dir + "/" + f.Name())
		if err == nil {
			_, err = parser.ParseFile(token.NewFileSet(), f.Name(), text, 0)
		}
		if err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d checks, %d of them spared", len(all), len(spared))
}

func TestApply(t *testing.T) {
	text := []byte("if a || b {")
	got := apply(text, []edit{{3, 3, "<", -6}, {9, 9, ">", 6}, {3, 3, "(", -1}, {4, 4, ")", 1}, {8, 8, "[", -1}, {9, 9, "]", 1}})
	if string(got) != "if <(a) || [b]> {" {
		t.Errorf("%s", got)
	}
}

func TestChoose(t *testing.T) {
	for _, c := range [][3]string{
		{"Must: true", "Must: false", "Must: oneOf(%d, false, true)"},
		{"gen: p.gen + 1", "gen: p.gen", "gen: oneOf(%d, p.gen, p.gen + 1)"},
		{"h.send(w, meaning.HTTP, f(e))", "h.send(w, 200, f(e))", "h.send(w, oneOf(%d, 200, meaning.HTTP), f(e))"},
	} {
		if got := choose(c[0], c[1]); got != c[2] {
			t.Errorf("%s", got)
		}
	}
}
