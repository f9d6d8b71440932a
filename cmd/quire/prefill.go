package main

import (
	"context"

	"quire/cluster"
)

type prefillCmd struct {
	worker
	ID string `name:"id" placeholder:"ID" env:"QUIRE_PREFILL_ID" help:"Name of this worker: a-z, 0-9 and -."`
}

// Run runs the prefill role.
func (c *prefillCmd) Run(s streams) error {
	o, err := c.options(s, "prefill", c.ID)
	if err != nil {
		return err
	}
	return serve(func(ctx context.Context) (*cluster.Cluster, error) { return cluster.Prefill(ctx, o) }, (*cluster.Cluster).LogReady)
}
