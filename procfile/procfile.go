// Package procfile reads Procfiles and supervises what they name: real processes, each in a process group of its own, with
// prefixed output, restarts and an end that leaves no orphan.
package procfile

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Limits of a Procfile. A file beyond them is refused with the numbers.
const (
	MaxEntries = 64
	MaxLine    = 8 << 10 // bytes
)

// Entry is one line: a name and the command that a shell runs.
type Entry struct {
	Name    string // [A-Za-z0-9_-]+, unique in its file
	Command string
	Line    int // from 1
}

// Parse reads a Procfile: `name: command` a line, blank lines and lines that begin with # left out.
//
// foreman and goreman take a command right after the colon, hivemind and overmind want a space there: both are read. Runners
// skip a line that they do not understand; here it is an error with its number, because a process that silently does not
// start is found much later. A name that appears twice is an error, as in hivemind and overmind.
func Parse(r io.Reader) ([]Entry, error) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 4096), MaxLine)
	var entries []Entry
	seen := map[string]int{}
	n := 0
	for s.Scan() {
		n++
		line := strings.TrimSpace(strings.TrimPrefix(s.Text(), "\ufeff"))
		if line == "" || line[0] == '#' {
			continue
		}
		e, err := parseLine(line, n)
		if err != nil {
			return nil, err
		}
		if first := seen[e.Name]; first != 0 {
			return nil, fmt.Errorf("procfile: line %d: the name %q is already that of line %d", n, e.Name, first)
		}
		seen[e.Name] = n
		if entries = append(entries, e); len(entries) > MaxEntries {
			return nil, fmt.Errorf("procfile: line %d: more than %d processes", n, MaxEntries)
		}
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("procfile: line %d: %w (a line may have %d bytes)", n+1, err, MaxLine)
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("procfile: no process: a line is NAME: COMMAND")
	}
	return entries, nil
}

func parseLine(line string, n int) (Entry, error) {
	name, command, found := strings.Cut(line, ":")
	name, command = strings.TrimSpace(name), strings.TrimSpace(command)
	switch {
	case !found:
		return Entry{}, fmt.Errorf("procfile: line %d: no colon: a line is NAME: COMMAND", n)
	case !validName(name):
		return Entry{}, fmt.Errorf("procfile: line %d: the name %q: letters, digits, - and _ make a name", n, name)
	case command == "":
		return Entry{}, fmt.Errorf("procfile: line %d: %s has no command", n, name)
	}
	return Entry{Name: name, Command: command, Line: n}, nil
}

func validName(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for _, c := range s {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}
