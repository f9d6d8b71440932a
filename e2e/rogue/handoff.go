package rogue

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"quire/bus"
	"quire/keys"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
)

// handoff is one attempt on its way to decode.
type handoff struct {
	w     *Worker
	j     job
	plan  Plan
	claim kvtransfer.ClaimID
	key   [32]byte // of the frames
	tags  [][16]byte
	sent  int // rows
}

// serve claims a job and sends what the plan says.
func (w *Worker) serve(j job) error {
	h := handoff{w: w, j: j, claim: kvtransfer.ClaimID(keys.Entropy(16))}
	if w.cfg.Plan != nil {
		h.plan = w.cfg.Plan(Prompt{j.Reservation.Tenant, j.Tokens})
	}
	if err := h.bind(); err != nil {
		return err
	}
	tokens := h.plan.Tokens
	if tokens == nil {
		tokens = j.Tokens
	}
	if h.plan.Rows > 0 {
		tokens = tokens[:h.plan.Rows]
	}
	rows, err := w.cfg.Compute(tokens)
	if err != nil {
		return err
	}
	if err := h.frames(rows, len(tokens)); err != nil {
		return err
	}
	return h.manifest()
}

// bind claims the attempt and waits until decode says that it is ours.
func (h *handoff) bind() error {
	r, priv := h.j.Reservation, [32]byte(keys.Entropy(32))
	var err error
	if h.key, err = seal.FrameKey(priv, r.DecodeKey, h.j.Hash, h.claim); err != nil {
		return err
	}
	claimed := h.w.answer(r.Key, false)
	body, err := wire.Encode(&kvtransfer.Claim{Key: r.Key, Claim: h.claim, ClaimKey: seal.PublicKey(priv), Reservation: h.j.Hash})
	if err != nil {
		return err
	}
	n, to := h.w.cfg.Names, r.Decode
	if err := h.store(bus.Enqueue{Subject: n.Control(string(to.Role), to.ID, to.Epoch, r.Key.String()), Expect: n.ControlStream(),
		Data: seal.Sign(h.w.signer, h.w.peer, kvtransfer.KindClaim, body)}); err != nil {
		return err
	}
	if err := h.j.ack(); err != nil {
		return err
	}
	select {
	case <-claimed:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("rogue: %s: not Claimed in %s", r.Key, patience)
	case <-h.w.ctx.Done():
		return h.w.ctx.Err()
	}
}

// frames seals and stores the first n rows, cut as an honest worker cuts them.
func (h *handoff) frames(rows Rows, n int) error {
	i := h.w.cfg.Info
	shape := kvtransfer.CutShape{Layers: i.Layers, RowBytes: i.BytesPerRow / i.Layers, Dim: i.Dim}
	cut, err := kvtransfer.NewCut(0, n, shape, kvtransfer.CutBytes(h.w.cfg.Bus.Limits().MaxPayload))
	if err != nil {
		return err
	}
	for f := range cut.Frames() {
		head := cut.Header(f)
		head.Key, head.Claim = h.j.Reservation.Key, h.claim
		plain, err := rows.Bytes(head.LayerFrom, head.LayerTo, head.RowFrom, head.RowTo)
		if err != nil {
			return err
		}
		if h.plan.Frame != nil {
			h.plan.Frame(head, plain)
		}
		if head.Hidden > 0 {
			for _, x := range rows.Hidden {
				plain = binary.LittleEndian.AppendUint32(plain, math.Float32bits(x))
			}
		}
		sealed := seal.SealFrame(h.key, h.j.Hash, head, plain)
		h.tags = append(h.tags, seal.Tag(sealed))
		if err := h.toKV(wire.EncodeFrame(kvtransfer.Frame{Header: head, Sealed: sealed}), fmt.Sprintf("%s/%s/%d", head.Key, h.claim, f)); err != nil {
			return err
		}
	}
	h.sent = n
	return nil
}

// manifest states what was sent, or what the plan makes of it.
func (h *handoff) manifest() error {
	r := h.j.Reservation
	m := kvtransfer.Manifest{Key: r.Key, Claim: h.claim, Reservation: h.j.Hash, Tenant: r.Tenant, N: h.sent, C: r.C, Sent: h.sent,
		Pages: kvtransfer.PagesFor(h.sent, r.PageSize), Frames: len(h.tags), Digest: seal.Digest(h.tags)}
	if h.plan.Manifest != nil {
		h.plan.Manifest(&m)
	}
	body, err := wire.Encode(&m)
	if err != nil {
		return err
	}
	return h.toKV(seal.Sign(h.w.signer, h.w.peer, kvtransfer.KindManifest, body), fmt.Sprintf("%s/%s/manifest", r.Key, h.claim))
}

func (h *handoff) toKV(data []byte, id string) error {
	r, n := h.j.Reservation, h.w.cfg.Names
	return h.store(bus.Enqueue{Subject: n.KV(r.Decode.ID, r.Decode.Epoch, r.Key.String()), ID: id, Data: data,
		Expect: n.KVStream(r.Decode.ID, r.Decode.Epoch)})
}

// store puts a message into its stream; a full one is asked again for a while.
func (h *handoff) store(m bus.Enqueue) error {
	ctx, cancel := context.WithTimeout(h.w.ctx, patience)
	defer cancel()
	for {
		_, err := h.w.cfg.Bus.Enqueue(ctx, m)
		if !errors.Is(err, bus.ErrFull) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}
