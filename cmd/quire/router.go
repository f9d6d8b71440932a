package main

import (
	"context"

	"quire/cluster"
)

type routerCmd struct {
	role
	busFlags
	modelFlags
	doorFlags
	ID string `name:"id" placeholder:"ID" env:"QUIRE_ROUTER_ID" help:"Name of this router: a-z, 0-9 and -."`
}

// Run runs the router role.
func (r *routerCmd) Run(s streams, src origins) error {
	if err := r.checkURLs(); err != nil {
		return err
	}
	o, err := r.role.options(s, r.roleBus())
	if err != nil {
		return err
	}
	if o.ID, err = identity("router", r.ID); err != nil {
		return err
	}
	if o.Model, err = r.modelFlags.options(""); err != nil {
		return err
	}
	if o.Door, err = r.doorFlags.options(r.Insecure, src); err != nil {
		return err
	}
	return serve(func(ctx context.Context) (*cluster.Cluster, error) { return cluster.Router(ctx, o) }, (*cluster.Cluster).LogReady)
}
