package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

const maxConfig = 1 << 20 // bytes

// configuration is a config file: one JSON object whose keys are flags' names, with - or _.
type configuration struct {
	path   string
	values map[string]any // by flag name, with -
}

var _ kong.Resolver = (*configuration)(nil)

// configFile finds and reads the file that --config or QUIRE_CONFIG names; nil when there is none.
func configFile(args []string, k *kong.Kong) (*configuration, error) {
	path := os.Getenv("QUIRE_CONFIG")
	for i, a := range args {
		if a == "--" {
			break
		}
		if v, ok := strings.CutPrefix(a, "--config="); ok {
			path = v
		} else if a == "--config" && i+1 < len(args) {
			path = args[i+1]
		}
	}
	if path == "" {
		return nil, nil
	}
	c, err := readConfig(path)
	if err != nil {
		return nil, err
	}
	return c, c.Validate(k.Model)
}

func readConfig(path string) (*configuration, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if len(b) > maxConfig {
		return nil, fmt.Errorf("config: %s: more than %d bytes", path, maxConfig)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	raw := map[string]any{}
	if err := d.Decode(&raw); err != nil {
		return nil, fmt.Errorf("config: %s: %w (one JSON object, its keys are flags)", path, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("config: %s: something follows the object", path)
	}
	c := &configuration{path: path, values: map[string]any{}}
	for k, v := range raw {
		name := strings.ReplaceAll(k, "_", "-")
		if _, twice := c.values[name]; twice {
			return nil, fmt.Errorf("config: %s: %s is there twice", path, name)
		}
		switch v := v.(type) {
		case json.Number:
			c.values[name] = v.String()
		default:
			c.values[name] = v
		}
	}
	return c, nil
}

// Validate refuses keys that are no flag of any verb: a misspelt limit must not be ignored.
func (c *configuration) Validate(app *kong.Application) error {
	known := flagNames(app)
	for name, v := range c.values {
		if !slices.Contains(known, name) {
			return fmt.Errorf("config: %s: unknown key %q%s", c.path, name, nearest(name, known))
		}
		if _, nested := v.(map[string]any); nested {
			return fmt.Errorf("config: %s: %q is an object; a string, number, boolean or array is wanted", c.path, name)
		}
	}
	return nil
}

// Resolve gives a flag its value from the file, unless the environment has one.
func (c *configuration) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if fromEnv(flag) != "" {
		return nil, nil
	}
	for _, key := range configKeys(flag) {
		if v, ok := c.values[key]; ok {
			return v, nil
		}
	}
	return nil, nil
}

// configKeys are the keys of a flag in a config file: its variable's name without QUIRE_, and the flag's aliases.
func configKeys(f *kong.Flag) []string {
	if len(f.Tag.Envs) == 0 {
		return nil
	}
	key := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(f.Tag.Envs[0], "QUIRE_"), "_", "-"))
	return append([]string{key}, f.Aliases...)
}

// nameEnv gives every flag its environment variable: QUIRE_<FLAG>, or what its tag says (those of a conversation are
// QUIRE_CHAT_<FLAG>, so that QUIRE_MODEL can name a server's file).
func nameEnv(k *kong.Kong) error {
	for _, f := range allFlags(k.Model.Node) {
		if f.Name == "help" || slices.Equal(f.Envs, []string{"-"}) {
			f.Envs, f.Tag.Envs = nil, nil
			continue
		}
		if len(f.Envs) == 0 {
			f.Envs = []string{"QUIRE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))}
			f.Tag.Envs = f.Envs
		}
	}
	return nil
}

// fromEnv names the variable that sets a flag, or "".
func fromEnv(f *kong.Flag) string {
	for _, e := range f.Tag.Envs {
		if _, ok := os.LookupEnv(e); ok {
			return e
		}
	}
	return ""
}

// strayEnv warns of variables that look like a flag's and are none. It is no error: Kubernetes makes QUIRE_SERVICE_HOST and its
// like for a service of that name.
func strayEnv(environ []string, app *kong.Application) []string {
	var known, out []string
	for _, f := range allFlags(app.Node) {
		known = append(known, f.Tag.Envs...)
	}
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "QUIRE_") || slices.Contains(known, name) || ignoredEnv(name) {
			continue
		}
		out = append(out, fmt.Sprintf("%s in the environment is no flag and does nothing%s", name, nearest(name, known)))
	}
	return out
}

func ignoredEnv(name string) bool {
	return name == "QUIRE_SHARED" || name == "QUIRE_PORT" || strings.HasPrefix(name, "QUIRE_PORT_") ||
		strings.HasPrefix(name, "QUIRE_SERVICE_") || strings.HasPrefix(name, "QUIRE_TEST_") ||
		name == "QUIRE_LIBCUDA" || strings.HasPrefix(name, "QUIRE_EMULATOR_") // device/cuda
}

func allFlags(n *kong.Node) []*kong.Flag {
	out := append([]*kong.Flag(nil), n.Flags...)
	for _, c := range n.Children {
		out = append(out, allFlags(c)...)
	}
	return out
}

// flagNames are all keys that a config file may have.
func flagNames(app *kong.Application) []string {
	var out []string
	for _, f := range allFlags(app.Node) {
		if f.Name != "config" && f.Name != "print-config" {
			out = append(out, configKeys(f)...)
		}
	}
	return out
}

// nearest suggests a known name within two edits.
func nearest(name string, known []string) string {
	best, at := "", 3
	for _, k := range known {
		if d := distance(name, k); d < at {
			best, at = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// distance is the number of single-byte edits between two names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
