package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"

	"quire/bus/jet"
	"quire/replay"
)

type replayExportCmd struct {
	pastFlags
	WithTape bool   `name:"with-tape" help:"Add what is on the tape, sealed as it is: quire tape key writes a key that opens a tenant's."`
	TapeFrom string `name:"tape-from" env:"-" placeholder:"PATH" help:"Where the tape is read from: a backup of its stream, or a bundle that has it; the live bus otherwise."`
	To       string `arg:"" name:"file" help:"A new file; one that is there is not touched."`
}

// Run writes a bundle.
func (c *replayExportCmd) Run(s streams) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	src, done, err := c.source(ctx)
	if err != nil {
		return err
	}
	defer done()
	var taped replay.Source
	if c.WithTape || c.TapeFrom != "" {
		t, closeTape, err := c.taped(ctx)
		if err != nil {
			return err
		}
		defer closeTape()
		taped = t
	}
	n, err := replay.Export(ctx, src, taped, c.To)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(s.out, map[string]any{"file": c.To, "messages": n.Messages, "taped": n.Taped})
	}
	fmt.Fprintf(s.out, "%d messages in %s", n.Messages, c.To)
	if taped != nil {
		fmt.Fprintf(s.out, ", %d of the tape", n.Taped)
	}
	fmt.Fprintln(s.out)
	return nil
}

// taped is the tape's stream, or what a bundle has of it.
func (c *replayExportCmd) taped(ctx context.Context) (replay.Source, func(), error) {
	if c.TapeFrom == "" && c.From == "" {
		conn, names, err := c.connect(ctx)
		if err != nil {
			return nil, nil, err
		}
		return replay.Stream{Reader: conn, Name: names.TapeStream()}, func() { _ = conn.Close() }, nil
	}
	path := cmp.Or(c.TapeFrom, c.From)
	if replay.IsBundle(path) {
		return replay.Taped{Bundle: replay.Bundle{Path: path}}, func() {}, nil
	}
	if c.TapeFrom == "" {
		return nil, nil, usage("--with-tape --from %s: a backup has one stream: --tape-from names that of the tape", c.From)
	}
	b, err := jet.OpenBackup(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	return replay.Stream{Reader: b, Name: b.Stream}, func() { _ = b.Close() }, nil
}
