package main

import (
	"context"
	"fmt"

	"quire/tape"
)

type tapeCmd struct {
	Erase tapeEraseCmd `cmd:"" help:"Destroy a tenant's key: nothing recorded of it opens any more, wherever copies went."`
}

type tapeEraseCmd struct {
	busFlags
	Tenant string `name:"tenant" required:"" env:"-" placeholder:"TENANT" help:"Whose key."`
}

// Run destroys one key.
func (c *tapeEraseCmd) Run(s streams) error {
	if !slug(c.Tenant) {
		return usage("--tenant %s: a-z, 0-9 and -, at most 32, make a tenant", c.Tenant)
	}
	ctx, cancel := context.WithTimeout(context.Background(), connectTime)
	defer cancel()
	conn, names, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := tape.Find(ctx, conn, names, c.Tenant); err != nil {
		return err
	}
	if err := tape.Erase(ctx, conn.Streams(), names, c.Tenant); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "the key of tenant %s is destroyed\n", c.Tenant)
	return nil
}
