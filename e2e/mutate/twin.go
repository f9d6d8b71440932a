package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// twin is a build in which one check is missing.
type twin struct {
	number int
	area   string
	file   string
	name   string // function: the condition or statement
	edits  []edit
	spared string // why it is not tried
	caught string // the test that failed
	seed   string // what the simulator said, if it was asked
}

// edit puts text into a file in the place of bytes [at, to).
type edit struct {
	at, to int
	text   string
	rank   int // of edits at one place, lower first
}

// findRoot is the folder of go.mod.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, no := os.Stat(filepath.Join(dir, "go.mod")); no == nil {
			return dir, nil
		}
		if up := filepath.Dir(dir); up != dir {
			dir = up
			continue
		}
		err = errors.New("no go.mod in this folder or above")
	}
	return "", err
}

// collect lists every twin of the table.
func collect(root string) ([]twin, error) {
	c := collector{root: root, seen: map[string]int{}, used: map[string]bool{}}
	for _, t := range targets {
		if err := c.target(t); err != nil {
			return nil, err
		}
	}
	for _, s := range statements {
		if err := c.statement(s); err != nil {
			return nil, err
		}
	}
	for key := range spared {
		if !c.used[key] {
			return nil, fmt.Errorf("table: spared %q: there is no such check", key)
		}
	}
	return c.twins, nil
}

type collector struct {
	root  string
	twins []twin
	seen  map[string]int
	used  map[string]bool // keys of spared
}

// source is a parsed file.
type source struct {
	text []byte
	set  *token.FileSet
	file *ast.File
}

func (c *collector) read(file string) (source, error) {
	var s source
	var err error
	if s.text, err = os.ReadFile(filepath.Join(c.root, file)); err != nil {
		return s, err
	}
	s.set = token.NewFileSet()
	s.file, err = parser.ParseFile(s.set, file, s.text, parser.SkipObjectResolution)
	return s, err
}

func (s source) span(n ast.Node) (at, to int) {
	return s.set.Position(n.Pos()).Offset, s.set.Position(n.End()).Offset
}

// words is a node's text on one line.
func (s source) words(n ast.Node) string {
	at, to := s.span(n)
	return strings.Join(strings.Fields(string(s.text[at:to])), " ")
}

func (s source) functions(names []string) (fns []*ast.FuncDecl, err error) {
	found := map[string]int{}
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if ok && f.Body != nil && (names == nil || slices.Contains(names, f.Name.Name)) {
			fns = append(fns, f)
			found[f.Name.Name]++
		}
	}
	for _, n := range names {
		if found[n] != 1 {
			return nil, fmt.Errorf("table: %s: function %s occurs %d times", s.set.Position(s.file.Pos()).Filename, n, found[n])
		}
	}
	return fns, nil
}

// target collects the conditions of its functions.
func (c *collector) target(t target) error {
	s, err := c.read(t.file)
	if err != nil {
		return err
	}
	fns, err := s.functions(t.fns)
	if err != nil {
		return err
	}
	for _, f := range fns {
		if name, ok := strings.CutPrefix(f.Name.Name, "check"); ok && t.area == "gate" && t.file != "kvtransfer/lease.go" && name != "HeaderRange" && name != "Fingerprint" {
			at := s.set.Position(f.Body.Lbrace).Offset + 1
			c.add(t.area, t.file, f.Name.Name, edit{at, at, "if missingCheck(%d) { return Error{} };", 0})
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.IfStmt:
				c.condition(t, s, f, n.Cond)
			case *ast.SwitchStmt:
				if n.Tag == nil {
					for _, cl := range n.Body.List {
						for _, e := range cl.(*ast.CaseClause).List {
							c.condition(t, s, f, e)
						}
					}
				}
			case *ast.ReturnStmt:
				for _, e := range n.Results {
					if b, ok := e.(*ast.BinaryExpr); ok && (b.Op == token.LAND || b.Op == token.LOR) {
						c.operands(t, s, f, b)
					}
				}
			case *ast.AssignStmt:
				for _, e := range n.Rhs {
					if b, ok := e.(*ast.BinaryExpr); ok && (b.Op == token.LAND || b.Op == token.LOR) {
						c.operands(t, s, f, b)
					}
				}
			}
			return true
		})
	}
	return nil
}

// condition takes a whole condition as false, and its operands as what makes them not count. A chain of || is its operands.
func (c *collector) condition(t target, s source, f *ast.FuncDecl, e ast.Expr) {
	if b, ok := e.(*ast.BinaryExpr); !ok || b.Op != token.LOR {
		c.wrap(t, s, f, e, "(!missingCheck(%d) && (", "no")
	}
	c.operands(t, s, f, e)
}

// operands takes operands of && as true and of || as false.
func (c *collector) operands(t target, s source, f *ast.FuncDecl, e ast.Expr) {
	for p, ok := e.(*ast.ParenExpr); ok; p, ok = e.(*ast.ParenExpr) {
		e = p.X
	}
	b, ok := e.(*ast.BinaryExpr)
	if !ok || b.Op != token.LAND && b.Op != token.LOR {
		return
	}
	for _, x := range []ast.Expr{b.X, b.Y} {
		inner, ok := x.(*ast.BinaryExpr)
		if !ok || inner.Op != b.Op { // of a && b && c, not a && b
			switch {
			case b.Op == token.LAND:
				c.wrap(t, s, f, x, "(missingCheck(%d) || (", "always")
			case b.Op == token.LOR:
				c.wrap(t, s, f, x, "(!missingCheck(%d) && (", "never")
			}
		}
		c.operands(t, s, f, x)
	}
}

func (c *collector) wrap(t target, s source, f *ast.FuncDecl, e ast.Expr, open, how string) {
	at, to := s.span(e)
	name := fmt.Sprintf("%s: %s", f.Name.Name, s.words(e))
	if how == "always" || how == "never" {
		name = fmt.Sprintf("%s: %s, taken as %t", f.Name.Name, s.words(e), how == "always")
	}
	c.add(t.area, t.file, name, edit{at, at, open, -(to - at)}, edit{to, to, "))", to - at})
}

func (c *collector) add(area, file, name string, edits ...edit) {
	key := file + " " + name
	if c.seen[key]++; c.seen[key] > 1 {
		name = fmt.Sprintf("%s (%d)", name, c.seen[key])
		key = file + " " + name
	}
	t := twin{number: len(c.twins) + 1, area: area, file: file, name: name, spared: spared[key]}
	c.used[key] = t.spared != ""
	for i := range edits {
		if strings.Contains(edits[i].text, "%d") {
			edits[i].text = fmt.Sprintf(edits[i].text, t.number)
		}
	}
	t.edits = edits
	c.twins = append(c.twins, t)
}

// statement collects one line that is left out or replaced.
func (c *collector) statement(st statement) error {
	s, err := c.read(st.file)
	if err != nil {
		return err
	}
	fns, err := s.functions([]string{st.fn})
	if err != nil {
		return err
	}
	at, to := s.span(fns[0])
	body := string(s.text[at:to])
	if n := strings.Count(body, st.old); n != 1 {
		return fmt.Errorf("table: %s: %s: %q occurs %d times", st.file, st.fn, st.old, n)
	}
	at += strings.Index(body, st.old)
	to = at + len(st.old)
	name := st.fn + ": " + strings.Join(strings.Fields(st.old), " ") + ", left out"
	switch {
	case st.with == "":
		c.add(st.area, st.file, name, edit{at, at, "if !missingCheck(%d) { ", 0}, edit{to, to, " }", 0})
	default: // they differ in one value: choose between the two there
		name = st.fn + ": " + st.old + ", instead " + st.with
		c.add(st.area, st.file, name, edit{at, to, choose(st.old, st.with), 0})
	}
	return nil
}

// choose makes the value in which two texts differ a choice: what is common is what ends with a space before it, and begins with a
// comma behind it.
func choose(old, with string) string {
	n := 0
	for n < min(len(old), len(with)) && old[n] == with[n] {
		n++
	}
	before := old[:strings.LastIndex(old[:n], " ")+1]
	old, with = old[len(before):], with[len(before):]
	n = 0
	for n < min(len(old), len(with)) && old[len(old)-1-n] == with[len(with)-1-n] {
		n++
	}
	after := ""
	if i := strings.Index(old[len(old)-n:], ","); i >= 0 {
		after = old[len(old)-n+i:]
	}
	return before + "oneOf(%d, " + strings.TrimSuffix(with, after) + ", " + strings.TrimSuffix(old, after) + ")" + after
}

// overlay writes all twins into dir, as one build whose switch is the environment's QUIRE_GONE, and gives the -overlay file.
func overlay(root, dir string, twins []twin) (string, error) {
	byFile := map[string][]edit{}
	for _, t := range twins {
		byFile[t.file] = append(byFile[t.file], t.edits...)
	}
	replace := map[string]string{}
	for file, edits := range byFile {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return "", err
		}
		out := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(out, apply(text, edits), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = out
		pkg := path.Dir(file)
		helper := filepath.Join(dir, strings.ReplaceAll(pkg, "/", "_")+"_gone.go")
		if err := os.WriteFile(helper, fmt.Appendf(nil, switchSource, path.Base(pkg)), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, pkg, "gone_twin.go")] = helper
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, b, 0o600)
}

const switchSource = `package %s

import (
	"os"
	"strconv"
)

var missingNumber, _ = strconv.Atoi(os.Getenv("QUIRE_GONE"))

// missingCheck says whether a check is missing.
func missingCheck(n int) bool { return n == missingNumber }

// oneOf is the first value where a check is missing, else the second.
func oneOf[T any](n int, missing, there T) T {
	if missingCheck(n) {
		return missing
	}
	return there
}
`

// apply makes the edits, outer ones around inner ones.
func apply(text []byte, edits []edit) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int {
		if a.at != b.at {
			return a.at - b.at
		}
		// What ends here comes before what begins here; of those that end, the inner first; of those that begin, the outer.
		if aEnds, bEnds := a.rank > 0, b.rank > 0; aEnds != bEnds {
			if aEnds {
				return -1
			}
			return 1
		}
		return a.rank - b.rank
	})
	var out []byte
	next := 0
	for _, e := range edits {
		out = append(out, text[next:e.at]...)
		out = append(out, e.text...)
		next = e.to
	}
	return append(out, text[next:]...)
}
