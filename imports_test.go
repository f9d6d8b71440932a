// Package quire holds no code: its tests read the imports of every room and fail on an arrow that points up.
package quire

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// levels orders the rooms: a package imports packages of lower levels and of its own room, nothing else. Rooms on one level are
// siblings and share words (kvtransfer), not code.
var levels = map[string]int{
	"kvtransfer": 0,
	"device":     1,
	"keys":       2, "trace": 2,
	"bus": 3, "model": 3,
	"journal": 4, "tape": 4, "embedded": 4,
	"router": 5, "prefill": 5, "decode": 5,
	"cluster": 6, "procfile": 6,
	"replay": 7, "bench": 7,
	"cmd": 8, "e2e": 8,
}

// inside orders the packages of rooms in which order matters: a package imports only those before it.
var inside = map[string][]string{
	"kvtransfer": {"kvtransfer/page", "kvtransfer", "kvtransfer/script", "kvtransfer/wire", "kvtransfer/seal"},
}

// impure are the imports that a pure file does without: with them it would read clocks, wait, draw lots or touch the world.
var impure = []string{
	"context", "crypto/rand", "log", "log/slog", "math/rand", "math/rand/v2", "net", "os", "runtime", "sync", "syscall", "time",
	"testing/synctest", "golang.org/x/sys", "golang.org/x/sync",
}

const module = "quire/"

// source is one parsed file.
type source struct {
	path string // slash-separated, from the module's root
	file *ast.File
	fset *token.FileSet
}

func (s source) pkg() string  { return path.Dir(s.path) }
func (s source) room() string { return room(s.pkg()) }
func (s source) test() bool   { return strings.HasSuffix(s.path, "_test.go") }

func room(pkg string) string {
	first, _, _ := strings.Cut(pkg, "/")
	return first
}

// pure says whether a file decides without time, chance or the outside: the hand-off's core and each service's plan and loop.
func (s source) pure() bool {
	if s.test() {
		return false
	}
	if s.room() == "kvtransfer" {
		return true
	}
	if !slices.Contains([]string{"router", "prefill", "decode"}, s.pkg()) {
		return false
	}
	base := path.Base(s.path)
	return strings.HasPrefix(base, "loop") || strings.HasPrefix(base, "plan") || strings.HasPrefix(base, "place")
}

func (s source) complain(n ast.Node, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", s.path, s.fset.Position(n.Pos()).Line, fmt.Sprintf(format, args...))
}

// check returns what breaks a rule, one line each.
func check(s source) []string {
	var out []string
	if _, known := levels[s.room()]; !known {
		return []string{fmt.Sprintf("%s: the room %q is not in the map of rooms", s.path, s.room())}
	}
	for _, spec := range s.file.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			out = append(out, s.complain(spec, "%v", err))
			continue
		}
		for _, why := range []string{arrow(s, name), nats(s, name), unsafely(s, name), impurely(s, name)} {
			if why != "" {
				out = append(out, s.complain(spec, "%s", why))
			}
		}
	}
	if s.pure() {
		out = append(out, concurrency(s)...)
	}
	return out
}

func arrow(s source, name string) string {
	if !strings.HasPrefix(name, module) {
		return ""
	}
	to := strings.TrimPrefix(name, module)
	from, target := levels[s.room()], room(to)
	level, known := levels[target]
	switch {
	case !known:
		return fmt.Sprintf("imports %s, a room that is not in the map", to)
	case target == s.room():
		return inRoom(s, to)
	case level == from:
		return fmt.Sprintf("imports its sibling %s", to)
	case level > from && s.test() && s.room() == "model" && target == "embedded":
		return "" // the embedded model is what model's tests open
	case level > from:
		return fmt.Sprintf("the arrow points up: %s imports %s", s.pkg(), to)
	}
	return ""
}

// inRoom checks the order inside a room. An external test of a package may import it, and a test whatever its room holds.
func inRoom(s source, to string) string {
	order, ordered := inside[s.room()]
	if !ordered || s.test() {
		return ""
	}
	from, target := slices.Index(order, s.pkg()), slices.Index(order, to)
	if from < 0 || target < 0 || target >= from {
		return fmt.Sprintf("%s imports %s: the order in this room is %s", s.pkg(), to, strings.Join(order, ", "))
	}
	return ""
}

func nats(s source, name string) string {
	server := strings.HasPrefix(name, "github.com/nats-io/nats.go") || strings.HasPrefix(name, "github.com/nats-io/nats-server")
	if server && s.pkg() != "bus/jet" {
		return fmt.Sprintf("imports %s: NATS is known to bus/jet alone", name)
	}
	return ""
}

func unsafely(s source, name string) string {
	if name != "unsafe" && name != "C" {
		return ""
	}
	if s.room() == "device" || s.room() == "model" && strings.Contains(path.Base(s.path), "mmap") {
		return ""
	}
	return fmt.Sprintf("imports %s outside device and model's mmap", name)
}

func impurely(s source, name string) string {
	if !s.pure() {
		return ""
	}
	for _, bad := range impure {
		if name == bad || strings.HasPrefix(name, bad+"/") {
			return fmt.Sprintf("a pure file imports %s", name)
		}
	}
	return ""
}

// concurrency finds goroutines and channels, which a pure file has none of.
func concurrency(s source) []string {
	var out []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		what := ""
		switch n := n.(type) {
		case *ast.GoStmt:
			what = "a goroutine"
		case *ast.ChanType:
			what = "a channel"
		case *ast.SendStmt:
			what = "a send"
		case *ast.SelectStmt:
			what = "a select"
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				what = "a receive"
			}
		}
		if what != "" {
			out = append(out, s.complain(n, "a pure file has %s", what))
		}
		return true
	})
	return out
}

// sources parses every Go file of the module, whatever its build constraints: nested modules, test data and hidden folders are
// not its own.
func sources(t *testing.T, root string) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skip(p, rel, d.Name())
		}
		if !strings.HasSuffix(p, ".go") || filepath.Dir(rel) == "." {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		out = append(out, source{filepath.ToSlash(rel), f, fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func skip(p, rel, name string) error {
	if rel == "." {
		return nil
	}
	if name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return fs.SkipDir
	}
	if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

func TestImports(t *testing.T) {
	for _, s := range sources(t, ".") {
		for _, why := range check(s) {
			t.Error(why)
		}
	}
}

// The walk must have seen the project: every room that exists on disk, and in it the packages that carry the rules.
func TestImportsSeesEveryPackage(t *testing.T) {
	seen := map[string]bool{}
	pure := 0
	for _, s := range sources(t, ".") {
		seen[s.pkg()] = true
		if s.pure() {
			pure++
		}
	}
	for _, want := range []string{
		"kvtransfer", "kvtransfer/page", "kvtransfer/wire", "kvtransfer/seal", "device", "device/cpu", "keys", "trace", "bus", "bus/jet", "model",
		"journal", "embedded", "router", "prefill", "decode", "cluster", "procfile", "cmd/quire", "e2e",
	} {
		if !seen[want] {
			t.Errorf("%s was not seen", want)
		}
	}
	for _, service := range []string{"router", "prefill", "decode"} {
		if _, err := os.Stat(filepath.Join(service, "loop.go")); err != nil {
			t.Errorf("%s has no loop.go: %v", service, err)
		}
	}
	if pure < 12 {
		t.Errorf("%d pure files seen, want at least 12", pure)
	}
}

// Each rule can fail: a file that breaks it is found, with the reason.
func TestImportsCanFail(t *testing.T) {
	cases := []struct{ path, code, want string }{
		{"kvtransfer/x.go", `import "quire/bus"`, "the arrow points up: kvtransfer imports bus"},
		{"device/cpu/x.go", `import "quire/model"`, "the arrow points up"},
		{"decode/x.go", `import "quire/prefill"`, "its sibling prefill"},
		{"model/x.go", `import "quire/bus/jet"`, "its sibling bus/jet"},
		{"decode/x_test.go", `import "quire/cluster"`, "the arrow points up"},
		{"model/x.go", `import "quire/embedded"`, "the arrow points up"},
		{"util/x.go", ``, `the room "util" is not in the map`},
		{"decode/x.go", `import "quire/util"`, "a room that is not in the map"},
		{"kvtransfer/page/x.go", `import "quire/kvtransfer"`, "the order in this room"},
		{"kvtransfer/wire/x.go", `import "quire/kvtransfer/seal"`, "the order in this room"},
		{"router/x.go", `import "github.com/nats-io/nats.go"`, "NATS is known to bus/jet alone"},
		{"bus/x.go", `import "github.com/nats-io/nats.go/jetstream"`, "NATS is known to bus/jet alone"},
		{"cluster/x.go", `import "github.com/nats-io/nats-server/v2/server"`, "NATS is known to bus/jet alone"},
		{"kvtransfer/x.go", `import "unsafe"`, "imports unsafe outside"},
		{"model/forward.go", `import "unsafe"`, "imports unsafe outside"},
		{"router/x.go", `import "C"`, "imports C outside"},
		{"kvtransfer/wire/x.go", `import "time"`, "a pure file imports time"},
		{"decode/loop.go", `import "sync/atomic"`, "a pure file imports sync/atomic"},
		{"decode/plan.go", `import "math/rand/v2"`, "a pure file imports math/rand/v2"},
		{"router/place.go", `import "context"`, "a pure file imports context"},
		{"prefill/loop_claim.go", `import "crypto/rand"`, "a pure file imports crypto/rand"},
		{"kvtransfer/x.go", `import "net/netip"`, "a pure file imports net/netip"},
		{"kvtransfer/x.go", `import "os/exec"`, "a pure file imports os/exec"},
		{"decode/loop.go", `func f() { go f() }`, "a pure file has a goroutine"},
		{"decode/loop.go", `type c chan int`, "a pure file has a channel"},
		{"decode/loop.go", `func f() { select {} }`, "a pure file has a select"},
		{"decode/loop.go", `func f() { c <- 1 }`, "a pure file has a send"},
		{"decode/loop.go", `func f() { <-c }`, "a pure file has a receive"},
	}
	for _, c := range cases {
		if got := strings.Join(check(parse(t, c.path, c.code)), "\n"); !strings.Contains(got, c.want) {
			t.Errorf("%s with %s: want %q, got %q", c.path, c.code, c.want, got)
		}
	}
}

// What the rules allow stays allowed.
func TestImportsAllow(t *testing.T) {
	cases := []struct{ path, code string }{
		{"kvtransfer/seal/x.go", `import ("crypto/aes"; "quire/kvtransfer"; "quire/kvtransfer/wire")`},
		{"kvtransfer/wire/x_test.go", `import ("time"; "quire/kvtransfer/seal")`},
		{"decode/service.go", `import ("time"; "sync"; "quire/bus"; "quire/model"); func f() { go f() }`},
		{"decode/loop.go", `import ("errors"; "quire/bus"; "quire/kvtransfer/page")`},
		{"bus/jet/x.go", `import ("github.com/nats-io/nats.go"; "quire/bus"; "quire/keys")`},
		{"keys/x.go", `import "github.com/nats-io/nkeys"`},
		{"model/gguf/mmap_unix.go", `import "unsafe"`},
		{"device/cpu/x.go", `import ("unsafe"; "quire/device")`},
		{"cmd/quire/x.go", `import ("quire/cluster"; "quire/procfile"; "quire/model")`},
		{"embedded/x.go", `import "quire/model"`},
		{"model/x_test.go", `import _ "quire/embedded"`},
	}
	for _, c := range cases {
		for _, why := range check(parse(t, c.path, c.code)) {
			t.Errorf("%s: %s", c.path, why)
		}
	}
}

func parse(t *testing.T, path, code string) source {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, "package x\n"+code, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return source{path, f, fset}
}
