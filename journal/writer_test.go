package journal

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"quire/bus"
	"quire/bus/bustest"
)

// faults answers the publishes of a Broker with errors, until it is healed.
type faults struct {
	mu    sync.Mutex
	err   error
	asked int
}

func (f *faults) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *faults) fail(op, what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if op != "enqueue" {
		return nil
	}
	f.asked++
	return f.err
}

// bench is a writer on a bus of its own.
type bench struct {
	t      *testing.T
	broker *bustest.Broker
	faults *faults
	w      *Writer
	mu     sync.Mutex
	heard  []error
}

func newBench(t *testing.T, change func(*Config)) *bench {
	t.Helper()
	b := &bench{t: t, faults: &faults{}}
	b.broker = bustest.New(bustest.Options{Fail: b.faults.fail})
	conn := b.broker.Connect()
	if err := conn.Streams().EnsureShared(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Bus: conn, Peer: peer, Signer: newKeys(), Notify: func(err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.heard = append(b.heard, err)
	}}
	if change != nil {
		change(&cfg)
	}
	b.w = NewWriter(cfg)
	return b
}

func (b *bench) close(want string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := b.w.Close(ctx); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		b.t.Errorf("close: %v, want %q", err, want)
	}
	b.broker.Close()
}

// stored reads what the stream has and checks its chains and signatures.
func (b *bench) stored() (out []Record) {
	b.t.Helper()
	c := Checker{Keys: newKeys()}
	for _, m := range b.broker.Stored(bus.Names{}.JournalStream()) {
		sig, err := hex.DecodeString(strings.Join(m.Header[SignatureHeader], ""))
		if err != nil {
			b.t.Error(err)
		}
		parts := Split(m.Data)
		for i, part := range parts {
			var own []byte
			if i == len(parts)-1 {
				own = sig
			}
			r, err := c.Check(part, own)
			if err != nil {
				b.t.Error(err)
			}
			out = append(out, r)
		}
		kind := out[len(out)-1].Kind
		if len(parts) > 1 && !Signs(kind) {
			kind = KindFacts
		}
		if want := "quire.journal." + string(kind) + ".decode-d1"; m.Subject != want {
			b.t.Errorf("subject %s, want %s", m.Subject, want)
		}
	}
	return out
}

func finished(n int) Record { return Record{Tenant: "acme", Facts: Finished{Output: n}} }

// outputs are the numbers of stored Finished facts, in order.
func outputs(rs []Record) string {
	var s []string
	for _, r := range rs {
		if f, ok := r.Facts.(Finished); ok {
			s = append(s, fmt.Sprint(f.Output))
		}
	}
	return strings.Join(s, " ")
}

// What waits at a time travels as one message, up to the next verdict; a large record travels alone.
func TestRecordsTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.faults.set(bus.ErrTimeout)
		put := func(r Record) {
			if err := b.w.Put(r); err != nil {
				t.Fatal(err)
			}
		}
		put(finished(0))
		synctest.Wait() // it is tried alone
		for i := range 100 {
			put(finished(i + 1))
		}
		put(Record{Facts: Verdict{OK: true}})
		put(Record{Facts: Verdict{Detail: strings.Repeat("x", batchBytes)}})
		put(finished(101))
		put(Record{Facts: Sent{State: strings.Repeat("x", batchBytes)}})
		put(finished(102))
		b.faults.set(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		var sizes []int
		for _, m := range b.broker.Stored(bus.Names{}.JournalStream()) {
			sizes = append(sizes, len(Split(m.Data)))
		}
		if fmt.Sprint(sizes) != "[1 64 37 1 1 1 1]" {
			t.Errorf("records in messages: %v", sizes)
		}
		if got := b.stored(); len(got) != 106 {
			t.Errorf("%d records", len(got))
		}
		b.close("")
	})
}

func TestAppendIsAcknowledgedAfterAllBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		for i := range 5 {
			if err := b.w.Put(finished(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.w.Append(t.Context(), Record{Facts: Verdict{OK: true}}); err != nil {
			t.Fatal(err)
		}
		got := b.stored()
		if len(got) != 6 || got[5].Kind != KindVerdict || outputs(got) != "0 1 2 3 4" {
			t.Errorf("stored %+v", got)
		}
		if s := b.w.Stats(); s.Stored != 6 || s.Pending != 0 || s.Full || s.Retries+s.Refused != 0 {
			t.Errorf("stats %+v", s)
		}
		b.close("")
		if err := b.w.Put(finished(9)); !errors.Is(err, ErrClosed) {
			t.Errorf("put after close: %v", err)
		}
		if err := b.w.Append(t.Context(), finished(9)); !errors.Is(err, ErrClosed) {
			t.Errorf("append after close: %v", err)
		}
	})
}

// While the bus takes no records the buffer fills, says so, and is written out in order when the bus is back.
func TestFullBufferSaysSo(t *testing.T) {
	for _, down := range []error{bus.ErrTimeout, bus.ErrFull, bus.ErrNoStream, bus.ErrNoResponders} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, func(c *Config) { c.Buffer = 3 })
			b.faults.set(down)
			for i := range 3 {
				if err := b.w.Put(finished(i)); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			err := b.w.Put(finished(3))
			if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "3 records wait, last failure: "+down.Error()) {
				t.Errorf("put into a full buffer: %v", err)
			}
			if s := b.w.Stats(); !s.Full || !b.w.Full() || s.Refused != 1 || s.Pending != 3 || !errors.Is(s.Failing, down) {
				t.Errorf("stats %+v", s)
			}
			b.faults.set(nil)
			if err := b.w.Append(t.Context(), Record{Facts: Verdict{}}); err != nil {
				t.Fatal(err)
			}
			if got := b.stored(); outputs(got) != "0 1 2" || len(got) != 4 {
				t.Errorf("stored %s of %d", outputs(got), len(got))
			}
			if b.w.Full() || len(b.heard) != 2 || !errors.Is(b.heard[0], down) || b.heard[1] != nil {
				t.Errorf("full %t, heard %v", b.w.Full(), b.heard)
			}
			b.close("")
		})
	}
}

// A verdict that is not acknowledged in time is an error, and is not written later if it was never tried.
func TestAppendInTimeOrNotAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.faults.set(bus.ErrTimeout)
		if err := b.w.Put(finished(1)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // it is being tried, alone
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := b.w.Append(ctx, Record{Facts: Verdict{OK: true}})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "append verdict of 0000") {
			t.Errorf("append: %v", err)
		}
		b.faults.set(nil)
		if err := b.w.Append(t.Context(), finished(2)); err != nil {
			t.Fatal(err)
		}
		if got := b.stored(); outputs(got) != "1 2" || len(got) != 2 {
			t.Errorf("stored %+v", got)
		}
		if s := b.w.Stats(); s.Refused != 1 || s.Stored != 2 {
			t.Errorf("stats %+v", s)
		}
		b.close("")
	})
}

// lossy stores a message and loses the acknowledgement, the first time of each.
type lossy struct {
	bus.Bus
	seen map[string][]byte
}

func (l *lossy) Enqueue(ctx context.Context, m bus.Enqueue) (uint64, error) {
	n, err := l.Bus.Enqueue(ctx, m)
	if before, again := l.seen[m.ID]; again {
		if string(before) != string(m.Data) {
			return 0, fmt.Errorf("%s has other content", m.ID)
		}
		return n, err
	}
	l.seen[m.ID] = m.Data
	return 0, bus.ErrTimeout
}

func TestLostAcknowledgementStoresOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(c *Config) { c.Bus = &lossy{Bus: c.Bus, seen: map[string][]byte{}} })
		for i := range 3 {
			if err := b.w.Append(t.Context(), finished(i)); err != nil {
				t.Fatal(err)
			}
		}
		if got := b.stored(); outputs(got) != "0 1 2" || len(got) != 3 {
			t.Errorf("stored %+v", got)
		}
		b.close("")
	})
}

// A record that no bus can take is refused alone; the chain goes on without a gap.
func TestTooLargeRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		big := Record{Facts: Reserved{Pages: make([]Slot, MaxRecord/4)}}
		if err := b.w.Put(big); err == nil || !strings.Contains(err.Error(), "limit 8388608") {
			t.Errorf("put: %v", err)
		}
		if err := b.w.Append(t.Context(), Record{}); err == nil || !strings.Contains(err.Error(), "no facts") {
			t.Errorf("append of nothing: %v", err)
		}
		b.faults.set(bus.ErrTooLarge)
		if err := b.w.Append(t.Context(), finished(1)); !errors.Is(err, bus.ErrTooLarge) {
			t.Errorf("append: %v", err)
		}
		b.faults.set(nil)
		if err := b.w.Append(t.Context(), finished(2)); err != nil {
			t.Error(err)
		}
		if got := b.stored(); outputs(got) != "2" || got[0].Counter != 1 {
			t.Errorf("stored %+v", got)
		}
		b.close("")
	})
}

// Close waits for what is buffered, for a while, and says what is lost; nobody is left waiting.
func TestCloseCountsTheLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.faults.set(bus.ErrTimeout)
		if err := b.w.Put(finished(1)); err != nil {
			t.Fatal(err)
		}
		waiting := make(chan error)
		go func() { waiting <- b.w.Append(context.Background(), Record{Facts: Verdict{}}) }()
		synctest.Wait()
		b.close("2 records not stored, last failure: bus: timeout")
		if err := <-waiting; !errors.Is(err, ErrClosed) {
			t.Errorf("append while closing: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.faults.set(bus.ErrTimeout)
		if err := b.w.Put(finished(1)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.AfterFunc(300*time.Millisecond, func() { b.faults.set(nil) })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := b.w.Close(ctx); err != nil {
			t.Error(err)
		}
		if got := b.stored(); outputs(got) != "1" {
			t.Errorf("stored %+v", got)
		}
		b.broker.Close()
	})
}

// A writer signs what it wrote after a while, shows that it lives, and says when it ends.
func TestCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		time.Sleep(time.Hour) // a writer without a record says nothing but that it is there
		synctest.Wait()
		for i := range coverEvery + 2 {
			if err := b.w.Put(finished(i)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if err := b.w.Put(finished(0)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before := len(b.stored())
		time.Sleep(defaultCheckpoint + time.Second)
		synctest.Wait()
		if got := b.stored(); len(got) != before+1 || got[before].Kind != KindCheckpoint || got[before].At == 0 {
			t.Errorf("%d records, then %d", before, len(got))
		}
		time.Sleep(idleCheckpoints * defaultCheckpoint)
		synctest.Wait()
		if err := b.w.Close(t.Context()); err != nil {
			t.Error(err)
		}
		defer b.broker.Close()
		rs := b.stored()
		if rs[len(rs)-1].Kind != KindStopped || rs[len(rs)-2].Kind != KindCheckpoint || rs[len(rs)-3].Kind != KindCheckpoint {
			t.Errorf("ends with %s, %s", rs[len(rs)-2].Kind, rs[len(rs)-1].Kind)
		}
		bare := 0
		for _, m := range b.broker.Stored(bus.Names{}.JournalStream()) {
			if bare += len(Split(m.Data)); len(m.Header[SignatureHeader]) > 0 {
				bare = 0
			}
			if bare > coverEvery+batchRecords {
				t.Fatalf("%d records without a signature", bare)
			}
		}
	})
}

// A writer that is off records nothing, says so to who waits, and ends.
func TestOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(c *Config) { c.Off = true })
		for i := range 3000 {
			if err := b.w.Put(finished(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.w.Append(t.Context(), finished(1)); !errors.Is(err, ErrOff) {
			t.Errorf("append: %v", err)
		}
		if b.w.Full() || b.w.Stats().Pending != 0 {
			t.Errorf("%+v", b.w.Stats())
		}
		b.close("")
		if got := b.stored(); len(got) != 0 {
			t.Errorf("stored %+v", got)
		}
	})
}
