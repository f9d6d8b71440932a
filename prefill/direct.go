package prefill

import (
	"context"
	"sync"
	"time"

	"quire/bus"
	"quire/kvtransfer"
)

// FrameBus is a connection to a server that takes frames for one decode.
type FrameBus interface {
	Enqueue(ctx context.Context, m bus.Enqueue) (sequence uint64, err error)
	Close() error
}

// Bounds of direct connections.
const (
	dialTimeout = 3 * time.Second
	directWait  = time.Second     // for one frame; then it goes through the bus
	dialPause   = 5 * time.Second // after a dial that failed
	linkIdle    = time.Minute     // without a heartbeat: the decode is gone
)

// direct keeps a connection to each decode that takes frames directly. A frame that cannot go that way goes through the bus: both
// ways end in the same stream, which takes a frame once.
type direct struct {
	dial func(ctx context.Context, url string) (FrameBus, error) // nil: everything goes through the bus
	warn func(what string, err error)

	mu     sync.Mutex
	links  map[kvtransfer.Peer]*link
	wg     sync.WaitGroup
	closed bool
}

// link is the connection to one life of a decode.
type link struct {
	url   string
	bus   FrameBus // nil while there is none
	busy  bool     // being dialled
	again time.Time
	heard time.Time
}

// heard takes a decode's heartbeat, dials where that is due, and drops who was not heard for long.
func (d *direct) heard(ctx context.Context, from kvtransfer.Peer, url string, now time.Time) {
	if d.dial == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for p, l := range d.links {
		if !l.busy && (now.Sub(l.heard) > linkIdle || p.ID == from.ID && p.Epoch < from.Epoch) {
			d.drop(p, l)
		}
	}
	l := d.links[from]
	if url == "" || d.closed {
		return
	}
	if l == nil || l.url != url && !l.busy {
		if l != nil {
			d.drop(from, l)
		}
		l = &link{url: url}
		d.links[from] = l
	}
	l.heard = now
	if l.bus == nil && !l.busy && now.After(l.again) {
		l.busy = true
		d.wg.Go(func() { d.connect(ctx, l) })
	}
}

// drop is called under mu.
func (d *direct) drop(p kvtransfer.Peer, l *link) {
	delete(d.links, p)
	if l.bus != nil {
		d.warn("connection for frames", l.bus.Close())
	}
}

func (d *direct) connect(ctx context.Context, l *link) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	b, err := d.dial(ctx, l.url)
	if err != nil {
		b = nil
		d.warn("frames go through the bus: connect to "+l.url, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l.busy, l.again = false, time.Now().Add(dialPause)
	if d.closed && b != nil {
		d.warn("connection for frames", b.Close())
		return
	}
	l.bus = b
}

// to is the connection to a decode, or nil.
func (d *direct) to(p kvtransfer.Peer) FrameBus {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.links[p]; l != nil {
		return l.bus
	}
	return nil
}

// close closes every connection. Nothing is sent meanwhile.
func (d *direct) close() {
	d.mu.Lock()
	d.closed = true
	for p, l := range d.links {
		d.drop(p, l)
	}
	d.mu.Unlock()
	d.wg.Wait()
}
