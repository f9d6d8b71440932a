package wire

import (
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os"
	"regexp"
	"strings"
	"testing"

	"quire/kvtransfer"
)

// grouped writes a number as documents do: 2,097,152.
func grouped(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// limitRows are the rows of docs/protocol.md's table of limits, made from the constants; the names behind each are those that it states.
func limitRows() (rows []string, names []string) {
	row := func(consts, format string, args ...any) {
		names = append(names, strings.Fields(consts)...)
		rows = append(rows, fmt.Sprintf("| "+format+" |", args...))
	}
	row("MaxMessage", "a message | %d MiB", MaxMessage>>20)
	row("MaxHeader", "header of a frame or reply, sender | %d bytes", MaxHeader)
	row("MaxTokens", "token ids | %s", grouped(MaxTokens))
	row("MaxPages", "page slots | %s", grouped(MaxPages))
	row("MaxSlug MaxTenant", "process id; tenant | %d; %d characters of `[a-z0-9-]`", MaxSlug, MaxTenant)
	row("MaxName", "model name, slug, pool | %d bytes each", MaxName)
	row("MaxCode MaxParam MaxDetail", "error code; param; detail | %d; %d; %s bytes", MaxCode, MaxParam, grouped(MaxDetail))
	row("MaxBias MaxTop", "logit bias entries; alternatives of a token | %d; %d", MaxBias, MaxTop)
	row("MaxStop MaxStopText MaxStopTokens", "stop strings; stop tokens | %d of %s bytes; %s", MaxStop, grouped(MaxStopText), grouped(MaxStopTokens))
	row("MaxReplyTokens MaxReplies", "tokens of a reply; replies of a resend | %s; %s", grouped(MaxReplyTokens), grouped(MaxReplies))
	row("MaxTokenText MaxHeldText", "text of a token; of an end | %d KiB; %d MiB", MaxTokenText>>10, MaxHeldText>>20)
	row("MaxLayers MaxDim", "layers; length of the vector | %s; %s", grouped(MaxLayers-1), grouped(MaxDim-1))
	row("MaxRows", "rows and other counts | %s", grouped(MaxRows-1))
	row("MaxTicks", "a duration, in microseconds, either way | %s", grouped(MaxTicks))
	return rows, names
}

// TestProtocolDocumentStatesTheLimits holds the table of limits, and the numbers in the text around it, to the code: every constant of
// limits.go has its place there.
func TestProtocolDocumentStatesTheLimits(t *testing.T) {
	doc, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, names := limitRows()
	if table := "| what | limit |\n|---|---|\n" + strings.Join(rows, "\n") + "\n\n"; !strings.Contains(string(doc), table) {
		t.Errorf("docs/protocol.md does not have this table:\n%s", table)
	}
	f, err := parser.ParseFile(gotoken.NewFileSet(), "limits.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	stated := " " + strings.Join(names, " ") + " "
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			for _, name := range v.Names {
				if strings.HasPrefix(name.Name, "Max") && !strings.Contains(stated, " "+name.Name+" ") {
					t.Errorf("docs/protocol.md does not state %s", name.Name)
				}
			}
		}
		return true
	})
	text := regexp.MustCompile(`\s+`).ReplaceAllString(string(doc), " ")
	for _, want := range []string{
		fmt.Sprintf("nesting stays below %d", maxDepth),
		fmt.Sprintf("At most %d owners and %s runs of pages", kvtransfer.MaxPageOwners, grouped(kvtransfer.MaxPageRuns)),
		fmt.Sprintf("body = version (%d)", Version), fmt.Sprintf("Ed25519 signature, %d bytes", SigSize), fmt.Sprintf("ciphertext and %d-byte tag", TagSize),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("docs/protocol.md does not say %q", want)
		}
	}
}
