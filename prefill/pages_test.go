package prefill

import (
	"context"
	"testing"
	"time"

	"quire/bus/bustest"
	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
	"quire/model/modeltest"
)

// Whoever looks sees a hand-off on the pages that it has while it waits for decode's word, and only a router is told.
func TestServiceTellsItsPages(t *testing.T) {
	start(t, bustest.Options{}, modeltest.Options{}, func(r *rig) {
		r.silent = true
		j := r.job(1, 40, nil)
		peer := r.svc.Peer()
		ask := func(from kvtransfer.Peer) (kvtransfer.Pages, error) {
			ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
			defer cancel()
			m, err := r.conn.Request(ctx, r.names.Pages("prefill", peer.ID, peer.Epoch),
				r.sign(from.Role, from, kvtransfer.KindPagesAsk, &kvtransfer.PagesAsk{Worker: peer}))
			if err != nil {
				return kvtransfer.Pages{}, err
			}
			e, err := seal.OpenEnvelope(r.ring, m.Data)
			r.must(err)
			p, err := wire.Decode[kvtransfer.Pages](e.Body)
			r.must(err)
			return p, nil
		}
		var last kvtransfer.Pages
		r.until("pages of the hand-off", func() bool {
			p, err := ask(j.Reservation.Router)
			r.must(err)
			last = p
			return len(p.Owners) == 1 && p.Owners[0].Rows == 40
		})
		o := last.Owners[0]
		if o.Key != j.Reservation.Key || o.Tenant != "acme" || o.State != page.Owned || o.Step != "claiming" || o.Prompt != 40 ||
			last.Worker != peer || last.Counts.Owned != 3 {
			t.Errorf("%+v, counts %+v", o, last.Counts)
		}
		if _, err := ask(testDecode); err == nil {
			t.Error("a decode was told")
		}
	})
}
