package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	tableBegin = "<!-- checks: written by go run ./e2e/mutate -update -->\n"
	tableEnd   = "<!-- /checks -->\n"
)

// writeTable puts the checks and the tests that caught them into docs/testing.md.
func writeTable(root string, tried, all []twin) error {
	name := filepath.Join(root, "docs", "testing.md")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(text, []byte(tableBegin))
	_, after, ok2 := bytes.Cut(rest, []byte(tableEnd))
	if !ok || !ok2 {
		return fmt.Errorf("%s: no place for the table", name)
	}
	var b bytes.Buffer
	b.Write(before)
	b.WriteString(tableBegin)
	fmt.Fprintf(&b, "\n%d of %d checks caught.\n", len(tried), len(tried))
	simulated, seen := false, 0
	for _, t := range tried {
		simulated = simulated || t.seed != ""
		seen += min(1, len(t.seed))
	}
	head, rule := "| check taken out | test that failed |", "|---|---|"
	if simulated {
		fmt.Fprintf(&b, "The simulator's first seeds see %d of them too.\n", seen)
		head, rule = head+" simulator |", rule+"---|"
	}
	area, file := "", ""
	for _, t := range ordered(tried) {
		if t.area != area {
			area, file = t.area, ""
			fmt.Fprintf(&b, "\n### Checks: %s\n", area)
		}
		if t.file != file {
			file = t.file
			fmt.Fprintf(&b, "\n`%s`\n\n%s\n%s\n", file, head, rule)
		}
		fmt.Fprintf(&b, "| `%s` | `%s` |", cell(t.name), cell(t.caught))
		if simulated {
			fmt.Fprintf(&b, " %s |", t.seed)
		}
		b.WriteByte('\n')
	}
	b.WriteString("\n### Checks that are not tried\n\n| check | why nobody could see its absence |\n|---|---|\n")
	for _, t := range all {
		if t.spared != "" {
			fmt.Fprintf(&b, "| `%s %s` | %s |\n", t.file, cell(t.name), t.spared)
		}
	}
	b.WriteString("\n" + tableEnd)
	b.Write(after)
	return os.WriteFile(name, b.Bytes(), 0o644)
}

// ordered groups by area and file, in the order of the table.
func ordered(twins []twin) []twin {
	var out []twin
	done := map[string]bool{}
	for _, a := range twins {
		if done[a.area] {
			continue
		}
		done[a.area] = true
		files := map[string]bool{}
		for _, f := range twins {
			if f.area != a.area || files[f.file] {
				continue
			}
			files[f.file] = true
			for _, t := range twins {
				if t.area == f.area && t.file == f.file {
					out = append(out, t)
				}
			}
		}
	}
	return out
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
