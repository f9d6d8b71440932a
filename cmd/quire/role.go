package main

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"os"
	"strings"

	"quire/bus"
	"quire/cluster"
	"quire/replay"
	"quire/router/console"
)

// role are the flags of every verb that runs one role.
type role struct {
	dataFlags
	logFlags
}

func (r role) options(s streams, at cluster.BusOptions) (cluster.Options, error) {
	data, err := absolute(r.Data)
	if err != nil {
		return cluster.Options{}, err
	}
	o := cluster.Options{Version: version, Self: self(), Data: data, Bus: at, Log: r.logger(s.err), Progress: progress(s), Env: os.Getenv,
		Past: func(r bus.Reader, stream string) console.Past { return replay.NewHistory(r, stream) }}
	if r.Keys != "" {
		if o.Keys, err = absolute(r.Keys); err != nil {
			return o, err
		}
	}
	return o, nil
}

// self is how this program was called, for lines to paste.
func self() string {
	switch {
	case underGoRun():
		return "go run ./cmd/quire"
	case strings.HasPrefix(os.Args[0], "./"):
		return os.Args[0]
	}
	return "quire"
}

// identity names a process: --id, else what a process runner calls it, else a name of its own. Two processes of one role must
// not share an id: the later one takes over, and the earlier one ends.
func identity(role, id string) (string, error) {
	if id != "" {
		if !slug(id) {
			return "", usage("--id %s: a-z, 0-9 and -, at most 32, make an id", id)
		}
		return id, nil
	}
	ps := cmp.Or(os.Getenv("PS"), os.Getenv("HONCHO_PROCESS_NAME"))
	if s := strings.ToLower(strings.NewReplacer(".", "-", "_", "-").Replace(ps)); slug(s) {
		return s, nil
	}
	b := make([]byte, 4)
	if _, err := rand.Read(b); err != nil {
		return "", err
	}
	return role + "-" + hex.EncodeToString(b), nil
}
