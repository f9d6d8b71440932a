//go:build unix

package binary

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every row of docs/failures.md outside of the messages, which e2e/matrix plays, names tests that are there; and the blows that it names are
// those that go test plays.
func TestFailuresNameTheirTests(t *testing.T) {
	b, err := os.ReadFile("../../docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	rows, section := 0, ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title
		}
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| what ") || section == "Messages" {
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		for _, by := range strings.Split(cells[len(cells)-1], "; ") {
			if strings.HasPrefix(by, "not played: ") {
				continue
			}
			if blow := playedBy(t, line, by); blow != "" {
				named = append(named, blow)
			}
		}
	}
	if rows < 35 {
		t.Fatalf("%d rows", rows)
	}
	for _, blow := range usual {
		if !slices.Contains(named, blow) {
			t.Errorf("go test plays %q, and no row names it", blow)
		}
	}
}

// playedBy checks "folder TestName" and "e2e/binary TestEveryStep: blow", and gives the blow.
func playedBy(t *testing.T, row, by string) (blow string) {
	t.Helper()
	by, blow, _ = strings.Cut(by, ": ")
	folder, name, ok := strings.Cut(by, " ")
	files, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
	if !ok || err != nil || len(files) == 0 {
		t.Errorf("%q names no test in %q", row, by)
		return blow
	}
	found := slices.ContainsFunc(files, func(file string) bool {
		b, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(b), "func "+name+"(t *testing.T) {")
	})
	if !found {
		t.Errorf("%q: there is no %s in %s", row, name, folder)
	}
	if blow != "" && !slices.Contains(usual, blow) {
		t.Errorf("%q: go test does not play %q", row, blow)
	}
	return blow
}
