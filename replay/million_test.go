package replay

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"quire/bus"
	"quire/bus/jet"
	"quire/journal"
	"quire/keys"
	"quire/kvtransfer"
)

var (
	manyRecords = flag.Int("records", 20_000, "records of the journal that BenchmarkVerifyStream reads")
	manyDir     = flag.String("journal-dir", "", "keep that journal here and use it again; else it is made anew, and removed")
)

// filler writes requests as a cluster of one router, one prefill and two decodes does, through their journals' writers.
type filler struct {
	tb      testing.TB
	writers map[kvtransfer.Peer]*journal.Writer
	gen     map[kvtransfer.Peer]map[uint64]uint64
	free    map[kvtransfer.Peer][]uint64
}

var (
	fillDecodes = []kvtransfer.Peer{{Role: kvtransfer.RoleDecode, ID: "d1", Epoch: 1}, {Role: kvtransfer.RoleDecode, ID: "d2", Epoch: 1}}
	fillRouter  = kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: "r1", Epoch: 1}
	fillPrefill = kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: "p1", Epoch: 1}
)

const fillPages, fillPageSize = 4096, 16

func newFiller(tb testing.TB, conn bus.Bus, ring *keys.Ring) *filler {
	f := &filler{tb: tb, writers: map[kvtransfer.Peer]*journal.Writer{}, gen: map[kvtransfer.Peer]map[uint64]uint64{}, free: map[kvtransfer.Peer][]uint64{}}
	for _, p := range append([]kvtransfer.Peer{fillRouter, fillPrefill}, fillDecodes...) {
		signer, err := ring.Signer(p.Role)
		if err != nil {
			tb.Fatal(err)
		}
		f.writers[p] = journal.NewWriter(journal.Config{Bus: conn, Peer: p, Signer: signer})
		f.put(p, journal.Record{Facts: journal.Started{Version: "0.1.0", Pages: fillPages, PageSize: fillPageSize, Layers: 4}})
		f.gen[p] = map[uint64]uint64{}
		for i := range uint64(fillPages) {
			f.free[p] = append(f.free[p], i)
		}
	}
	return f
}

// put hands a record over; where the buffer is full it waits for it, by an Append.
func (f *filler) put(p kvtransfer.Peer, r journal.Record) {
	r.At = 1
	if f.writers[p].Full() {
		if err := f.writers[p].Append(context.Background(), r); err != nil {
			f.tb.Error(err)
		}
		return
	}
	if err := f.writers[p].Put(r); err != nil {
		f.tb.Error(err)
	}
}

// request writes one request: 9 records.
func (f *filler) request(n int) {
	d := fillDecodes[n%len(fillDecodes)]
	var k kvtransfer.Key
	copy(k.ID[:], fmt.Sprintf("%016d", n))
	k.Attempt = 1
	rec := func(p kvtransfer.Peer, facts journal.Facts) {
		f.put(p, journal.Record{Key: k, Tenant: fmt.Sprintf("tenant-%d", n%7), Facts: facts})
	}
	rows, out := 40+n%600, 16+n%100
	var pages journal.Pages
	for range kvtransfer.PagesFor(rows+out, fillPageSize) {
		id := f.free[d][0]
		f.free[d] = f.free[d][1:]
		f.gen[d][id]++
		pages = append(pages, journal.Slot{id, f.gen[d][id]})
	}
	claim, hash, written := journal.ID{1, byte(n)}, journal.Hash{2, byte(n)}, journal.Spans{{0, rows}}
	rec(d, journal.Reserved{Reservation: hash, Router: fillRouter.String(), N: rows, MaxTokens: out, Digest: hash, PageSize: fillPageSize, Pages: pages, LeaseMicros: 1e7})
	rec(fillRouter, journal.Job{Decode: d.String(), Prompt: rows, MaxTokens: out, Limit: 8192, LimitBy: "model context", Target: "any", Sequence: uint64(n + 1), QueuedMicros: 12})
	rec(d, journal.Claimed{Claim: claim, Prefill: fillPrefill.String()})
	rec(d, journal.Verdict{Path: "received", OK: true, Reservation: hash, Claim: claim, N: rows, Sent: rows, Frames: 3, Digest: hash, Pages: pages, Written: written, ManifestMicros: 2, FirstMicros: 1})
	rec(fillPrefill, journal.Sent{State: "done", Claim: claim, N: rows, Rows: rows, Frames: 3, Pages: pages, TookMicros: 9000, ComputeMicros: 8000})
	rec(d, journal.Witness{Result: "agreed", Read: rows, Written: written, OwnedMicros: 3, FirstToken: true})
	rec(d, journal.Finished{Finish: "length", Witness: "agreed", Prompt: rows, Output: out, Replies: uint32(out + 2), Pages: len(pages), Read: rows + out - 1, Rows: rows + out - 1, Written: written})
	var spans journal.Spans
	for _, s := range pages {
		spans = spans.Add(int(s[0]), int(s[0])+1)
		f.free[d] = append(f.free[d], s[0])
	}
	f.put(d, journal.Record{Facts: journal.Zeroed{Pages: spans, ReleasedMicros: 5}})
	rec(fillRouter, journal.Finished{Finish: "length", Prompt: rows, Output: out, Seed: uint64(n), Attempts: 1, Decode: d.String(), TookMicros: 30000})
}

// filled is a stream of at least so many records, its state and the keys.
func filled(tb testing.TB, records int) (*jet.Conn, *keys.Ring) {
	tb.Helper()
	dir := *manyDir
	if dir == "" {
		dir = tb.TempDir()
	}
	dir = filepath.Join(dir, fmt.Sprint(records))
	_, err := os.Stat(filepath.Join(dir, "done"))
	there := err == nil
	ring, err := keys.Ensure(filepath.Join(dir, "keys"))
	if err != nil {
		tb.Fatal(err)
	}
	server, err := jet.Serve(jet.ServerOptions{DontListen: true, Data: dir})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(server.Stop)
	conn, err := jet.Connect(tb.Context(), jet.ConnectOptions{Server: server, JournalBytes: 8 << 30})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	if there {
		return conn, ring
	}
	if err := conn.Streams().EnsureShared(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	f := newFiller(tb, conn, ring)
	began := time.Now()
	for n := range (records + 8) / 9 {
		f.request(n)
	}
	for _, w := range f.writers {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		if err := w.Close(ctx); err != nil {
			tb.Fatal(err)
		}
		cancel()
	}
	tb.Logf("written in %s", time.Since(began))
	if err := os.WriteFile(filepath.Join(dir, "done"), nil, 0o600); err != nil {
		tb.Fatal(err)
	}
	return conn, ring
}

// BenchmarkVerifyStream is audit verify over a journal that the services' writers wrote into a stream on disk:
//
//	go test ./replay -run '^$' -bench VerifyStream -benchtime 1x -records 1000000 -journal-dir /tmp/journal
func BenchmarkVerifyStream(b *testing.B) {
	conn, ring := filled(b, *manyRecords)
	records := 0
	cpu := cpuSeconds()
	b.ResetTimer()
	for b.Loop() {
		v, err := Audit(b.Context(), Stream{Reader: conn, Name: bus.Names{}.JournalStream()}, ring)
		if err != nil {
			b.Fatal(err)
		}
		if v.Broken > 0 || v.Missing > 0 || v.Records < *manyRecords {
			b.Fatalf("%d records, %d broken, %d missing: %s", v.Records, v.Broken, v.Missing, v.Findings[0])
		}
		records += v.Records
	}
	b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(records)/(cpuSeconds()-cpu), "records/CPU-s")
	b.ReportMetric(peak()/(1<<20), "peak-MiB")
}

// cpuSeconds is the processor time of this process so far, by its own account; 0 where the system does not say.
func cpuSeconds() float64 {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	return (user + system) / 100 // ticks of USER_HZ
}

// peak is the most memory that this process had, in bytes; 0 where the system does not say.
func peak() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kib float64
	_, _ = fmt.Sscanf(rest, "%f", &kib)
	return kib * 1024
}
