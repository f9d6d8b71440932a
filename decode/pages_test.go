package decode

import (
	"testing"
	"testing/synctest"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
	"quire/kvtransfer/wire"
)

// pages asks decode who has what.
func (x *site) pages() kvtransfer.Pages {
	x.t.Helper()
	m := kvtransfer.PagesAsk{Worker: x.s.Peer()}
	e, err := x.request(x.names.Pages("decode", "d1", x.s.Peer().Epoch), x.signed(router, kvtransfer.KindPagesAsk, &m))
	if err != nil || e.Kind != kvtransfer.KindPages || e.From != x.s.Peer() {
		x.t.Fatalf("pages: kind %d from %s, %v", e.Kind, e.From, err)
	}
	p, err := wire.Decode[kvtransfer.Pages](e.Body)
	if err != nil {
		x.t.Fatal(err)
	}
	return p
}

// Whoever looks sees each step of a hand-off, on the pages that it has.
func TestServiceTellsItsPages(t *testing.T) {
	inSite(t, nil, func(x *site) {
		if p := x.pages(); len(p.Owners) != 0 || p.Counts.Free != 8 || p.PageSize != 4 || p.Worker != x.s.Peer() {
			t.Errorf("at the start: %+v", p)
		}
		j := x.reserve(key(1), prompt(6, 1), 3)
		one := func(state page.State, step string, rows int) {
			t.Helper()
			p := x.pages()
			if len(p.Owners) != 1 {
				t.Fatalf("owners %+v", p.Owners)
			}
			o := p.Owners[0]
			if o.Key != j.res.Key || o.Tenant != "acme" || o.State != state || o.Step != step || o.Rows != rows || o.Prompt != 6 ||
				len(o.Runs) != 1 || o.Runs[0].To-o.Runs[0].From != 3 || p.Counts.Free != 5 {
				t.Errorf("%+v, counts %+v; want %d %s, rows %d", o, p.Counts, state, step, rows)
			}
		}
		one(page.Reserved, "reserved", 0)
		x.claim(j)
		one(page.Filling, "filling", 0)
		x.kv(j, wire.EncodeFrame(j.frames[0]))
		synctest.Wait()
		if p := x.pages(); len(p.Owners) != 1 || p.Owners[0].Rows < 1 || p.Owners[0].Rows >= 6 {
			t.Errorf("after a frame: %+v", p.Owners)
		}
		x.transfer(j)
		x.answer(j)
		x.resend(j, 5, true)
		synctest.Wait()
		if p := x.pages(); len(p.Owners) != 0 || p.Counts.Free != 8 {
			t.Errorf("at the end: %+v", p)
		}
	})
}

// Nobody without a router's key is told.
func TestServiceTellsRoutersAlone(t *testing.T) {
	inSite(t, nil, func(x *site) {
		subject := x.names.Pages("decode", "d1", x.s.Peer().Epoch)
		right, other := kvtransfer.PagesAsk{Worker: x.s.Peer()}, kvtransfer.PagesAsk{Worker: worker}
		for what, data := range map[string][]byte{
			"nothing":         nil,
			"a prefill's ask": x.signed(worker, kvtransfer.KindPagesAsk, &right),
			"another kind":    x.signed(router, kvtransfer.KindCancel, &kvtransfer.Cancel{}),
			"for another":     x.signed(router, kvtransfer.KindPagesAsk, &other),
		} {
			if e, err := x.request(subject, data); err == nil {
				t.Errorf("%s: answered with kind %d", what, e.Kind)
			}
		}
	})
}
