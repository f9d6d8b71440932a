package main

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"
)

// origins tells where each flag's value came from, by flag name: "default", "flag", "env QUIRE_X", "file PATH".
type origins map[string]string

// set says whether somebody chose a value, wherever.
func (o origins) set(flag string) bool { return o[flag] != "" && o[flag] != "default" }

func sourcesOf(ctx *kong.Context, file *configuration) origins {
	o := origins{}
	for _, p := range ctx.Path {
		for _, f := range p.Flags {
			o[f.Name] = "default"
			if e := fromEnv(f); e != "" {
				o[f.Name] = "env " + e
			} else if file != nil {
				if v, err := file.Resolve(ctx, p, f); v != nil && err == nil {
					o[f.Name] = "file " + file.path
				}
			}
		}
	}
	for _, p := range ctx.Path {
		if p.Flag != nil && !p.Resolved {
			o[p.Flag.Name] = "flag"
		}
	}
	return o
}

// secrets are flags whose values are never printed.
var secrets = []string{"admin-key", "api-key", "key", "nats-password", "nats-token", "hf-token"}

// printConfig prints the flags of the chosen verb with value and source, one a line.
func printConfig(w io.Writer, ctx *kong.Context, o origins) {
	var flags []*kong.Flag
	for _, p := range ctx.Path {
		for _, f := range p.Flags {
			if f.Name != "help" && f.Name != "print-config" && !f.Hidden {
				flags = append(flags, f)
			}
		}
	}
	slices.SortFunc(flags, func(a, b *kong.Flag) int { return strings.Compare(a.Name, b.Name) })
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, f := range flags {
		fmt.Fprintf(t, "%s\t%s\t# %s\n", f.Name, show(f, ctx), o[f.Name])
	}
	t.Flush()
}

func show(f *kong.Flag, ctx *kong.Context) string {
	v := reflect.ValueOf(ctx.FlagValue(f))
	if !v.IsValid() {
		return `""`
	}
	if v.Kind() == reflect.Slice {
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = mask(f.Name, fmt.Sprint(v.Index(i).Interface()))
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	s := mask(f.Name, fmt.Sprint(v.Interface()))
	if s == "" {
		return `""`
	}
	return s
}

// mask hides a secret; of KEY=TENANT the tenant stays, of a URL everything but its password.
func mask(flag, value string) string {
	if scheme, rest, ok := strings.Cut(value, "://"); ok {
		if user, host, ok := strings.Cut(rest, "@"); ok {
			if name, _, ok := strings.Cut(user, ":"); ok {
				return scheme + "://" + name + ":***@" + host
			}
			return scheme + "://***@" + host
		}
	}
	if !slices.Contains(secrets, flag) || value == "" {
		return value
	}
	if i := strings.LastIndex(value, "="); flag == "api-key" && i >= 0 {
		return "***" + value[i:]
	}
	return "***"
}
