package main

import (
	"context"

	"quire/cluster"
)

type decodeCmd struct {
	worker
	journalFlags
	tapeFlags
	embedFlags
	ID string `name:"id" placeholder:"ID" env:"QUIRE_DECODE_ID" help:"Name of this worker: a-z, 0-9 and -."`
}

// embedFlags say where decode keeps the frames that come.
type embedFlags struct {
	EmbedBus  bool     `name:"embed-bus" help:"Keep the frames in a NATS server in this process, a leaf node of the bus."`
	LeafURL   []string `name:"leaf-url" placeholder:"URL,..." help:"Where that server connects as a leaf node; port 7422 of the NATS servers otherwise."`
	Frames    string   `name:"frames" placeholder:"HOST:PORT" help:"Where that server listens for prefill workers, which then send frames straight to it; port 0 picks a free one. Otherwise frames come through the bus."`
	FramesURL string   `name:"frames-url" placeholder:"URL" help:"Where prefill workers find it, if that is not --frames."`
}

func (f embedFlags) fill(o *cluster.BusOptions) error {
	if !f.EmbedBus && (len(f.LeafURL) > 0 || f.Frames != "" || f.FramesURL != "") {
		return usage("--leaf-url, --frames and --frames-url are about the server of --embed-bus, which is not given")
	}
	if f.FramesURL != "" && f.Frames == "" {
		return usage("--frames-url %s without --frames HOST:PORT, where to listen", f.FramesURL)
	}
	o.Embed, o.LeafURLs, o.Frames, o.FramesURL = f.EmbedBus, f.LeafURL, f.Frames, f.FramesURL
	return nil
}

// Run runs the decode role.
func (c *decodeCmd) Run(s streams) error {
	o, err := c.options(s, "decode", c.ID)
	if err != nil {
		return err
	}
	if c.Journal == "off" {
		return usage("--journal=off: quire up alone has it, for measuring")
	}
	o.Bus.JournalOpen = c.Journal == "open"
	if o.Door.Tape, err = c.tenants(); err != nil {
		return err
	}
	if err := c.embedFlags.fill(&o.Bus); err != nil {
		return err
	}
	return serve(func(ctx context.Context) (*cluster.Cluster, error) { return cluster.Decode(ctx, o) }, (*cluster.Cluster).LogReady)
}
