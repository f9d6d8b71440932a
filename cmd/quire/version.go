package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// version of Quire; `quire version` adds the commit when the build knows it.
const version = "0.1.0"

type versionCmd struct{}

// Run prints versions and platform.
func (v *versionCmd) Run(s streams) error {
	fmt.Fprintf(s.out, "quire %s%s\n%s %s/%s\n", version, commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, d := range info.Deps {
		if strings.HasPrefix(d.Path, "github.com/nats-io/nats") {
			fmt.Fprintf(s.out, "%s %s\n", strings.TrimPrefix(strings.TrimSuffix(d.Path, "/v2"), "github.com/nats-io/"), d.Version)
		}
	}
	return nil
}

// commit gives " (abc1234, modified)", or "" when the build does not know.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	rev, dirty := "", ""
	for _, kv := range info.Settings {
		switch {
		case kv.Key == "vcs.revision":
			rev = kv.Value[:min(len(kv.Value), 7)]
		case kv.Key == "vcs.modified" && kv.Value == "true":
			dirty = ", modified"
		}
	}
	if rev == "" {
		return ""
	}
	return " (" + rev + dirty + ")"
}
