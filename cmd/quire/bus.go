package main

import (
	"context"

	"quire/cluster"
)

type busCmd struct {
	role
	natsFlags
	serverFlags
	Leafs string `name:"leafnodes" placeholder:"HOST:PORT" help:"Where leaf nodes connect, as decode --embed-bus is one; the usual port is 7422. None otherwise."`
}

// Run runs the bus role.
func (b *busCmd) Run(s streams, src origins) error {
	address, err := listen("nats", b.NATS, src)
	if err != nil {
		return err
	}
	bus := b.natsFlags.options()
	bus.Listen, bus.Config, bus.Leafs = address, b.NATSConfig, b.Leafs
	o, err := b.role.options(s, bus)
	if err != nil {
		return err
	}
	o.Door.Insecure = b.Insecure
	return serve(func(ctx context.Context) (*cluster.Cluster, error) { return cluster.Bus(ctx, o) }, (*cluster.Cluster).LogReady)
}
