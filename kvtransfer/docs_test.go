package kvtransfer

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// docs/protocol.md lists the gate's checks as they are, in their order, with the right moment.
func TestProtocolDocumentListsTheGate(t *testing.T) {
	doc, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	rest := string(doc)
	for _, c := range Checks() {
		row := fmt.Sprintf("| %s | %s | `handoff_", c.Name, map[bool]string{true: "yes", false: "no"}[c.Early])
		_, after, found := strings.Cut(rest, row)
		if !found {
			t.Errorf("docs/protocol.md has no row %q where it belongs", row)
			continue
		}
		rest = after
	}
	table := string(doc)[strings.Index(string(doc), "## The gate"):strings.Index(string(doc), "## The witness")]
	if rows := strings.Count(table, "`handoff_"); rows != len(Checks()) {
		t.Errorf("docs/protocol.md has %d checks, the gate %d", rows, len(Checks()))
	}
}
