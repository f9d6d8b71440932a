package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"time"

	"quire/keys"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/replay"
)

type auditReportCmd struct {
	pastFlags
	windowFlags
	Out   string `name:"out" default:"audit-report" placeholder:"NAME" help:"Write NAME.json and NAME.html; files that are there are not touched."`
	Check string `name:"check" placeholder:"FILE" help:"Check the signature of a report instead."`
}

// Run writes a report, or checks one.
func (c *auditReportCmd) Run(s streams) error {
	if c.Check != "" {
		return c.check(s)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	since, until, err := c.times()
	if err != nil {
		return err
	}
	p, err := c.past(ctx, s)
	if err != nil {
		return err
	}
	role, signer, err := c.signer(s)
	if err != nil {
		return err
	}
	signed, err := p.MakeReport(since, until, c.Tenant, version, time.Now()).Sign(role, signer)
	if err != nil {
		return err
	}
	page, err := signed.HTML()
	if err != nil {
		return err
	}
	data, err := json.Marshal(signed)
	if err != nil {
		return err
	}
	if err := writeNew(c.Out+".json", append(data, '\n')); err != nil {
		return err
	}
	if err := writeNew(c.Out+".html", page); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(s.out, signed)
	}
	fmt.Fprintf(s.out, "%s.json and %s.html\n", c.Out, c.Out)
	return nil
}

// signer is that of the first role whose seed is here; none where the directory has none.
func (c *auditReportCmd) signer(s streams) (kvtransfer.Role, seal.Signer, error) {
	ring, err := keys.Load(c.keysDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", nil, err
	}
	if err == nil {
		for _, role := range keys.Roles {
			if signer, err := ring.Signer(role); err == nil {
				return role, signer, nil
			}
		}
	}
	fmt.Fprintf(s.err, "quire: the report is not signed: no seed in %s\n", c.keysDir())
	return "", nil, nil
}

func (c *auditReportCmd) check(s streams) error {
	b, err := os.ReadFile(c.Check)
	if err != nil {
		return err
	}
	var signed replay.Signed
	if err := json.Unmarshal(b, &signed); err != nil {
		return fmt.Errorf("audit: %s: %w", c.Check, err)
	}
	ring, err := keys.Public(c.keysDir())
	if err != nil {
		return err
	}
	if err := signed.Check(ring); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%s: signed by this cluster's %s\n", c.Check, signed.Role)
	return nil
}

// writeNew writes a file that must not be there yet.
func writeNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
