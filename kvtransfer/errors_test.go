package kvtransfer

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

//go:generate go test -run ^TestErrorsDocument$ -update-errors

var updateErrors = flag.Bool("update-errors", false, "write docs/errors.md anew")

const errorsDocument = "../docs/errors.md"

// document is docs/errors.md.
func document() string {
	var b strings.Builder
	b.WriteString(`# Errors

<!-- Generated from kvtransfer/errors.go: go generate ./kvtransfer -->

Every error that a client or an operator can see. The HTTP door answers with OpenAI's error object,
` + "`{\"error\": {\"message\", \"type\", \"param\", \"code\"}}`" + `; the NATS door with the same JSON and the headers
` + "`Nats-Service-Error-Code`" + ` and ` + "`Nats-Service-Error`" + `. A message carries numbers, and never a prompt, a token id or KV bytes.
A stream that has begun ends with the error object in place of a finish reason, and without ` + "`[DONE]`" + `.

## Classes

The class says what the caller of a failed step does, inside Quire and outside.

| class | meaning |
|---|---|
| refused | No state was taken. Try elsewhere or change the request. |
| lost | State was taken and is cleaned up. The router retries as a new attempt with a new reservation; the client sees the error when no attempt is left. |
| corrupt | What was handed over is not what it claims to be. Its pages are quarantined, counted and reported. At most one new attempt, on another prefill worker; never the same bytes. |
| failed | The bus or a device failed. Bounded retry, then lost. |
| bug | An invariant broke. The process stops. |

## Codes

| code | HTTP | NATS | type | class | what to do |
|---|---|---|---|---|---|
`)
	for _, m := range Table {
		fmt.Fprintf(&b, "| `%s` | %d | %d | `%s` | %s | %s |\n", m.Code, m.HTTP, m.NATS, m.Type, m.Class, m.Help)
	}
	return b.String()
}

// TestErrorsDocument pins the table: docs/errors.md is what the code says, and a change of either shows in review.
func TestErrorsDocument(t *testing.T) {
	want := document()
	if *updateErrors {
		if err := os.WriteFile(errorsDocument, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(errorsDocument)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/errors.md is not what errors.go says (go generate ./kvtransfer mends it):\n%s", diff)
	}
}

// constants lists the Codes that errors.go declares, by name.
func constants(t *testing.T) map[string]Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Code{}
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			if id, ok := v.Type.(*ast.Ident); ok && id.Name == "Code" {
				text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				out[v.Names[0].Name] = Code(text)
			}
		}
	}
	return out
}

// Every declared code but OK has one row, and every row a declared code.
func TestEveryCodeHasOneMeaning(t *testing.T) {
	declared := constants(t)
	if len(declared) < 2 || declared["OK"] != OK {
		t.Fatalf("codes in errors.go: %v", declared)
	}
	rows := map[Code]int{}
	for _, m := range Table {
		rows[m.Code]++
	}
	for name, c := range declared {
		if want := map[bool]int{true: 0, false: 1}[c == OK]; rows[c] != want {
			t.Errorf("%s (%q): rows %d, want %d", name, c, rows[c], want)
		}
		delete(rows, c)
	}
	if len(rows) > 0 {
		t.Errorf("rows without a declared code: %v", rows)
	}
}

func TestMeaningsAreComplete(t *testing.T) {
	for _, m := range Table {
		known := m.HTTP == 499 || http.StatusText(m.HTTP) != "" // 499: the client closed the request
		if !known || m.HTTP < 400 || m.NATS != m.HTTP || m.Class == ClassNone || m.Class > ClassBug {
			t.Errorf("%s: HTTP %d, NATS %d, class %s", m.Code, m.HTTP, m.NATS, m.Class)
		}
		if !strings.HasSuffix(m.Type, "_error") || m.Help == "" || !strings.HasSuffix(m.Help, ".") || strings.ContainsAny(m.Help, "|\n") {
			t.Errorf("%s: type %q, help %q", m.Code, m.Type, m.Help)
		}
		if m.HTTP == 500 && m.Class != ClassCorrupt && m.Class != ClassBug {
			t.Errorf("%s: HTTP 500 for class %s", m.Code, m.Class)
		}
		if Lookup(m.Code) != m {
			t.Errorf("%s: looked up as %+v", m.Code, Lookup(m.Code))
		}
	}
}

func TestLookup(t *testing.T) {
	if m := Lookup(OK); m != (Meaning{}) {
		t.Errorf("no error means %+v", m)
	}
	if m := Lookup("what"); m.Class != ClassBug || m.HTTP != 500 || m.Code != "what" {
		t.Errorf("an unknown code means %+v", m)
	}
}

func TestError(t *testing.T) {
	e := Errorf(HandoffCount, "token count: reserved %d, manifest %d", 600, 1)
	if e.Error() != "kvtransfer: token count: reserved 600, manifest 1" || e.Class() != ClassCorrupt || e.IsZero() {
		t.Errorf("%v, %s", e, e.Class())
	}
	if long := Errorf(BusFailed, "a%s", strings.Repeat("é", maxDetail)); len(long.Detail) > maxDetail || !strings.HasSuffix(long.Detail, "é...") {
		t.Errorf("a long text: %d bytes, ends in %q", len(long.Detail), long.Detail[len(long.Detail)-8:])
	}
	if bare := (Error{Code: Cancelled}); bare.Error() != "kvtransfer: cancelled" {
		t.Error(bare)
	}
	if !(Error{}).IsZero() || (Error{}).Class() != ClassNone {
		t.Error("the zero Error is one")
	}
}
