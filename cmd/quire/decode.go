package main

import (
	"context"

	"quire/cluster"
)

type decodeCmd struct {
	worker
	journalFlags
	tapeFlags
	ID string `name:"id" placeholder:"ID" env:"QUIRE_DECODE_ID" help:"Name of this worker: a-z, 0-9 and -."`
}

// Run runs the decode role.
func (c *decodeCmd) Run(s streams) error {
	o, err := c.options(s, "decode", c.ID)
	if err != nil {
		return err
	}
	o.Bus.JournalOpen = c.Journal == "open"
	if o.Door.Tape, err = c.tenants(); err != nil {
		return err
	}
	return serve(func(ctx context.Context) (*cluster.Cluster, error) { return cluster.Decode(ctx, o) }, (*cluster.Cluster).LogReady)
}
