package bench

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"quire/bus/jet"
)

// TransferOptions say what to move.
type TransferOptions struct {
	URLs    []string // NATS servers; none = one in this process
	TCP     bool     // reach the server in this process through a socket, not a pipe
	Embed   bool     // frames go through a socket to the server in this process, and come out of it through a pipe, as with decode --embed-bus --frames
	Dir     string   // an empty directory for the server in this process
	Frame   int      // bytes of a frame, opened
	Frames  int      // of one round
	Senders int      // frames under way at once, as in a prefill worker
	Repeat  int      // measured rounds, after one that is not
}

// TransferReport is how fast frames move. Ways are measured in turns; ratios are of each round against raw TCP.
type TransferReport struct {
	Machine Machine       `json:"machine"`
	Server  string        `json:"server"` // where the NATS server is
	Frame   int           `json:"frame_bytes"`
	Frames  int           `json:"frames"`
	Senders int           `json:"senders"`
	Rounds  int           `json:"rounds"`
	Ways    []TransferWay `json:"ways"`
	Seal    TransferOnly  `json:"seal"` // sealing and opening alone, one thread, no bus
}

// TransferWay is one way to move frames.
type TransferWay struct {
	Name  string    `json:"name"`
	GBps  Spread    `json:"gb_per_second"`    // 10^9 bytes of opened frames
	CPU   Spread    `json:"cpu_s_per_gb"`     // of this process, both ends; with a server in it, the server too
	Ratio Spread    `json:"ratio_to_raw_tcp"` // of GBps, in each round
	fast  []float64 // GB/s of each round
	busy  []float64
}

// TransferOnly is what sealing and opening cost by themselves.
type TransferOnly struct {
	GBps Spread `json:"gb_per_second"`
}

// mover moves the frames of one round, and returns when the last one has been copied and acknowledged.
type mover interface {
	move(ctx context.Context) error
}

// RunTransfer measures raw loopback TCP, the bus without a seal, and the bus with all that a hand-off does to a frame.
func RunTransfer(ctx context.Context, o TransferOptions) (TransferReport, error) {
	r := TransferReport{Machine: machine(nil), Frame: o.Frame, Frames: o.Frames, Senders: o.Senders, Rounds: o.Repeat}
	send, receive, done, err := o.connect(ctx, &r)
	defer done()
	if err != nil {
		return r, err
	}
	payload := newPayload(o)
	raw, err := newTCP(payload)
	if err != nil {
		return r, err
	}
	defer raw.close()
	movers := []mover{raw}
	r.Ways = []TransferWay{{Name: "raw loopback TCP"}, {Name: "JetStream memory: publish, acknowledge, copy"},
		{Name: "JetStream memory: seal, publish, acknowledge, open, copy, digest"}}
	for _, sealed := range []bool{false, true} {
		b := &busMover{payload: payload, send: send, receive: receive, sealed: sealed}
		if err := b.start(ctx); err != nil {
			return r, err
		}
		defer b.close()
		movers = append(movers, b)
	}
	return r, o.rounds(ctx, &r, movers, payload)
}

// rounds measures every way once a round, each time another one first.
func (o TransferOptions) rounds(ctx context.Context, r *TransferReport, movers []mover, p *payload) error {
	bytes := float64(o.Frame) * float64(o.Frames)
	var alone []float64
	for round := range o.Repeat + 1 {
		for k := range movers {
			i := (k + round) % len(movers)
			busy, began := cpuSeconds(), time.Now()
			if err := movers[i].move(ctx); err != nil {
				return fmt.Errorf("bench: transfer: %s: %w", r.Ways[i].Name, err)
			}
			wall, cpu := time.Since(began).Seconds(), cpuSeconds()-busy
			if round > 0 {
				w := &r.Ways[i]
				w.fast, w.busy = append(w.fast, bytes/wall/1e9), append(w.busy, cpu/(bytes/1e9))
			}
		}
		began := time.Now()
		if err := p.sealOnly(); err != nil {
			return err
		}
		if round > 0 {
			alone = append(alone, bytes/time.Since(began).Seconds()/1e9)
		}
	}
	for i := range r.Ways {
		w := &r.Ways[i]
		ratio := make([]float64, len(w.fast))
		for k := range ratio {
			ratio[k] = w.fast[k] / r.Ways[0].fast[k]
		}
		w.GBps, w.CPU, w.Ratio = SpreadOf(w.fast), SpreadOf(w.busy), SpreadOf(ratio)
	}
	r.Seal.GBps = SpreadOf(alone)
	return nil
}

// connect gives the two ends of the bus. done takes down whatever was made, after an error too.
func (o TransferOptions) connect(ctx context.Context, r *TransferReport) (send, receive *jet.Conn, done func(), err error) {
	var stops []func()
	done = func() {
		for i := len(stops) - 1; i >= 0; i-- {
			stops[i]()
		}
	}
	c := jet.ConnectOptions{URLs: o.URLs, Name: "bench"}
	r.Server = fmt.Sprint(o.URLs)
	var server *jet.Server
	if len(o.URLs) == 0 {
		s, err := jet.Serve(jet.ServerOptions{Addr: "127.0.0.1:0", Data: o.Dir})
		if err != nil {
			return nil, nil, done, err
		}
		stops = append(stops, s.Stop)
		server = s
		c.Server, r.Server = s, "in this process, through a pipe"
		if o.TCP {
			c.Server, c.URLs, r.Server = nil, []string{s.URL()}, "in this process, through a socket"
		}
		if o.Embed {
			r.Server = "in this process, in through a socket, out through a pipe"
		}
	}
	var ends [2]*jet.Conn
	for i := range ends {
		if o.Embed {
			c.Server, c.URLs = []*jet.Server{nil, server}[i], []string{server.URL()}
		}
		if ends[i], err = jet.Connect(ctx, c); err != nil {
			return nil, nil, done, err
		}
		stops = append(stops, func() { _ = ends[i].Close() })
	}
	return ends[0], ends[1], done, nil
}

// Print writes the report as a table.
func (r TransferReport) Print(w io.Writer) error {
	fmt.Fprintf(w, "%d frames of %d bytes a round, %d at once, %d rounds; NATS server %s; %s/%s, %d CPUs\n\n", r.Frames, r.Frame, r.Senders, r.Rounds, r.Server,
		r.Machine.OS, r.Machine.Arch, r.Machine.CPUs)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "WAY\tGB/S\tMIN\tMAX\tCPU S/GB\tOF RAW TCP")
	for _, x := range r.Ways {
		fmt.Fprintf(t, "%s\t%.3f\t%.3f\t%.3f\t%.2f\t%.3f\n", x.Name, x.GBps.Median, x.GBps.Min, x.GBps.Max, x.CPU.Median, x.Ratio.Median)
	}
	fmt.Fprintf(t, "seal and open alone, one thread, no bus\t%.3f\t%.3f\t%.3f\t\t\n", r.Seal.GBps.Median, r.Seal.GBps.Min, r.Seal.GBps.Max)
	return t.Flush()
}
