package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"quire/bus"
	"quire/bus/jet"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
)

// How a decode worker reads its KV stream, and a prefill worker tries again where the stream is full.
const (
	kvPending = 64
	kvAckWait = 2 * time.Second
	fullPause = 2 * time.Millisecond
	copiers   = 2 // goroutines that open and copy
	moveTime  = time.Minute
)

// payload is what is moved: every frame is read from from and lands in to.
type payload struct {
	frames, senders int
	from, to        []byte // of one frame
	key, hash       [32]byte
}

func newPayload(o TransferOptions) *payload {
	p := &payload{frames: o.Frames, senders: o.Senders, from: make([]byte, o.Frame), to: make([]byte, o.Frame), key: [32]byte{1}, hash: [32]byte{2}}
	for i := range p.from {
		p.from[i] = byte(i * 131)
	}
	return p
}

func (p *payload) header(i int) kvtransfer.FrameHeader {
	return kvtransfer.FrameHeader{Key: kvtransfer.Key{Attempt: 1}, Index: uint32(i), LayerTo: 1, RowFrom: i, RowTo: i + 1}
}

// sealOnly seals and opens every frame of a round.
func (p *payload) sealOnly() error {
	for i := range p.frames {
		if _, err := seal.OpenFrame(p.key, p.hash, p.header(i), seal.SealFrame(p.key, p.hash, p.header(i), p.from), p.to); err != nil {
			return err
		}
	}
	return nil
}

// tcp is a loopback connection: one side writes frames, the other reads each whole into the same memory.
type tcp struct {
	*payload
	in, out net.Conn
}

func newTCP(p *payload) (*tcp, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("bench: transfer: %w", err)
	}
	defer l.Close()
	out, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, fmt.Errorf("bench: transfer: %w", err)
	}
	in, err := l.Accept()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bench: transfer: %w", err), out.Close())
	}
	return &tcp{p, in, out}, nil
}

func (t *tcp) close() {
	_ = t.in.Close()
	_ = t.out.Close()
}

func (t *tcp) move(ctx context.Context) error {
	until := time.Now().Add(moveTime)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	if err := errors.Join(ctx.Err(), t.in.SetDeadline(until), t.out.SetDeadline(until)); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		for range t.frames {
			if _, err := t.out.Write(t.from); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for range t.frames {
		if _, err := io.ReadFull(t.in, t.to); err != nil {
			return errors.Join(err, t.out.Close(), <-sent)
		}
	}
	return <-sent
}

// busMover moves frames as a hand-off does: through the KV stream of a decode epoch that is made for it.
type busMover struct {
	*payload
	send, receive *jet.Conn
	sealed        bool

	names  bus.Names
	epoch  uint64
	sub    bus.Sub
	come   chan bus.Delivery
	done   chan error // one value for each delivery that was copied and acknowledged
	copied sync.WaitGroup
	round  atomic.Uint32

	mu   sync.Mutex
	seen map[uint64]bool // sequences that were copied: one that was slow comes again, and counts once
}

const moverID = "bench"

// start makes the stream and reads it. payload, send, receive and sealed are set.
func (b *busMover) start(ctx context.Context) error {
	b.epoch = uint64(time.Now().UnixNano())
	b.come, b.done = make(chan bus.Delivery, kvPending), make(chan error, b.frames)
	b.seen = map[uint64]bool{}
	if err := b.receive.Streams().EnsureKV(ctx, moverID, b.epoch); err != nil {
		return err
	}
	for range copiers {
		b.copied.Go(b.copy)
	}
	var err error
	b.sub, err = b.receive.Consume(ctx, bus.Consumer{Stream: b.names.KVStream(moverID, b.epoch), Name: "kv",
		Subjects: []string{b.names.AllKV(moverID, b.epoch)}, AckWait: kvAckWait, MaxPending: kvPending, MaxBytes: bus.MaxPullBytes},
		func(d bus.Delivery) { b.come <- d })
	if err != nil {
		b.close()
	}
	return err
}

func (b *busMover) close() {
	if b.sub != nil {
		_ = b.sub.Drain()
	}
	close(b.come)
	b.copied.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = b.receive.Streams().Delete(ctx, b.names.KVStream(moverID, b.epoch))
}

// move publishes the frames of a round from several goroutines and waits for the acknowledgement of each.
func (b *busMover) move(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, moveTime)
	defer cancel()
	var next atomic.Int64
	failed := make(chan error, b.senders)
	round := b.round.Add(1)
	tags := make([][16]byte, b.frames)
	var senders sync.WaitGroup
	for range b.senders {
		senders.Go(func() {
			var scratch []byte
			for {
				i := int(next.Add(1) - 1)
				if i >= b.frames {
					return
				}
				if err := b.publish(ctx, round, i, &scratch, &tags[i]); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	err := b.await(ctx, failed)
	cancel()
	senders.Wait()
	if err == nil && b.sealed {
		_ = seal.Digest(tags)
	}
	return err
}

func (b *busMover) await(ctx context.Context, failed <-chan error) error {
	for range b.frames {
		select {
		case err := <-b.done:
			if err != nil {
				return err
			}
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// publish seals a frame and stores it, again and again while the stream is full.
func (b *busMover) publish(ctx context.Context, round uint32, i int, scratch *[]byte, tag *[16]byte) error {
	h := b.header(i)
	start := wire.StartFrame((*scratch)[:0], h)
	data := append(start, b.from...) // rows as read out of the pages
	if b.sealed {
		data = seal.SealFrameIn(b.key, b.hash, h, data, len(start))
		*tag = seal.Tag(data)
	}
	*scratch = data // the bus copies it
	m := bus.Enqueue{Subject: b.names.KV(moverID, b.epoch, fmt.Sprintf("x-%d", round)), Data: data,
		ID: fmt.Sprintf("%t.%d.%d", b.sealed, round, i), Expect: b.names.KVStream(moverID, b.epoch)}
	for {
		_, err := b.send.Enqueue(ctx, m)
		if !errors.Is(err, bus.ErrFull) {
			return err
		}
		select {
		case <-time.After(fullPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// copy opens frames, copies them and acknowledges, until close.
func (b *busMover) copy() {
	pages, scratch := make([]byte, len(b.from)), make([]byte, len(b.from))
	for d := range b.come {
		err := b.take(d, pages, scratch)
		if b.first(d.Sequence) {
			b.done <- err
		}
	}
}

func (b *busMover) first(sequence uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := !b.seen[sequence]
	b.seen[sequence] = true
	return first
}

func (b *busMover) take(d bus.Delivery, pages, scratch []byte) error {
	f, err := wire.DecodeFrame(d.Data)
	if err != nil {
		return errors.Join(err, d.Term())
	}
	plain := f.Sealed
	if b.sealed {
		if plain, err = seal.OpenFrame(b.key, b.hash, f.Header, f.Sealed, scratch); err != nil {
			return errors.Join(err, d.Term())
		}
	}
	if n := copy(pages, plain); n != len(pages) {
		return errors.Join(fmt.Errorf("frame %d holds %d of %d bytes", f.Header.Index, n, len(pages)), d.Term())
	}
	return d.Ack()
}
