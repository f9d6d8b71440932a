package main

import (
	"context"

	"quire/cluster"
)

type busCmd struct {
	role
	natsFlags
	serverFlags
	Accounts string   `name:"accounts" placeholder:"DIR" help:"Make an account for Quire, with a user of its own for each role, and one for each tenant; serve them, and keep seeds and configuration in DIR."`
	Tenants  []string `name:"tenant" placeholder:"TENANT,..." help:"With --accounts: who gets an account, beside those that have one in DIR."`
	Leafs    string   `name:"leafnodes" placeholder:"HOST:PORT" help:"Where leaf nodes connect, as decode --embed-bus is one; the usual port is 7422. None otherwise."`
}

// Run runs the bus role.
func (b *busCmd) Run(s streams, src origins) error {
	address, err := listen("nats", b.NATS, src)
	if err != nil {
		return err
	}
	bus := b.natsFlags.options()
	bus.Listen, bus.Config, bus.Leafs = address, b.NATSConfig, b.Leafs
	if err := b.accounts(&bus); err != nil {
		return err
	}
	o, err := b.role.options(s, bus)
	if err != nil {
		return err
	}
	o.Door.Insecure = b.Insecure
	return serve(func(ctx context.Context) (*cluster.Cluster, error) { return cluster.Bus(ctx, o) }, (*cluster.Cluster).LogReady)
}

func (b *busCmd) accounts(o *cluster.BusOptions) error {
	switch {
	case b.Accounts == "" && len(b.Tenants) > 0:
		return usage("--tenant: accounts are made with --accounts DIR alone")
	case b.Accounts == "":
		return nil
	case b.NATSConfig != "" || b.NATSUser != "" || b.NATSToken != "":
		return usage("--accounts: says who may connect, so --nats-config, --nats-user and --nats-token cannot")
	}
	for _, t := range b.Tenants {
		if !slug(t) {
			return usage("--tenant %s: a tenant is of a-z, 0-9 and -, at most 32", t)
		}
	}
	var err error
	o.Accounts, err = absolute(b.Accounts)
	o.Tenants = b.Tenants
	return err
}
