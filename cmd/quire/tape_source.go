package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"quire/bus"
	"quire/bus/jet"
	"quire/replay"
	"quire/tape"
)

// tapeSource says where the tape and its keys are read from: the live bus, backups, a bundle, a file with a key.
type tapeSource struct {
	TapeFrom string `name:"tape-from" env:"-" placeholder:"PATH" help:"Where the tape is read from: a bundle made with --with-tape, or a backup of its stream; a bundle that --from names, else the live bus, otherwise."`
	TapeKeys string `name:"tape-keys" env:"-" placeholder:"PATH" help:"Where its keys are read from: a file of quire tape key, or a backup of the stream behind their bucket; the live bus otherwise."`
}

// open gives the tape and one tenant's key. The caller closes it.
func (f tapeSource) open(ctx context.Context, past pastFlags, tenant string) (from tape.Messages, k tape.Key, done func(), err error) {
	var open []io.Closer
	done = func() {
		for _, c := range open {
			_ = c.Close()
		}
	}
	defer func() {
		if err != nil {
			done()
		}
	}()
	var conn *jet.Conn
	names := bus.Names{Prefix: past.Prefix}
	live := func() error {
		if conn != nil {
			return nil
		}
		if conn, names, err = past.connect(ctx); err != nil {
			return fmt.Errorf("%w; --tape-from and --tape-keys read a tape without a bus", err)
		}
		open = append(open, conn)
		return nil
	}
	if from, err = f.messages(ctx, past, &open); err != nil {
		return nil, k, nil, err
	}
	if from == nil {
		if err = live(); err != nil {
			return nil, k, nil, err
		}
		from = tape.Stream{Reader: conn, Name: names.TapeStream()}
	}
	if f.TapeKeys != "" {
		k, err = readKey(ctx, f.TapeKeys, names, tenant)
		return from, k, done, err
	}
	if err = live(); err != nil {
		return nil, k, nil, err
	}
	k, err = tape.Find(ctx, conn, names, tenant)
	return from, k, done, err
}

// messages is the tape where it is not the live bus's; nil where it is.
func (f tapeSource) messages(ctx context.Context, past pastFlags, open *[]io.Closer) (tape.Messages, error) {
	path := f.TapeFrom
	if path == "" && past.From != "" && replay.IsBundle(past.From) {
		path = past.From
	}
	if path == "" {
		return nil, nil
	}
	if replay.IsBundle(path) {
		return replay.Bundle{Path: path}, nil
	}
	b, err := jet.OpenBackup(ctx, path)
	if err != nil {
		return nil, err
	}
	*open = append(*open, b)
	return tape.Stream{Reader: b, Name: b.Stream}, nil
}

// keyFormat names the form of key files.
const keyFormat = "quire tape key 1"

// keyFile is one tenant's key in a file.
type keyFile struct {
	Format string `json:"format"`
	Tenant string `json:"tenant"`
	Key    string `json:"key"` // hexadecimal
}

const maxKeyFile = 4096 // bytes

// readKey reads a tenant's key from a file, or from a backup of the bucket's stream.
func readKey(ctx context.Context, path string, names bus.Names, tenant string) (k tape.Key, err error) {
	if st, err := os.Stat(path); err == nil && !st.IsDir() && st.Size() <= maxKeyFile {
		return parseKey(path, tenant)
	}
	b, err := jet.OpenBackup(ctx, path)
	if err != nil {
		return k, err
	}
	defer b.Close()
	return tape.FindIn(ctx, b, b.Stream, names, tenant)
}

func parseKey(path, tenant string) (k tape.Key, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return k, err
	}
	var f keyFile
	if err := json.Unmarshal(b, &f); err != nil {
		return k, fmt.Errorf("tape: %s: %w", path, err)
	}
	raw, err := hex.DecodeString(f.Key)
	switch {
	case f.Format != keyFormat:
		return k, fmt.Errorf("tape: %s: format %.40q, known %q", path, f.Format, keyFormat)
	case err != nil || len(raw) != len(k):
		return k, errors.Join(fmt.Errorf("tape: %s: a key of %d bytes, want %d", path, len(raw), len(k)), err)
	case f.Tenant != tenant:
		return k, fmt.Errorf("tape: %s: the key is of tenant %s, the request of %s", path, f.Tenant, tenant)
	}
	return tape.Key(raw), nil
}
