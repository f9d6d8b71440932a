package router

import (
	"sync/atomic"
	"testing"
	"time"

	"quire/bus"
	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// Inside lists what is in flight and the pools of those workers that answer as themselves.
func TestServiceInside(t *testing.T) {
	withRouter(t, func(b *bench) {
		b.decode.mute = true // it runs and says no more
		st, err := b.router.Submit(b.Context(), textRequest("ann", 5))
		if err != nil {
			b.Fatal(err)
		}
		defer st.Close()
		if p, err := st.Next(b.Context()); err != nil || !p.Started {
			b.Fatalf("%+v, %v", p, err)
		}
		answer := kvtransfer.Pages{Worker: b.decode.peer, PageSize: 4, Counts: page.Counts{Total: 64, Free: 63, Owned: 1},
			Owners: []kvtransfer.PageOwner{{Key: kvtransfer.Key{Attempt: 1}, Tenant: "ann", State: page.Owned, Runs: []page.Run{{From: 7, To: 8}}}}}
		forged := kvtransfer.Pages{Worker: kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: "p1", Epoch: 1}}
		var asks atomic.Int64
		for subject, m := range map[string]kvtransfer.Pages{names.Pages("decode", "d1", 1): answer, names.Pages("prefill", "p1", 1): forged} {
			sub, err := b.decode.conn.Subscribe(subject, "", func(q bus.Msg) {
				asks.Add(1)
				b.decode.answer(q, kvtransfer.KindPages, m) // signed by d1, whoever is asked
			})
			if err != nil {
				b.Fatal(err)
			}
			defer sub.Drain()
		}
		time.Sleep(time.Second)
		in := b.router.Inside(b.Context())
		if in.Router != b.router.Peer() || in.InFlight != 1 || len(in.Flights) != 1 {
			b.Fatalf("%+v", in)
		}
		f := in.Flights[0]
		if f.Tenant != "ann" || f.Step != "running" || f.Attempt != 1 || f.Decode != "d1" || f.Prompt != 3 || f.Max != 5 || f.Age < kvtransfer.Second*9/10 {
			b.Errorf("%+v", f)
		}
		if len(in.Pools) != 1 || in.Pools[0].Worker != b.decode.peer || in.Pools[0].Owners[0].Tenant != "ann" {
			b.Errorf("pools %+v", in.Pools)
		}
		if b.router.meter.ignored.Get() != 1 {
			b.Errorf("%d messages ignored, want the forged one", b.router.meter.ignored.Get())
		}
		was := asks.Load()
		if again := b.router.Inside(b.Context()); !again.Time.Equal(in.Time) || asks.Load() != was {
			b.Error("asked again at once")
		}
		time.Sleep(2 * lookAge)
		if again := b.router.Inside(b.Context()); again.Time.Equal(in.Time) || asks.Load() != was+2 {
			b.Errorf("%d asks after a while, %d before", asks.Load(), was)
		}
	})
}

func TestServiceMeasures(t *testing.T) {
	withRouter(t, func(b *bench) {
		st, err := b.router.Submit(b.Context(), textRequest("ann", 5))
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := drainStream(b.T, st); err != nil {
			b.Fatal(err)
		}
		sum := func(b Buckets) (n uint64) {
			for _, c := range b.Counts {
				n += c
			}
			return n
		}
		if l := b.router.Measures(); sum(l.TTFT) != 1 || sum(l.ITL) != 4 || l.PromptTokens != 3 || len(l.ITL.Counts) != len(l.ITL.Bounds)+1 {
			b.Errorf("%+v", l)
		}
	})
}
