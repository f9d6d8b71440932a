package journal

import (
	"context"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"quire/bus"
	"quire/bus/jet"
)

// On a real stream records are stored in order, with their signatures, and nobody may take one away.
func TestRealStream(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	server, err := jet.Serve(jet.ServerOptions{DontListen: true, Data: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	conn, err := jet.Connect(ctx, jet.ConnectOptions{Server: server})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Streams().EnsureShared(ctx); err != nil {
		t.Fatal(err)
	}
	w := NewWriter(Config{Bus: conn, Peer: peer, Signer: newKeys()})
	for i := range 3 {
		if err := w.Put(finished(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Append(ctx, Record{Facts: Verdict{OK: true}}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Streams().DeleteMessage(ctx, bus.Names{}.JournalStream(), 2); err == nil {
		t.Error("a record was deleted")
	}
	got := make(chan bus.Delivery, 16)
	sub, err := conn.Consume(ctx, bus.Consumer{Stream: bus.Names{}.JournalStream(), Name: "reader", Subjects: []string{"quire.journal.>"}}, func(d bus.Delivery) { got <- d })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Drain()
	check := Checker{Keys: newKeys()}
	for n := 1; n <= 4; {
		select {
		case d := <-got:
			sig, _ := hex.DecodeString(strings.Join(d.Header[SignatureHeader], ""))
			parts := Split(d.Data)
			for i, part := range parts {
				var own []byte
				if i == len(parts)-1 {
					own = sig
				}
				r, err := check.Check(part, own)
				if err != nil || r.Counter != uint64(n) {
					t.Errorf("record %d: %+v, sequence %d, %v", n, r, d.Sequence, err)
				}
				n++
			}
			if err := d.Ack(); err != nil {
				t.Error(err)
			}
		case <-ctx.Done():
			t.Fatalf("record %d did not come", n)
		}
	}
	if err := w.Close(ctx); err != nil {
		t.Error(err)
	}
}
