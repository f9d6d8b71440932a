//go:build cuda && linux

package cuda

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"quire/device"
)

// plan is a step made ready to run: its records in a room, its ops as launches and downloads. A device has one, and uses it again.
type plan struct {
	dev     *Device
	room    room
	host    *pinned      // [hostBytes] of rows on their way to the caller
	scratch cu.DevicePtr // [scratchSize]
	state   cu.DevicePtr // [partials][maxLines][2] f32, see kernel/decode.cu
	outs    cu.DevicePtr // [partials][linesDims] f32
	roots   cu.DevicePtr // [64] f64, see kernel/sample.cu

	scratchSize int
	batch       *device.Batch
	pool        *pool
	rec         cu.DevicePtr // batchRec
	fault       cu.DevicePtr // faultRec
	cmds        []command
	compares    [][]int32 // results of Compare
	scratchUsed int
	attn        attention
}

// command is a launch or, with rows, a download.
type command struct {
	launch
	from *buffer
	rows []int
	to   [][]float32
	ints []int32 // Compare's result, instead of rows
	at   cu.DevicePtr
}

// Sizes of what a plan starts with. The room and the scratch grow when a step needs more; the others never do.
const (
	roomBytes    = 4 << 20
	hostBytes    = 8 << 20
	scratchBytes = 8 << 20
)

// start makes the memory that steps need. The context is current.
func (p *plan) start(d *Device) error {
	p.dev = d
	var err error
	if p.room, err = newRoom(d, roomBytes); err != nil {
		return err
	}
	if p.host, err = newPinned(hostBytes); err != nil {
		return err
	}
	p.scratchSize = scratchBytes
	if p.scratch, err = d.alloc(p.scratchSize); err != nil {
		return err
	}
	if p.state, err = d.alloc(partials * maxLines * 2 * 4); err != nil {
		return err
	}
	if p.outs, err = d.alloc(partials * linesDims * 4); err != nil {
		return err
	}
	return p.uploadRoots()
}

// pinned is all host memory that the device holds.
func (d *Device) pinned() []*pinned {
	var out []*pinned
	add := func(hs ...*pinned) {
		for _, h := range hs {
			if h != nil {
				out = append(out, h)
			}
		}
	}
	add(d.plan.room.host, d.plan.host)
	for _, l := range []*lane{d.in, d.out} {
		if l != nil {
			add(l.room.host, l.host)
		}
	}
	return out
}

// Run queues a step and waits for its end.
func (d *Device) Run(s *device.Step) error {
	if s == nil {
		return fmt.Errorf("device/cuda: run: no step")
	}
	if err := device.CheckBatch(s.Batch); err != nil {
		return err
	}
	d.queue.Lock()
	defer d.queue.Unlock()
	leave, err := d.enter()
	if err != nil {
		return err
	}
	defer leave()
	p := &d.plan
	if err := p.compile(s); err != nil {
		return err
	}
	if err := p.run(); err != nil {
		_ = d.stream.Synchronize() // the first error says what is wrong
		return err
	}
	return nil
}

// compile checks a step and lays it out. Nothing has run when it fails.
func (p *plan) compile(s *device.Step) error {
	for {
		p.room.used, p.scratchUsed, p.cmds, p.compares = 0, 0, p.cmds[:0], p.compares[:0]
		if err := p.describe(s.Batch); err != nil {
			return err
		}
		for i, op := range s.Ops {
			if err := p.lay(op); err != nil {
				return fmt.Errorf("%w (op %d)", err, i)
			}
		}
		if !p.room.full() && p.scratchUsed <= p.scratchSize {
			return nil
		}
		if err := p.grow(); err != nil {
			return err
		}
	}
}

// grow makes room for a step that is larger than any before.
func (p *plan) grow() error {
	if p.room.full() {
		if err := p.room.grow(p.dev); err != nil {
			return err
		}
	}
	if p.scratchUsed > p.scratchSize {
		bigger, err := p.dev.alloc(p.scratchUsed)
		if err != nil {
			return err
		}
		p.dev.release(p.scratch)
		p.scratch, p.scratchSize = bigger, p.scratchUsed
	}
	return nil
}

// describe puts the batch's records into the room, and the marks of the pages that it writes.
func (p *plan) describe(b *device.Batch) error {
	p.batch, p.pool, p.attn = b, nil, attention{}
	if b.Pool != nil {
		pl, ok := b.Pool.(*pool)
		if !ok || pl.dev != p.dev || pl.isFreed() {
			return fmt.Errorf("device/cuda: run: the pool is not one of this device, or was freed")
		}
		p.pool = pl
	}
	seqOf := make([]int32, 0, len(b.Tokens))
	var seqs []seqRec
	var slots []slotRec
	var marks []markRec
	for i := range b.Seqs {
		s := &b.Seqs[i]
		for range s.Rows {
			seqOf = append(seqOf, int32(i))
		}
		rec := seqRec{row: int32(s.Row), rows: int32(s.Rows), from: int32(s.From), slots: int32(len(slots)), scratch: int64(p.scratchUsed)}
		if p.pool != nil {
			rec.a, rec.b, rec.attempt = owner(s.View.Owner())
			size := p.pool.spec.PageSize
			for j := range (s.From + s.Rows + size - 1) / size {
				slot := s.View.Slot(j)
				slots = append(slots, slotRec{gen: uint64(slot.Gen), page: uint32(slot.Page)})
			}
			if s.Grant.Valid() {
				rec.granted = 1
				for j := s.From / size; j <= (s.From+s.Rows-1)/size; j++ {
					marks = append(marks, markRec{seq: int32(i), slot: int32(j)})
				}
			}
		}
		if rec.granted == 0 {
			p.scratchUsed += roundUp(len(s.Scratch), 16)
		}
		seqs = append(seqs, rec)
	}
	p.fault = put(&p.room, []faultRec{{}})
	rec := batchRec{
		tokens: uint64(put(&p.room, b.Tokens)), seqOf: uint64(put(&p.room, seqOf)), seqs: uint64(put(&p.room, seqs)),
		slots: uint64(put(&p.room, slots)), scratch: uint64(p.scratch), fault: uint64(p.fault),
	}
	p.rec = put(&p.room, []batchRec{rec})
	if len(marks) == 0 {
		return nil
	}
	return p.add("tag_pages", (len(marks)+127)/128, 1, 128, p.rec, p.pool.rec, put(&p.room, marks), len(marks))
}

// add appends a launch.
func (p *plan) add(name string, gx, gy, block int, args ...any) error {
	l, err := p.dev.launch(name, gx, gy, block, args...)
	if err == nil {
		p.cmds = append(p.cmds, command{launch: l})
	}
	return err
}

// run queues everything and waits for its end.
func (p *plan) run() error {
	s := p.dev.stream
	if err := p.room.send(s); err != nil {
		return failed("step", err)
	}
	down := downloads{host: p.host, stream: s}
	for i := range p.cmds {
		c := &p.cmds[i]
		var err error
		switch {
		case c.from != nil:
			err = down.rows(c)
		case c.ints != nil:
			err = down.integers(c)
		default:
			err = c.on(s)
		}
		if err != nil {
			return err
		}
	}
	if p.pool != nil {
		for i := range p.batch.Seqs {
			if sq := &p.batch.Seqs[i]; !sq.Grant.Valid() {
				if err := down.bytes(sq.Scratch, p.scratch+cu.DevicePtr(p.scratchOf(i))); err != nil {
					return err
				}
			}
		}
	}
	if err := p.room.fetchFault(p.fault, s); err != nil {
		return failed("step", err)
	}
	if err := down.settle(); err != nil {
		return err
	}
	for _, d := range p.compares {
		noneDiffers(d)
	}
	return p.room.fault(p.fault)
}

// scratchOf is where a sequence's scratch begins.
func (p *plan) scratchOf(seq int) int {
	at := 0
	for i := range seq {
		if s := &p.batch.Seqs[i]; !s.Grant.Valid() {
			at += roundUp(len(s.Scratch), 16)
		}
	}
	return at
}

// downloads brings device memory to the host through a pinned buffer, as much at a time as fits.
type downloads struct {
	host   *pinned
	stream cu.Stream
	used   int
	parts  []arrival
}

// arrival is bytes of the pinned buffer and where they belong.
type arrival struct {
	at int
	to []byte
}

// fetch queues the copy of n bytes and gives their offset in the pinned buffer, settling what is there if there is no room.
func (d *downloads) fetch(from cu.DevicePtr, n int) (int, error) {
	if d.used+n > d.host.size {
		if err := d.settle(); err != nil {
			return 0, err
		}
	}
	at := d.used
	if err := cu.MemcpyDtoHAsync(unsafe.Add(d.host.at, at), from, int64(n), d.stream); err != nil {
		return 0, failed("download", err)
	}
	d.used += roundUp(n, 16)
	return at, nil
}

func (d *downloads) bytes(to []byte, from cu.DevicePtr) error {
	for len(to) > 0 {
		n := min(len(to), d.host.size)
		at, err := d.fetch(from, n)
		if err != nil {
			return err
		}
		d.parts = append(d.parts, arrival{at, to[:n]})
		to, from = to[n:], from+cu.DevicePtr(n)
	}
	return nil
}

// rows fetches the rows of a download; neighbours come in one piece.
func (d *downloads) rows(c *command) error {
	wide := c.from.stride * 4
	for i := 0; i < len(c.rows); {
		n := 1
		for i+n < len(c.rows) && c.rows[i+n] == c.rows[i]+n && (n+1)*wide <= d.host.size {
			n++
		}
		at, err := d.fetch(c.from.row(c.rows[i]), n*wide)
		if err != nil {
			return err
		}
		for j := range n {
			d.parts = append(d.parts, arrival{at + j*wide, raw(c.to[i+j])})
		}
		i += n
	}
	return nil
}

func (d *downloads) integers(c *command) error { return d.bytes(raw(c.ints), c.at) }

// settle waits for what was queued and hands it out.
func (d *downloads) settle() error {
	if err := d.stream.Synchronize(); err != nil {
		return failed("step", err)
	}
	for _, p := range d.parts {
		copy(p.to, d.host.bytes()[p.at:])
	}
	d.used, d.parts = 0, d.parts[:0]
	return nil
}
