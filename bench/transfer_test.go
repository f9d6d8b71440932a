package bench_test

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"quire/bench"
)

func TestTransfer(t *testing.T) {
	defer goleak.VerifyNone(t)
	for way := range 3 {
		o := bench.TransferOptions{TCP: way == 1, Embed: way == 2, Dir: t.TempDir(), Frame: 3000, Frames: 90, Senders: 4, Repeat: 2}
		r, err := bench.RunTransfer(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range r.Ways {
			if w.GBps.N != 2 || w.GBps.Min <= 0 || w.Ratio.Min <= 0 || i == 0 && w.Ratio.Median != 1 {
				t.Errorf("%s: %+v", w.Name, w)
			}
		}
		var table strings.Builder
		if err := r.Print(&table); err != nil || len(r.Ways) != 3 || !strings.Contains(table.String(), "raw loopback TCP") {
			t.Errorf("table: %v\n%s", err, table.String())
		}
	}
}

func TestTransferEnds(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := bench.RunTransfer(ctx, bench.TransferOptions{Dir: t.TempDir(), Frame: 10, Frames: 1, Senders: 1, Repeat: 1}); err == nil {
		t.Error("a cancelled run gave a report")
	}
}
