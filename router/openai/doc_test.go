package openai

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestDocs keeps the lists of docs/api.md equal to the code's. On a difference it prints the lines that belong there.
func TestDocs(t *testing.T) {
	b, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	code := func(names []string) string { return "`" + strings.Join(names, "`, `") + "`" }
	var refusedRows []string
	for _, name := range Refused() {
		pass := "`null`"
		for _, v := range Neutral(name) {
			pass += ", `" + v + "`"
		}
		refusedRows = append(refusedRows, fmt.Sprintf("| `%s` | %s |", name, pass))
	}
	for name, want := range map[string]string{
		"served by chat":        code(Served(OpChat)),
		"served by completions": code(Served(OpCompletion)),
		"ignored":               code(Ignored()),
		"refused":               "| field | values that are let pass |\n|---|---|\n" + strings.Join(refusedRows, "\n"),
	} {
		_, rest, ok := strings.Cut(string(b), "<!-- "+name+" -->\n")
		got, _, end := strings.Cut(rest, "\n<!-- end -->")
		if !ok || !end || got != want {
			t.Errorf("docs/api.md: the list %q differs; it should be\n%s", name, want)
		}
	}
}
