package main

import (
	"context"
	"fmt"
	"os"

	"quire/bench"
)

type benchTransferCmd struct {
	benchOut
	NATSURL []string `name:"nats-url" placeholder:"URL,..." help:"NATS servers; one in this process otherwise."`
	Socket  bool     `name:"socket" help:"Reach the server in this process through a socket instead of a pipe."`
	Embed   bool     `name:"embed-bus" help:"Send through a socket and receive through a pipe, as with decode --embed-bus --frames."`
	Frame   int      `name:"frame" short:"f" default:"524288" placeholder:"BYTES" help:"Bytes of a frame."`
	Frames  int      `name:"frames" short:"n" default:"256" placeholder:"N" help:"Frames of one round."`
	Senders int      `name:"senders" default:"4" placeholder:"N" help:"Frames under way at once."`
	Repeat  int      `name:"repeat" short:"r" default:"5" placeholder:"N" help:"Measured rounds, after one that is not."`
}

// Run moves frames through JetStream and through raw loopback TCP, in turns.
func (c *benchTransferCmd) Run(s streams) error {
	if c.Frame < 1 || c.Frame > 4<<20 || c.Frames < 1 || c.Frames > 1<<20 || c.Senders < 1 || c.Senders > 256 || c.Repeat < 1 {
		return usage("--frame %d --frames %d --senders %d --repeat %d: 1 to %d, 1 to %d, 1 to 256 and at least 1 are possible", c.Frame, c.Frames, c.Senders,
			c.Repeat, 4<<20, 1<<20)
	}
	if len(c.NATSURL) > 0 && (c.Socket || c.Embed) {
		return usage("--nats-url with --socket or --embed-bus: those are about a server in this process")
	}
	dir, err := os.MkdirTemp("", "quire-bench-*")
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	defer os.RemoveAll(dir)
	o := bench.TransferOptions{URLs: c.NATSURL, TCP: c.Socket, Embed: c.Embed, Dir: dir, Frame: c.Frame, Frames: c.Frames, Senders: c.Senders, Repeat: c.Repeat}
	r, err := measured(func(ctx context.Context) (bench.TransferReport, error) { return bench.RunTransfer(ctx, o) })
	if err != nil {
		return err
	}
	return c.print(s, r)
}
