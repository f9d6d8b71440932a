package procfile

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// ParseEnv reads a .env file: NAME=VALUE a line, with or without `export`; # begins a comment where a line does, or after
// a space behind an unquoted value. In 'single' quotes nothing is special, in "double" ones \n, \t, \", \\ and \$ are.
// Variables are not expanded. The result is in the order of the file; a later line wins.
func ParseEnv(r io.Reader) ([]string, error) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 4096), MaxLine)
	var out []string
	n := 0
	for s.Scan() {
		n++
		line := strings.TrimSpace(strings.TrimPrefix(s.Text(), "\ufeff"))
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, found := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		name = strings.TrimSpace(name)
		if !found || !validName(name) || strings.Contains(name, "-") {
			return nil, fmt.Errorf("procfile: .env line %d: a line is NAME=VALUE", n)
		}
		v, err := unquote(strings.TrimSpace(value))
		if err != nil {
			return nil, fmt.Errorf("procfile: .env line %d: %s: %w", n, name, err)
		}
		out = append(out, name+"="+v)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("procfile: .env line %d: %w", n+1, err)
	}
	return out, nil
}

func unquote(v string) (string, error) {
	if v == "" || v[0] != '"' && v[0] != '\'' {
		if i := strings.Index(v, " #"); i >= 0 {
			v = strings.TrimSpace(v[:i])
		}
		return v, nil
	}
	quote := v[0]
	var b strings.Builder
	for i := 1; i < len(v); i++ {
		switch c := v[i]; {
		case c == quote:
			rest := strings.TrimSpace(v[i+1:])
			if rest != "" && rest[0] != '#' {
				return "", fmt.Errorf("%d bytes follow the closing quote", len(rest))
			}
			return b.String(), nil
		case c == '\\' && quote == '"' && i+1 < len(v):
			i++
			b.WriteByte(unescape(v[i]))
		default:
			b.WriteByte(c)
		}
	}
	return "", fmt.Errorf("the quote %c is never closed", quote)
}

func unescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	}
	return c
}

// MergeEnv lays file under env: a variable that env has keeps env's value, so that `NAME=1 quire up -f Procfile` wins over .env.
func MergeEnv(env, file []string) []string {
	have := map[string]bool{}
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		have[name] = true
	}
	out := append([]string(nil), env...)
	for _, kv := range file {
		if name, _, _ := strings.Cut(kv, "="); !have[name] {
			out = append(out, kv)
		}
	}
	return out
}
