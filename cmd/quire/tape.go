package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"quire/tape"
)

type tapeCmd struct {
	Key   tapeKeyCmd   `cmd:"" help:"Write a tenant's key into a file, for a machine without the bus."`
	Erase tapeEraseCmd `cmd:"" help:"Destroy a tenant's key: nothing recorded of it opens any more, wherever copies went."`
}

type tapeKeyCmd struct {
	busFlags
	Tenant string `name:"tenant" required:"" env:"-" placeholder:"TENANT" help:"Whose key."`
	Out    string `arg:"" name:"file" help:"A new file; one that is there is not touched."`
}

// Run writes one key into a file.
func (c *tapeKeyCmd) Run(s streams) error {
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
	k, err := tape.Find(ctx, conn, names, c.Tenant)
	if err != nil {
		return err
	}
	b, err := json.Marshal(keyFile{keyFormat, c.Tenant, hex.EncodeToString(k[:])})
	if err != nil {
		return err
	}
	if err := writeNew(c.Out, append(b, '\n')); err != nil {
		return err
	}
	fmt.Fprintf(s.err, "quire: %s opens everything recorded of tenant %s, also after quire tape erase: remove it when it is done with\n", c.Out, c.Tenant)
	return nil
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
