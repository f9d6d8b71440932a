package matrix

import (
	"context"
	"testing"

	"quire/bus"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
)

// insider has every key of the cluster: it reserves as a router and claims as a prefill, and then seals what it likes.
type insider struct {
	f       *forger
	router  kvtransfer.Peer
	prefill kvtransfer.Peer
	claimed chan kvtransfer.Claimed
	tokens  []int32
}

func newInsider(t *testing.T, w *world) *insider {
	in := &insider{
		f: &forger{t: t, w: w, front: w.front.Bus}, router: kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: "r9", Epoch: 1},
		prefill: kvtransfer.Peer{Role: kvtransfer.RolePrefill, ID: "p9", Epoch: 1}, claimed: make(chan kvtransfer.Claimed, 16), tokens: promptOf("acme"),
	}
	n := w.net.names
	_, err := w.front.Bus.Consume(t.Context(), bus.Consumer{Stream: n.ControlStream(), Name: "p9", Subjects: []string{n.AllControl("prefill", "p9", 1)}}, func(d bus.Delivery) {
		if e, err := wire.Open(d.Data); err == nil && e.Kind == kvtransfer.KindClaimed {
			if m, err := wire.Decode[kvtransfer.Claimed](e.Body); err == nil {
				in.claimed <- m
			}
		}
		_ = d.Ack()
	})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// take reserves and claims, and gives what frames are sealed with.
func (in *insider) take(ctx context.Context, id byte) (res kvtransfer.Reservation, hash, key [32]byte, claim kvtransfer.ClaimID) {
	t, w := in.f.t, in.f.w
	t.Helper()
	d, n := w.decode.Peer(), w.net.names
	ask := kvtransfer.Reserve{
		Key: kvtransfer.Key{ID: kvtransfer.HandoffID{id, 0xee}, Attempt: 1}, Tenant: "acme", Tokens: in.tokens, Prompt: len(in.tokens), MaxTokens: maxTokens,
		Digest: seal.PromptDigest(w.ring.PromptKey(), "acme", in.tokens), Router: in.router, RouterKey: seal.PublicKey([32]byte{1, id}),
		DeadlineLeft: 60 * kvtransfer.Second, Fingerprints: w.d.engine.Info().Fingerprints, Sampling: kvtransfer.Sampling{Logprobs: -1},
	}
	var e wire.Envelope
	err := w.until("a reservation", func() bool { // the last one's pages are being zeroed
		m, err := in.f.front.Request(ctx, n.Reserve(d.ID, d.Epoch), in.f.signed(in.router, kvtransfer.KindReserve, ask))
		if err == nil {
			e, err = wire.Open(m.Data)
		}
		return err == nil && e.Kind == kvtransfer.KindReservation
	})
	if err == nil {
		res, err = wire.Decode[kvtransfer.Reservation](e.Body)
	}
	if err != nil {
		t.Fatal(err)
	}
	hash, claim = seal.HashReservation(e.Body), kvtransfer.ClaimID{id}
	private := [32]byte{2, id}
	if key, err = seal.FrameKey(private, res.DecodeKey, hash, claim); err != nil {
		t.Fatal(err)
	}
	err = enqueue(ctx, in.f.front, n.Control("decode", d.ID, d.Epoch, res.Key.String()), in.f.signed(in.prefill, kvtransfer.KindClaim,
		kvtransfer.Claim{Key: res.Key, Claim: claim, ClaimKey: seal.PublicKey(private), Reservation: hash}))
	if err != nil {
		t.Fatal(err)
	}
	<-in.claimed
	return res, hash, key, claim
}

// TestStaleReferences is the table by which another engine answered 200 with garbage, or with the previous prompt's answer: an unknown
// reference, pages out of range, a reference that was consumed, one that is stale after reuse, a lease that has expired. Each is
// refused and counted here, and the next answer is the one of a run alone.
func TestStaleReferences(t *testing.T) {
	t.Parallel()
	t.Run("out of range", func(t *testing.T) {
		t.Parallel()
		w := alone(t)
		in := newInsider(t, w)
		info := w.d.engine.Info()
		shape := kvtransfer.CutShape{Layers: info.Layers, RowBytes: info.BytesPerRow / info.Layers, Dim: info.Dim}
		id := byte(0)
		for what, spoil := range map[string]func(*kvtransfer.FrameHeader){
			"rows of the next request's pages": func(h *kvtransfer.FrameHeader) { h.RowFrom, h.RowTo = promptLen, promptLen+maxTokens },
			"rows beyond the pool":             func(h *kvtransfer.FrameHeader) { h.RowFrom, h.RowTo = 1<<20, 1<<20+1 },
			"layers beyond the model":          func(h *kvtransfer.FrameHeader) { h.LayerFrom, h.LayerTo = 2, 3 },
			"an index that no frame can have":  func(h *kvtransfer.FrameHeader) { h.Index = 1 << 20 },
			"a hidden vector of another size":  func(h *kvtransfer.FrameHeader) { h.Hidden = 3 },
		} {
			id++
			res, hash, key, claim := in.take(t.Context(), id)
			h := kvtransfer.FrameHeader{Key: res.Key, Claim: claim, LayerTo: 1, RowTo: 1}
			spoil(&h)
			frame := kvtransfer.Frame{Header: h, Sealed: seal.SealFrame(key, hash, h, make([]byte, shape.FrameBytes(h)))}
			if err := enqueue(t.Context(), in.f.front, w.net.names.KV("d1", res.Decode.Epoch, res.Key.String()), wire.EncodeFrame(frame)); err != nil {
				t.Fatal(err)
			}
			err := w.until("a refusal", func() bool { return w.decode.Stats().Counters.GateRefused == uint64(id) })
			if c := w.decode.Stats().Counters; err != nil || c.FramesCopied > 0 || c.Admitted > 0 {
				t.Fatalf("%s: %v, %+v", what, err, c)
			}
		}
		b, err := w.ask("bank")
		if err == nil {
			err = w.answered(b)
		}
		if err == nil {
			err = w.clean()
		}
		if err != nil {
			t.Error(err)
		}
	})
	for what, c := range map[string]cell{
		"unknown reference":    {frame, decodeCrash}, // the next life of decode never made that promise
		"consumed reference":   {job, duplicate},
		"stale after reuse":    {frame, cancel},
		"expired lease":        {manifest, leaseOut},
		"an earlier attempt's": {claim, partition},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if err := c.play(alone(t), nil); err != nil {
				t.Error(err)
			}
		})
	}
}
