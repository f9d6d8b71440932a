package decode

import (
	"testing"

	"quire/kvtransfer"
	"quire/model/modeltest"
)

// TestSameAttemptAnotherRequest: an attempt that is known is promised again to the router that asked, for the very request, and to
// nobody else.
func TestSameAttemptAnotherRequest(t *testing.T) {
	for what, c := range map[string]struct {
		from  kvtransfer.Peer
		spoil func(*kvtransfer.Reserve)
		same  bool
	}{
		"the same":       {router, func(*kvtransfer.Reserve) {}, true},
		"another router": {kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: "r2", Epoch: 3}, func(m *kvtransfer.Reserve) { m.Router.ID = "r2" }, false},
		"a token less":   {router, func(m *kvtransfer.Reserve) { m.Tokens = m.Tokens[:5] }, false},
		"max_tokens":     {router, func(m *kvtransfer.Reserve) { m.MaxTokens++ }, false},
		"digest":         {router, func(m *kvtransfer.Reserve) { m.Digest[0]++ }, false},
	} {
		w := newWorld(t, nil)
		w.reserve(key(1), prompt(6, 1), 2)
		m := w.reserveMessage(key(1), "acme", prompt(6, 1), 2)
		c.spoil(&m)
		w.send(ReserveAsked{ID: 77, From: c.from, M: m})
		if err, refused := w.refusals[key(1)]; refused == c.same || refused && err.Code != kvtransfer.InvalidRequest {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestWhatAReserveReplaces: earlier attempts of its own hand-off and router, and no others.
func TestWhatAReserveReplaces(t *testing.T) {
	attempt := func(n int, a uint32) kvtransfer.Key { return kvtransfer.Key{ID: key(n).ID, Attempt: a} }
	other := kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: "r2", Epoch: 3}
	for what, c := range map[string]struct {
		there kvtransfer.Key
		from  kvtransfer.Peer
		ends  bool
	}{
		"an earlier attempt":                 {attempt(1, 1), router, true},
		"an earlier one of another router":   {attempt(1, 1), other, false},
		"a later attempt":                    {attempt(1, 3), router, false},
		"another hand-off's earlier attempt": {attempt(2, 1), router, false},
	} {
		w := newWorld(t, nil)
		m := w.reserveMessage(c.there, "acme", prompt(6, 1), 2)
		m.Router = c.from
		w.jobs[c.there] = &job{tokens: m.Tokens, from: worker}
		w.send(ReserveAsked{ID: 1, From: c.from, M: m})
		w.reserve(attempt(1, 2), prompt(6, 1), 2)
		if s, _ := w.l.State(c.there); s.Over() != c.ends {
			t.Errorf("%s is %s", what, s)
		}
	}
}

// TestLaterEpochsOfOthers: a later life of a router ends what its own earlier life asked for, and nothing else.
func TestLaterEpochsOfOthers(t *testing.T) {
	for what, c := range map[string]struct {
		peer kvtransfer.Peer
		ends bool
	}{
		"its own later life":     {kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: "r1", Epoch: 4}, true},
		"its own life":           {router, false},
		"its own earlier life":   {kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: "r1", Epoch: 2}, false},
		"another router":         {kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: "r2", Epoch: 9}, false},
		"a decode of that name":  {kvtransfer.Peer{Role: kvtransfer.RoleDecode, ID: "r1", Epoch: 9}, false},
		"a prefill of that name": {kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: "r1", Epoch: 9}, false},
	} {
		w := newWorld(t, nil)
		w.reserve(key(1), prompt(6, 1), 2)
		w.send(RouterAlive{Peer: c.peer})
		if _, there := w.l.State(key(1)); there == c.ends {
			t.Errorf("%s: in the table %t", what, there)
		}
	}
}

// TestResendsAreSignsOfLife: a router that asks for replies lives, though no heartbeat of it comes; one that is silent is given up.
func TestResendsAreSignsOfLife(t *testing.T) {
	for _, asks := range []bool{true, false} {
		w := newWorld(t, func(c *LoopConfig, _ *modeltest.Options) {
			c.Lease, c.RouterSilence = 100*kvtransfer.Second, 10*kvtransfer.Second
		})
		w.reserve(key(1), prompt(6, 1), 2)
		for range 5 {
			w.now += 4 * kvtransfer.Second
			w.send(Tick{Now: w.now})
			if asks {
				w.asked++
				w.send(ResendAsked{ID: w.asked, From: router, M: kvtransfer.Resend{Key: key(1)}})
			}
		}
		if _, there := w.l.State(key(1)); there != asks {
			t.Errorf("asks %t: in the table %t", asks, there)
		}
	}
}

// TestNothingIsKeptOfTheForgotten: once the router has acknowledged, the table keeps nothing of an attempt.
func TestNothingIsKeptOfTheForgotten(t *testing.T) {
	w := newWorld(t, nil)
	for n := 1; n <= 3; n++ {
		w.handoff(key(n), prompt(6, n), 2)
		w.ack(key(n))
	}
	if n, of := len(w.l.table.byID), len(w.l.table.of); len(w.l.handoffs) != 0 || n != 0 || of != 0 {
		t.Errorf("%d attempts, %d ids, %d routers", len(w.l.handoffs), n, of)
	}
}
